"""What is shown of the committed results of Imamura and Sumita (2020): all of the paper's values beside ours, and what is said."""

from prose import conclusion, does_not_add_up

from fastdecode_lib.papers.catalogue import experiments
from fastdecode_lib.papers.double_token_decoding import printed
from fastdecode_lib.papers.double_token_decoding.experiments import SETS, SYSTEMS_NOTE
from fastdecode_lib.papers.outcomes import committed

FOUND, DIFFERS = (conclusion("double_token_decoding", label) for label in ("Found here", "Where it differs"))


def test_every_system_of_the_paper_is_shown_on_every_set() -> None:
    experiment = experiments()["double_token_decoding.table2"]
    assert experiment.arrange
    rows = experiment.arrange(committed(experiment.name)).set_index(["set", "system"])
    for name, cells in printed.TABLE_2.items():
        for column, ((bleu, speed), label) in enumerate(zip(cells, SETS.values(), strict=True)):
            for place in [f"paper: {label}"] if column else ["single", "joined"]:
                row = rows.loc[place, name]
                assert row.paper_bleu == f"{bleu:.2f} {printed.MARKS[name][column]}".strip()
                assert row.paper_ratio == printed.printed_ratio(name, column)
            assert name != "single_token_l2r" or f"{speed:,} ({label})" in " ".join(SYSTEMS_NOTE.split())


def test_what_the_conclusion_says_of_batches_and_rivals() -> None:
    systems = committed("double_token_decoding.table2").set_index(["system", "set"])
    ratio = systems.token_ratio_batch_32.astype(float).round(2)
    low, high = (systems[f"token_ratio_batch_32_{end}"].astype(float).round(2) for end in ("low", "high"))
    both, single, joined = "bidirectional", ("bidirectional", "single"), ("bidirectional", "joined")
    assert f"{ratio[single]:.2f} in the paper's batches of 32 ({low[single]} to {high[single]:.2f};" in FOUND
    assert (
        f"joined sentences {ratio[joined]}, where right to left alone has {ratio['single_token_r2l', 'joined']})"
        in FOUND
    )
    losses = [systems.bleu[both, place] - systems.bleu["shallow_l2r", place] for place in ("single", "joined")]
    assert f"{min(losses):.1f} to {max(losses):.1f} BLEU less" in DIFFERS
    printed_ratios = [printed.printed_ratio("mask_predict_4", column) for column in range(4)]
    four = systems.token_ratio["mask_predict_4", "single"]
    told = f"{four:.2f} times as fast as single-token L2R (the paper: {min(printed_ratios):.2f} to {max(printed_ratios):.2f})"
    assert told in DIFFERS
    assert "2,800, Mask-Predict 3,000" in " ".join(SYSTEMS_NOTE.split()) and set(systems.updates) == {2_800, 3_000}


def test_what_the_conclusion_says_of_the_right_end() -> None:
    ends = committed("double_token_decoding.table3").query("end == 'right' and words == 5 and n == 1")
    assert len(ends) == 2 and set(ends.difference.round(1)) == {-0.9}
    assert (ends.difference_low < 0).all() and (ends.difference_high > 0).all()
    paper = (ends.paper_difference_wmt.iloc[0], ends.paper_difference_aspec.iloc[0])
    assert "(0.9 points less, within chance; the paper: {:.1f} to {:.1f} more)".format(*paper) in DIFFERS


def test_what_is_said_not_to_add_up_follows_from_the_printed_numbers() -> None:
    said = does_not_add_up("double_token_decoding")
    wmt, aspec = ({pieces: row[column][1:] for pieces, row in printed.TABLE_4.items()} for column in (0, 1))
    ratio = {pieces: double / single for pieces, (single, double) in aspec.items()}
    assert f"from {ratio[16_000]:.2f} at 16,000 pieces to {ratio[32_000]:.2f} at 32,000" in said
    assert f"{ratio[4_000]:.2f} and {ratio[8_000]:.2f}" in said
    slow = [aspec[pieces][0] for pieces in (4_000, 8_000, 16_000)]
    assert "{:,} and {:,} tokens a second, with 16,000 pieces {:,}".format(*slow) in said
    even = [wmt[pieces][0] for pieces in (4_000, 8_000, 16_000)]
    assert f"{min(even):,} to {max(even):,} at all three" in said

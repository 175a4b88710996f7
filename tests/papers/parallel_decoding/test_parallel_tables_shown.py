"""What is shown of the committed results of Santilli et al. (2023): all of the paper's values beside ours, and what is said."""

import pandas as pd
import pytest
from prose import conclusion, does_not_add_up

from fastdecode_lib.papers.catalogue import experiments
from fastdecode_lib.papers.outcomes import committed
from fastdecode_lib.papers.parallel_decoding import printed
from fastdecode_lib.papers.parallel_decoding.printed import BEAM, GREEDY, HGJ3, PGJ3, PJ


def shown(name: str) -> pd.DataFrame:
    """The rows that the page shows."""
    experiment = experiments()[f"parallel_decoding.{name}"]
    assert experiment.arrange
    return experiment.arrange(committed(experiment.name))


def values(cells: printed.Cells, column: str, *names: str) -> list[float]:
    """The legible values of some decoders in a printed table."""
    return [value for (name, _), row in cells.items() if name in names and (value := row[column]) is not None]


def test_means_of_the_paper_are_of_all_its_directions() -> None:
    for table, cells in (("table1", printed.TABLE_1), ("table6", printed.TABLE_6)):
        rows = shown(table)
        for name in (GREEDY, BEAM, PJ, PGJ3, HGJ3):
            for column in (c for c in cells[name, "en-de"] if c != "paper_mbart_calls_ratio"):
                found = rows[rows.name == name][column]
                assert len(found) == 4 and found.to_numpy() == pytest.approx(printed.mean(cells, name, column)), column


def test_rows_say_of_how_many_sentences_their_quality_is() -> None:
    frame, rows = committed("parallel_decoding.table1"), shown("table1").set_index(["name", "sentences"])
    assert rows.loc["hf"].index.tolist() == ["40 single, honest", "10 joined, honest"]
    assert rows.loc[GREEDY].index.tolist() == [
        "500 single, honest", "100 single, paper", "500 joined, honest", "100 joined, paper"
    ]  # fmt: skip
    few = frame[(frame["name"] == "hf") & (frame["set"] == "single")]
    assert (few.sentences == 40).all() and rows.loc[("hf", "40 single, honest"), "bleu"] == few.bleu.mean()


def test_every_printed_cell_of_the_languages_is_shown() -> None:
    passes, bleu = (shown(table).set_index("direction") for table in ("table2", "table7"))
    for (name, direction), cell in printed.TABLE_2.items():
        text = f"{cell['paper_calls_ratio']:.2f}; {cell['paper_speedup']:.2f}"
        assert passes.loc[direction, f"paper_{name}"] == text
    for (name, direction), cell in printed.TABLE_7.items():
        assert bleu.loc[direction, f"paper_{name}"] == cell["paper_mbart_bleu"]
    assert bleu[f"paper_{HGJ3}"].equals(bleu[f"paper_{PGJ3}"]), "one column shows both"
    for name in (PJ, PGJ3, HGJ3):
        assert passes[name].notna().sum() == 6 and bleu[name].equals(bleu[GREEDY])


def test_costs_are_of_whole_sets_and_the_papers_row_is_there() -> None:
    rows = shown("table3").set_index(["name", "whose"])
    assert rows.needs.str.count(";").eq(2).all(), "as many as its heading names"
    hybrid = rows.loc[HGJ3, "the paper"]
    columns = ["needs", "speedup", "bleu", "train_flops", "total_flops", "flops_per_speedup"]
    requirements, numbers = printed.TABLE_3[HGJ3]
    assert hybrid[columns].tolist() == ["; ".join(requirements).lower(), *numbers]
    assert len(rows.xs("the paper", level="whose")) == len(printed.TABLE_3)
    ours = shown("table5").query("whose == 'ours'")
    assert (ours.sentences == 500).all() and "500 joined" in experiments()["parallel_decoding.table5"].note
    assert ours.inference_flops.tolist() == (ours.flops_per_sentence * 500).tolist() == ours.total_flops.tolist()


def test_the_translation_of_an_example_is_that_of_every_lossless_decoder() -> None:
    whole = committed("parallel_decoding.examples")
    assert whole.same_as_greedy[whole.name != BEAM].all() and len(shown("examples")) == 5


def test_what_the_conclusion_says_of_iterations_and_cores() -> None:
    said = conclusion("parallel_decoding", "Where it differs")
    counted = values(printed.TABLE_2, "paper_calls_ratio", PJ, PGJ3, HGJ3)
    for column in ("paper_calls_ratio", "paper_mbart_calls_ratio"):
        counted += values(printed.TABLE_6, column, PJ, PGJ3, HGJ3)
    assert f"{min(counted)} to {max(counted)} times" in said
    cores = committed("parallel_decoding.figure3").query("cores == 122").set_index(["name", "kind"])
    for name in (PGJ3, HGJ3):
        assert f"{cores.paper_speedup[name, 'paper']} " in said and f"{cores.speedup[name, 'model']:.2f} is" in said


def test_what_is_said_not_to_add_up_follows_from_the_printed_numbers() -> None:
    said = does_not_add_up("parallel_decoding")
    both = [values(printed.TABLE_6, column, PGJ3, HGJ3) for column in ("paper_speedup", "paper_calls_ratio")]
    assert " and ".join(f"{min(part)} to {max(part)}" for part in both) in said
    assert f"factor of {30 / 29:.2f}" in said
    bleu = {name: values(printed.TABLE_7, "paper_mbart_bleu", name) for name in (GREEDY, PJ, PGJ3, HGJ3)}
    differ = {name: [a for a, b in zip(row, bleu[GREEDY], strict=True) if a != b] for name, row in bleu.items()}
    assert (len(differ[PJ]), len(differ[PGJ3]), len(differ[HGJ3])) == (4, 2, 2)

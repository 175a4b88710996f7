"""What is committed under results/ is whole, tells how it was made, and says what the documents say of it."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import plotly
import pytest
from prose import LANDING, ROOT, conclusion, does_not_add_up

from fastdecode_lib import registry
from fastdecode_lib.cli import figures
from fastdecode_lib.papers import headlines, page
from fastdecode_lib.papers.catalogue import experiments, papers
from fastdecode_lib.papers.combinations.drafts import as_predicted
from fastdecode_lib.papers.combinations.experiments import LEAST_AGREEMENT
from fastdecode_lib.papers.double_token_decoding import printed as imamura_2020
from fastdecode_lib.papers.experiment import Column, columns
from fastdecode_lib.papers.learning_to_screen import printed as chen_2019
from fastdecode_lib.papers.learning_to_screen.printed import TABLE_2
from fastdecode_lib.papers.learning_to_screen.tables import distinct
from fastdecode_lib.papers.outcomes import NoResult, committed
from fastdecode_lib.papers.reading import (
    absent,
    beside_paper,
    chart_data,
    committed_result,
    gaps,
    noisy_rows,
    numbers,
    table,
    texts,
    with_paper_curve,
)
from fastdecode_lib.papers.vocabulary_clusters import printed as amer_2022
from fastdecode_lib.papers.vocabulary_clusters.printed import TABLE_6
from fastdecode_lib.text.corpus import spread_over

ON_A_GPU = ("gpu", "gpu_passes")
LONG = sorted(
    e.name for e in experiments().values() if e.stem == "parallel_decoding" and not e.traced and e.table not in ON_A_GPU
)


@pytest.mark.parametrize("name", LONG)
def test_every_long_run_is_there(name):
    frame = committed(name)
    about = frame.attrs["provenance"]
    assert len(frame) and frame["name"].notna().all()
    assert about["scale"] == "laptop" and about["fingerprint"] and about["versions"]["torch"]
    assert f"experiment {name.partition('.')[0]}" in about["command"]


def test_no_result_names_a_folder_of_the_machine_it_was_made_on():
    paths = sorted((Path(registry.__file__).parent / "results").glob("*.json"))
    assert len(paths) > 50
    for path in paths:
        told = path.read_text(encoding="utf-8")
        assert not re.search(r"/(work|home|root|tmp|Users)/", told), path.name


UNDATED = {"learning_to_screen.figure8.laptop.json"}
"""Made before results had a date."""


def test_every_result_tells_its_day_and_its_commit():
    for path in (Path(registry.__file__).parent / "results").glob("*.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, list) or path.name in UNDATED:  # a list is the history of a training
            continue
        about = content["provenance"]
        assert re.fullmatch(r"2026-\d\d-\d\d", about["date"]) and re.match(r"[0-9a-f]{7}", about["commit"]), path.name


def test_what_is_not_there_names_its_command():
    with pytest.raises(
        ValueError, match=r"no result of 'nothing' at scale 'laptop'.*corpus: fastdecode experiment nothing"
    ):
        committed("nothing")


def test_lossless_decoders_agree():
    frame = committed("parallel_decoding.table1")
    ours = frame[(frame.kind == "measured") & frame.name.isin(registry.DECODERS)]
    assert len(ours)
    for name in frame.name[frame.kind == "measured"].unique():
        if name != "hf" and registry.decoder(name).lossless:
            found = frame.agreement[frame.name == name].dropna()
            assert len(found) and (found == 1).all(), name
    assert (committed("parallel_decoding.drafts").agreement == 1).all()


def test_the_window_needs_far_fewer_passes():
    """The claim of the page: about half of greedy decoding's on joined test sentences, 1.5 times fewer at least."""
    frame = committed("parallel_decoding.table1")
    window = frame[(frame.name == "window:width=5") & (frame.set == "joined") & (frame.protocol == "honest")]
    assert sorted(window.direction) == ["de-en", "en-de", "en-es", "en-fr", "es-en", "fr-en"]
    assert (window.sentences == 500).all()
    assert window.calls_ratio.mean() > 1.75
    honest = frame[frame.protocol == "honest"].set_index(["name", "set"])
    assert 0.95 < honest.calls_ratio["jacobi", "joined"].mean() < 1.1
    blocks = (
        honest.loc[["gauss_seidel:block=3", "gauss_seidel:block=5", "hybrid:block=3"]].groupby(level=[0, 1]).speedup
    )
    assert blocks.median().round(1).between(0.8, 0.9).all() and frame.attrs["provenance"]["engine"] == "compiled"


def _ends(values, digits=1):
    """The least and the largest, rounded."""
    return round(values.min(), digits), round(values.max(), digits)


def test_what_the_conclusions_say_of_clusters_and_screens():
    steps = committed("vocabulary_clusters.table2").set_index("method").speedup
    own, union = steps["each row's own"], steps["union of the batch"]
    assert len(own) == 6 and _ends(own) == (2.5, 2.8) and _ends(union) == (1.9, 2.7)
    rows = committed("vocabulary_clusters.table2").rows.dropna().round()
    assert (rows.min(), rows.max()) == (13, 22)
    alone, batch = "batch 1, beam 1", "batch 20, beam 2"
    told = {
        ("table3", alone, "clustered"): ((1.5, 1.6), (0.97, 0.99), (0.0, 0.5)),
        ("table3", batch, "clustered, shared"): ((1.1, 1.3), (0.96, 0.98), (-0.1, 0.5)),
        ("table3", batch, "clustered"): ((1.3, 1.4), (0.9, 0.94), (0.0, 1.2)),
        ("table4", batch, "clustered, shared"): ((1.1, 1.2), (0.85, 0.92), (0.0, 0.4)),
        ("table4", batch, "clustered"): ((1.2, 1.3), (0.7, 0.78), (-0.1, 0.4)),
    }
    for (name, protocol, method), wanted in told.items():
        whole = committed(f"vocabulary_clusters.{name}").query("kind == 'measured'")
        whole = whole[whole.protocol == protocol]
        found, exact = (whole[whole.method == m].set_index("direction") for m in (method, "exact"))
        lost = exact.bleu - found.bleu
        assert len(found) == 6 and (_ends(found.speedup), _ends(found.identical, 2), _ends(lost)) == wanted
    alike = (
        committed("vocabulary_clusters.table3")
        .query("kind == 'measured' and protocol == @alone")
        .pivot(index="direction", columns="method", values="bleu")
    )
    assert round((alike.exact - alike.clustered).mean(), 1) == 0.2
    paper = committed("vocabulary_clusters.table3").query("kind == 'paper' and method == 'dense'").set_index("protocol")
    assert _ends(paper.paper_speedup[alone]) == (1.2, 1.3) and _ends(paper.paper_speedup[batch]) == (1.1, 1.2)
    whole = committed("vocabulary_clusters.table3").query("protocol == @alone").set_index("method")
    assert _ends(whole.identical["clustered, the paper's choice"], 2) == (0.75, 0.84)
    both = [pair for model in amer_2022.TABLE_3.values() for pair in model.values()] + [*amer_2022.TABLE_4.values()]
    gains = pd.Series([1 + cells[2] / 100 for pair in both for cells in pair if cells[2]])
    assert _ends(gains, 2) == (1.05, 1.27)
    shares = pd.Series([share for pair in amer_2022.TABLE_2.values() for share, _ in pair])
    assert (int(shares.min()), shares.max()) == (6, 16.5)
    steps = committed("vocabulary_clusters.step_share").query("method == 'exact'")
    assert len(steps) == 2 and _ends(steps.share, 2) == (0.45, 0.47)
    speeds = committed("vocabulary_clusters.figure3")
    for labels, rows in speeds.groupby("group"):
        rows = rows.set_index("clusters")
        slower = {(a, b) for a in rows.index for b in rows.index if rows.speedup_high[a] < rows.speedup_low[b]}
        assert slower == ({(25, many) for many in (100, 200, 400, 800)} if labels == "K = 5" else set())
    largest = committed("vocabulary_clusters.figure4").groupby("group").share.max().round(2)
    assert largest.tolist() == [0.13, 0.19, 0.22]
    checked = committed("vocabulary_clusters.lossless").set_index("name")
    assert (checked.mismatches == 0).all() and checked.queries["translation"] == 1_000_000
    sized = committed("vocabulary_clusters.zcode").query("model == 'dense'").set_index("method")
    assert round(sized.speedup["quantised"], 1) == 4.4


def test_what_the_conclusion_says_of_plain_blocks():
    rows = committed("parallel_decoding.table1").query("kind == 'measured' and protocol == 'honest'")
    means = rows.groupby(["name", "set"]).speedup.mean()
    blocks = means[means.index.get_level_values("name").str.contains("gauss_seidel|hybrid")]
    assert len(blocks) == 6 and _ends(blocks, 2) == (0.78, 0.86) and _ends(means["jacobi"], 2) == (0.25, 0.41)
    saved = rows[rows.name == "window:width=5"].groupby("set").calls_ratio.mean()
    assert _ends(saved) == (1.7, 1.8)


def test_what_the_conclusion_says_of_learned_screens():
    said = committed("learning_to_screen.table3").set_index(["method", "set", "beam"])
    screened, exact = said.loc["screened"], said.loc["exact"]
    lost, alone, five = exact.bleu - screened.bleu, screened.xs(1, level="beam"), screened.xs(5, level="beam")
    assert len(alone) == len(five) == 2 and not noisy_rows(screened).any()
    assert set(alone.speedup.round(1)) == {2.1} and set(alone.identical.round(2)) == {0.95, 0.96}
    assert set(lost.xs(1, level="beam").round(1)) == {0.3}
    assert _ends(five.speedup) == (1.6, 1.8) and _ends(five.identical, 2) == (0.81, 0.86)
    assert _ends(lost.xs(5, level="beam")) == (0.5, 0.7)
    assert set((exact.paper_bleu - screened.paper_bleu).xs(5, level="beam").round(1)) == {0.1}
    table = committed("learning_to_screen.table2").set_index(["set", "method"])
    translation, small = table.loc[("translation", "screened")], table.loc[("small", "screened")]
    assert [round(translation[f"speedup{end}"], 1) for end in ("", "_low", "_high")] == [20.2, 19.7, 21.1]
    assert (round(translation.p_at_1, 3), round(translation.rows_scored)) == (0.995, 378)
    assert round(small.speedup) == 49 and small.p_at_1 > 0.999
    assert (round(translation.p_at_5, 3), translation.paper_p_at_5, translation.reached) == (0.987, 0.993, False)
    plain, half = (table.loc[("translation", name)] for name in ("clustered", "clustered, any precision"))
    assert plain.reached and half.reached and half.setting.endswith("float16")
    assert [round(found.speedup, 1) for found in (plain, half)] == [10.7, 17.7]
    assert min(methods["screened"][1] for methods in TABLE_2.values()) == 0.989
    assert not noisy_rows(pd.DataFrame([translation, small])).any()
    assert abs(translation.speedup - TABLE_2["translation"]["screened"][0]) < 1
    rivals = table.loc["translation"].loc[["fgd", "svd", "adaptive", "greedy_mips", "pca_mips"]]
    assert (rivals.p_at_1 > 0.98).all() and _ends(rivals.speedup) == (0.4, 1.8)
    lsh = table.loc[("translation", "lsh_mips")]
    assert (round(lsh.speedup, 1), round(lsh.p_at_1, 2)) == (8.5, 0.18)
    others = table.loc["small"].loc[[*rivals.index, "lsh_mips"]]
    assert (round(others.speedup.min(), 1), round(others.speedup.max())) == (0.4, 12)
    assert _ends(others.paper_speedup) == (0.1, 1.9)
    perplexity = committed("learning_to_screen.table6").query("set == 'small'").set_index("method")
    rises = [
        [
            round(100 * (perplexity[c][method] / perplexity[c]["exact"] - 1), 1)
            for method in ("screened", "svd", "adaptive")
        ]
        for c in ("perplexity", "paper_perplexity")
    ]
    assert rises[0] == [17.2, 3.3, 7.2] and rises[1][0] == 3.2
    clusters = committed("learning_to_screen.table4")
    assert set(clusters.budget) == {250} and _ends(clusters.speedup, 0) == (26, 38)
    assert _ends(rivals.paper_speedup) == (1.3, 6.7) and round(table.speedup["translation", "quantised"], 1) == 2.9
    paper = chen_2019.TABLE_5["translation"]
    assert round(paper["screened"][0] / paper["kmeans"][0], 1) == 1.5
    both = committed("learning_to_screen.table5").set_index(["set", "method"]).rows_scored.round()
    assert both["translation"][["screened", "kmeans"]].tolist() == [378, 421]
    assert both["small"][["screened", "kmeans"]].tolist() == [41, 50]
    ever_best = committed("learning_to_screen.table1").set_index("name").ever_best
    assert (ever_best["small"], ever_best["translation"]) == (1_259, 6_043)


def test_the_papers_ratings_in_the_result_are_those_it_prints():
    rows = committed("vocabulary_clusters.table6").query("kind == 'paper'").set_index("name")
    for direction, printed in TABLE_6.items():
        row = rows.loc[f"{direction}, paper"]
        assert (row.paper_exact, row.paper_clustered, row.paper_mark) == printed


def test_what_is_said_of_a_gpu():
    calls = committed("vocabulary_clusters.gpu")
    assert calls.attrs["provenance"]["device"] == "NVIDIA H200" and (calls["agreement"] > 0.85).all()
    screened = calls[~calls["system"].isin(["dense", "exact"])]
    assert (screened["speedup_high"] < 1).all() and round(screened["milliseconds"].min(), 2) == 0.33
    whole = calls[(calls["system"] == "dense") & (calls["model"] == "dense")]
    assert (
        whole["milliseconds"].between(0.2, 0.24).all()
        and round(calls["gigabytes_per_second"][whole.index].max(), -2) == 2_500
    )
    assert round(screened.query("model == 'dense'")["milliseconds"].min(), 2) == 0.35
    assert round(2 * 250_000 * 1_024 / 0.9e12 * 1e3, 1) == 0.6


def test_what_the_conclusions_say_of_draft_heads_and_two_tokens_a_step():
    drafts = committed("combinations.drafts")
    assert (drafts["identical"].dropna() == 1).all()
    wide = drafts[drafts["width"] == 5].set_index(["draft", "set"])["tokens_per_pass"].round(1)
    assert wide["ngram+lexicon"].to_dict() == {"joined": 1.7, "single": 1.6, "technical": 1.4}
    assert wide["ngram+lexicon+head"].to_dict() == {"joined": 2.3, "single": 2.0, "technical": 1.6}
    systems = committed("double_token_decoding.table2").set_index(["system", "set"]).sort_index()
    assert set(systems["updates"].drop(index=["mask_predict_4", "mask_predict_10"])) == {2_800}
    order = systems.xs("single", level="set").bleu.drop("shallow_l2r").sort_values(ascending=False)
    wmt = pd.Series({name: cells[0][0] for name, cells in imamura_2020.TABLE_2.items()}).sort_values(ascending=False)
    assert list(order.index) == list(wmt.index)
    for which in ("single", "joined"):
        plain, both, left, right, shallow = (
            systems.loc[(name, which)]
            for name in ("single_token_l2r", "bidirectional", "double_token_l2r", "single_token_r2l", "shallow_l2r")
        )
        assert round(plain["bleu"] - both["bleu"], 1) == {"single": 2.6, "joined": 2.0}[which]
        assert round(plain["bleu"] - left["bleu"], 1) == {"single": 3.9, "joined": 4.0}[which]
        for batch in ("", "_batch_32"):
            assert both[f"token_ratio{batch}_low"] < left[f"token_ratio{batch}_high"]
            assert left[f"token_ratio{batch}_low"] < both[f"token_ratio{batch}_high"]
        assert both["marks"] == left["marks"] == "†‡" and right["marks"] == plain["marks"] == ""
        assert left["bleu"] > systems.bleu["double_token_r2l", which]
        assert round(plain["bleu"] - shallow["bleu"], 1) == {"single": 3.2, "joined": 3.8}[which]
        assert round(shallow["token_ratio_batch_32"], 1) == 1.5
        behind = [round(plain["bleu"] - systems.bleu[f"mask_predict_{passes}", which], 1) for passes in (10, 4)]
        assert behind == {"single": [6.1, 7.1], "joined": [10.8, 14.7]}[which]
    for passes, wanted in ((10, (2.9, 4.1)), (4, (5.6, 6.8))):
        cells = zip(
            imamura_2020.TABLE_2["single_token_l2r"], imamura_2020.TABLE_2[f"mask_predict_{passes}"], strict=True
        )
        losses = [own[0] - other[0] for own, other in cells]
        assert (round(min(losses), 1), round(max(losses), 1)) == wanted
    told = {"bidirectional": [1.16, 1.13, 1.17], "shallow_l2r": [1.6, 1.58, 1.64]}
    for name, wanted in told.items():
        ratios = systems.loc[(name, "single"), ["token_ratio", "token_ratio_low", "token_ratio_high"]].astype(float)
        assert ratios.round(2).tolist() == wanted
    beams = committed("double_token_decoding.figure3").query("kind == 'measured'").set_index("beam")
    ratios = beams.loc[10, ["speedup", "speedup_low", "speedup_high"]].astype(float)
    assert ratios.round(2).tolist() == [1.2, 1.19, 1.25] and not noisy_rows(beams).any()
    assert _ends(beams.speedup[beams.index < 10]) == (1.6, 1.8) and round(beams.speedup[20], 2) == 1.09
    middle = committed("double_token_decoding.junction").set_index(["set", "measure"])["difference"]
    for which in ("single", "joined"):
        assert 5.5 < -middle[which, "right pairs across the middle, %"] < 8.5
        assert 0.5 < -middle[which, "right pairs elsewhere, %"] < 2
    long = committed("double_token_decoding.junction").query("set == 'joined, five to eight'").set_index("measure")
    across = long.loc["right pairs across the middle, %"]
    assert round(across["difference"]) == -3 and across["difference_high"] > 0
    assert round(long.difference["right pairs elsewhere, %"]) == -2
    twice = committed("double_token_decoding.junction").query("measure.str.contains('repeat')")
    assert twice["bidirectional"].between(2.5, 6).all() and (twice["single"] < 0.15).all()
    learned = committed("double_token_decoding.learning").set_index(["system", "updates"]).chrf
    own = [name for name in learned.index.levels[0] if (name, 2_800) in learned]
    late = [learned[name, 2_800] - learned[name, 2_500] for name in own]
    assert len(own) == 6 and learned["mask-predict"].index.max() == 3_000
    assert min(late) > 0.25 and max(late) < 1.25
    verified = committed("double_token_decoding.lossless").set_index("name")
    assert (verified["identical"].drop("bidirectional alone") == 1).all()
    assert all(round(1 / verified.speedup[f"drafted, width {width}"], 1) == 1.3 for width in (4, 8, 64))
    profile = committed("double_token_decoding.profile").query("size == 'base' and system == 'bidirectional'")
    number_formats = profile.set_index("name").speedup.sort_values()
    assert "torch, bfloat16" in number_formats.index[0] and round(number_formats.iloc[0], 1) == 1.1
    assert "torch, float32" in number_formats.index[-1] and round(number_formats.iloc[-1], 1) == 1.4
    assert _ends(number_formats.iloc[1:-1]) == (1.2, 1.2)
    assert (profile.arithmetic < 1).all() and not noisy_rows(profile).any() and profile.speedup.max() < 1.55
    sizes = committed("double_token_decoding.sizes").set_index("name")
    plain = sizes.loc["base, shallow_l2r"]
    assert [round(plain[f"speedup{end}"], 1) for end in ("", "_low", "_high")] == [2.2, 2.2, 2.3]
    steps = committed("double_token_decoding.tokens_per_step").set_index("tokens_a_step")
    elsewhere = steps.loc[2, "speedup_beam_10"]
    assert [round(ratio, 1) for ratio in (elsewhere, sizes.loc["base, bidirectional", "speedup"])] == [1.5, 1.2]
    for size, own in sizes.groupby("size"):
        own = own.set_index("system")
        apart = own.loc["shallow_l2r", "speedup_low"] > own.loc["bidirectional", "speedup_high"]
        assert own["speedup"].idxmax() == "shallow_l2r" and apart, size


def test_what_the_conclusions_say_of_learned_drafts_in_time():
    timed = committed("combinations.draft_time")
    assert (timed["identical"] == 1).all()
    best = as_predicted(timed).set_index(["shape", "precision", "projection", "set", "draft"]).sort_index()
    large, table = "grown to opus-mt's shape", "ngram+lexicon"

    def told(*place):
        return tuple(round(best.loc[place, f"speedup{end}"], 1) for end in ("", "_low", "_high"))

    assert told(large, "float32", "quantised", "joined", table) == (2.2, 2.0, 2.3)
    assert told(large, "float32", "quantised", "joined", "head") == (2.3, 2.1, 2.5)
    assert told("tatoeba-small", "float32", "quantised", "technical", table)[0] == 1.1
    assert told("tatoeba-small", "float32", "quantised", "technical", "greedy")[0] == 1.2
    assert told(large, "float32", "quantised", "technical", "ngram+lexicon+head")[0] == 2.0
    assert told(large, "float32", "quantised", "technical", "greedy")[0] == 1.9
    assert told(large, "float32", "quantised", "joined", "greedy")[0] == 1.8
    assert told("tatoeba-small", "int8", "exact", "joined", table)[0] == 1.1
    assert told("tatoeba-small", "int8", "exact", "technical", table)[0] == 0.9
    assert told(large, "int8", "exact", "joined", "head")[0] == 1.2


def test_what_the_conclusions_say_of_sharp_models():
    ladder = committed("sharp_models.table1").query("name == 'merged states'")
    said = [[round(row[f"factor{end}"], 1) for end in ("", "_low", "_high")] for _, row in ladder.iterrows()]
    assert said == [[9.1, 8.2, 9.7], [4.6, 4.2, 4.8]]
    packed = committed("sharp_models.table1").query("name == 'packed float32 products'").factor
    assert (ladder.factor.to_numpy() / packed.to_numpy()).round(1).tolist() == [3.0, 1.9]
    kept = committed("sharp_models.precisions").query("set == 'test'").groupby("precision").agreement
    assert (kept.min().round(2)[["int16", "int8"]].tolist(), kept.max().round(2)[["int16", "int8"]].tolist()) == (
        [0.98, 0.84],
        [0.99, 0.89],
    )
    bleu = committed("sharp_models.table2").set_index("name")
    own, paper = (
        {name: round(bleu.loc[name, c] - bleu.loc["S1", c], 1) for name in bleu.index[:7]}
        for c in ("bleu", "paper_bleu")
    )
    assert own == {"S1": 0, "S2": 5.1, "S3": 4.8, "S4": 3.7, "S5": -3.2, "S6": 0.2, "S7": 10.0}
    assert (paper["S3"], paper["S4"], paper["S5"], paper["S6"]) == (0.9, 1.2, 1.4, 1.1)
    assert [round(bleu.loc["S7", c] - bleu.loc["S4", c], 1) for c in ("bleu", "paper_bleu")] == [6.3, 0.4]
    assert bleu.loc["S2", "speed_over_s1_high"] < bleu.loc["S3", "speed_over_s1_low"], "S3 costs less than S2"
    assert (bleu.loc[["S2", "S3", "S4", "S5", "S7"], "bleu_p"] < 0.01).all() and bleu.loc["S6", "bleu_p"] > 0.2
    assert [round(bleu.loc["E1", c] - bleu.loc["S4", c], 1) for c in ("bleu", "paper_bleu")] == [2.8, 0.9]
    assert round(bleu.loc["E2", "bleu"] - bleu.loc["S4", "bleu"], 1) == 3.3
    curves = committed("sharp_models.learning").sort_values("updates").groupby("system")
    assert curves.updates.max().drop("S7").eq(2_400).all() and curves.updates.max()["S7"] == 1_200
    assert (curves.chrf.agg(lambda curve: curve.iloc[-1] - curve.iloc[-2]) > 0.3).all(), "all still gain"
    steps = committed("sharp_models.steps").set_index("name")
    for name, wanted in (
        ("tatoeba-small, hf float32", (3.6, 3.5, 3.8)),
        ("tatoeba-small, ctranslate2 float32", (1.5, 1.4, 1.5)),
        ("tatoeba-small, ctranslate2 int8", (1.2, 1.2, 1.3)),
        ("opus-mt shape, ctranslate2 float32", (1.2, 1.2, 1.2)),
        ("opus-mt shape, ctranslate2 int8", (2.4, 2.3, 2.6)),
        ("opus-mt shape in float16, ctranslate2 float32", (1.9, 1.9, 2.0)),
    ):
        assert tuple(round(steps.loc[name, f"ratio{end}"], 1) for end in ("", "_low", "_high")) == wanted
    many = committed("sharp_models.throughput").set_index("name")
    for name, wanted in (("ctranslate2 float32", (1.3, 1.3, 1.4)), ("ctranslate2 int8", (1.6, 1.6, 1.6))):
        assert tuple(round(many.loc[name, f"ratio{end}"], 1) for end in ("", "_low", "_high")) == wanted
    same = steps.agreement[["tatoeba-small, compiled int8", "tatoeba-small, ctranslate2 int8"]]
    assert same.round(2).tolist() == [0.72, 0.47]


def test_what_the_conclusions_say_of_the_cube():
    cube = committed("combinations.cube")
    lost = cube["agreement"] < LEAST_AGREEMENT
    assert lost.sum() == 78
    base = cube[(cube["speedup"] == 1) & cube["lossless"].eq(True)].set_index("model")["decoder"]
    parts = (
        (cube["decoder"] != cube["model"].map(base)).astype(int)
        + (cube["projection"] != "exact")
        + (cube["precision"] != "float32")
    )
    several = cube[(parts > 1) & ~lost & cube["speedup"].notna()]
    assert len(several) == 199 and round((several["product"] > several["speedup"]).mean(), 2) == 0.63
    assert round((several["product"] > several["speedup_high"]).mean(), 2) == 0.53


def test_what_is_said_of_the_methods_of_the_first_page():
    rows = committed("combinations.first_page").set_index(["set", "decoder", "projection", "precision"]).sort_index()
    single = rows.loc["single"]
    assert not noisy_rows(single).any()
    joined = rows.loc["joined"].agreement
    methods = (("clustered", "float32"), ("screened", "float32"), ("exact", "int8"))
    kept = [joined["greedy", projection, precision] for projection, precision in methods]
    assert "`clustered` {:.0%}, `screened` {:.0%}, int8\n{:.0%}".format(*kept) in LANDING
    elsewhere = committed("start_here.own_sentences").set_index("name")
    assert round(1 / elsewhere.speedup["hf"]) == 10 and "EPYC" in elsewhere.attrs["provenance"]["cpu"]
    second = committed("combinations.second_processor").query("set == 'single'")
    second = second.set_index(["decoder", "projection", "precision"]).sort_index().speedup.round(1)
    places = [("window:width=3", "exact"), ("window:width=3", "quantised"), ("greedy", "quantised"), ("auto", "exact")]
    assert [second[(*place, "float32")] for place in places] == [0.9, 1.2, 1.4, 1.0]
    auto = committed("combinations.second_processor").query("decoder == 'auto' and projection == 'exact'").speedup
    assert auto.round(2).tolist() == [0.97, 0.98]
    for place, speedup, unchanged in (
        (("window:width=3", "exact", "float32"), 1.2, 1.0),
        (("window:width=3", "quantised", "float32"), 1.4, 1.0),
        (("greedy", "clustered", "float32"), 1.8, 0.98),
        (("greedy", "screened", "float32"), 2.0, 0.94),
        (("greedy", "exact", "int8"), 1.7, 0.83),
        (("greedy", "clustered", "int8"), 3.4, 0.82),
    ):
        row = single.loc[place]
        assert (round(row.speedup, 1), round(row.agreement + 1e-9, 2)) == (speedup, unchanged)
    assert single.bleu["greedy", "clustered", "int8"] >= single.bleu["greedy", "exact", "float32"]
    notebook = (Path(__file__).parents[2] / "notebooks" / "06_combinations.ipynb").read_text(encoding="utf-8")
    for words, place in (
        ("`window:width=3` with `quantised`", ("window:width=3", "quantised", "float32")),
        ('`\\"clustered\\"`', ("greedy", "clustered", "float32")),
        ('`precision=\\"int8\\"`', ("greedy", "exact", "int8")),
        ('`\\"clustered\\"` in int8', ("greedy", "clustered", "int8")),
    ):
        assert f"| {words} | {single.loc[place].speedup:.1f} |" in notebook
    lossless = [place for place in rows.index if place[2] in ("exact", "quantised") and place[3] == "float32"]
    assert (rows.loc[lossless].agreement == 1).all()


def test_the_papers_values_stand_in_our_rows():
    columns = ["name", "speedup", "paper_speedup", "kind"]
    rows = [("a", 2.0, None, "measured"), ("a", None, 3.0, "paper"), ("b", None, 4.0, "paper")]
    both = beside_paper(pd.DataFrame(rows, columns=columns), "name")
    assert both[["name", "speedup", "paper_speedup"]].fillna(0).to_numpy().tolist() == [["a", 2, 3], ["b", 0, 4]]
    experiment = experiments()["vocabulary_clusters.table1"]
    sizes = experiment.arrange(committed(experiment.name)).set_index("name")
    assert sizes.loc["en-es"].drop("kind").notna().all() and sizes.index.is_unique, (
        "a direction that both have is one row"
    )


def shown(experiment):
    """What the pages and notebooks show of a committed result; None where there is none."""
    try:
        frame = committed(experiment.name)
    except NoResult:
        return None
    return texts(experiment.arrange(frame) if experiment.arrange else frame, *experiment.columns)


@pytest.mark.parametrize("experiment", [e for e in experiments().values() if e.on_page], ids=lambda e: e.name)
def test_tables_have_seven_columns_at_most(experiment):
    rows = shown(experiment)
    assert rows is None or len(rows.columns) <= 7, f"leave out one of {', '.join(rows)} in experiments.py"


def test_the_pages_say_what_the_results_say(monkeypatch):
    monkeypatch.chdir(ROOT)
    for path, text in page.pages().items():
        assert path.read_text(encoding="utf-8") == text, "run fastdecode figures --pages"
    assert {path.name for path in page.FOLDER.glob("*.md")} < {path.name for path in page.pages()}


def test_a_page_without_marks_is_left_alone():
    with pytest.raises(ValueError, match="needs the marks of its results"):
        page.with_part(f"before {page.BEGIN} after", "| a |")


def test_charts_are_drawn_from_the_results():
    pinned = re.search(r"^plotly==(.*)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    if pinned is None or plotly.__version__ != pinned[1]:
        pytest.skip("plotly draws otherwise in other versions than the pinned one")
    folder, names = ROOT / page.FOLDER / page.CHARTS, set()
    for name, figure in figures.charts():
        key = figures.chart_key(figure)
        picture = (folder / f"{name}.svg").read_text(encoding="utf-8")
        assert picture.startswith("<svg") and picture.endswith(f"<!-- {key} -->\n"), "run fastdecode figures --pages"
        assert f'height="{figure.layout.height}"' in picture.partition(">")[0], name
        names.add(f"{name}.svg")
    assert {path.name for path in folder.iterdir()} == names
    assert figures.chart_key(figure.update_traces(opacity=0.5)) != key, "another drawing of the same rows"


def entries(drawing):
    """Entries of the legend of a drawing by plotly."""
    return drawing.count('class="legendtext"')


def test_charts_have_six_entries_in_their_legend_at_most():
    drawings = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / page.FOLDER / page.CHARTS).iterdir()}
    for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for output in cell.get("outputs", []):
                drawings[f"{path.name} {cell['id']}"] = "".join(output.get("data", {}).get("image/svg+xml", ""))
    counts = {name: entries(drawing) for name, drawing in drawings.items()}
    assert {name: count for name, count in counts.items() if count > 6} == {}
    assert max(counts.values()) > 2, "legends are found"


def test_the_first_pages_are_short():
    readme, landing = ((ROOT / path).read_text(encoding="utf-8") for path in ("README.md", page.FOLDER / "README.md"))
    assert len(readme.encode()) <= 6_144 and len(readme.splitlines()) <= 120
    assert len(landing.encode()) <= 6_144 and landing.count("\n| ") <= 2 + 15
    assert landing.index(".svg)") < landing.index("\n| "), "a picture before the table"


def test_links_between_pages_lead_somewhere():
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for link in re.findall(r"\]\(([^)#\s]+)|srcset=\"([^\"]+)|src=\"([^\"]+)", path.read_text(encoding="utf-8")):
            target = "".join(link)
            assert target.startswith("https://") or (path.parent / target).exists(), f"{path.name}: {target}"


def test_no_reader_meets_the_numbers_of_papers():
    written = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**/*.md", "notebooks/*.ipynb")
    code = ("benchmarks/**/*.py", "ddgviz/**/*.py", "ddgviz/**/*.js", "fastdecode_lib/**/*.py")
    cards = ("fastdecode_lib/assets/*/README.md",)
    for path in sorted(path for pattern in (*written, *code, *cards) for path in ROOT.glob(pattern)):
        numbered = re.search(r"(?<![\d,._\"])\b00[0-4]\b(?![\d_])", path.read_text(encoding="utf-8"))
        assert not numbered, f"{path.relative_to(ROOT)}: name authors and year instead of {numbered.group()}"


def test_the_page_has_every_table_that_declares_how_it_is_read_with_its_machine_and_its_noise():
    (paper,) = (paper for paper in papers() if paper.stem == "sharp_models")
    text = (ROOT / page.FOLDER / "sharp_models.md").read_text(encoding="utf-8")
    for heading in ("## Time of a step", "## Table 2"):
        section = text.partition(heading)[2].partition("\n## ")[0]
        marked = [line for line in section.splitlines() if line.startswith("|") and "≈" in line]
        assert marked and f"Noisy rows: {len(marked)} of " in section
    assert "noisy" not in text.partition("## Shared states")[2].partition("\n## ")[0]
    for experiment in paper.experiments:
        assert (f"\n## {experiment.title}\n" in text) == bool(experiment.on_page or experiment.chart)
        assert not experiment.on_page or experiment.note in text
    first, others = text.partition("\n## ")[0], text.partition("\n## ")[2]
    assert ".svg)" in first and "\n|" not in first and first.count("\n- **") == 5, "the conclusion, then a chart"
    for part in others.split("\n## "):
        assert ".svg)" not in part or "\n| " not in part or part.index(".svg)") < part.index("\n| ")


def test_every_declared_column_exists():
    """A typing error in a declaration would leave a column out and nobody would see it."""
    for experiment in experiments().values():
        try:
            frame = committed(experiment.name)
        except NoResult:
            continue
        rows = experiment.arrange(frame) if experiment.arrange else frame
        missing = {column.name for column in experiment.columns} - set(rows)
        assert not missing, f"{experiment.name} has {', '.join(map(str, rows))}"
        headings = [column.title for column in experiment.columns]
        assert len(set(headings)) == len(headings), experiment.name


def test_numbers_in_notes_follow_from_the_results():
    notes = {name: experiment.note for name, experiment in experiments().items()}
    rates = committed("sharp_models.throughput").set_index("name")
    minutes = 1e6 / (rates.sentences_per_second / rates.threads) / 60
    wanted = [f"{minutes[f'{engine} {q}']:.0f}" for engine in ("compiled", "ctranslate2") for q in ("float32", "int8")]
    said = re.findall(
        r"take (\d+) minutes .* and (\d+) in int8 \(CTranslate2: (\d+) and (\d+)\)", notes["sharp_models.throughput"]
    )
    assert [list(found) for found in said] == [wanted]
    assert f"{amer_2022.IDENTICAL:.0%} of M3's outputs" in notes["vocabulary_clusters.table3"]
    compared = committed("sharp_models.table1").sentences.dropna().unique()
    assert f"on {compared.item():.0f} sentences" in notes["sharp_models.table1"]
    ratio = committed("double_token_decoding.figure3").set_index(["name", "beam"]).speedup["base, batch 1", 10]
    profile = committed("double_token_decoding.profile").query(
        "system == 'bidirectional' and size == 'base' and batch == 1"
    )
    assert max(ratio, profile.speedup.max(), profile.products.max()) < 1.55
    timed, drafts = committed("combinations.draft_time"), committed("combinations.drafts")
    assert (timed.identical == 1).all() and (drafts.identical == 1).all() and timed.sentences.max() == 8
    sentences = committed("sharp_models.precisions").sentences.max()
    assert f"at most {sentences:,.0f} sentences" in notes["sharp_models.precisions"]


def test_an_outcome_is_shown_under_its_command(capsys):
    assert committed_result("parallel_decoding.cost") is not None
    command, machine, how = capsys.readouterr().out.splitlines()
    assert command.startswith("fastdecode experiment parallel_decoding") and "Intel" in machine
    assert how == "compiled engine; 1 thread"
    committed_result("sharp_models.steps")
    assert "engine" not in capsys.readouterr().out, "its rows name the engines"
    assert committed_result("nothing") is None
    assert "fastdecode experiment nothing" in capsys.readouterr().out


def test_a_chart_names_machine_and_date():
    frame, data = committed("parallel_decoding.cost"), chart_data("parallel_decoding.cost")
    assert frame.attrs["provenance"]["cpu"] in data["note"] and data["note"].endswith(
        f"1 thread, {frame.attrs['provenance']['date']}"
    )


@pytest.mark.parametrize("name", [n for n, e in experiments().items() if e.chart])
def test_every_committed_chart_can_be_drawn(name):
    try:
        data = chart_data(name)
    except NoResult:
        pytest.skip("not committed")
    assert len(data["frame"]) and "thread" in data["note"]


def test_reasons_for_gaps_are_given_once_and_untrained_models_in_one_sentence():
    trained = "The model {} is not trained here. Train it: fastdecode train {} --data DIR"
    rows = [{"gap": None}, *({"gap": trained.format(n, n)} for n in ("a", "b", "a")), {"gap": "Too short"}]
    assert gaps(pd.DataFrame(rows)) == ["Too short", "Not trained: a, b. Each by: fastdecode train NAME --data DIR"]
    assert gaps(pd.DataFrame([{"name": "a"}])) == []


def test_the_papers_curve_stands_behind_ours():
    rows = [("a", "x", 1.0, 2.0), ("b", "x", 3.0, None), ("a", "y", 5.0, 2.0)]
    frame = pd.DataFrame(rows, columns=["name", "set", "factor", "paper_factor"]).assign(kind="measured")
    both = with_paper_curve(frame, "factor", "set")
    assert both["factor"].tolist() == [1, 3, 5, 2] and both["kind"].tolist()[2:] == ["measured", "paper"]
    assert both["set"].iloc[-1] == "paper" and both["name"].iloc[-1] == "a"


def test_tables_are_read_without_what_is_empty():
    rows = [
        {"name": "a", "p_at_1": 0.98765, "paper_speedup": 12345.6, "note": "<b>x</b>", "kind": "measured", "gap": None},
        {"name": "b", "p_at_1": None, "paper_speedup": None, "note": None, "kind": "gap", "gap": "not trained"},
        {"name": "c", "p_at_1": None, "paper_speedup": 2.0, "note": None, "kind": "gap", "gap": "not trained"},
    ]
    frame = pd.concat([pd.DataFrame(rows), pd.DataFrame(rows[:1])]).assign(nothing=None)
    html = table(frame).to_html()
    assert html.count("<tr>") == 1 + 3 and ">b<" not in html and "nothing" not in html
    assert ">P@1<" in html and ">paper: speedup<" in html and ">gap<" not in html
    assert "98.8%" in html and "12,346" in html and "<b>x" not in html
    assert ">P@1<" not in table(frame, "name paper_speedup lacking").to_html()
    assert ">a<" in table(frame.set_index("name")).to_html(), "an index that has a name is shown"


def test_one_declaration_is_read_everywhere():
    declared = columns(
        "name", Column("speedup", "ratio"), Column("active", share=True), Column("bleu", digits=1), "good"
    )
    values = {"name": ["a|b", "c"], "speedup": [1.234, 150.0], "speedup_low": [1.1, 140.0], "speedup_high": [1.5, None]}
    frame = pd.DataFrame(values | {"active": [0.125, None], "bleu": [30.06, 31.0], "good": [True, False], "rest": 1})
    frame["speedup_low"] = [1.1, None]
    cells = texts(frame, *declared)
    assert list(cells) == ["name", "ratio", "active", "BLEU", "good"]
    assert cells.to_numpy().tolist() == [
        ["a|b", "≈ 1.23 (1.10–1.50)", "12.5%", "30.1", "yes"],
        ["c", "150", "", "31.0", "no"],
    ]
    assert page.markdown(frame, *declared).splitlines()[:3] == [
        "| name | ratio | active | BLEU | good |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| a\\|b | ≈ 1.23 (1.10–1.50) | 12.5% | 30.1 | yes |",
    ]
    whole = numbers(frame, *declared)
    assert list(whole) == ["name", "ratio", "ratio, low", "ratio, high", "active", "BLEU", "good", "noisy"]
    assert whole["ratio"].tolist() == [1.234, 150.0]
    assert noisy_rows(frame).tolist() == [True, False]
    quiet = frame.assign(speedup_low=[1.2, None], speedup_high=[1.3, None], bleu_low=20.0, bleu_high=40.0)
    assert noisy_rows(quiet).tolist() == [False, False], "an interval over sentences is not of times"
    assert texts(quiet, *declared)["ratio"].tolist() == ["1.23 (1.20–1.30)", "150"]
    assert absent(frame.assign(bleu=None), *declared) == ["BLEU"]


def test_a_count_of_one_has_no_digits_and_a_ratio_of_one_has():
    frame = pd.DataFrame({"beam": [1, 20], "ratio": [1.0, 2.0], "identical": [1, 0]})
    assert texts(frame).to_numpy().tolist() == [["1", "1.00", "100.0%"], ["20", "2", "0.0%"]]
    assert Column("beam", digits=1).text(1) == "1.0"


def test_screens_over_again_count_once():
    rows = [
        {
            "method": m,
            "precision": q,
            "rows_scored": r,
            "dev_p_at_1": 1.0,
            "dev_p_at_5": 1.0,
            "p_at_1": 1.0,
            "p_at_5": 1.0,
        }
        for m, q, r in (
            ("screened", "float32", 5.0),
            ("screened", "float32", 5.0),
            ("screened", "int8", 5.0),
            ("kmeans", "float32", 5.0),
            ("svd", "float32", 5.0),
            ("svd", "float32", 5.0),
        )
    ]
    assert distinct(pd.DataFrame(rows))["method"].tolist() == ["screened", "screened", "kmeans", "svd", "svd"]


def test_samples_go_from_first_to_last():
    assert spread_over(range(10), 4) == [0, 3, 6, 9] and spread_over(range(3), 4) == [0, 1, 2]
    assert spread_over(range(9), 1) == [4], "one is not the shortest"


def test_what_is_said_not_to_add_up_follows_from_the_printed_numbers():
    dense = {name: (share, 720 / time) for name, ((share, time), _) in amer_2022.TABLE_2.items()}
    m3 = [600 / time for _, (_, time) in amer_2022.TABLE_2.values()]
    said = does_not_add_up("vocabulary_clusters")
    ratios = [ratio for _, ratio in dense.values()]
    for values in (ratios, m3):
        assert f"{min(values):.2f} to {max(values):.2f}" in said
    assert max(share for share, _ in dense.values()) == dense["fr-en"][0] == 16.5
    gains = [gain for pair in amer_2022.TABLE_3["dense"].values() for _, _, gain in pair]
    assert f"{min(gains):.2f} to {max(gains):.2f}" in said
    slope, start = np.polyfit(*zip(*(times for times, _ in amer_2022.TABLE_2.values()), strict=True), 1)
    assert (round(start, -1), round(slope)) == (150, 12)
    into = [
        (amer_2022.TABLE_3["dense"][name][0][0], amer_2022.TABLE_1[name][0]) for name in ("fr-en", "it-en", "es-en")
    ]
    bleu, sentences = zip(*into, strict=True)
    assert f"{np.mean(bleu):.2f} plain, {np.average(bleu, weights=sentences):.2f} weighted" in said
    said = does_not_add_up("learning_to_screen")
    for name, (_, vocabulary, _) in list(chen_2019.SIZES.items())[:3]:
        assert f"{vocabulary / TABLE_2[name]['screened'][0]:,.0f}" in said
    assert chen_2019.TABLE_5["large"]["screened"][1:] != TABLE_2["large"]["screened"][1:]


def test_models_that_are_not_trained_are_said_once():
    reasons = [f"not trained: fastdecode train {name} --data DIR" for name in ("a", "b c", "a")]
    assert gaps(pd.DataFrame({"gap": [*reasons, "no corpus", None]})) == [
        "no corpus",
        "Not trained: a, b, c. Each by: fastdecode train NAME --data DIR",
    ]


def test_a_headline_names_one_row():
    rows = headlines.measured()
    assert rows[rows.readme].stem.value_counts().to_dict() == dict.fromkeys(rows.stem, 1) | {headlines.BEYOND: 2}
    assert 0 < (rows.command != "").sum() <= 15
    wrong = dataclasses.replace(headlines.HEADLINES[1], where={"projection": "nothing"})
    with pytest.raises(ValueError, match=r"'learned screen' needs one row of combinations.first_page: got 0"):
        headlines.measured((wrong,))
    systems = committed("double_token_decoding.table2").query("set == 'single'").set_index("system").bleu
    for headline in headlines.HEADLINES:
        if headline.instead:
            lost = systems["single_token_l2r"] - systems[str(headline.where["system"])]
            assert headline.instead == f"another model, {lost:.1f} BLEU less"
    steps = committed("sharp_models.steps").set_index("name").loc["tatoeba-small, hf float32"]
    assert f"{steps.ratio:.1f} times as fast on the bundled model on the Intel Xeon" in " ".join(LANDING.split())
    assert f"takes {steps.ratio:.1f} (EPYC: 10) times as long" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("stem", ["vocabulary_clusters", "learning_to_screen", "parallel_decoding"])
def test_a_notebook_ends_with_the_numbers_of_its_conclusion(stem):
    paper = next(paper for paper in papers() if paper.stem == stem)
    notebook = json.loads((ROOT / "notebooks" / f"{paper.notebook}.ipynb").read_text(encoding="utf-8"))
    last = "".join(notebook["cells"][-1]["source"]).partition("What came of it")[2]
    said = conclusion(stem)
    numbers = set(re.findall(r"\d+\.\d+|\d+%", last))
    assert len(numbers) > 4 and numbers <= set(re.findall(r"\d+\.\d+|\d+%", said))

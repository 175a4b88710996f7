"""The section of docs/results.md on paper 000, written from the committed results by running this module."""

from typing import TYPE_CHECKING

from fastdecode_lib.papers.page import Section, columns, interval, markdown, measured, percent
from fastdecode_lib.papers.vocabulary_clusters.geometry import ZCODE
from fastdecode_lib.papers.vocabulary_clusters.printed import IDENTICAL, INCONSISTENCIES

if TYPE_CHECKING:
    import pandas as pd

INTRODUCTION = """\
The bundled multilingual model. Contexts are its own greedy decoding of sentences of the training split, in random order until
there were a million: 156,870 to 188,499 of each direction, which a direction's clusters are made on, and 476,197 into English.
Baselines' settings are chosen on its 13,730 contexts from English to German of the dev split. Sentences are those of the test
split, single (set 1) and joined two to four at a time (set 2). The paper's models, sentences and raters cannot be had. One
thread, systems in turn, 95% intervals; every speedup in these tables is over our own exact kernel in float32 unless it says
otherwise. Raw: `fastdecode_lib/results/vocabulary_clusters.*.laptop.json`; the notebook `01_vocabulary_clusters` shows them
with what they mean.
This section is written from the results by `python -m fastdecode_lib.papers.vocabulary_clusters.page`."""


def _table2(frame: "pd.DataFrame") -> str:
    ours, paper = (frame[frame["kind"] == kind] for kind in ("measured", "paper"))
    own = ours.assign(active=percent(ours["active"]), speedup=interval(ours, "speedup"))
    names = {
        "direction": "direction",
        "method": "method",
        "clusters": "clusters",
        "rows": "rows a step",
        "active": "active",
        "microseconds": "us",
        "speedup": "speedup",
    }
    printed = paper.assign(paper_active=percent(paper["paper_active"]))
    there = {
        "direction": "the paper's direction", "method": "model", "paper_active": "active", "paper_microseconds": "us",
        "paper_speedup": "speedup",
    }  # fmt: skip
    return (
        f"{markdown(own[list(names)].rename(columns=names))}\n\n{markdown(printed[list(there)].rename(columns=there))}\n\n"
        "Ours are means over the steps of beam searches. 20 sentences with a beam of 2 are 40 rows at first, fewer as they "
        f"end, {ours['rows'].min():.0f} to {ours['rows'].max():.0f} on average: where a few outputs run on for long, most "
        "steps are theirs alone. The paper's choice are 1,300 clusters with one label; scattered are the scores of "
        "a union over the vocabulary's width, where the paper takes its softmax. The paper's times are of a GPU."
    )


def _decoded(frame: "pd.DataFrame") -> str:
    ours = frame[frame["kind"] == "measured"]
    own = ours.assign(identical=percent(ours["identical"]), speedup=interval(ours, "speedup"))
    names = {
        "direction": "direction", "protocol": "protocol", "method": "method", "bleu": "BLEU", "chrf": "chrF",
        "identical": "same outputs", "speedup": "speedup of all decoding",
    }  # fmt: skip
    paper = frame[frame["kind"] == "paper"].groupby(["method", "protocol"], sort=False)
    mean = paper[["paper_bleu_exact", "paper_bleu", "paper_speedup"]].mean().reset_index()
    there = {
        "method": "the paper's model, mean of its directions", "protocol": "protocol", "paper_bleu_exact": "BLEU, exact",
        "paper_bleu": "BLEU, clusters", "paper_speedup": "speedup",
    }  # fmt: skip
    return (
        f"{markdown(own[list(names)].rename(columns=names))}\n\n{markdown(mean[list(there)].rename(columns=there))}\n\n"
        f"{IDENTICAL:.0%} of the paper's outputs were the same. Its own choice are 1,300 clusters with one label, for which "
        "our contexts are too few."
    )


def _geometry(frame: "pd.DataFrame") -> str:
    names = {"name": "geometry, method", "microseconds": "us a vector", "speedup": "speedup over numpy"}
    own = frame.assign(speedup=interval(frame, "speedup"))
    reached = "; ".join(frame[frame["speedup"] >= ZCODE]["name"])
    return (
        f"{markdown(own[list(names)].rename(columns=names))}\n\n"
        "A percentage is the active share of a cluster: 2% is that of the largest in the paper's figure 4 with one label, "
        "12.5% that of the largest of 400 in its figure 2. Unions of its batches (table 2) are 6.4% to 16.5%. The goal of "
        f"`make bench-projections`, {ZCODE:.0f} times numpy, is for 2% in any precision; it is reached by: {reached}."
    )


def _rated(frame: "pd.DataFrame") -> str:
    names = {
        "name": "direction", "pairs": "pairs", "mean_a": "exact", "mean_b": "clusters", "rank_sum": "p, rank-sum",
        "signed_rank": "p, signed-rank", "paper_exact": "paper: exact", "paper_clustered": "paper: clusters",
    }  # fmt: skip
    alpha = frame[frame["kind"] == "agreement"].set_index("name")["alpha"]
    told = " and ".join(f"{value:.2f} of their {name.partition(' ')[0]}" for name, value in alpha.items())
    return columns(
        names,
        f"Ours are rated by programs that score by chrF, not by people; their agreement, Krippendorff's alpha, is {told}.",
        where=lambda rows: rows["kind"] != "agreement",
    )(frame)


def _rating_power(frame: "pd.DataFrame") -> str:
    names = {
        "effect": "effect, points", "rank_sum": "found by the rank-sum test", "signed_rank": "by the signed-rank test",
        "alpha_scores": "alpha of scores", "alpha_differences": "of differences",
    }  # fmt: skip
    own = frame.round({"alpha_scores": 2, "alpha_differences": 2})
    own = own.assign(rank_sum=percent(frame["rank_sum"]), signed_rank=percent(frame["signed_rank"]))
    return (
        f"{markdown(own[list(names)].rename(columns=names))}\n\n"
        f"Studies of {frame['pairs'].iloc[0]:,} pairs, {frame['trials'].iloc[0]:,} for each effect, at the level .05. Alpha is "
        f"Krippendorff's, of {frame['agreeing_raters'].iloc[0]} programs that rate {frame['agreeing_pairs'].iloc[0]} pairs as the "
        "simulation assumes: they agree which outputs are good, since difficulty is the pair's, and not which system is better, "
        "since every pair has the same small effect."
    )


def _end_to_end(frame: "pd.DataFrame") -> str:
    found = (frame["rare_recall"] * frame["rare_words"]).round().astype(int)
    rare = found.astype(str) + " of " + frame["rare_words"].astype(int).astype(str)
    return _WHOLE(frame.assign(rare_recall=rare))


_WHOLE = measured(
    {
        "decoder": "decoder",
        "method": "projection",
        "setting": "setting",
        "bleu": "BLEU",
        "chrf": "chrF",
        "identical": "same as exact",
        "as_greedy": "same as greedy",
        "rare_recall": "rare words",
        "speedup": "speedup",
        "over_greedy": "over exact greedy",
        "megabytes": "MB",
    },
    "English to German, 400 single test sentences, 60 of them timed; the window is 5 wide and recycles its tokens, the beam is 2 "
    "wide, in batches of 20. *Same as exact* is the share of outputs that are the exact projection's under the same decoder; *same "
    "as greedy* that are greedy decoding's under the same projection, which is all of them by law where each row has its own set; "
    "of a beam, its own outputs without company. *Rare words* are those of the references that training has at most 20 times, and "
    "how many of these the outputs have. Outputs of fgd end by its graph of 64 links; in those of 16 and 32 no link leads to "
    "the end of the sentence. The output's rows are 256 wide here and the last layer fast, so that an index is seldom worth its "
    "search.",
)


SECTION = Section(
    "## Paper 000: vocabulary projection by clusters and active sets",
    INTRODUCTION,
    "vocabulary_clusters",
    (
        ("Active tokens and the time of the projection (Table 2)", "table2", _table2),
        ("Quality and speed on set 1 (Table 3)", "table3", _decoded),
        ("Quality and speed on set 2 (Table 4)", "table4", _decoded),
        (
            "Memory (Table 5)",
            "table5",
            columns(
                {
                    "name": "direction or model",
                    "output_megabytes": "output matrix, MB",
                    "sets_megabytes": "centroids and sets, MB",
                    "with_copies_megabytes": "with a copy of each set's rows, MB",
                    "paper_gigabytes": "paper: model, GB",
                    "paper_gigabytes_with": "paper: with clusters, GB",
                }
            ),
        ),
        (
            "Number of clusters (Figures 2 and 3)",
            "figure2",
            measured(
                {
                    "group": "contexts of",
                    "clusters": "clusters",
                    "largest_share": "largest active share",
                    "mean_share": "mean active share",
                    "paper_largest_share": "paper: largest",
                },
                shares=("largest_share", "mean_share", "paper_largest_share"),
            ),
        ),
        (
            "Speed against the number of clusters (Figure 3)",
            "figure3",
            measured(
                {"name": "clusters and labels", "speedup": "speedup of all decoding", "identical": "same outputs"},
                "German to English, a sentence at a time. No number of clusters is faster than another beyond chance: all "
                "score so few tokens that the rest of decoding is what is left. The more clusters, the smaller "
                "their sets, and up to 400 of them the more outputs change (of 60).",
                shares=("identical",),
            ),
        ),
        (
            "Outputs rated side by side (Table 6)",
            "table6",
            _rated,
        ),
        ("What the two tests find, and how far raters agree", "rating_power", _rating_power),
        (
            "What part of decoding the projection is",
            "step_share",
            columns(
                {"name": "protocol, projection", "share": "share of the time", "most": "speedup if it took no time"},
                "English to German.",
            ),
        ),
        (
            "Every projection under every decoder",
            "end_to_end",
            _end_to_end,
        ),
        (
            "What a union over the batch does",
            "sharing",
            measured(
                {
                    "direction": "direction",
                    "method": "method",
                    "together_as_alone": "same output together as alone",
                    "otherwise_together_as_alone": "with other neighbours",
                    "window_as_greedy": "window as greedy",
                },
                "20 sentences together; in another order, 7. The union is a batch's, or a pass's of the window.",
                ("together_as_alone", "otherwise_together_as_alone", "window_as_greedy"),
            ),
        ),
        ("Time at the geometry of the paper's models", "zcode", _geometry),
        (
            "Time on a GPU",
            "gpu",
            measured(
                {
                    "name": "geometry, hidden vectors of a call, system",
                    "active_share": "active",
                    "milliseconds": "ms a call",
                    "speedup": "speedup over all tokens",
                    "crossover": "none from",
                },
                "In float16. *Shared* is one set for all vectors of a call, as in the paper; *none from* is the active share from "
                "which nothing is gained.",
                ("active_share", "crossover"),
            ),
        ),
        (
            "The lossless projection against the exact one",
            "lossless",
            measured(
                {
                    "name": "output matrix",
                    "vocabulary": "rows",
                    "width": "width",
                    "queries": "vectors",
                    "recorded": "recorded",
                    "mixed": "between two",
                    "mismatches": "answers that differ",
                    "scored_again": "rows scored again, mean",
                    "scored_again_most": "most",
                },
                "Of translation's vectors 300,000 are recorded and the others lie between two of those, at random; dense's are "
                "recorded, and turned into the larger space.",
            ),
        ),
    ),
    INCONSISTENCIES,
)

if __name__ == "__main__":
    SECTION.write()

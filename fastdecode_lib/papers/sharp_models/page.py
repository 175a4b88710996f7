"""The section of docs/results.md on paper 004, written from the committed results by running this module."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from fastdecode_lib.papers.page import Section, columns, interval, markdown, percent

if TYPE_CHECKING:
    import pandas as pd

TITLE = "## Paper 004: sharp models on dull hardware"

INTRODUCTION = """\
Each table names the command that makes it again and the processor it was made on; raw times are in
`fastdecode_lib/results/sharp_models.*.laptop.json`. The notebook `05_sharp_models` shows them with what they mean. One thread,
systems in turn, 95% intervals. The paper's times are of an Intel E5-2660 with the MKL of 2017: compare factors, not words a second.
This section is written from the results by `python -m fastdecode_lib.papers.sharp_models.page`."""


def _table1(frame: "pd.DataFrame") -> str:
    import pandas as pd

    random, trained = (part.set_index("name") for _, part in frame.groupby("set", sort=False))
    table = pd.DataFrame(
        {
            "stage": random.index,
            "paper: words/s": random["paper_words_per_second"].to_numpy(),
            "paper: factor": random["paper_factor"].to_numpy(),
            "words/s at its geometry": random["words_per_second"].to_numpy(),
            "factor at its geometry": interval(random, "factor").to_numpy(),
            "factor, trained model": interval(trained.reindex(random.index), "factor").to_numpy(),
            "same outputs": percent(trained["agreement"].reindex(random.index)).to_numpy(),
            "widest gap": trained["widest_gap"].reindex(random.index).to_numpy(),
        }
    )
    return (
        f"{markdown(table)}\n\nOutputs are compared with the baseline's on {int(trained['sentences'].iloc[0]):,} sentences; the "
        f"gap is that of their\nlog-probabilities where they differ, at most. Noisy with random weights: {_noisy(random)}; with "
        f"the trained model: {_noisy(trained)}.\nThe rows without "
        "values of the paper each change one thing: the first stage without rounding (packed weights, and\nthe loops around "
        "them compiled), or all stages with something else in one place. Not every rung goes up beyond the noise here:\n"
        "precomputed embeddings gain nothing at the paper's sizes, precomputed attention nothing with the trained model, and "
        "merged\nstates (in the paper 8%) nothing sure with either."
    )


def _noisy(frame: "pd.DataFrame") -> str:
    return ", ".join(f"*{name}*" for name in frame.index[frame["note"] == "noisy"]) or "none"


def _figure1(frame: "pd.DataFrame") -> str:
    table = frame.pivot_table(index="name", columns="batch", values="speedup", sort=False).reset_index()
    table.columns = ["times the library's speed", *(f"{batch} row{'s' * (batch > 1)}" for batch in table.columns[1:])]
    return (
        f"{markdown(table)}\n\nThe paper: 2 to 3 for its 16 bits at 2 to 8 rows. It prints neither the size of its matrix (ours "
        "is 3,072 x 1,024) nor values."
    )


def _table2(frame: "pd.DataFrame") -> str:
    import pandas as pd

    ours = frame[frame["kind"] == "measured"]
    table = pd.DataFrame(
        {
            "system": ours["name"],
            "BLEU": interval(ours, "bleu"),
            "p against S1": ours["bleu_p"],
            "paper: BLEU": ours["paper_bleu"],
            "words/s": ours["words_per_second"],
            "paper: words/s": ours["paper_words_per_second"].astype(float),
            "speed over S1": interval(ours, "speed_over_s1"),
            "paper: over S1": ours["paper_speed_over_s1"],
        }
    )
    gaps = [
        f"{name} (`{gap.partition(': ')[2]}`)"
        for name, gap in zip(ours["name"], ours["gap"], strict=True)
        if isinstance(gap, str)
    ]
    told = f"\nNot trained here: {', '.join(gaps)}." if gaps else ""
    states = ours.set_index("name")["distinct_states"]
    bleu = ours.set_index("name")["bleu"].dropna()
    order = ""
    if list(bleu.index) == ["S1", "S4"] and bleu["S4"] < bleu["S1"]:
        order = (
            f" Of the two systems trained here S4 is {bleu['S1'] - bleu['S4']:.0f} BLEU below S1, where the paper has it 1 above;\n"
            "both had 2,400 updates, and whether more of them turn this round is not measured."
        )
    return (
        f"{markdown(table)}\n\nBLEU is of networks of a quarter of the paper's widths on everyday sentences, the paper's of "
        "newstest2014: compare\nsystems within a column; p is that of a paired bootstrap."
        f"{order} Speed is at the paper's geometry, with\nrandom weights. Merged states make it depend on how many states of a "
        "beam are distinct, which random weights decide\n"
        f"({states.min():.2f} for {states.idxmin()}, {states.max():.2f} for {states.idxmax()}), so that these ratios are rough."
        f"{told}"
    )


def _steps(frame: "pd.DataFrame") -> str:
    import pandas as pd

    table = pd.DataFrame(
        {
            "model, system": frame["name"],
            "ms a step": frame["ms_per_step"],
            "its time over the compiled engine's": interval(frame, "ratio"),
            "same outputs as compiled float32": percent(frame["agreement"]),
            "note": frame["note"],
        }
    )
    own, random = frame.attrs["provenance"]["sentences"]
    long = frame.set_index("name")["steps"]["tatoeba-small, compiled float32"] / own
    return (
        f"{markdown(table)}\n\nThe ratio is with the compiled engine in the same precision: above 1, ours is faster. Same "
        f"outputs of the bundled model are counted on\n{own} of our own sentences, English to German, of {long:.0f} tokens on "
        f"average; one of them is {1 / own:.1%}. *What rounding changes* below counts them on the\ntest split, which has many more "
        f"sentences, and shorter ones. The other shape has random weights and decodes {random} random sources to\na forced length."
    )


def _precisions(frame: "pd.DataFrame") -> str:
    columns = {
        "agreement": "same outputs as float32",
        "bleu": "BLEU",
        "bleu_change": "change",
        "chrf_change": "change of chrF",
    }
    table = frame.groupby("precision", sort=False)[list(columns)].mean().reset_index()
    table = table.assign(agreement=percent(table["agreement"])).rename(columns=columns)
    directions, most = frame["direction"].nunique(), int(frame["sentences"].max())
    in_bytes = frame[frame["precision"] == "int8"].set_index("direction")
    int8, change = in_bytes["agreement"], in_bytes["bleu_change"]
    return (
        f"{markdown(table)}\n\nMean of {directions} directions on the compiled engine, at most {most:,} sentences of the "
        f"{frame['set'].iloc[0]} split each. By direction, int8 leaves {int8.min():.1%}\nto {int8.max():.1%} of the outputs the "
        f"same, English to German {int8['en-de']:.1%}, and changes BLEU by {change.min():+.2f} ({change.idxmin()}) to "
        f"{change.max():+.2f} ({change.idxmax()}). *Time of a step* has another share, of fewer and longer\nsentences that are "
        "not from the corpus."
    )


def _pass_costs(frame: "pd.DataFrame") -> str:
    table = frame.pivot_table(index="name", columns="width", values="cost", sort=False).reset_index()
    table.columns = ["model, system", *(f"w={width}" for width in table.columns[1:])]
    after = "In passes over one position. What a faster step leaves for parallel decoding to win is in the notebook."
    return f"{markdown(table)}\n\n{after}"


PARTS: tuple[tuple[str, str, Callable[["pd.DataFrame"], str]], ...] = (
    ("The ladder (Table 1)", "table1", _table1),
    ("Products of a few rows (Figure 1)", "figure1", _figure1),
    ("Systems (Table 2)", "table2", _table2),
    (
        "A fully-connected layer",
        "layers",
        columns({"name": "products of six rows", "cost": "cost", "paper_cost": "paper"}),
    ),
    (
        "Forward and backward in training",
        "training_cost",
        columns({"name": "system", "time_over_s4": "time over S4's", "paper_time_over_s4": "paper, roughly"}),
    ),
    (
        "Distinct states of a beam",
        "unique_states",
        columns({"name": "beam", "unique": "distinct", "paper_unique": "paper, about"}),
    ),
    (
        "Tables of frequent words",
        "coverage",
        columns(
            {
                "name": "table",
                "source_coverage": "source tokens covered",
                "target_coverage": "target tokens covered",
                "paper_coverage": "paper, at least",
                "megabytes": "MB at the paper's geometry",
            },
            "Our vocabularies have 8,000 words altogether, of everyday text, so that the last row is all of them and what it does "
            "not cover is unknown; the paper's have 80,000, of news.",
        ),
    ),
    ("Time of a step", "steps", _steps),
    ("What rounding changes", "precisions", _precisions),
    (
        "The compiled engine against torch, float32",
        "engines",
        columns(
            {
                "name": "direction",
                "set": "set",
                "sentences": "sentences",
                "differ": "outputs that differ",
                "largest_margin": "margin of the two best tokens there",
            }
        ),
    ),
    ("What a wide pass costs on the compiled engine", "pass_costs", _pass_costs),
    (
        "Many sentences",
        "throughput",
        columns(
            {
                "name": "system",
                "sentences_per_second": "sentences a second",
                "batch": "batch",
                "threads": "threads",
                "ratio": "its time over ours",
            }
        ),
    ),
    ("A fresh process", "start_up", columns({"name": "until", "seconds": "seconds"})),
)


SECTION = Section(TITLE, INTRODUCTION, "sharp_models", PARTS)

if __name__ == "__main__":
    SECTION.write()

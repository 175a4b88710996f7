"""docs/cost.md: what a million sentences cost at one, ten and a thousand cores, from measured throughput; run this module."""

from pathlib import Path

from fastdecode_lib.papers.outcomes import committed
from fastdecode_lib.papers.page import markdown

PAGE = Path("docs") / "cost.md"
CORES = (1, 10, 1_000)
PRICE = 0.04
"""Dollars for an hour of one core, assumed."""
MILLION = 1_000_000


def _rounded(value: float) -> str:
    """Two significant digits, and no zeros that say more."""
    return f"{float(f'{value:.2g}'):,.10g}"


def text() -> str:
    """The page."""
    import pandas as pd

    frame = committed("sharp_models.throughput")
    about = frame.attrs["provenance"]
    flags, rows = ", ".join(about["cpu_flags"]), []
    for row in frame.to_dict("records"):
        each = row["sentences_per_second"] / row["threads"]
        hours = MILLION / each / 3600
        rows.append(
            {"system": row["name"], "sentences a second and core": _rounded(each)}
            | {f"minutes, {cores:,} core{'s' if cores > 1 else ''}": _rounded(60 * hours / cores) for cores in CORES}
            | {"dollars": _rounded(hours * PRICE)}
        )
    apart = [max(times) / min(times) - 1 for times in about["seconds"].values()]
    return f"""\
# What a million sentences cost

Calculated, not measured at scale. Measured is the throughput of one machine: {about["sentences"]:,} sentences of the \
{about["set"]} split, in batches of like length, on both cores of a processor ({about["cpu"]}, {flags}), with \
`{about["model"]}`, English to German, each system with its own best batch size: `{about["command"]}`. From it follows \
the rest: sentences are independent, so {CORES[1]} cores take a tenth of the time and {CORES[2]:,} a thousandth, as \
long as there are chunks for all of them, and a million sentences are {MILLION // 64:,} chunks of 64. What is left \
out: starting the workers, loading the model once a process (under two seconds), and the last chunk, for which the others wait. \
A core is taken to cost {PRICE} dollars an hour; the price of yours is a factor on the last column. All is rounded to two \
digits, since the slowest round of a system took {min(apart):.0%} to {max(apart):.0%} longer than its fastest.

{markdown(pd.DataFrame(rows))}

The model is small, and its sentences are short; a step of a model of opus-mt's shape takes eight times as long, one \
sentence at a time (`sharp_models.steps`), and batches of it were not timed. Windows lose in batches. Clusters gain there, \
1.5 to 1.6 times in batches of 20 with a beam of 2 (English to French 2.7), \
but change 12 to 24% of the outputs (`vocabulary_clusters.table3`); so \
plain greedy decoding is what is counted.

`fastdecode evaluate --workers N`, or `--scheduler ADDRESS` for the workers of a dask cluster, decodes and scores in \
this way: the rows are the same for any number of workers, and a run that is stopped or killed goes on where it was. \
Nothing is timed there; times come from `fastdecode compare` and the benchmarks, on a machine that does nothing else.

This page is written by `python -m fastdecode_lib.papers.sharp_models.cost_page`.
"""


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")

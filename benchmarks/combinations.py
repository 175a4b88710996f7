"""Speedups of every decoder with every projection in every precision, over greedy decoding with the exact one in float32.

The option --quick measures the bundled model in float32 and int8 with four projections, on our own sentences.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from benchmarks.report import Row, command_of, options_of, report
from fastdecode_lib.papers.combinations.cube import AMOUNTS, MODELS, Amount, cube
from fastdecode_lib.papers.run import Scale

if TYPE_CHECKING:
    import pandas as pd

QUICK = Amount(12, 3, 7, ("float32", "int8"), ("exact", "quantised", "clustered", "lexical"), 60)
TINY = Amount(2, 1, 1, ("float32", "int8"), ("exact", "clustered"), 8)
QUICK_MODELS = {"tatoeba-small": "en-de"}


def rows_of(frame: "pd.DataFrame") -> Iterator[Row]:
    """The combinations that run, the fastest of a model first."""
    if "speedup" not in frame:
        return
    order = {model: number for number, model in enumerate(frame["model"].unique())}
    frame = frame[frame["speedup"].notna()].sort_values("speedup", ascending=False)
    for row in frame.sort_values("model", key=lambda names: names.map(order), kind="stable").to_dict("records"):
        note = f"{row['agreement']:.0%} same outputs, product of parts {row['product']:.2f}"
        yield Row(row["name"], row["speedup"], "times plain decoding", row["speedup_low"], row["speedup_high"], note)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report."""
    options = options_of("combinations", __doc__).parse_args(arguments)
    scale, models, amount = Scale.LAPTOP, MODELS, AMOUNTS[Scale.LAPTOP]
    if options.quick or options.tiny:
        scale, models, amount = Scale.TINY, QUICK_MODELS, TINY if options.tiny else QUICK
    shared = {"seed": options.seed, "progress": sys.stderr.isatty()}
    frame = cube(scale, data=options.data, models=models, amount=amount, **shared)
    report(rows_of(frame), command_of("combinations", arguments), options, sentences=amount.sentences)
    return 0


if __name__ == "__main__":
    sys.exit(main())

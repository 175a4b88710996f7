"""Speed and precision of projections over numpy's product and partial sort, one vector at a time.

Chen et al.'s methods at every setting on three trained models, clusters at the size of Amer et al.'s models, and the lossless
projection against the exact one; with --quick, exact projections and a few screens on the bundled language model.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.report import Row, command_of, options_of, report
from fastdecode_lib.papers.learning_to_screen.tables import distinct, front, frontiers
from fastdecode_lib.papers.outcomes import NoResult
from fastdecode_lib.papers.run import CorpusRun, Scale, experiment
from fastdecode_lib.papers.shared.contexts_of import situation
from fastdecode_lib.papers.shared.projection_runs import GRIDS, Screens, exact_settings, screen_settings, timed_settings
from fastdecode_lib.papers.vocabulary_clusters import geometry
from fastdecode_lib.text.corpus import CorpusNotFound

if TYPE_CHECKING:
    import pandas as pd

QUICK_MODEL = "small"
QUICK_GRID = replace(GRIDS[Scale.LAPTOP], budgets=(50,), centroids=(100,), rounds=7, timed=200)


@experiment
def few_screens(run: CorpusRun) -> "pd.DataFrame":
    """Exact projections and a few screens on the bundled language model, with contexts of our own sentences."""
    recorded = situation(QUICK_MODEL, replace(run, scale=Scale.TINY))
    grid = GRIDS[run.scale] if run.tiny else QUICK_GRID
    settings = [*exact_settings(recorded.matrix), *screen_settings(Screens(recorded), grid, run.seed)]
    frame = distinct(timed_settings(recorded, settings, grid, seed=run.seed, progress=run.progress))
    return frame.assign(set=recorded.model, kind="measured")


def rows_of(frame: "pd.DataFrame") -> Iterator[Row]:
    """Speedups of each method's settings that no other setting of the method beats in both speed and precision."""
    if "method" in frame and "dev_p_at_1" in frame:
        for (model, _), settings in frame.groupby(["set", "method"], sort=False):
            for row in front(settings).to_dict("records"):
                note = f"P@1 {row['p_at_1']:.4f}, P@5 {row['p_at_5']:.4f}, {row['microseconds']:.1f} µs"
                name = f"{model}, {row['name']}"
                yield Row(name, row["speedup"], "times numpy's speed", row["speedup_low"], row["speedup_high"], note)
    elif "mismatches" in frame:
        for row in frame[frame["kind"] == "measured"].to_dict("records"):
            name = f"{row['name']}, lossless, answers that differ"
            yield Row(name, row["mismatches"], "vectors", note=f"of {row['queries']:,.0f}")
    else:
        for row in frame[frame["kind"] == "measured"].to_dict("records"):
            note = f"{row['microseconds']:.1f} µs"
            yield Row(row["name"], row["speedup"], "times numpy's speed", row["speedup_low"], row["speedup_high"], note)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report; models whose corpus or weights are missing are named and left out."""
    options = options_of("projections", __doc__).parse_args(arguments)
    scale = Scale.TINY if options.tiny else Scale.LAPTOP
    makers: list[Callable[..., pd.DataFrame]] = [frontiers, geometry.lossless, geometry.zcode]
    if options.quick or options.tiny:
        makers = [few_screens]
    rows: list[Row] = []
    for make in makers:
        try:
            frame = make(scale, data=options.data, seed=options.seed, progress=sys.stderr.isatty())
        except (CorpusNotFound, NoResult) as missing:
            print(f"{make.__name__} is left out. {missing}", file=sys.stderr)
            continue
        for reason in frame["gap"].dropna().unique() if "gap" in frame else ():
            print(f"A part of {make.__name__} is left out. {reason}", file=sys.stderr)
        rows += rows_of(frame)
    report(rows, command_of("projections", arguments), options, scale=str(scale))
    return 0


if __name__ == "__main__":
    sys.exit(main())

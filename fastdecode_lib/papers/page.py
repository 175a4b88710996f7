"""docs/results.md from the papers on, written from the committed results: ``python -m fastdecode_lib.papers.page``."""

from pathlib import Path
from typing import TYPE_CHECKING

from fastdecode_lib.papers.catalogue import papers
from fastdecode_lib.papers.experiment import Paper
from fastdecode_lib.papers.outcomes import NoResult, committed
from fastdecode_lib.papers.reading import gaps, is_noisy, processors, selected, texts
from fastdecode_lib.store import atomic_file

if TYPE_CHECKING:
    import pandas as pd

PAGE = Path("docs") / "results.md"
WRITTEN = "<!-- What follows is written by: python -m fastdecode_lib.papers.page -->"


def markdown(frame: "pd.DataFrame", *named: object) -> str:
    """A table in Markdown, numbers to the right. Parameters as for `reading.selected`."""
    from pandas.api.types import is_numeric_dtype

    rows, present = selected(frame, *named)  # type: ignore[arg-type]
    cells = texts(frame, *named)  # type: ignore[arg-type]
    sides = ["---:" if is_numeric_dtype(rows[column.name]) else "---" for column in present]
    lines = [list(cells), sides, *cells.to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def section(paper: Paper) -> str:
    """A paper's part of the page; tables without a result are named at its end, with the command that makes them."""
    title = f"Paper {paper.number}: {paper.title}" if paper.number else paper.title
    blocks, missing = [f"## {title}", paper.introduction], []
    for experiment in paper.experiments:
        if not experiment.on_page:
            continue
        try:
            frame = committed(experiment.name)
        except NoResult:
            missing.append(experiment.title)
            continue
        provenance = frame.attrs["provenance"]
        timed = frame[~frame["kind"].isin(["paper", "gap"])] if "kind" in frame else frame
        noise = f" {is_noisy(timed).sum()} of {len(timed)} rows are noisy." if is_noisy(timed).any() else ""
        rows = experiment.arrange(frame) if experiment.arrange else frame
        blocks += [
            f"### {experiment.title}",
            f"`{provenance['command']}`, {processors(provenance)}.{noise}",
            markdown(rows, *experiment.columns),
            " ".join([experiment.note, *(f"{gap.rstrip('.')}." for gap in gaps(frame))]).strip(),
        ]
    if paper.inconsistencies:
        sentences = "\n".join(f"- {sentence}" for sentence in paper.inconsistencies)
        blocks += ["### What does not add up in the paper", sentences]
    if missing:
        command = f"fastdecode experiment {paper.stem} --scale laptop --results fastdecode_lib/results"
        blocks.append(f"Not measured yet (`{command}`): {'; '.join(missing)}.")
    return "\n\n".join(block for block in blocks if block)


def written() -> str:
    """What is written of the page."""
    return "\n\n".join([WRITTEN, *(section(paper) for paper in papers() if paper.introduction)]) + "\n"


def write(page: Path = PAGE) -> None:
    """Write the page's sections on papers, behind what it says before them."""
    before = page.read_text(encoding="utf-8").partition(WRITTEN)[0]
    with atomic_file(page) as temporary:
        temporary.write_text(before + written(), encoding="utf-8")


if __name__ == "__main__":
    write()

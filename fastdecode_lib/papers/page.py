"""The parts of README.md, docs/index.md and docs/results/ that are made from committed results, as Markdown.

They stand between marks; the prose around them is written by hand. ``fastdecode figures --pages`` writes them and draws the charts.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from fastdecode_lib.checkpoints.weights import BUNDLED, HERE, NOT_SHIPPED, read_manifest
from fastdecode_lib.papers.catalogue import papers
from fastdecode_lib.papers.experiment import Chart, Column, Experiment, Paper
from fastdecode_lib.papers.headlines import BEYOND, HEADLINES, SECOND, measured, on_second_processor
from fastdecode_lib.papers.outcomes import NoResult, committed, result_name
from fastdecode_lib.papers.reading import ENDS, absent, gaps, processors, selected, texts
from fastdecode_lib.papers.shared.training_curves import committed_history

FOLDER = Path("docs") / "results"
CHARTS = "charts"
RAW = "../../fastdecode_lib/results"
BEGIN, END = "<!-- results: fastdecode figures --pages -->", "<!-- end of results -->"
FRONTIER = "frontier"


def markdown(frame: pd.DataFrame, *parts: str | Column) -> str:
    """A table in Markdown, numbers aligned right. Parameters as for `reading.selected`."""
    from pandas.api.types import is_numeric_dtype

    rows, present = selected(frame, *parts)
    cells = texts(frame, *parts)
    alignments = ["---:" if is_numeric_dtype(rows[column.name]) else "---" for column in present]
    lines = [list(cells), alignments, *cells.to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def charts() -> Iterator[tuple[str, pd.DataFrame, Chart | None]]:
    """Every chart of the pages: its file's stem, its rows, and its `Chart`, which the frontier of all methods lacks."""
    yield FRONTIER, on_second_processor(measured(tuple(h for h in HEADLINES if h.chart))), None
    for paper in papers():
        for experiment in paper.experiments if paper.chart else ():
            if experiment.chart and (frame := _result(experiment)) is not None:
                yield experiment.name, experiment.chart.rows(frame), experiment.chart


def pages() -> dict[Path, str]:
    """The text of every page of the current folder with such a part, its prose as it is."""
    parts = {
        Path("README.md"): headlines("docs/results/", readme=True),
        FOLDER.parent / "index.md": choices(),
        FOLDER / "README.md": headlines(""),
        FOLDER / "models.md": learned(),
    } | {FOLDER / f"{paper.stem}.md": sections(paper) for paper in papers() if paper.chart}
    return {path: with_part(path.read_text(encoding="utf-8"), part) for path, part in parts.items()}


def with_part(text: str, part: str) -> str:
    """A page with the part between its marks replaced."""
    if BEGIN not in text or END not in text:
        raise ValueError(
            f"A page needs the marks of its results: got none of {BEGIN!r} and {END!r}. Put them where they go."
        )
    before, _, after = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{part}\n{END}{after.partition(END)[2]}"


def headlines(link: str, *, readme: bool = False) -> str:
    """The table of methods; `link` is the path from the file with the table to the folder of pages.

    Parameters
    ----------
    readme : bool
        One row a paper, with its notebook, in place of all methods with a command.
    """
    by_stem = {paper.stem: paper for paper in papers()}
    frame = measured(tuple(h for h in HEADLINES if h.command and (h.readme or not readme)))
    names = []
    for stem, page_name in zip(frame["stem"], frame["page"], strict=True):
        paper, target = by_stem[stem], f"{link}{page_name}.md"
        if stem == BEYOND:
            names.append(f"[beyond the papers]({target})")
        elif readme and paper.citation:
            notebook = f"{link.removesuffix('docs/results/')}notebooks/{paper.notebook}.ipynb"
            names.append(f"[{paper.name}]({paper.citation.link}) ([notebook]({notebook}), [results]({target}))")
        else:
            names.append(f"[{paper.name}]({target})")
    rows = _by_processor(frame.assign(paper=names, unchanged=_unchanged(frame)))
    first = ("paper",) if readme else ("paper", "method")
    return markdown(rows, *first, Column("command", "what to type"), *_gains())


def _gains() -> tuple[Column, ...]:
    """The last columns of the tables of methods: times on two processors, and unchanged outputs."""
    first, second = (
        re.sub(r"\(R\)| Processor.*| @.*", "", committed(name).attrs["provenance"]["cpu"])
        for pair in SECOND.items()
        for name in pair
    )
    return (
        Column("speedup", f"times as fast: {first}", 2),
        Column("speedup_elsewhere", f"{second}, newer engine", 2),
        Column("unchanged", "outputs unchanged"),
    )


def _by_processor(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows, with times of the second processor alone in its column."""
    moved = rows["second_only"]
    first, second = ([f"{name}{end}" for end in ENDS] for name in ("speedup", "speedup_elsewhere"))
    values = {there: rows[there].mask(moved, rows[here]) for here, there in zip(first, second, strict=True)}
    return rows.assign(**values, **{here: rows[here].mask(moved) for here in first})


def _unchanged(frame: pd.DataFrame) -> list[str]:
    """The share of unchanged outputs as text, or the text in its place."""
    column = Column("unchanged", share=True)
    return [column.text(share) or instead for share, instead in zip(frame["unchanged"], frame["instead"], strict=True)]


def choices() -> str:
    """The table of what to use when.

    Methods that change the fewest outputs come first, among equals the fastest by the slower of the two processors.
    """
    by_stem = {paper.stem: paper for paper in papers()}
    recommended = tuple(headline for headline in HEADLINES if headline.when)
    rows = measured(recommended).assign(when=[headline.when for headline in recommended])
    rows = rows.assign(least=rows[["speedup", "speedup_elsewhere"]].min(axis=1))
    rows = rows.sort_values(["unchanged", "least"], ascending=False, ignore_index=True)
    names = [f"[{by_stem[page_name].name}](results/{page_name}.md)" for page_name in rows["page"]]
    rows = _by_processor(rows.assign(paper=names, unchanged=_unchanged(rows)))
    return markdown(rows, Column("when", "if"), Column("command", "use"), *_gains(), Column("paper", "measured in"))


def sections(paper: Paper) -> str:
    """A section for each table or figure of a paper, and what is not measured yet."""
    blocks, missing = [], []
    for experiment in paper.experiments:
        frame = _result(experiment)
        if frame is not None and (experiment.on_page or experiment.chart):
            blocks += _section(experiment, frame, experiment.table == paper.chart)
        elif experiment.on_page:
            missing.append(experiment.title)
    if missing:
        command = f"fastdecode experiment {paper.stem} --scale laptop --results fastdecode_lib/results"
        blocks.append(f"Not measured yet (`{command}`): {'; '.join(missing)}.")
    return "\n\n".join(block for block in blocks if block)


def _result(experiment: Experiment) -> pd.DataFrame | None:
    try:
        return committed(experiment.name)
    except NoResult:
        return None


def _section(experiment: Experiment, frame: pd.DataFrame, first: bool) -> list[str]:
    """A table or figure: chart, table, note and provenance; the chart at the top of the page is not repeated."""
    blocks = [f"## {experiment.title}"]
    if experiment.chart and not first:
        blocks.append(f"![{experiment.title}]({CHARTS}/{experiment.name}.svg)")
    rows = experiment.arrange(frame) if experiment.arrange else frame
    notes = [experiment.note, *(f"{gap.rstrip('.')}." for gap in gaps(frame))]
    if experiment.on_page:
        blocks.append(markdown(rows, *experiment.columns))
        if headings := absent(rows, *experiment.columns):
            notes.append(f"Not measured: {', '.join(headings)}.")
    blocks.append(" ".join(note for note in notes if note))
    provenance = frame.attrs["provenance"]
    shown = selected(rows, *experiment.columns)[0]
    noise = f" Noisy rows: {shown['noisy'].sum()} of {len(shown)}." if experiment.on_page and "noisy" in shown else ""
    raw = result_name(experiment.name, "laptop")
    day = f", {provenance['date']}" if "date" in provenance else ""
    source = f"`{provenance['command']}`, {processors(provenance)}{day}"
    blocks.append(f"[Raw]({RAW}/{raw}): {source}.{noise}{_weights(raw)}")
    return blocks


def _weights(result: str) -> str:
    """A sentence on the weights of a result that differ from those bundled now under the same name."""
    places = {
        record.name: "in `weights/`" if record.where == HERE else "not kept"
        for record in read_manifest()
        if result.removesuffix(".json") in record.results and record.where != BUNDLED
    }
    weights = ", ".join(f"`{name}` ({place})" for name, place in places.items())
    return f" Of other weights than the bundled ones: {weights}." if weights else ""


def learned() -> str:
    """The table of how far every shipped translation model was trained: its score on dev half-way and at the end."""
    rows = []
    for record in read_manifest():
        history = [] if record.where == NOT_SHIPPED else committed_history(record.name)
        scores = {entry["update"]: entry["dev_chrf"] for entry in history if "dev_chrf" in entry}
        if not scores:
            continue
        updates = sorted(scores)
        half = min(updates, key=lambda update: abs(2 * update - updates[-1]))
        row = {"system": f"`{record.name}`", "updates": updates[-1], "hours": record.hours}
        device = record.made_with.partition("NVIDIA ")[2].split()
        row |= {"device": device[0] if device else "one core", "half": f"{scores[half]:.1f} ({half:,})"}
        rows.append(row | {"end": scores[updates[-1]], "bleu": record.scores["test"][0]["bleu"]})
    return markdown(
        pd.DataFrame(rows).sort_values("end", ascending=False),
        "system",
        Column("updates", digits=0),
        Column("hours", digits=2),
        Column("device", "on"),
        Column("half", "chrF on dev near half-way (update)"),
        Column("end", "at the end", 1),
        Column("bleu", "BLEU on test", 1),
    )

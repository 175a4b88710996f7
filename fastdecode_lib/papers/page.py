"""The sections of docs/results.md on papers, written from the committed results."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastdecode_lib.papers.outcomes import NoResult, committed
from fastdecode_lib.papers.reading import processors
from fastdecode_lib.store import atomic_file

if TYPE_CHECKING:
    import pandas as pd

PAGE = Path("docs") / "results.md"
Writer = Callable[["pd.DataFrame"], str]


@dataclass(frozen=True)
class Section:
    """What the page says about a paper.

    Attributes
    ----------
    title, introduction : str
        In Markdown.
    stem : str
        Of the experiments.
    parts : tuple of (title, table, function)
        The function makes Markdown of the committed table.
    inconsistencies : tuple of str
        What does not add up in the paper, as a list at the end.
    """

    title: str
    introduction: str
    stem: str
    parts: tuple[tuple[str, str, Writer], ...]
    inconsistencies: tuple[str, ...] = ()

    def text(self) -> str:
        """The whole section; tables without a committed result are named at its end, with the command that makes them."""
        blocks, missing = [self.title, self.introduction], []
        for title, table, write in self.parts:
            try:
                frame = committed(f"{self.stem}.{table}")
            except NoResult:
                missing.append(title)
                continue
            about = frame.attrs["provenance"]
            told = f"`{about['command']}`, {processors(about)}.{_noise(frame)}"
            blocks += [f"### {title}", told, write(frame)]
        if self.inconsistencies:
            told = "\n".join(f"- {sentence}" for sentence in self.inconsistencies)
            blocks += ["### What does not add up in the paper", told]
        if missing:
            made = f"fastdecode experiment {self.stem} --scale laptop --results fastdecode_lib/results"
            blocks.append(f"Not measured yet (`{made}`): {'; '.join(missing)}.")
        return "\n\n".join(blocks)

    def write(self, page: Path = PAGE) -> None:
        """Write the section into the page, in place of what it has from the title on to the next such title, or at the end."""
        text = page.read_text(encoding="utf-8")
        start = text.find(self.title)
        before = text if start < 0 else text[:start]
        end = -1 if start < 0 else text.find("\n## ", start)
        after = "" if end < 0 else text[end:]
        with atomic_file(page) as temporary:
            temporary.write_text(f"{before.rstrip()}\n\n{self.text()}\n{after}", encoding="utf-8")


def _noise(frame: "pd.DataFrame") -> str:
    """How many of the rows that were measured are noisy, in any of their times, if any is."""
    timed = frame[~frame["kind"].isin(["paper", "gap"])] if "kind" in frame else frame
    noisy = _noisy(timed)
    return f" {noisy.sum()} of {len(noisy)} rows are noisy." if noisy.any() else ""


def _noisy(frame: "pd.DataFrame") -> "pd.Series":
    """Whether a row is noisy, in any of its times."""
    told = [name for name in frame if str(name).startswith("noisy")]
    return frame["note"].eq("noisy") if "note" in frame and not told else frame[told].eq(True).any(axis=1)


def markdown(frame: "pd.DataFrame") -> str:
    """A table, its first column to the left."""
    rows = [[_cell(value) for value in row] for row in frame.itertuples(index=False)]
    lines = [list(map(str, frame.columns)), ["---", *["---:"] * (len(frame.columns) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and not (value.is_integer() and abs(value) > 1):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}"
    if isinstance(value, (int, float)):
        return f"{value:,.0f}"
    return str(value).replace("|", "\\|")


def interval(frame: "pd.DataFrame", column: str) -> "pd.Series":
    """A column's values with their 95% intervals."""
    return frame.apply(
        lambda row: (
            ""
            if row[column] != row[column]
            else f"{row[column]:.2f} ({row[f'{column}_low']:.2f}–{row[f'{column}_high']:.2f})"
        ),
        axis=1,
    )


def percent(shares: "pd.Series") -> "pd.Series":
    """Shares of 1 as text."""
    return shares.map(lambda share: f"{share:.1%}", na_action="ignore")


def columns(names: dict[str, str], after: str = "", where: "Callable[[pd.DataFrame], Any] | None" = None) -> Writer:
    """A function that shows some columns under other names, of all rows or of those `where` holds, and what to say after."""

    def write(frame: "pd.DataFrame") -> str:
        rows = frame if where is None else frame[where(frame)]
        table = markdown(rows.reindex(columns=list(names)).rename(columns=names).dropna(axis=1, how="all"))
        return f"{table}\n\n{after}" if after else table

    return write


def measured(names: dict[str, str], after: str = "", shares: tuple[str, ...] = ()) -> Writer:
    """A function that shows columns under other names, speedups with their intervals, `shares` in percent, then what to say.

    Behind it stands what is not trained here.
    """

    def write(frame: "pd.DataFrame") -> str:
        rows = frame[frame["gap"].isna()] if "gap" in frame else frame
        told = " ".join(part for part in (after, untrained(frame)) if part)
        for column in names:
            if f"{column}_low" in rows and len(rows):
                rows = rows.assign(**{column: interval(rows, column)})
        rows = rows.assign(**{column: percent(rows[column]) for column in shares if column in rows})
        rows = rows.assign(noise=_noisy(rows).map({True: "noisy", False: None}))
        shown = rows.reindex(columns=[*names, "noise"]).dropna(axis=1, how="all").rename(columns={**names, "noise": ""})
        table = markdown(shown) if len(rows) else ""
        return "\n\n".join(part for part in (table, told) if part)

    return write


def untrained(frame: "pd.DataFrame") -> str:
    """Why rows are missing, each reason once: their models are not trained here."""
    gaps = frame["gap"].dropna().drop_duplicates() if "gap" in frame else ()
    return " ".join(gap if gap.endswith(".") else f"{gap}." for gap in gaps)

"""What the pages of results say beside their tables, for tests that compare it with the numbers."""

from pathlib import Path

from fastdecode_lib.papers import page

ROOT = Path(__file__).parents[1]
LANDING = (ROOT / page.FOLDER / "README.md").read_text(encoding="utf-8")


def prose(stem: str, start: str, end: str) -> str:
    """The text of a paper's page between two strings, spaces and line breaks alike."""
    text = (ROOT / page.FOLDER / f"{stem}.md").read_text(encoding="utf-8")
    assert start in text, f"{stem}.md lacks {start!r}"
    return " ".join(text.partition(start)[2].partition(end)[0].split())


def conclusion(stem: str, label: str = "") -> str:
    """An item at the top of a paper's page, such as ``Found here``; without a label all of them."""
    return prose(stem, f"- **{label}**: ", "\n- **") if label else prose(stem, "- **The claim**: ", "\n![")


def does_not_add_up(stem: str) -> str:
    """What a page says of the paper's inconsistencies."""
    return prose(stem, "## What does not add up in the paper", "\n## ")

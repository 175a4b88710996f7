"""Headline results, one row for each method: the tables of the README and of what to use when, the chart of all results."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from fastdecode_lib.papers.experiment import rows_where
from fastdecode_lib.papers.outcomes import committed
from fastdecode_lib.papers.reading import ENDS

GROWN = "grown to opus-mt's shape"
BEYOND = "combinations"
"""Stem of methods that no paper has."""
SECOND = {"combinations.first_page": "combinations.second_processor"}
"""Results with the same rows from another processor."""


@dataclass(frozen=True)
class Headline:
    """A method, the code or option to use it, and the row of a committed result with its speedup and unchanged outputs.

    Attributes
    ----------
    stem : str
        Stem of its paper, or `BEYOND`.
    method : str
        Its name in the chart and the tables.
    result : str
        ``STEM.TABLE``, a committed result.
    where : mapping of column to value
        The result's row.
    command : str
        Code or option to type, in Markdown; a method without it is only in the chart.
    speedup, unchanged : str
        Columns of the row.
    instead : str
        Text in place of the share of unchanged outputs, if there are no outputs to compare with.
    readme : bool
        Whether the README shows it: the method of each paper, and two that no paper has.
    when : str
        The reader's situation in which it is the best choice; empty if another method is always better.
    chart : bool
        Whether the chart has it: methods on the bundled model, over greedy decoding.
    """

    stem: str
    method: str
    result: str
    where: Mapping[str, object] = field(default_factory=dict)
    command: str = ""
    speedup: str = "speedup"
    unchanged: str = "identical"
    instead: str = ""
    readme: bool = False
    when: str = ""
    chart: bool = True


def _rival(method: str, projection: str) -> Headline:
    """Greedy decoding under a rival of Chen et al., English to German, single sentences."""
    where = {"decoder": "greedy", "method": projection}
    return Headline("learning_to_screen", method, "vocabulary_clusters.end_to_end", where)


def _first(method: str, stem: str, when: str = "", command: str = "", readme: bool = False, **choices: str) -> Headline:
    """A row of the methods of the first page: the bundled model, single sentences, all in one run."""
    where = {"set": "single", "decoder": "greedy", "projection": "exact", "precision": "float32"} | choices
    options = ", ".join(f'{name}="{value}"' for name, value in choices.items())
    command = command or (f"`load(name, {options})`" if "precision" in choices else f"`{options}`")
    result = "combinations.first_page"
    return Headline(stem, method, result, where, command, unchanged="agreement", readme=readme, when=when)


def _beam_of_ten(method: str, stem: str, system: str, command: str, loss: str, readme: bool = False) -> Headline:
    """A system of Imamura and Sumita's table 2 over single-token decoding, single sentences."""
    where, instead = {"system": system, "set": "single"}, f"another model, {loss} BLEU less"
    return Headline(
        stem, method, "double_token_decoding.table2", where, f"{command}, beam of 10", "token_ratio", instead=instead,
        readme=readme, when="the model is yet to be trained",
    )  # fmt: skip


STEPS = '`"sharp-s4"` in int16, `"beam:size=6,delta=3"`, `"lexical:frequent=0"`'
MERGED = {"name": "merged states", "set": "sharp-s4, test sentences"}
LARGE = {
    "shape": GROWN, "precision": "float32", "projection": "quantised", "set": "joined", "draft": "ngram+lexicon", "width": 3,
}  # fmt: skip
HEADLINES = (
    _first(
        "clusters", "vocabulary_clusters", "few outputs may change; clusters are fitted in minutes", readme=True,
        projection="clustered",
    ),
    _first(
        "learned screen", "learning_to_screen", "some outputs may change; a screen is learned in minutes", readme=True,
        projection="screened",
    ),
    _beam_of_ten(
        "two tokens a step", "double_token_decoding", "bidirectional", '`load("bidirectional")`', "2.6", readme=True
    ),
    _first("HGJ", "parallel_decoding", readme=True, decoder="hybrid:block=3"),
    Headline(
        "sharp_models", "all steps on S4", "sharp_models.table1", MERGED, STEPS, "factor",
        "agreement", readme=True, chart=False,
    ),
    _first("quantised", BEYOND, "no output may change", readme=True, projection="quantised"),
    _first(
        "window and quantised", BEYOND, "no output may change, and `fastdecode speedup` finds that drafts pay",
        decoder="window:width=3", projection="quantised",
    ),
    _first(
        "int8", BEYOND, "outputs may change, their BLEU not; nothing is to be fitted", readme=True, precision="int8"
    ),
    _first(
        "clusters in int8", BEYOND, "speed first; outputs may change", '`"clustered"` with `precision="int8"`', precision="int8",
        projection="clustered",
    ),
    Headline(
        BEYOND, "window and quantised, large", "combinations.draft_time", LARGE,
        '`decoder="window:width=3", projection="quantised"`',
        when="no output may change; weights exceed the cache (our model grown, joined sentences)", chart=False,
    ),
    _beam_of_ten("shallow decoder", BEYOND, "shallow_l2r", '`load("shallow-l2r")` in a checkout', "3.2"),
    _first("PJ", "parallel_decoding", decoder="jacobi"),
    _first("int16", "sharp_models", precision="int16"),
    _first("candidate lists", "sharp_models", projection="lexical"),
    Headline(
        "double_token_decoding", "two-token draft", "double_token_decoding.lossless", {"name": "drafted, width 4"},
        "`window:draft=model,model=NAME`",
    ),
    _rival("adaptive softmax", "adaptive"),
    _rival("SVD-softmax", "svd"),
    _rival("FGD", "fgd"),
    _rival("PCA-MIPS", "pca_mips"),
)  # fmt: skip
"""In the order of the tables: what each paper proposes, what goes beyond the papers, further methods, the rivals."""


def measured(headlines: tuple[Headline, ...] = HEADLINES) -> pd.DataFrame:
    """A row for each method: ``method, command, stem, page, unchanged, instead``, and ``speedup`` with its interval.

    ``speedup_elsewhere``, with its interval, is the speedup on a second processor, missing for most
    results; where `second_only` holds, ``speedup`` is of the second processor, and there is none of the first.

    Raises
    ------
    ValueError
        If a method's selector matches no row of its result, or several.
    """
    rows = []
    for headline in headlines:
        row = _row(headline, headline.result)
        ends = {f"speedup{end}": row[f"{headline.speedup}{end}"] for end in ENDS}
        if headline.result in SECOND:
            second = _row(headline, SECOND[headline.result])
            ends |= {f"speedup_elsewhere{end}": second[f"{headline.speedup}{end}"] for end in ENDS}
        unchanged = None if headline.instead else row[headline.unchanged]
        texts = {name: getattr(headline, name) for name in ("method", "command", "stem", "instead", "readme")}
        texts["page"] = headline.result.partition(".")[0]
        second_only = headline.result not in SECOND and _processor(headline.result) in map(_processor, SECOND.values())
        rows.append(texts | ends | {"unchanged": unchanged, "second_only": second_only})
    return pd.DataFrame(rows)


def on_second_processor(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of `measured` that have a speedup on the second processor, with that one alone."""
    elsewhere = rows["speedup_elsewhere"].notna()
    ends = {f"speedup{end}": rows[f"speedup{end}"].mask(elsewhere, rows[f"speedup_elsewhere{end}"]) for end in ENDS}
    return rows.assign(**ends)[elsewhere | rows["second_only"]]


def _processor(result: str) -> str:
    return str(committed(result).attrs["provenance"]["cpu"])


def _row(headline: Headline, result: str) -> pd.Series:
    frame = rows_where(committed(result), headline.where)
    if len(frame) != 1:
        raise ValueError(f"{headline.method!r} needs one row of {result}: got {len(frame)}. Mend its `where`.")
    return frame.iloc[0]

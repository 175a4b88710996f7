"""Headline results, one row for each method: the tables of the README and of what to use when, the chart of all results."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from fastdecode_lib.papers.outcomes import committed

GROWN = "grown to opus-mt's shape"


@dataclass(frozen=True)
class Headline:
    """A method, the code or option to use it, and the row of a committed result with its speedup and unchanged outputs.

    Attributes
    ----------
    stem : str
        Stem of its paper.
    method : str
        Name in the chart and the tables.
    result : str
        ``STEM.TABLE`` of the row.
    where : mapping of column to value
        Selector of the row.
    command : str
        Code or option to type, in Markdown; a method without it is only in the chart.
    speedup, unchanged : str
        Columns of the row.
    instead : str
        Text in place of the share of unchanged outputs, if there are no outputs to compare with.
    readme : bool
        Whether the README shows it: one method a paper.
    when : str
        The reader's situation in which it is the best choice; empty if another method is always better.
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


def _greedy(
    method: str, projection: str, stem: str = "learning_to_screen", command: str = "", **options: Any
) -> Headline:
    """Greedy decoding under a projection, English to German, single sentences."""
    where = {"decoder": "greedy", "method": projection}
    return Headline(stem, method, "vocabulary_clusters.end_to_end", where, command, **options)


def _cube(method: str, stem: str, command: str = "", readme: bool = False, when: str = "", **choices: str) -> Headline:
    """A row of the cube: the bundled model, joined sentences."""
    where = {"model": "tatoeba-small", "decoder": "greedy", "projection": "exact", "precision": "float32"} | choices
    result = "combinations.cube"
    return Headline(stem, method, result, where, command, unchanged="agreement", readme=readme, when=when)


def _drafted(
    method: str,
    shape: str,
    draft: str,
    command: str,
    projection: str,
    width: int = 3,
    stem: str = "parallel_decoding",
    **options: Any,
) -> Headline:
    """A window, joined sentences, in float32."""
    where = {"shape": shape, "precision": "float32", "projection": projection, "set": "joined", "draft": draft}
    return Headline(stem, method, "combinations.draft_time", {**where, "width": width}, command, **options)


HEADLINES = (
    Headline(
        "vocabulary_clusters",
        "clusters",
        "vocabulary_clusters.table3",
        {"direction": "en-de", "method": "clustered", "protocol": "batch 1, beam 1"},
        '`projection="clustered"`',
        readme=True,
        when="few outputs may change; clusters are fitted in minutes",
    ),
    Headline(
        "learning_to_screen",
        "learned screen",
        "learning_to_screen.table3",
        {"set": "translation", "method": "screened", "beam": 1},
        '`projection="screened"`',
        readme=True,
        when="some outputs may change; a screen is learned in minutes",
    ),
    Headline(
        "double_token_decoding",
        "two tokens a step",
        "double_token_decoding.table2",
        {"system": "bidirectional", "set": "single"},
        '`load("bidirectional")`',
        speedup="token_ratio",
        instead="another model, 2.6 BLEU less",
        readme=True,
        when="the model is yet to be trained",
    ),
    _drafted(
        "window and quantised",
        "tatoeba-small",
        "ngram+lexicon",
        '`decoder="window:width=3", projection="quantised"`',
        "quantised",
        readme=True,
        when="no output may change",
    ),
    _cube(
        "int8",
        "sharp_models",
        '`load(name, precision="int8")`',
        precision="int8",
        readme=True,
        when="most outputs of joined sentences may change, their BLEU not; nothing is to be fitted",
    ),
    _drafted(
        "quantised",
        "tatoeba-small",
        "greedy",
        '`projection="quantised"`',
        "quantised",
        width=1,
        stem="learning_to_screen",
        when="no output may change, and drafts seldom hold",
    ),
    _greedy("candidate lists", "lexical", "sharp_models", '`projection="lexical"`'),
    _cube(
        "clusters in int8",
        "combinations",
        '`"clustered"` with `precision="int8"`',
        projection="clustered",
        precision="int8",
        when="speed above all",
    ),
    _drafted(
        "window and quantised, large",
        GROWN,
        "head",
        '`decoder="window:width=4,draft=head", projection="quantised"`',
        "quantised",
        width=4,
        when="no output may change; a large model, whose weights exceed the cache",
    ),
    _cube("PJ", "parallel_decoding", '`decoder="jacobi"`', decoder="jacobi"),
    _cube("HGJ", "parallel_decoding", '`decoder="hybrid:block=3"`', decoder="hybrid"),
    Headline(
        "double_token_decoding",
        "two-token draft",
        "double_token_decoding.lossless",
        {"name": "drafted, width 4"},
        "`window:draft=model,model=NAME`",
    ),
    _cube("int16", "sharp_models", precision="int16"),
    _greedy("adaptive softmax", "adaptive"),
    _greedy("SVD-softmax", "svd"),
    _greedy("FGD", "fgd"),
    _greedy("PCA-MIPS", "pca_mips"),
    _greedy("ScaNN", "scann"),
)
"""In the order of the tables: one method a paper, then further methods, then the rivals."""


def measured(headlines: tuple[Headline, ...] = HEADLINES) -> pd.DataFrame:
    """A row for each method: ``method, command, stem, page, speedup`` with its interval, ``unchanged``, ``instead`` and ``noisy``.

    Raises
    ------
    ValueError
        If a method's selector matches no row of its result, or several.
    """
    rows = []
    for headline in headlines:
        frame = committed(headline.result)
        for column, value in headline.where.items():
            frame = frame[frame[column] == value]
        if len(frame) != 1:
            raise ValueError(
                f"{headline.method!r} needs one row of {headline.result}: got {len(frame)}. Mend its `where`."
            )
        row = frame.iloc[0]
        ends = {f"speedup{end}": row[f"{headline.speedup}{end}"] for end in ("", "_low", "_high")}
        unchanged = None if headline.instead else row[headline.unchanged]
        texts = {name: getattr(headline, name) for name in ("method", "command", "stem", "instead", "readme")}
        texts["page"] = headline.result.partition(".")[0]
        rows.append(texts | ends | {"unchanged": unchanged, "noisy": bool(row["noisy"])})
    return pd.DataFrame(rows)

"""Decoders, projections and baselines on the same sentences: one row for each, compared with greedy decoding."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode_lib import registry
from fastdecode_lib.batching import check_counts, several
from fastdecode_lib.core import Measurement, Source, Usage, drain
from fastdecode_lib.loading import TranslationModel, check_loaded
from fastdecode_lib.measuring.baselines import baseline, until_end
from fastdecode_lib.measuring.counting import Counted
from fastdecode_lib.measuring.provenance import provenance
from fastdecode_lib.measuring.quality import quality, signatures
from fastdecode_lib.measuring.referee import System, measure, noisy, ratio_of
from fastdecode_lib.text.tokenizers import check_texts
from fastdecode_lib.translation import Session

if TYPE_CHECKING:
    import pandas as pd


COLUMNS = (
    "name", "agreement", "calls", "positions", "speedup", "speedup_low", "speedup_high", "seconds", "bleu", "chrf",
)  # fmt: skip

PARALLEL = ("greedy", "auto", "window:width=3", "jacobi", "gauss_seidel:block=3", "hybrid:block=3")
"""Decoders that `compare` compares by default."""


def decoder_system(session: Session, name: str | None = None) -> System:
    """A session's decoder as a system; it is timed without counting, and a separate run through a proxy counts its calls."""
    network = session.model.network

    def run(model: Any, source: Source) -> tuple[int, ...]:
        (best,) = drain(session.decoder.iterate(model, session.projection, source, session.constraints))
        return until_end(list(best.tokens), session.constraints)

    def count(source: Source) -> Usage:
        counted = Counted(network)
        run(counted, source)
        return counted.usage

    countable = getattr(getattr(session.decoder, "draft", None), "model", None) is None
    return System(name or session.decoder_name, lambda source: run(network, source), count if countable else None)


def text_system(session: Session, name: str | None = None, *, batch: int = 1, threads: int = 1) -> System:
    """A system that decodes all rows of a source with `Session.decode_ids`; its output is the tokens of each row."""

    def decode(source: Source) -> tuple[tuple[int, ...], ...]:
        hypotheses = session.decode_ids(source, source.lengths, batch=batch, threads=threads)
        return tuple(until_end(list(hypothesis.tokens), session.constraints) for hypothesis in hypotheses)

    return System(name or session.decoder_name, decode)


def parts_of(source: Source, *, batch: int = 1, threads: int = 1) -> list[Source]:
    """A source for each batch that `Session.decode_ids` forms, for short turns of a `text_system`; one on several threads."""
    if threads > 1:
        return [source]
    order = np.argsort(-source.lengths, kind="stable")
    return [source.rows(order[start : start + batch]) for start in range(0, len(order), batch)]


def rows_of(outputs: Sequence[Sequence[Any]]) -> list[Any]:
    """The tokens of each row, from the outputs for several sources of several rows."""
    return [tokens for rows in outputs for tokens in rows]


def compare(
    model: TranslationModel,
    sentences: str | Sequence[str],
    *,
    source: str | None = None,
    target: str | None = None,
    decoders: registry.Spec | Sequence[registry.Spec] | None = None,
    projections: str | Sequence[str] = ("exact",),
    baselines: str | Sequence[str] = (),
    references: str | Sequence[str] | None = None,
    runs: int = 9,
    threads: int = 1,
    seed: int = 0,
    progress: bool = True,
    **limits: Any,
) -> "pd.DataFrame":
    """One row per decoder and baseline: agreement with greedy, passes, positions, speedup over greedy, quality.

    Greedy decoding is always measured for the comparison; its row appears only if it was requested. Models that it cannot drive
    are compared with `registry.usual`. Without `decoders`, greedy decoding and the parallel decoders are compared. One name or
    sentence stands for a list of one. Passes of a draft model are not counted, and decoders with one have no ``calls``. Sentences
    without content are left out. Raw times and provenance are in ``frame.attrs``.

    Returns
    -------
    DataFrame with the columns of `COLUMNS`
    """
    import pandas as pd

    check_loaded(model)
    check_counts(threads=threads)
    sentences = several(sentences)
    check_texts(sentences)
    references = None if references is None else several(references)
    if references is not None and len(references) != len(sentences):
        raise ValueError(
            f"Each sentence needs one reference: got {len(sentences)} sentences and {len(references)} references. "
            "Check that the files have the same number of lines."
        )
    usual = registry.usual(model.network)
    if not decoders:
        decoders = PARALLEL if usual == "greedy" else (usual,)
    sessions = [
        Session.of(model, source, target, decoder, projection, **limits)
        for projection in several(projections) or ["exact"]
        for decoder in several(decoders)
    ]
    greedy = Session.of(model, source, target, usual, **limits)
    with_content = [i for i, sentence in enumerate(sentences) if greedy.has_content(sentence)]
    if not with_content:
        raise ValueError("There is nothing to compare on: got no sentence with content. Give at least one.")
    model.encode(sentences, greedy.source, greedy.target)  # names the sentence that is too long
    sources = [model.encode([sentences[i]], greedy.source, greedy.target) for i in with_content]
    requested = {_named(session): session for session in sessions}
    by_name = {usual: greedy} | requested
    systems = [decoder_system(session, name) for name, session in by_name.items()]
    systems += [
        System(name, baseline(name, model, greedy.constraints, threads)) for name in dict.fromkeys(several(baselines))
    ]
    measurements = measure(
        systems, sources, runs=runs, threads=threads, device=model.device, seed=seed, progress=progress
    )
    listed = measurements if usual in requested else measurements[1:]
    rows = [_row(m, measurements[0]) for m in listed]
    if references is not None:
        texts, expected = [sentences[i] for i in with_content], [references[i] for i in with_content]
        for row, m in zip(rows, listed, strict=True):
            row["bleu"], row["chrf"] = quality(model.texts(texts, m.outputs), expected, greedy.target)
    _note_margins(rows, by_name, greedy, sources)
    frame = pd.DataFrame(rows, columns=[*COLUMNS, "note"])
    frame.attrs["provenance"] = provenance(model, threads=threads, seed=seed) | {
        "sentences": len(with_content),
        "runs": runs,
        "direction": f"{greedy.source}-{greedy.target}",
        **signatures(references is not None, greedy.target),
    }
    frame.attrs["seconds"] = {m.name: m.seconds.tolist() for m in measurements}
    return frame


def _named(session: Session) -> str:
    """Name of a session's row."""
    return session.decoder_name + ("" if session.projection_name == "exact" else f"+{session.projection_name}")


def _row(m: Measurement, greedy: Measurement) -> dict[str, Any]:
    speedup = ratio_of("speedup", greedy.seconds, m.seconds)
    return {
        "name": m.name,
        "agreement": m.agreement(greedy),
        "calls": m.usage.passes if m.usage else None,
        "positions": m.usage.positions if m.usage else None,
        **speedup,
        "seconds": float(np.median(m.seconds)),
        "bleu": None,
        "chrf": None,
        "note": "noisy" if noisy(*speedup.values()) else "",
    }


def _note_margins(
    rows: Sequence[dict[str, Any]], sessions: Mapping[str, Session], greedy: Session, sources: Sequence[Source]
) -> None:
    """In rows of lossless decoders with other outputs than greedy decoding, note how close the two best tokens are there."""
    for row in rows:
        session = sessions.get(row["name"])
        exact = session is not None and session.decoder.lossless and session.projection_name in registry.EXACT
        if session and exact and row["agreement"] < 1:
            margin = largest_margin(greedy, session, sources)
            row["note"] = " ".join([row["note"], f"differs where the top-2 margin is at most {margin:.1e}"]).strip()


def largest_margin(greedy: Session, other: Session, sources: Sequence[Source]) -> float:
    """Largest margin of greedy decoding, over all sentences, at the first token where another decoder differs from it.

    A lossless decoder differs only through rounding, where margins are tiny; a large margin shows a fault.
    """
    network = greedy.model.network
    largest = 0.0
    for source in sources:
        passes = list(greedy.decoder.iterate(network, greedy.projection, source, greedy.constraints, observe=True))
        (hypothesis,) = drain(other.decoder.iterate(network, other.projection, source, other.constraints))
        for iteration, token in zip(passes, hypothesis.tokens, strict=False):
            if iteration.tokens[0] != token and iteration.margins is not None:
                largest = max(largest, float(iteration.margins[0]))
                break
    return largest

"""Draft tables of a loaded model, made from its own translations of unlabelled text."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastdecode_lib.drafts.finding import cache_folder, table_name
from fastdecode_lib.drafts.table import DraftTable
from fastdecode_lib.projections.lexical import source_vocabulary
from fastdecode_lib.store import atomic_file, read_tensors
from fastdecode_lib.text.corpus import Tatoeba, corpus_folder, join_pairs
from fastdecode_lib.translation import Session

CHUNK = 2048
"""Sentences in one file of saved translations."""


def make_table(
    session: Session,
    texts: Sequence[str],
    *,
    least: int = 3,
    batch: int = 64,
    threads: int | None = None,
    folder: str | Path = "build/draft-table",
    progress: bool = False,
) -> DraftTable:
    """The draft table of a session's model and direction, counted on greedy translations of text.

    Translations are saved in `folder` during the run, so that a stopped run continues where it was.

    Parameters
    ----------
    texts : sequence of str
        Unlabelled text in the source language, in sentences or short paragraphs like those to be translated later; those
        that are empty or too long for the model are left out.
    least : int
        N-grams seen less often are left out.

    Raises
    ------
    ValueError
        If no text has content and fits the model.
    """
    model = session.model
    fitting_texts = fitting(session, texts)
    if not fitting_texts:
        raise ValueError(
            f"A draft table needs text to translate: got {len(texts)} sentences, none with content that fits the model's "
            f"{model.network.max_source} tokens. Give some thousand."
        )
    sources, outputs = translations(
        session, fitting_texts, batch=batch, threads=threads, folder=folder, progress=progress
    )
    return DraftTable.count(
        sources,
        outputs,
        source_vocabulary=source_vocabulary(model.network),
        vocabulary=model.network.outputs[0].vocabulary,
        start=session.constraints.prefix[-1],
        least=least,
        about={
            "fingerprint": model.checkpoint.fingerprint,
            "model": model.name,
            "source": session.source,
            "target": session.target,
            "least": least,
        },
    )


def fitting(session: Session, texts: Sequence[str]) -> list[str]:
    """The texts that have content and fit the model."""
    model = session.model
    lengths = model.tokenizer.encode([*texts, ""], session.source, session.target).lengths
    fits = (lengths[:-1] > lengths[-1]) & (lengths[:-1] <= model.network.max_source)
    return [text for text, fit in zip(texts, fits, strict=True) if fit]


def translations(
    session: Session,
    texts: Sequence[str],
    *,
    batch: int = 64,
    threads: int | None = None,
    folder: str | Path = "build/draft-table",
    progress: bool = False,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Source ids and output ids of texts, saved in `folder` during the run, so that a stopped run continues where it was."""
    from tqdm.auto import tqdm

    chunks = Path(folder) / _key(session, texts)
    sources: list[np.ndarray] = []
    outputs: list[np.ndarray] = []
    with tqdm(total=len(texts), desc="translating", unit="sentence", disable=not progress) as bar:
        for start in range(0, len(texts), CHUNK):
            chunk = texts[start : start + CHUNK]
            pairs = _translated(session, chunk, chunks / f"{start}.safetensors", batch, threads, bar)
            sources, outputs = sources + pairs[0], outputs + pairs[1]
            bar.update(start + len(chunk) - bar.n)
    return sources, outputs


def unlabelled(data: str | Path | None, source: str | None, target: str | None) -> list[str]:
    """The corpus's training sources of a direction, each used once, joined as for the training of this project's models."""
    if source is None or target is None:
        raise ValueError(
            "The corpus has directions, this model names none: got no text. Give yours with --source FILE."
        )
    pairs = Tatoeba(corpus_folder(data)).pairs("train", source, target)
    return [text for text, _ in join_pairs(pairs, seed=7)]


def default_path(session: Session) -> Path:
    """Default path of a session's draft table."""
    return cache_folder(session.model.checkpoint.fingerprint) / table_name(session.source, session.target)


def _key(session: Session, texts: Sequence[str]) -> str:
    """A name for the translations of these texts by this model with these settings."""
    model = session.model
    checkpoint = model.checkpoint
    settings = [checkpoint.fingerprint, checkpoint.text_fingerprint, session.constraints, model.dtype]
    settings += [session.decoder_name] if session.decoder_name != "greedy" else []
    digest = hashlib.sha256(" ".join(map(str, settings)).encode())
    digest.update(f" {session.source} {session.target}\n".encode())
    for text in texts:
        digest.update(text.encode() + b"\n")
    return f"{session.source}-{session.target}-{digest.hexdigest()[:16]}"


def _translated(
    session: Session, texts: Sequence[str], path: Path, batch: int, threads: int | None, bar: Any
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Source and output ids of texts, read from the file if it exists; otherwise `bar` moves while they are translated."""
    from safetensors.numpy import save_file

    if not path.is_file():
        hypotheses = session.decode(texts, batch=batch, threads=threads, progress=bar)
        outputs = [np.array(hypothesis.tokens, dtype=np.int32) for hypothesis in hypotheses]
        encoded = session.model.encode(texts, session.source, session.target)
        sources = [encoded.ids[i, :length].astype(np.int32) for i, length in enumerate(encoded.lengths)]
        tensors = {}
        for name, side in (("source", sources), ("output", outputs)):
            tensors[name] = np.concatenate(side)
            tensors[f"{name}_lengths"] = np.array([len(ids) for ids in side], dtype=np.int32)
        with atomic_file(path) as temporary:
            save_file(tensors, temporary)
    try:
        tensors, _ = read_tensors(path)
        sources, outputs = (np.split(tensors[n], np.cumsum(tensors[f"{n}_lengths"])[:-1]) for n in ("source", "output"))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"Kept translations are damaged: {path}: {error!r}. Delete the file to make them again."
        ) from error
    return sources, outputs

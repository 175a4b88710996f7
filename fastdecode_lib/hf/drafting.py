"""Drafts for the sentences of a `generate`: tables, heads and measured choices of the module's checkpoint."""

import os
import warnings
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode_lib import loading, registry
from fastdecode_lib.checkpoints import transformers_private as private
from fastdecode_lib.core import Source
from fastdecode_lib.decoding.auto import Auto
from fastdecode_lib.decoding.autoregressive import Greedy
from fastdecode_lib.decoding.window import Window
from fastdecode_lib.drafts.finding import directions_with_tables, measured_choice, places_in_cache
from fastdecode_lib.hf.rows import Row
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.store import ModelFiles
from fastdecode_lib.translation import drafting as outputs_of

if TYPE_CHECKING:
    from torch import Tensor

USUAL = Auto(draft="ngram+lexicon")
"""The decoder if there is a draft table and nothing was measured."""
GREEDY = Window(1, "pad")
"""Greedy decoding as a parallel decoder."""
KEPT = 8
"""Decoders with loaded drafts that are kept for later calls."""


class Drafting:
    """Draft tables and heads found for the sentences of a `generate`.

    Attributes
    ----------
    loaded : TranslationModel or None
        The network with the tokenizer and files of the checkpoint that the module comes from.
    direction : (source, target)
        Languages named by the sources' tags and the forced first token; None if they name none.
    """

    def __init__(
        self,
        model: Any,
        notes: dict[str, Any],
        network: Any,
        source: Source,
        ids: "Tensor",
        config: Any,
        ends: tuple[int, ...],
    ):
        self.module, self.network, self.rows, self.ends = model, network, len(source), ends
        self.found: dict[Any, Any] = notes.setdefault("found", {})
        self.vectors = hasattr(network, "source_vectors") and network.engine != "huggingface"
        self.loaded: TranslationModel | None = None
        self.direction: tuple[str | None, str | None] = (None, None)
        if (folder := private.origin(model)) is None:
            return
        folder_times = network.engine, *map(_written, (folder, folder / "draft-tables"))
        if notes.get("written") != folder_times:
            loaded = loading.around(network, folder)
            # not the network itself, since the notes of a module must not keep it alive
            notes |= {"written": folder_times, "loaded": loaded and replace(loaded, network=weakref.proxy(network))}
        if notes["loaded"] is not None:
            self.loaded = replace(notes["loaded"], network=network)
            try:
                fingerprint = self.loaded.checkpoint.fingerprint
            except (ValueError, OSError):  # its files were deleted
                self.loaded = None
                return
            cache_times = folder_times, *map(_written, places_in_cache(fingerprint))
            if notes.get("made") != cache_times:
                notes |= {"made": cache_times, "found": {}}
            self.found = notes["found"]
            first_tokens = {*ids[:, 1].tolist()} if ids.shape[1] > 1 else {config.forced_bos_token_id}
            self.direction = self._direction(self.loaded, source, first_tokens)

    def _direction(self, loaded: TranslationModel, source: Source, first: set[int]) -> tuple[str | None, str | None]:
        """The one direction with a draft table whose tag all sources have, and with whose language all outputs begin."""
        fitting = []
        for pair, (tag, target) in self._frames(loaded).items():
            tagged = source.ids.shape[1] >= len(tag) and (source.ids[:, : len(tag)] == tag).all()
            if tagged and (not target or first == set(target)):
                fitting.append(pair)
        return fitting[0] if len(fitting) == 1 else (None, None)

    def _frames(self, loaded: TranslationModel) -> dict[Any, tuple[np.ndarray, tuple[int, ...]]]:
        """For each direction with a draft table, the ids in front of a source and of an output."""
        if "frames" not in self.found:
            frames = self.found["frames"] = {}
            for pair in directions_with_tables(Path(loaded.checkpoint.folder), loaded.checkpoint.fingerprint):
                with suppress(ValueError):  # a table of a direction that the model no longer names
                    empty = loaded.tokenizer.encode([""], *pair)
                    frames[pair] = empty.ids[0, : empty.lengths[0] - 1], loaded.tokenizer.forced_language(pair[1])
        return self.found["frames"]

    def usual(self) -> Any:
        """The fastest decoder known, resolved; None for the greedy decoding of `generate`."""
        key = "usual", self.direction, self.rows == 1
        if key not in self.found:
            self.found[key] = self._usual()
        return self.found[key]

    def _usual(self) -> Any:
        loaded, batch, greedy = self.loaded, self.rows, GREEDY if self.network.engine == "compiled" else None
        if loaded is not None and (choice := measured_choice(loaded.checkpoint.fingerprint, self.direction, batch)):
            try:
                registry.check_lossless(*choice)
                decoder = registry.decoder(choice[0])
                return greedy if isinstance(decoder, Greedy) else self.resolved(decoder)
            except ValueError as error:
                warnings.warn(f"What speedup chose no longer runs, decoding as usual: {error}", stacklevel=7)
        if loaded is not None and self.direction in self._frames(loaded):
            with suppress(ValueError):  # drafts of another vocabulary than the module's
                return self.resolved(USUAL)
        warnings.warn(
            f"No drafts are known for this model and direction: got {self.module.name_or_path or 'a module'}, which is decoded "
            "greedily. Run fastdecode speedup, or give a width.",
            stacklevel=7,
        )
        return greedy

    def resolved(self, decoder: Any) -> Any:
        """A decoder with its drafts loaded."""
        draft = getattr(decoder, "drafts", None)
        if draft is None or draft.resolved:
            return decoder
        if draft.needs("head") and not self.vectors:
            raise ValueError(
                f"A draft head needs the model's hidden vectors: got {type(self.module).__name__}, which runs through its own "
                f"forward, with draft={draft.written!r}. Use draft=ngram+lexicon."
            )
        kept: dict[Any, Any] = self.found.setdefault("resolved", {})
        key = decoder, self.direction, self.network.engine
        if (known := kept.get(key)) is not None:
            return known
        files = self._files()
        if draft.table is not None:
            table, draft = draft.table, replace(draft, table=None)
            files = replace(files, table=lambda: table)
        resolved = decoder.with_draft(draft.resolve(self.network, files))
        for expired in [*kept][: 1 - KEPT]:
            kept.pop(expired, None)
        kept[key] = resolved
        return resolved

    def watchers(self, decoder: Any, rows: Sequence[Row], memory: Any) -> list[Any]:
        """Observers of the network's vectors for each row: the drafters that use a head."""
        draft = getattr(decoder, "drafts", None)
        if draft is None or not draft.needs("head"):
            return []
        sentences: list[Any] = [row.sentence for row in rows]
        drafters = [sentence.drafter for sentence in sentences]
        for drafter, vectors in zip(drafters, self.network.source_vectors(memory), strict=True):
            drafter.begin(vectors)
        return drafters

    def _files(self) -> ModelFiles:
        if self.loaded is None:
            return ModelFiles()
        loaded, (source, target) = self.loaded, self.direction
        files = loaded.files(source, target, self.ends, lambda name: outputs_of(name, loaded, source, target))

        def fitting() -> Any:
            """The table beside the checkpoint, unless the module's vocabulary was changed since."""
            table = files.table()
            return table if table is not None and table.vocabulary == self.network.outputs[0].vocabulary else None

        return replace(files, table=fitting)


def _written(folder: Path) -> int:
    """Time of a folder's last change; 0 if there is no folder."""
    return folder.stat().st_mtime_ns if os.path.isdir(folder) else 0

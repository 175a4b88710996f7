"""The models that screens are measured on, with contexts to fit on, to choose settings by, and to measure on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from fastdecode_lib.contexts.feeding import Translations, language_rows
from fastdecode_lib.contexts.recording import record
from fastdecode_lib.contexts.shards import Contexts
from fastdecode_lib.kernels.matrices import Matrix
from fastdecode_lib.language_model import load_language
from fastdecode_lib.loading import TranslationModel, load
from fastdecode_lib.papers.outcomes import trained
from fastdecode_lib.papers.run import CorpusRun, Scale, temporary_folder
from fastdecode_lib.projections.exact_compiled import output_matrix
from fastdecode_lib.text.corpus import Novels, Tatoeba, corpus_folder, spread_over
from fastdecode_lib.text.sentences import own_pairs

FOLDER = Path("build") / "contexts"
TOP = 5
"""Labels of a context (Chen et al., 2019)."""
MODELS = {
    "small": "novels-small",
    "large": "novels-large",
    "translation": "tatoeba-small",
    "second translation": "tatoeba-small",
    "cased": "novels-cased",
    "multilingual": "tatoeba-small",
}
"""Our models for the data sets of Chen et al. (2019), in `learning_to_screen.printed.SIZES`, and for Amer et al.'s."""
DIRECTION = {"translation": "de-en", "second translation": "en-fr"}
"""The single direction of a multilingual model whose contexts are used."""
STAND_IN = "novels-small"
"""Bundled model that replaces every language model in a tiny run."""


@dataclass(frozen=True)
class Amount:
    """Limits of a direction: contexts to fit on, contexts of each held-out split, and sentences."""

    fit: int
    held_out: int
    sentences: int


AMOUNTS = {
    Scale.TINY: Amount(10_000, 500, 200),
    Scale.LAPTOP: Amount(1_000_000, 20_000, 400_000),
    Scale.PAPER: Amount(1_000_000, 100_000, 400_000),
}
HELD_OUT_LIMITS = {"novels-large": 10_000, "novels-cased": 10_000}
"""Most contexts of a held-out split, for models of which a hundred settings compare each vector with many millions of weights."""


@dataclass(frozen=True)
class Situation:
    """A trained model, its output matrix with the bias in float32, and its recorded contexts of the corpus' three splits.

    In a tiny run the contexts are of our own sentences. Texts of the training split that occur in another split are left out: the
    splits are of sentence pairs, and many pairs share a sentence. `direction` is that of the contexts; of several, the first.
    """

    name: str
    model: str
    matrix: Matrix
    fit: Contexts
    dev: Contexts
    test: Contexts
    loaded: Any
    direction: str

    @cached_property
    def weight(self) -> np.ndarray:
        """The output matrix (V, D) as numpy has it."""
        return self.matrix.unpacked()

    @property
    def bias(self) -> np.ndarray:
        """(V,)."""
        return self.matrix.bias[: self.matrix.shape[0]]

    @cached_property
    def queries(self) -> tuple[np.ndarray, np.ndarray]:
        """Hidden vectors (N, D) and labels (N, K) of the test split."""
        return arrays(self.test)


def arrays(contexts: Contexts, tokens: str = "labels") -> tuple[np.ndarray, np.ndarray]:
    """All hidden vectors (N, D) of recorded contexts, and their labels (N, K) or with ``"gold"`` the tokens (N,) that came next."""
    blocks = list(contexts.blocks())
    return np.concatenate([b.hidden for b in blocks]), np.concatenate([getattr(b, tokens) for b in blocks])


def situation(name: str, run: CorpusRun) -> Situation:
    """One of `MODELS` with its contexts, recorded now if they were not before.

    Raises
    ------
    NoResult
        If the model is neither bundled nor trained here.
    """
    data = None if run.tiny else str(corpus_folder(run.data))
    return _situation(name, run.scale, data, run.progress)


@cache
def _situation(name: str, scale: Scale, data: str | None, progress: bool) -> Situation:
    model = MODELS[name]
    if data is None and model.startswith("novels"):
        model = STAND_IN
    if model.startswith("novels"):
        loaded: Any = load_language(trained(model))
        text, network = loaded.text, loaded.network
        feeder: Any = language_rows(loaded)
    else:
        loaded = load(trained(model), device="cpu", engine="compiled")
        network, feeder = loaded.network, Translations(loaded)
    single_direction = DIRECTION.get(name)
    splits: list[Contexts] = []
    for number, split in enumerate(("train", "dev", "test")):
        texts = _texts(model, split, number, data, AMOUNTS[scale], loaded)
        inputs: Mapping[str, Sequence[Any]] = {
            direction: text.encode(sentences) if model.startswith("novels") else sentences
            for direction, sentences in texts.items()
            if single_direction in (None, direction)
        }
        held_out = min(AMOUNTS[scale].held_out, HELD_OUT_LIMITS.get(model, AMOUNTS[scale].held_out))
        limit = len(inputs) * (AMOUNTS[scale].fit if number == 0 else held_out)
        parts = (model, *([single_direction] if single_direction else ()), split)
        folder_name = f"{'-'.join(parts)}-{limit}-{loaded.checkpoint.fingerprint[:8]}"
        folder = (temporary_folder() if data is None else FOLDER) / folder_name
        splits.append(record(feeder, inputs, folder, top=TOP, most=limit, wait=True, progress=progress))
    fit, dev, test = splits
    return Situation(name, model, output_matrix(network), fit, dev, test, loaded, single_direction or fit.directions[0])


def _texts(
    model: str, split: str, number: int, data: str | None, amount: Amount, loaded: Any
) -> dict[str, Sequence[str]]:
    """The input texts of a split by direction: of the corpus, or every third of our own sentences."""
    if model.startswith("novels"):
        corpus = Novels(Path(data)) if data else None
        texts = _deduplicated(corpus.sentences, split) if corpus else [a for a, _ in own_pairs("en", "de")[number::3]]
        longest = loaded.network.max_target - 1
        return {"en": spread_over([t for t in texts if len(loaded.text.words(t)) < longest], amount.sentences)}
    texts_by_direction: dict[str, Sequence[str]] = {}
    assert isinstance(loaded, TranslationModel)
    for source, target in loaded.directions:
        if data:
            corpus_pairs = partial(Tatoeba(Path(data)).pairs, source=source, target=target)
            texts = _deduplicated(lambda part, pairs=corpus_pairs: [a for a, _ in pairs(part)], split)  # type: ignore[misc]
        else:
            texts = [a for a, _ in own_pairs(source, target)[number::3]]
        texts_by_direction[f"{source}-{target}"] = spread_over(texts, amount.sentences)
    return texts_by_direction


def _deduplicated(texts: Callable[[str], Sequence[str]], split: str) -> list[str]:
    """The texts of a split, each once; the training split loses the texts that the other two splits have."""
    held_out = {text for other in ("dev", "test") for text in texts(other)} if split == "train" else set()
    return [text for text in dict.fromkeys(texts(split)) if text not in held_out]

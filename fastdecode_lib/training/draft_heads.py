"""Training draft heads on a frozen model's own translations; one file because features, loss and check share a layout."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from fastdecode_lib.core import Vectors
from fastdecode_lib.decoding.passes import row_batches
from fastdecode_lib.drafts.head import ANY, FILE, HEADS, DraftHead, Shape
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.projections.queries import layer
from fastdecode_lib.store import recover
from fastdecode_lib.text.tokenizers import padded
from fastdecode_lib.training.draft_tables import fitting, translations
from fastdecode_lib.training.learner import Examples, Learner
from fastdecode_lib.training.presets import Recipe
from fastdecode_lib.training.run import POSITION, Run, only_trainer
from fastdecode_lib.translation import Session

NOTHING = -1
"""Fills the rows of a batch."""


@dataclass(frozen=True)
class HeadRecipe(Recipe):
    """Recipe of a draft head.

    Attributes
    ----------
    drafts : int
        Tokens drafted behind each position in training.
    decay : float
        Weight of each drafted token's loss relative to the one before it.
    vocabulary : int
        Size of the draft vocabulary: the most frequent tokens of the model's outputs in each target language.
    held_out : int
        Sentences of each direction that are left out of training and used to evaluate the head.
    embedding, width, inner : int
        As in `drafts.head.Shape`.
    """

    kind: ClassVar[str] = "head"
    measure: ClassVar[str] = "tokens_per_pass"

    drafts: int = 4
    decay: float = 0.8
    vocabulary: int = 2_000
    held_out: int = 50
    embedding: int = 64
    width: int = 256
    inner: int = 512


RECIPE = HeadRecipe(
    name="draft-head",
    tokens_per_update=1_500,
    peak_rate=2e-3,
    evaluate_every=100,
    updates=1_200,
)
"""Half an hour on one processor core, translations included."""


def forward(
    weights: Mapping[str, Tensor], tokens: Tensor, state: Tensor, keys: Tensor, values: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """One step of the head's equations from positions (B, T): hidden vectors (B, T, D) and states (B, T, W).

    Parameters
    ----------
    tokens : int64 tensor (B, T)
    state : float32 tensor (B, T, W)
    keys, values : float32 tensors (B, heads, S, W / heads)
    mask : bool tensor (B, 1, 1, S)
        True where sources have words.
    """
    size = state.shape[-1]
    inputs = functional.linear(weights["embedding"][tokens], weights["token.weight"], weights["token.bias"])
    recurrent = functional.linear(state, weights["state.weight"])
    update, reset = torch.sigmoid(inputs[..., : 2 * size] + recurrent[..., : 2 * size]).chunk(2, -1)
    candidate = torch.tanh(inputs[..., 2 * size :] + reset * recurrent[..., 2 * size :])
    state = candidate + update * (state - candidate)
    queries = split(functional.linear(state, weights["query.weight"]))
    attended = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask).transpose(1, 2).flatten(2)
    inner = functional.linear(torch.cat([state, attended], -1), weights["inner.weight"], weights["inner.bias"])
    return functional.linear(torch.relu(inner), weights["outer.weight"], weights["outer.bias"]), state


def split(x: Tensor) -> Tensor:
    """(B, T, W) -> (B, heads, T, W / heads)."""
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def enter(weights: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
    """The head's first states (..., W) from the model's hidden vectors (..., D)."""
    return torch.tanh(functional.linear(hidden, weights["enter.weight"], weights["enter.bias"]))


@dataclass(frozen=True)
class Features:
    """Hidden vectors (B, T, D) of tokens (B, T), -1 behind them; source vectors (B, S, E) and their mask (B, 1, 1, S)."""

    hidden: Tensor
    vectors: Tensor
    mask: Tensor
    tokens: Tensor


def sides(weights: Mapping[str, Tensor], vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values (B, heads, S, W / heads) of source vectors (B, S, E)."""
    keys, values = (split(functional.linear(vectors, weights[f"{name}.weight"])) for name in ("key", "value"))
    return keys, values


def unrolled(
    weights: Mapping[str, Tensor], features: Features, words: Tensor, rows: Tensor, bias: Tensor, drafts: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """For each drafted token in turn, behind correct drafts: correct tokens as places (N,) in `words`, and logits (N, words).

    Parameters
    ----------
    words : int64 tensor (words,)
        Ids of the draft vocabulary; tokens outside it are left out.
    rows, bias : tensors (words, D), (words,)
        The model's output rows of `words`.
    drafts : int
        Tokens drafted behind each position.
    """
    place_of = torch.full((int(weights["embedding"].shape[0]),), NOTHING, device=words.device)
    place_of[words] = torch.arange(len(words), device=words.device)
    keys, values = sides(weights, features.vectors)
    state = enter(weights, features.hidden)
    for ahead in range(min(drafts, features.tokens.shape[1] - 1)):
        width = features.tokens.shape[1] - ahead - 1
        fed, correct = features.tokens[:, ahead : ahead + width], features.tokens[:, ahead + 1 :]
        hidden, state = forward(weights, fed.clamp_min(0), state[:, :width], keys, values, features.mask)
        places = torch.where(correct >= 0, place_of[correct.clamp_min(0)], NOTHING)
        in_vocabulary = places >= 0
        yield places[in_vocabulary], functional.linear(hidden[in_vocabulary], rows, bias)


def summed(drafted: Iterable[tuple[Tensor, Tensor]], decay: float) -> tuple[Tensor, float]:
    """Cross-entropy of drafts, each with `decay` times the weight of the one before it, and the sum of the weights."""
    total, weight = torch.zeros(()), 0.0
    for number, (places, logits) in enumerate(drafted):
        share = decay**number
        total = total + share * functional.cross_entropy(logits, places, reduction="sum")
        weight += share * len(places)
    return total, weight


def accepted(
    weights: Mapping[str, Tensor], features: Features, words: Tensor, rows: Tensor, bias: Tensor, drafts: int
) -> Tensor:
    """Number of the head's drafts that are accepted behind each position, (N,); arguments as for `unrolled`."""
    keys, values = sides(weights, features.vectors)
    state, fed = enter(weights, features.hidden), features.tokens.clamp_min(0)
    still_right = features.tokens >= 0
    total = torch.zeros(still_right.shape, device=still_right.device)
    for ahead in range(1, drafts + 1):
        hidden, state = forward(weights, fed, state, keys, values, features.mask)
        fed = words[functional.linear(hidden, rows, bias).argmax(-1)]
        correct = torch.full_like(features.tokens, NOTHING)
        correct[:, :-ahead] = features.tokens[:, ahead:]
        still_right = still_right & (fed == correct)
        total += still_right
    return total[features.tokens >= 0]


def initial_weights(shape: Shape, rows: Tensor, seed: int) -> dict[str, Tensor]:
    """Small random weights; embeddings begin as the principal components of the output rows (V, D)."""
    random = torch.Generator().manual_seed(seed)
    weights = {}
    for name, size in shape.tensors.items():
        weights[name] = torch.zeros(size)
        if len(size) == 2:
            weights[name] = torch.randn(size, generator=random) / size[1] ** 0.5
    centred = rows - rows.mean(0)
    directions = torch.linalg.eigh(centred.T @ centred)[1].flip(1)[:, : shape.embedding]
    components = centred @ directions
    weights["embedding"][:, : components.shape[1]] = components / components.std().clamp_min(1e-6)
    return {name: tensor.requires_grad_() for name, tensor in weights.items()}


class HeadLearner(Learner):
    """Trains the draft head of a model for some directions."""

    padding = NOTHING

    def __init__(
        self,
        recipe: HeadRecipe,
        sessions: Sequence[Session],
        translated: Sequence[tuple[list[np.ndarray], list[np.ndarray]]],
        seed: int,
        begin_with: DraftHead | None = None,
    ):
        """`translated` has source ids and output ids of the sentences of each session (greedy, each of one direction)."""
        self.recipe, self.sessions = recipe, list(sessions)
        self.model = sessions[0].model
        network = self.model.network
        if not isinstance(network, Vectors):
            raise ValueError(
                f"A draft head needs a model that shows its source's vectors: got {type(network).__name__}."
            )
        self.vocabularies = self._vocabularies(translated)
        self.held_out, sources, outputs = [], [], []
        for number, (source_ids, output_ids) in enumerate(translated):
            held_out = set(np.linspace(0, len(source_ids) - 1, recipe.held_out).astype(int).tolist())
            self.held_out.append(([source_ids[i] for i in sorted(held_out)], [output_ids[i] for i in sorted(held_out)]))
            sources += [np.append(number, source_ids[i]) for i in range(len(source_ids)) if i not in held_out]
            outputs += [output_ids[i] for i in range(len(source_ids)) if i not in held_out]
        self.examples = Examples.of(sources, outputs, network.max_target)
        weight, bias = output_layer(self.model)
        self.rows, self.bias = torch.from_numpy(weight), torch.from_numpy(bias)
        self.shape = Shape(
            weight.shape[1], self._source_width(), len(weight), recipe.embedding, recipe.width, recipe.inner
        )
        self.parameters = initial_weights(self.shape, self.rows, seed)
        if begin_with is not None:
            self._begin_as(begin_with)

    @torch.no_grad()
    def _begin_as(self, head: DraftHead) -> None:
        if head.shape != self.shape:
            raise ValueError(
                f"A head begins with one of its own shape: got {head.shape}, this model and recipe have {self.shape}. Give "
                "another, or none."
            )
        for name, parameter in self.parameters.items():
            parameter.copy_(torch.from_numpy(head.tensors[name]))

    def _vocabularies(self, translated: Sequence[tuple[list[np.ndarray], list[np.ndarray]]]) -> dict[str, np.ndarray]:
        counts: dict[str, np.ndarray] = {}
        for session, (_, outputs) in zip(self.sessions, translated, strict=True):
            frequencies = np.bincount(np.concatenate(outputs), minlength=self.model.network.outputs[0].vocabulary)
            language = session.target or ANY
            counts[language] = counts.get(language, 0) + frequencies
        size = self.recipe.vocabulary
        return {
            language: np.sort(np.argsort(-frequencies, kind="stable")[: min(size, int((frequencies > 0).sum()))])
            for language, frequencies in counts.items()
        }

    def _source_width(self) -> int:
        network: Any = self.model.network
        sources, _ = self.held_out[0]
        return int(network.source_vectors(network.encode(padded(sources[:1], 0)))[0].shape[1])

    # -- learning

    def features(self, direction: int, sources: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Features:
        """Features of sentences of a direction, from the frozen model."""
        network: Any = self.model.network
        prefix = self.sessions[direction].constraints.prefix
        batch, tokens = padded(sources, 0), padded(outputs, NOTHING).ids
        hidden, vectors = [], []
        for first_row, source in row_batches(network, batch):
            batch_tokens = tokens[first_row : first_row + len(source)]
            fed = np.where(batch_tokens >= 0, np.roll(batch_tokens, 1, 1), NOTHING)
            fed[:, 0] = prefix[-1]
            encoded = network.encode(source)
            state = network.start(encoded, np.tile(np.array(prefix), (len(source), 1)), len(prefix) + fed.shape[1])
            if len(source) == 1:
                fed = fed[:, : int((fed >= 0).sum())]
            step_vectors = torch.as_tensor(network.step(state, fed)).float().cpu()
            hidden.append(functional.pad(step_vectors, (0, 0, 0, tokens.shape[1] - fed.shape[1])))
            vectors += network.source_vectors(encoded)
        padded_vectors = pad_sequence([torch.from_numpy(values) for values in vectors], batch_first=True)
        mask = torch.from_numpy(np.arange(padded_vectors.shape[1]) < batch.lengths[:, None])[:, None, None]
        return Features(torch.cat(hidden).clone(), padded_vectors, mask, torch.from_numpy(tokens))

    def loss(self, source: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy of the drafts behind each position, in the draft vocabulary; a source's first id is its direction."""
        total, weight = torch.zeros(()), 0.0
        for direction in torch.unique(source[:, 0]).tolist():
            of_direction = source[:, 0] == direction
            sources = [row[row >= 0][1:].numpy() for row in source[of_direction]]
            outputs = [row[row >= 0].numpy() for row in target[of_direction]]
            features = self.features(direction, sources, outputs)
            drafted = unrolled(self.parameters, features, *self._draft_output(direction), self.recipe.drafts)
            direction_total, direction_weight = summed(drafted, self.recipe.decay)
            total, weight = total + direction_total, weight + direction_weight
        return total / max(weight, 1.0)

    def _draft_output(self, direction: int) -> tuple[Tensor, Tensor, Tensor]:
        """Ids of a direction's draft vocabulary, with the model's output rows and bias of them."""
        words = torch.from_numpy(self.vocabularies[self.sessions[direction].target or ANY])
        return words, self.rows[words], self.bias[words]

    # -- looking at the result

    @torch.inference_mode()
    def evaluate(self, weights: dict[str, Tensor]) -> dict[str, float]:
        """Tokens that a pass settles on held-out sentences, for each direction, and ``tokens_per_pass``, their mean.

        The window is as wide as the drafts in training, and begins at every position.
        """
        scores = {}
        for direction, (sources, outputs) in enumerate(self.held_out):
            session = self.sessions[direction]
            features = self.features(direction, sources, outputs)
            name = f"{session.source}-{session.target}" if session.source else ANY
            drafts = accepted(weights, features, *self._draft_output(direction), self.recipe.drafts)
            scores[name] = 1 + float(drafts.mean())
        return {"tokens_per_pass": float(np.mean(list(scores.values()))), **scores}

    def export(self, weights: dict[str, Tensor], folder: Path) -> None:
        """Write the head of these weights."""
        tensors = {name: tensor.detach().cpu().numpy().astype(np.float32) for name, tensor in weights.items()}
        about = {
            "fingerprint": self.model.checkpoint.fingerprint,
            "model": self.model.name,
            "directions": [[session.source, session.target] for session in self.sessions],
            "sentences": len(self.examples.target_offsets) - 1,
            "tokens": len(self.examples.target),
            "recipe": asdict(self.recipe),
        }
        DraftHead(self.shape, tensors, self.vocabularies, about).save(folder / FILE)


def output_layer(model: TranslationModel) -> tuple[np.ndarray, np.ndarray]:
    """A model's output rows (V, D) and bias (V,) in float32."""
    weight, bias = model.network.outputs[0].weight, model.network.outputs[0].bias
    if hasattr(weight, "unpacked"):
        return layer(weight.unpacked(), weight.bias[: weight.shape[0]])
    return layer(weight, bias)


def make_head(
    sessions: Sequence[Session],
    texts: Sequence[Sequence[str]],
    recipe: HeadRecipe = RECIPE,
    *,
    threads: int | None = None,
    seed: int = 1,
    begin_with: DraftHead | None = None,
    folder: str | Path = "build/draft-head",
    progress: bool = False,
) -> DraftHead:
    """Train the draft head of a model: translate text greedily, then learn the tokens behind each position.

    Translations and checkpoints are saved in `folder` during the run, so that a stopped run continues where it was.

    Parameters
    ----------
    sessions : sequence of Session
        Greedy, of one model, one for each direction.
    texts : sequence of sequence of str
        For each direction, unlabelled text like that to be translated later.
    seed : int
        Seed of the first weights and of the order of the sentences.
    begin_with : DraftHead, optional
        Head whose weights are the first ones, such as the head of this model before further training.

    Raises
    ------
    ValueError
        If there is not enough text, or the model has no source to attend to.
    """
    recipe = replace(recipe, evaluate_every=min(recipe.evaluate_every, recipe.updates))
    least = recipe.held_out + 1
    output_layer(sessions[0].model)  # raises now rather than after all translations
    translated = []
    for session, direction_texts in zip(sessions, texts, strict=True):
        fitting_texts = list(dict.fromkeys(fitting(session, direction_texts)))  # none is both learned and held out
        if len(fitting_texts) < least:
            raise ValueError(
                f"A draft head needs at least {least} sentences of a direction, {recipe.held_out} of them to be judged by: got "
                f"{len(fitting_texts)} of {session.source}-{session.target} that fit the model. Give some thousand."
            )
        kept = Path(folder) / "translations"
        translated.append(translations(session, fitting_texts, threads=threads, folder=kept, progress=progress))
    digest = hashlib.sha256(json.dumps([asdict(recipe), seed]).encode())
    for ids in (ids for pair in translated for side in pair for ids in side):
        digest.update(ids.astype(np.int32).tobytes())
    first_weights = {} if begin_with is None else begin_with.tensors
    for name in sorted(first_weights):
        digest.update(first_weights[name].tobytes())
    model = sessions[0].model
    work = Path(folder) / f"{model.checkpoint.fingerprint}-{digest.hexdigest()[:16]}"
    work.mkdir(parents=True, exist_ok=True)
    with only_trainer(Path(folder)):
        recover(work)
        run = Run(recipe, HeadLearner(recipe, sessions, translated, seed, begin_with), work, "cpu", seed)
        run.resume()
        run.train(recipe.updates, 2.0, progress)
    head = DraftHead.load(work / "best" / FILE)
    best = max(run.history, key=lambda entry: entry[recipe.measure])
    return replace(
        head,
        about=head.about
        | {
            "seed": seed,
            **({} if begin_with is None else {"begun_with": begin_with.about.get("fingerprint", "")}),
            "update": best["update"],
            "seconds": best["seconds"],
            "held_out": {name: value for name, value in best.items() if name not in POSITION},
        },
    )

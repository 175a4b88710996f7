"""The laws of decoding as functions: tests and ``fastdecode check`` run the same ones.

A law takes a `Case` (a small random model, a batch of sources, constraints) and raises `LawBroken` with the seed that
reproduces it. Decoder laws are run over the registry, so that a new decoder is under them from the start. All hold for
the torch engine in float64 and for the compiled engine in each precision: there to the last bit.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from fastdecode_lib import registry
from fastdecode_lib.checkpoints.folder import FAMILIES, ORDERS, OWN, Architecture
from fastdecode_lib.core import Constraints, Decoder, Hypothesis, Iteration, Model, Output, Projection, Source, drain
from fastdecode_lib.decoding.autoregressive import Beam, Greedy
from fastdecode_lib.decoding.double_token import DoubleToken
from fastdecode_lib.decoding.jacobi import GaussSeidel, Hybrid, Jacobi
from fastdecode_lib.decoding.mask_predict import MaskPredict
from fastdecode_lib.decoding.window import Window
from fastdecode_lib.drafts.head import ANY, DraftHead
from fastdecode_lib.drafts.head import Shape as DraftHeadShape
from fastdecode_lib.drafts.scores import BoundHead
from fastdecode_lib.drafts.table import DraftTable
from fastdecode_lib.kernels.matrices import PRECISIONS
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring.counting import Counted
from fastdecode_lib.models.compiled_transformer import CompiledTransformer
from fastdecode_lib.models.states import fed_before
from fastdecode_lib.models.transformer import Transformer
from fastdecode_lib.trace import Trace

TOLERANCE = 1e-9
"""Largest difference of hidden vectors in float64 that counts as equal."""

NUMBERS = ("float64", *PRECISIONS)
"""What models compute with: float64 on the torch engine, the others on the compiled one."""


class LawBroken(AssertionError):
    """Something that must always hold does not; the message says where, and how to see it again."""


@dataclass(frozen=True)
class Case:
    """One random situation.

    Attributes
    ----------
    seed : int
        Makes the same case again with `random_case`.
    model : Model
        Small and random.
    projection : Projection
    source : Source
        A batch of a few sentences of different length.
    constraints : Constraints
    tolerance : float
        Largest difference of the model's hidden vectors that counts as equal.
    """

    seed: int
    model: Model
    projection: Projection
    source: Source
    constraints: Constraints
    tolerance: float = TOLERANCE

    @property
    def random(self) -> np.random.Generator:
        """A fresh stream of random numbers that belongs to the case."""
        return np.random.default_rng((self.seed, 1))


# ------------------------------------------------------------------------------------------------------ random cases


def tiny_architecture(family: str, vocabulary: int = 13, max_positions: int = 40, **own: Any) -> Architecture:
    """A two-layer model of a family, small enough for hundreds of cases a second; `own`: what only our own family has."""
    return Architecture(
        family=family,
        source_vocabulary=vocabulary,
        vocabulary=vocabulary,
        width=8,
        encoder_layers=1,
        decoder_layers=2,
        encoder_heads=2,
        decoder_heads=2,
        encoder_feed_forward=12,
        decoder_feed_forward=12,
        max_positions=max_positions,
        activation={"marian": "swish", "mbart": "gelu", "m2m_100": "relu", OWN: "swish"}[family],
        scaled_embeddings=family != "mbart",
        padding=1,
        shared_embeddings=True,
        tied_output=True,
        **own,
    )


def random_tensors(architecture: Architecture, seed: int, scale: float = 0.7) -> dict[str, torch.Tensor]:
    """Weights large enough that every position depends on its prefix and its source."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in architecture.tensors.items():
        values = torch.randn(shape, generator=generator, dtype=torch.float64) * scale
        tensors[name] = values + 1.0 if name.endswith("norm.weight") else values
    decoder = tensors["model.decoder.embed_tokens.weight"]
    if architecture.shared_embeddings:
        tensors["model.encoder.embed_tokens.weight"] = decoder
    if architecture.tied_output:
        tensors["lm_head.weight"] = decoder
    if architecture.family != "m2m_100":
        tensors["final_logits_bias"] = torch.randn(1, architecture.vocabulary, generator=generator).double()
    return tensors


def random_case(seed: int, family: str | None = None, numbers: str = "float64", fits: str = "greedy") -> Case:
    """A case that follows from its seed, with a model that computes with some of `NUMBERS` and that a decoder can drive."""
    random = np.random.default_rng((seed, 0))
    own: dict[str, Any] = {}
    if fits == "double_token":
        family, own = OWN, {"group": int(random.integers(2, 5)), "order": ORDERS[seed % len(ORDERS)]}
    elif fits == "mask_predict":
        family, own = OWN, {"masked": True}
    chosen = family or FAMILIES[seed % len(FAMILIES)]
    architecture = tiny_architecture(chosen, **own)
    tensors, compiled = random_tensors(architecture, seed), numbers != "float64"
    model: Any = Transformer(architecture, tensors, dtype=torch.float64)
    if compiled:
        model = CompiledTransformer(architecture, {name: t.numpy() for name, t in tensors.items()}, numbers)  # type: ignore[arg-type]
    lengths = random.integers(1, 9, size=int(random.integers(1, 4)))
    ids = random.integers(3, architecture.vocabulary, size=(len(lengths), int(lengths.max())))
    prefix = (2,) if random.random() < 0.7 else (2, int(random.integers(3, architecture.vocabulary)))
    max_length = int(random.integers(1, 20)) + (fits == "mask_predict")
    constraints = Constraints(
        prefix=(2,) * architecture.group if own else prefix,
        end=(0,) if random.random() < 0.8 else (0, 5),
        max_length=max_length,
        padding=int(random.integers(0, architecture.vocabulary)),
        banned=(1,) if random.random() < 0.8 else (),
        forced_end=bool(random.random() < 0.5),
        min_length=int(random.integers(0, min(3, max_length))),
        exact_length=int(random.integers(1 + (fits == "mask_predict"), max_length + 1))
        if random.random() < 0.1
        else None,
    )
    source = Source(ids.astype(np.int64), lengths.astype(np.int64))
    projection = registry.projection("exact", model)
    return Case(seed, model, projection, source, constraints, 0.0 if compiled else TOLERANCE)


def random_decoder(name: str, random: np.random.Generator) -> Decoder:
    """A decoder of the registry with random settings."""
    draw = lambda low, high: int(random.integers(low, high))  # noqa: E731
    makers: dict[str, Callable[[], Any]] = {
        "greedy": Greedy,
        "beam": lambda: Beam(size=draw(1, 5), length_penalty=float(random.choice([0.0, 0.6, 1.0, 1.5]))),
        "jacobi": lambda: Jacobi(
            ratio=float(random.choice([0.0, 0.5, 1.2, 3.0])),
            extra=draw(1, 8),
            oracle_length=draw(1, 20) if random.random() < 0.3 else None,
        ),
        "gauss_seidel": lambda: GaussSeidel(block=draw(1, 9)),
        "hybrid": lambda: Hybrid(block=draw(1, 9), length=draw(0, 25) if random.random() < 0.5 else None),
        "window": lambda: random_window(random),
        "double_token": lambda: DoubleToken(size=draw(1, 5), length_penalty=float(random.choice([0.0, 0.6, 1.0, 1.5]))),
        "mask_predict": lambda: MaskPredict(iterations=draw(1, 6), lengths=draw(1, 6)),
    }
    decoder: Decoder = makers[name]()
    return decoder


DRAFTS = (
    "pad", "recycled", "recycled/pad", "source", "prompt/recycled", "ngram", "lexicon", "ngram+lexicon", "lexicon/recycled/pad",
    "recycled|pool", "ngram+lexicon|recycled|pool", "source|recycled", "pool",
)  # fmt: skip
"""Every source of drafts that needs no training, alone and combined."""
HEAD_DRAFTS = ("head", "ngram+lexicon+head", "prompt/head|pool")
"""Those with a draft head."""
MODEL_DRAFTS = ("model", "model/recycled", "model|pool")
"""Those that another model puts out."""


def random_window(random: np.random.Generator, draft: str | None = None) -> Window:
    """A window with random settings, a draft table counted on random sentences, and a random draft head.

    What another model puts out depends on the case: see `drafted`.
    """
    sentences = [random.integers(0, 13, size=int(random.integers(1, 9))) for _ in range(12)]
    table = DraftTable.count(sentences, sentences[::-1], source_vocabulary=13, vocabulary=13, start=2, least=1)
    width, candidates = int(random.integers(1, 10)), int(random.integers(1, 4))
    chosen = draft or str(random.choice(DRAFTS + HEAD_DRAFTS + MODEL_DRAFTS))
    return Window(width, chosen, candidates, loaded=table, bound=random_head(random))


def random_head(random: np.random.Generator) -> BoundHead:
    """A head of random weights, bound to random output rows of the size of `tiny_architecture`'s."""
    shape = DraftHeadShape(hidden=8, source=8, tokens=13, embedding=4, width=8, inner=12)
    tensors = {name: random.normal(size=size).astype(np.float32) for name, size in shape.tensors.items()}
    words = np.flatnonzero(random.random(13) < 0.7)
    head = DraftHead(shape, tensors, {ANY: words if len(words) else np.arange(13)})
    return BoundHead(head, Output(torch.from_numpy(random.normal(size=(13, 8)))), None)


# --------------------------------------------------------------------------------------------------- laws of decoders


def drafted(decoder: Decoder, case: Case) -> Decoder:
    """A decoder as a case runs it: a window for which another model drafts gets outputs that are `half_right`."""
    if isinstance(decoder, Window) and decoder.drafts.needs_model and decoder.outputs is None:
        return decoder.with_outputs(partial(half_right, case))
    return decoder


def half_right(case: Case, source: Source) -> list[tuple[int, ...]]:
    """What another model might put out: greedy decoding's tokens, but that some may be left out, put in, or cut off."""
    found = []
    for greedy in drain(Greedy().iterate(case.model, case.projection, source, case.constraints)):
        random = np.random.default_rng((case.seed, 3, *greedy.tokens))
        kept, left_out, put_in = (int(n) for n in random.integers(0, (len(greedy.tokens) + 1, 3, 4)))
        wrong = random.integers(0, case.model.outputs[0].vocabulary, size=put_in).tolist()
        rest = greedy.tokens[kept + left_out :] if random.random() < 0.7 else ()
        found.append((*greedy.tokens[:kept], *wrong, *rest))
    return found


def decode(decoder: Decoder, case: Case, model: Any = None) -> tuple[Hypothesis, ...]:
    """Run a decoder on a case."""
    return drain(drafted(decoder, case).iterate(model or case.model, case.projection, case.source, case.constraints))


def run_through(
    decoder: Decoder, case: Case, model: Any = None, observe: bool = False
) -> tuple[list[Iteration], tuple[Hypothesis, ...]]:
    """Run a decoder on a case and keep its passes."""
    passes = drafted(decoder, case).iterate(
        model or case.model, case.projection, case.source, case.constraints, observe=observe
    )
    seen = []
    while True:
        try:
            seen.append(next(passes))
        except StopIteration as stop:
            return seen, stop.value


def lossless_equals_greedy(decoder: Decoder, case: Case) -> None:
    """A decoder that calls itself lossless gives greedy decoding's tokens and reasons to stop."""
    if not decoder.lossless:
        return
    expected, found = decode(Greedy(), case), decode(decoder, case)
    for row, (a, b) in enumerate(zip(expected, found, strict=True)):
        if (a.tokens, a.stop) != (b.tokens, b.stop):
            raise LawBroken(f"{decoder} differs from greedy, case {case.seed}, row {row}: {a} against {b}.")


def batch_equals_single(decoder: Decoder, case: Case) -> None:
    """The rows of a batch come out as they do alone."""
    together = decode(decoder, case)
    for row in range(len(case.source)):
        (alone,) = decode(decoder, replace(case, source=case.source.row(row)))
        if alone.tokens != together[row].tokens:
            raise LawBroken(
                f"{decoder} depends on the batch, case {case.seed}, row {row}: alone {alone.tokens}, together "
                f"{together[row].tokens}."
            )


def constraints_hold(decoder: Decoder, case: Case) -> None:
    """No output breaks a rule: lengths, banned tokens, the forced end, nothing after the end."""
    rules = case.constraints
    for row, hypothesis in enumerate(decode(decoder, case)):
        tokens = np.array(hypothesis.tokens)
        slots = np.arange(len(tokens))
        free = rules.forced(slots) < 0
        ends = np.isin(tokens, rules.end)
        wrong = [
            (not 1 <= len(tokens) <= rules.limit, "its length"),
            (bool(ends[:-1].any()), "tokens after the end"),
            (bool(np.isin(tokens[free], rules.banned).any()), "a banned token"),
            (bool((tokens[~free] != rules.end[0]).any()), "no end where it is forced"),
            (bool(ends[free & (slots < rules.min_length)].any()), "an end before min_length"),
            (rules.exact_length not in (None, len(tokens)), "not the exact length"),
            ((hypothesis.stop == "end") != bool(ends[-1:].any()), "the wrong reason to stop"),
        ]
        for broken, what in wrong:
            if broken:
                raise LawBroken(f"{decoder} has {what}, case {case.seed}, row {row}: {tokens.tolist()} under {rules}.")


def counter_sees_all(decoder: Decoder, case: Case) -> None:
    """The counting proxy counts every pass the network makes, and the trace shows as many."""
    bare = _StepCounter(case.model)
    counted = Counted(bare)
    iterations, _ = run_through(decoder, case, counted)
    if counted.usage.passes != bare.passes or counted.usage.positions != bare.positions:
        raise LawBroken(
            f"{decoder} went round the counter, case {case.seed}: it counted {counted.usage}, the network made "
            f"{bare.passes} passes over {bare.positions} positions."
        )
    feeding_prefix = bare.starts if len(case.constraints.prefix) > case.model.group else 0
    shown = iterations[-1].call + 1 if iterations else 0
    if shown != bare.passes - feeding_prefix:
        raise LawBroken(f"{decoder} shows {shown} passes, case {case.seed}; it made {bare.passes - feeding_prefix}.")


class _StepCounter:
    """Counts at the network itself, where nothing can be hidden."""

    def __init__(self, model: Model):
        self.network, self.passes, self.positions, self.starts = model, 0, 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.network, name)

    def start(self, encoded: Any, prefix: np.ndarray, capacity: int | None = None) -> Any:
        self.starts += 1
        before = fed_before(prefix, self.network.group)
        if before.size:
            self.passes, self.positions = self.passes + 1, self.positions + before.size
        return self.network.start(encoded, prefix, capacity)

    def step(self, state: Any, tokens: np.ndarray, visible: np.ndarray | None = None) -> Any:
        self.passes, self.positions = self.passes + 1, self.positions + int((tokens >= 0).sum())
        return self.network.step(state, tokens, visible)

    def refine(self, encoded: Any, tokens: np.ndarray, rows: np.ndarray) -> Any:
        self.passes, self.positions = self.passes + 1, self.positions + int((tokens >= 0).sum())
        masked: Any = self.network
        return masked.refine(encoded, tokens, rows)


def settled_stays(decoder: Decoder, case: Case) -> None:
    """A token shown as settled is the final one, and a settled slot never opens again."""
    iterations, outputs = run_through(decoder, case)
    settled: set[tuple[int, int]] = set()
    for iteration in iterations:
        tokens = outputs[iteration.row].tokens
        for slot, token, status in zip(iteration.slots, iteration.tokens, iteration.status, strict=True):
            key = (iteration.row, int(slot))
            reopened = status != "settled" and key in settled
            settled |= {key} if status == "settled" else set()
            outside = not -len(tokens) <= slot < len(tokens)
            if reopened or (status == "settled" and (outside or tokens[slot] != token)):
                raise LawBroken(
                    f"{decoder} shows {token} as {status} at slot {slot} in pass {iteration.call}, case {case.seed}, and ends "
                    f"with {tokens}."
                )


def observing_changes_nothing(decoder: Decoder, case: Case) -> None:
    """Recording probabilities leaves tokens and passes as they are, and probabilities lie between 0 and 1."""
    bare, output = run_through(decoder, case)
    seen, observed = run_through(decoder, case, observe=True)
    if [o.tokens for o in output] != [o.tokens for o in observed] or len(bare) != len(seen):
        raise LawBroken(f"{decoder} decodes otherwise when observed, case {case.seed}.")
    for iteration in seen:
        values = iteration.probabilities
        if values is not None and not ((values >= 0) & (values <= 1 + 1e-12)).all():
            raise LawBroken(f"{decoder} shows probabilities {values}, case {case.seed}.")


def trace_survives_json(decoder: Decoder, case: Case) -> None:
    """A trace written and read again is written the same."""
    single = replace(case, source=case.source.row(0))
    iterations, outputs = run_through(decoder, single, observe=True)
    trace = Trace({"text": "a", "pieces": []}, {"text": "b"}, {"decoder": str(decoder)}, case.constraints.end)
    trace.iterations, trace.hypotheses = iterations, outputs
    text = trace.to_json()
    if Trace.from_json(text).to_json() != text:
        raise LawBroken(f"The trace of {decoder} changes on its way through JSON, case {case.seed}.")


def jacobi_passes_bounded(decoder: Decoder, case: Case) -> None:
    """PJ needs at most a pass per token and one per block; PGJ and HGJ never more than their blocks hold."""
    if not isinstance(decoder, Jacobi | GaussSeidel | Hybrid):
        return
    for row in range(len(case.source)):
        source = case.source.row(row)
        counted = Counted(case.model)
        (output,) = drain(decoder.iterate(counted, case.projection, source, case.constraints))
        passes = counted.usage.passes - (len(case.constraints.prefix) > 1)
        blocks, covered = 0, 0
        for size in decoder.block_sizes(int(source.lengths[0]), case.constraints):
            blocks, covered = blocks + 1, covered + size
            if covered >= len(output.tokens):
                break
        if passes > len(output.tokens) + blocks:
            raise LawBroken(
                f"{decoder} made {passes} passes for {len(output.tokens)} tokens in {blocks} blocks, case {case.seed}, row {row}."
            )


def window_needs_no_more_passes(decoder: Decoder, case: Case) -> None:
    """A window never needs more passes than greedy decoding, whatever its drafts."""
    if not isinstance(decoder, Window):
        return
    for row in range(len(case.source)):
        iterations, (output,) = run_through(decoder, replace(case, source=case.source.row(row)))
        if len(iterations) > len(output.tokens):
            raise LawBroken(
                f"{decoder} made {len(iterations)} passes for {len(output.tokens)} tokens, case {case.seed}, row {row}."
            )


def positions_are_counted(decoder: Decoder, case: Case) -> None:
    """The positions that iterations tell are those the network computed, the prefix's apart."""
    counted = Counted(case.model)
    iterations, _ = run_through(decoder, case, counted)
    prefix = len(case.source) * (len(case.constraints.prefix) - case.model.group)
    told = sum(iteration.positions for iteration in iterations)
    if told != counted.usage.positions - prefix:
        raise LawBroken(
            f"{decoder} tells {told} positions, case {case.seed}; the network computed {counted.usage.positions - prefix}."
        )


def beam_one_equals_greedy(case: Case) -> None:
    """A beam of one is greedy decoding."""
    for row, (a, b) in enumerate(zip(decode(Greedy(), case), decode(Beam(size=1), case), strict=True)):
        if a.tokens != b.tokens:
            raise LawBroken(f"A beam of 1 differs from greedy, case {case.seed}, row {row}: {a.tokens}, {b.tokens}.")


DECODER_LAWS: tuple[Callable[[Decoder, Case], None], ...] = (
    lossless_equals_greedy,
    batch_equals_single,
    constraints_hold,
    counter_sees_all,
    settled_stays,
    observing_changes_nothing,
    trace_survives_json,
    jacobi_passes_bounded,
    window_needs_no_more_passes,
    positions_are_counted,
)


# ----------------------------------------------------------------------------------------------------- laws of models


def _fresh(case: Case) -> tuple[Any, np.ndarray, int]:
    """A started state, some random tokens (B, 7) to feed, and the number of rows; groups for tokens, where there are."""
    rows, group = len(case.source), case.model.group
    prefix = np.tile(np.array(case.constraints.prefix), (rows, 1))
    state = case.model.start(case.model.encode(case.source), prefix, 30)
    tokens = case.random.integers(0, case.model.outputs[0].vocabulary, size=(rows, 7 * group))
    return state, tokens, rows


def _array(hidden: Any) -> np.ndarray:
    return np.asarray(hidden.cpu() if hasattr(hidden, "cpu") else hidden)


def _check_close(what: str, case: Case, found: np.ndarray, expected: np.ndarray) -> None:
    error = float(np.abs(found - expected).max(initial=0.0))
    if not error <= case.tolerance:
        raise LawBroken(f"{what}, case {case.seed}: hidden vectors differ by {error:.2e}, more than {case.tolerance}.")


def wide_pass_equals_steps(case: Case) -> None:
    """One pass over w slots gives what w single steps give; w groups what w steps give."""
    state, tokens, _ = _fresh(case)
    wide = _array(case.model.step(state, tokens))
    state, _, _ = _fresh(case)
    group = case.model.group
    starts = range(0, tokens.shape[1], group)
    steps = np.concatenate([_array(case.model.step(state, tokens[:, i : i + group])) for i in starts], 1)
    _check_close("A wide pass differs from single steps", case, wide, steps)


def truncate_forgets(case: Case) -> None:
    """After truncation a step gives what it gives had the forgotten slots never been fed."""
    state, tokens, _ = _fresh(case)
    three = 3 * case.model.group
    case.model.step(state, tokens[:, :three])
    lengths = state.lengths
    case.model.step(state, tokens[:, three : 2 * three])
    state.truncate(lengths)
    if (state.lengths != lengths).any():
        raise LawBroken(f"truncate left lengths {state.lengths}, case {case.seed}, instead of {lengths}.")
    found = _array(case.model.step(state, tokens[:, 2 * three :]))
    state, _, _ = _fresh(case)
    case.model.step(state, tokens[:, :three])
    _check_close("A truncated state remembers", case, found, _array(case.model.step(state, tokens[:, 2 * three :])))


def kept_candidate_equals_stepped(case: Case) -> None:
    """A tree of two candidates fed at once: keeping one equals having fed it alone."""
    state, tokens, rows = _fresh(case)
    case.model.step(state, tokens[:, :1])
    visible = np.zeros((rows, 4, 4), dtype=bool)
    for first in (0, 2):
        visible[:, first, first] = visible[:, first + 1, first] = visible[:, first + 1, first + 1] = True
    tree = _array(case.model.step(state, tokens[:, 1:5], visible))
    state.keep(np.tile(np.array([2, 3]), (rows, 1)))
    after = _array(case.model.step(state, tokens[:, 6:]))
    state, _, _ = _fresh(case)
    case.model.step(state, tokens[:, :1])
    alone = _array(case.model.step(state, tokens[:, 3:5]))
    _check_close("A candidate beside another differs from the candidate alone", case, tree[:, 2:], alone)
    _check_close(
        "A kept candidate differs from a stepped one", case, after, _array(case.model.step(state, tokens[:, 6:]))
    )


def masked_slot_changes_nothing(case: Case) -> None:
    """What stands at a slot that others do not see changes no bit of them."""
    results = []
    for other in (0, 1):
        state, tokens, rows = _fresh(case)
        tokens[:, 1] = (tokens[:, 1] + other) % case.model.outputs[0].vocabulary
        visible = np.tile(np.tril(np.ones((4, 4), dtype=bool)), (rows, 1, 1))
        visible[:, 2:, 1] = False
        results.append(_array(case.model.step(state, tokens[:, :4], visible))[:, [0, 2, 3]])
    if not (results[0] == results[1]).all():
        raise LawBroken(f"A slot that is masked out changes others, case {case.seed}.")


def ragged_equals_single(case: Case) -> None:
    """Rows of different length in one state, fed with different numbers of slots, come out as they do alone."""
    state, tokens, rows = _fresh(case)
    group = case.model.group
    counts = case.random.integers(1, 4, size=(2, rows)) * group
    fed = [np.where(np.arange(4 * group) < counts[i][:, None], tokens[:, : 4 * group], -1) for i in (0, 1)]
    together = [_array(case.model.step(state, f)) for f in fed]
    for row in range(rows):
        single = replace(case, source=case.source.row(row))
        state, _, _ = _fresh(single)
        for part, hidden in zip(fed, together, strict=True):
            own = part[row : row + 1, part[row] >= 0]
            alone = _array(case.model.step(state, own))
            _check_close("A ragged row differs from a single one", case, hidden[row : row + 1, : own.shape[1]], alone)


def selected_rows_are_independent(case: Case) -> None:
    """Selected rows continue as copies, and stepping them leaves the original as it was."""
    state, tokens, rows = _fresh(case)
    two, three = 2 * case.model.group, 3 * case.model.group
    case.model.step(state, tokens[:, :two])
    order = case.random.integers(0, rows, size=rows + 2)
    chosen = state.select(order)
    found = _array(case.model.step(chosen, tokens[order, two:three]))
    original = _array(case.model.step(state, tokens[:, two:three]))
    _check_close("A selected row differs from its original", case, found, original[order])


GROUP_LAWS: tuple[Callable[[Case], None], ...] = (
    wide_pass_equals_steps,
    truncate_forgets,
    ragged_equals_single,
    selected_rows_are_independent,
)
"""Those of models of several tokens a step too."""
MODEL_LAWS: tuple[Callable[[Case], None], ...] = (
    *GROUP_LAWS,
    kept_candidate_equals_stepped,
    masked_slot_changes_nothing,
    beam_one_equals_greedy,
)


# ---------------------------------------------------------------------------------------------------------- running


def run_laws(cases: int, first_seed: int = 0) -> Iterator[dict[str, Any]]:
    """Run every law on random cases; yield a row per law and decoder as soon as it is done.

    Rows hold ``name`` (of the law, the decoder and, on the compiled engine, the precision), ``cases``, ``broken`` (how many)
    and ``first`` (the first message, or empty).
    """
    seeds = range(first_seed, first_seed + cases)
    for numbers in NUMBERS:
        which = "" if numbers == "float64" else f"/{numbers}"
        drawn = [random_case(seed, numbers=numbers) for seed in seeds]
        for law in MODEL_LAWS:
            yield tally(f"{law.__name__}{which}", [partial(law, case) for case in drawn])
        own = {
            name: [random_case(seed, numbers=numbers, fits=name) for seed in seeds]
            for name in (DoubleToken.name, MaskPredict.name)
        }
        for law in GROUP_LAWS:
            yield tally(f"{law.__name__}/groups{which}", [partial(law, case) for case in own[DoubleToken.name]])
        for name in registry.DECODERS:
            for decoder_law in DECODER_LAWS:
                checks = [partial(_on_decoder, decoder_law, name, case) for case in own.get(name, drawn)]
                yield tally(f"{decoder_law.__name__}/{name}{which}", checks)


def _on_decoder(law: Callable[[Decoder, Case], None], name: str, case: Case) -> None:
    law(random_decoder(name, np.random.default_rng((case.seed, 2))), case)


def tally(name: str, checks: Sequence[Callable[[], None]]) -> dict[str, Any]:
    """A row of `run_laws`: how many checks break their law, and the first message."""
    messages = []
    for check in checks:
        try:
            check()
        except LawBroken as error:
            messages.append(str(error))
    return {"name": name, "cases": len(checks), "broken": len(messages), "first": messages[0] if messages else ""}


def beam_equals_huggingface(
    model: TranslationModel, sentences: Sequence[str], source: str, target: str, size: int = 5, batch: int = 25
) -> list[int]:
    """Numbers of the sentences whose beam search differs from ``generate(num_beams=size, length_penalty=1.0)``."""
    from transformers import AutoModelForSeq2SeqLM

    module = AutoModelForSeq2SeqLM.from_pretrained(
        model.checkpoint.folder, dtype=getattr(torch, model.dtype), use_safetensors=True
    ).to(model.device)
    constraints = model.constraints(target)
    projection = registry.projection("exact", model.network)
    different = []
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        encoded = model.encode([sentences[i] for i in rows], source, target)
        ours = drain(Beam(size).iterate(model.network, projection, encoded, constraints))
        with torch.inference_mode():
            ids = torch.from_numpy(encoded.ids).to(model.device)
            mask = torch.arange(ids.shape[1]) < torch.from_numpy(encoded.lengths)[:, None]
            theirs = module.generate(
                input_ids=ids,
                attention_mask=mask.long().to(model.device),
                num_beams=size,
                do_sample=False,
                length_penalty=1.0,
                early_stopping=False,
                max_length=constraints.max_length + len(constraints.prefix),
                forced_bos_token_id=constraints.prefix[1] if len(constraints.prefix) > 1 else None,
            )[:, len(constraints.prefix) :].tolist()
        for i, a, b in zip(rows, ours, theirs, strict=True):
            if list(a.tokens) != b[: len(a.tokens)] or any(t != constraints.padding for t in b[len(a.tokens) :]):
                different.append(i)
    return sorted(different)

"""The laws of decoders; tests and ``fastdecode check`` run the same ones.

A law takes a `Case` (a small random model, a batch of sources, constraints) and raises `LawBroken` with the seed that
reproduces it. The laws run on all decoders of the registry, so that they cover a new decoder from the start. All hold for the
torch engine in float64 and for the compiled engine in each precision, there to the last bit.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fastdecode_lib import registry
from fastdecode_lib.core import Decoder, Hypothesis, Iteration, collected, drain
from fastdecode_lib.decoding.autoregressive import Beam, Greedy
from fastdecode_lib.decoding.jacobi import GaussSeidel, Hybrid, Jacobi
from fastdecode_lib.laws.cases import Case, LawBroken, decode, drafted
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring.counting import Counted, Proxy
from fastdecode_lib.models.states import fed_before
from fastdecode_lib.trace import Trace

ROUNDING = 1e-11
"""Largest rounding error of a score of these small models in float64."""


def run_through(
    decoder: Decoder, case: Case, model: Any = None, observe: bool = False
) -> tuple[list[Iteration], tuple[Hypothesis, ...]]:
    """Run a decoder on a case; return its iterations and hypotheses."""
    return collected(
        drafted(decoder, case).iterate(
            model or case.model, case.projection, case.source, case.constraints, observe=observe
        )
    )


def lossless_equals_greedy(decoder: Decoder, case: Case) -> None:
    """A decoder that promises to be lossless gives the tokens and reasons to stop of greedy decoding."""
    if not decoder.lossless:
        return
    expected, actual = decode(Greedy(), case), decode(decoder, case)
    for row, (a, b) in enumerate(zip(expected, actual, strict=True)):
        if (a.tokens, a.stop) != (b.tokens, b.stop) and not _rounding_decides(case, row, a.tokens, b.tokens):
            raise LawBroken(f"{decoder} differs from greedy, case {case.seed}, row {row}: {a} against {b}.")


def _rounding_decides(case: Case, row: int, first: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether the two best scores of greedy decoding are equal up to rounding where two outputs first differ.

    Never true on the compiled engine, whose scores do not depend on the shape of a pass; see `Decoder.lossless`.
    """
    if case.tolerance == 0:
        return False
    pairs = zip(first, other, strict=False)
    slot = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(other)))
    passes = list(Greedy().iterate(case.model, case.projection, case.source.row(row), case.constraints, observe=True))
    margins = passes[slot].margins if slot < len(passes) else None
    return margins is not None and float(margins[0]) <= ROUNDING


def batch_equals_single(decoder: Decoder, case: Case) -> None:
    """Each row of a batch gives the same output as alone."""
    batched = decode(decoder, case)
    for row in range(len(case.source)):
        (single,) = decode(decoder, replace(case, source=case.source.row(row)))
        tokens = batched[row].tokens
        if single.tokens != tokens and not (decoder.lossless and _rounding_decides(case, row, single.tokens, tokens)):
            raise LawBroken(
                f"{decoder} depends on the batch, case {case.seed}, row {row}: alone {single.tokens}, together {tokens}."
            )


def constraints_hold(decoder: Decoder, case: Case) -> None:
    """Every output follows the rules: lengths, banned tokens, the forced end, nothing after the end; and says why it stopped."""
    rules = case.constraints
    for row, hypothesis in enumerate(decode(decoder, case)):
        tokens = np.array(hypothesis.tokens)
        slots = np.arange(len(tokens))
        unforced = rules.forced(slots) < 0
        ends = np.isin(tokens, rules.end)
        forces = rules.forced_end or case.model.both_ends  # a sentence that grows from both ends has an end
        cut = forces and rules.exact_length is None and len(tokens) == rules.max_length
        checks = [
            (not 1 <= len(tokens) <= rules.limit, "its length"),
            (bool(ends[:-1].any()), "tokens after the end"),
            (bool(np.isin(tokens[unforced], rules.banned).any()), "a banned token"),
            (bool((tokens[~unforced] != rules.end[0]).any()), "no end where it is forced"),
            (bool(ends[unforced & (slots < rules.min_length)].any()), "an end before min_length"),
            (rules.exact_length not in (None, len(tokens)), "not the exact length"),
            ((hypothesis.stop == "end") != bool(ends[-1:].any() and not cut), "the wrong reason to stop"),
        ]
        for broken, fault in checks:
            if broken:
                raise LawBroken(f"{decoder} has {fault}, case {case.seed}, row {row}: {tokens.tolist()} under {rules}.")


def counter_sees_all(decoder: Decoder, case: Case) -> None:
    """The counting proxy counts every pass of the network, and the trace shows the same number."""
    network = _StepCounter(case.model)
    counted = Counted(network)
    iterations, _ = run_through(decoder, case, counted)
    if counted.usage.passes != network.passes or counted.usage.positions != network.positions:
        raise LawBroken(
            f"{decoder} went round the counter, case {case.seed}: it counted {counted.usage}, the network made "
            f"{network.passes} passes over {network.positions} positions."
        )
    prefix_passes = network.starts if len(case.constraints.prefix) > case.model.tokens_per_step else 0
    shown, passes = iterations[-1].call + 1 if iterations else 0, network.passes - prefix_passes
    if shown != passes:
        raise LawBroken(f"{decoder} shows {shown} passes, case {case.seed}; it made {passes}.")


class _StepCounter(Proxy):
    """Counts the calls of the network itself, which sees every pass."""

    passes, positions, starts = 0, 0, 0

    def start(self, encoded: Any, prefix: np.ndarray, capacity: int | None = None) -> Any:
        self.starts += 1
        prefix_tokens = fed_before(prefix, self.inner.tokens_per_step)
        if prefix_tokens.size:
            self.passes, self.positions = self.passes + 1, self.positions + prefix_tokens.size
        return self.inner.start(encoded, prefix, capacity)

    def step(self, state: Any, tokens: np.ndarray, visible: np.ndarray | None = None) -> Any:
        self.passes, self.positions = self.passes + 1, self.positions + int((tokens >= 0).sum())
        return self.inner.step(state, tokens, visible)

    def refine(self, encoded: Any, tokens: np.ndarray, rows: np.ndarray) -> Any:
        self.passes, self.positions = self.passes + 1, self.positions + int((tokens >= 0).sum())
        return self.inner.refine(encoded, tokens, rows)


def settled_stays(decoder: Decoder, case: Case) -> None:
    """A token shown as settled is the final one, and a settled slot stays settled."""
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
    """Recording probabilities changes neither tokens nor passes, and probabilities are between 0 and 1."""
    passes, outputs = run_through(decoder, case)
    seen, observed_outputs = run_through(decoder, case, observe=True)
    if [o.tokens for o in outputs] != [o.tokens for o in observed_outputs] or len(passes) != len(seen):
        raise LawBroken(f"{decoder} decodes otherwise when observed, case {case.seed}.")
    for iteration in seen:
        values = iteration.probabilities
        if values is not None and not ((values >= 0) & (values <= 1 + 1e-12)).all():
            raise LawBroken(f"{decoder} shows probabilities {values}, case {case.seed}.")


def trace_survives_json(decoder: Decoder, case: Case) -> None:
    """A trace that is written, read and written again stays the same."""
    single = replace(case, source=case.source.row(0))
    iterations, outputs = run_through(decoder, single, observe=True)
    trace = Trace({"text": "a", "pieces": []}, {"text": "b"}, {"decoder": str(decoder)}, case.constraints.end)
    trace.iterations, trace.hypotheses = iterations, outputs
    text = trace.to_json()
    if Trace.from_json(text).to_json() != text:
        raise LawBroken(f"The trace of {decoder} changes on its way through JSON, case {case.seed}.")


def jacobi_passes_bounded(decoder: Decoder, case: Case) -> None:
    """PJ, PGJ and HGJ need at most one pass for each token and one for each block."""
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
    """A window never needs more passes than greedy decoding, whatever it drafts."""
    if not hasattr(decoder, "drafts"):
        return
    for row in range(len(case.source)):
        iterations, (output,) = run_through(decoder, replace(case, source=case.source.row(row)))
        if len(iterations) > len(output.tokens):
            raise LawBroken(
                f"{decoder} made {len(iterations)} passes for {len(output.tokens)} tokens, case {case.seed}, row {row}."
            )


def positions_are_counted(decoder: Decoder, case: Case) -> None:
    """Iterations record as many positions as the network computed, without those of the prefix."""
    counted = Counted(case.model)
    iterations, _ = run_through(decoder, case, counted)
    prefix = len(case.source) * (len(case.constraints.prefix) - case.model.tokens_per_step)
    recorded = sum(iteration.positions for iteration in iterations)
    if recorded != counted.usage.positions - prefix:
        raise LawBroken(
            f"{decoder} records {recorded} positions, case {case.seed}; the network computed {counted.usage.positions - prefix}."
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


def beam_equals_huggingface(
    model: TranslationModel, sentences: Sequence[str], source: str, target: str, size: int = 5, batch: int = 25
) -> list[int]:
    """Indices of the sentences for which beam search differs from ``generate(num_beams=size, length_penalty=1.0)``."""
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
        hypotheses = drain(Beam(size).iterate(model.network, projection, encoded, constraints))
        with torch.inference_mode():
            ids = torch.from_numpy(encoded.ids).to(model.device)
            mask = torch.arange(ids.shape[1]) < torch.from_numpy(encoded.lengths)[:, None]
            expected = module.generate(
                input_ids=ids,
                attention_mask=mask.long().to(model.device),
                num_beams=size,
                do_sample=False,
                length_penalty=1.0,
                early_stopping=False,
                max_length=constraints.max_length + len(constraints.prefix),
                forced_bos_token_id=constraints.prefix[1] if len(constraints.prefix) > 1 else None,
            )[:, len(constraints.prefix) :].tolist()
        for i, a, b in zip(rows, hypotheses, expected, strict=True):
            if list(a.tokens) != b[: len(a.tokens)] or any(t != constraints.padding for t in b[len(a.tokens) :]):
                different.append(i)
    return sorted(different)

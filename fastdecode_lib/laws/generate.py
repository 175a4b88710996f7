"""The law of decoders inside Hugging Face's `generate`: on random modules and settings, they give its own output."""

import warnings
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    LogitsProcessor,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    MT5Config,
    MT5ForConditionalGeneration,
    StoppingCriteria,
    T5Config,
    T5ForConditionalGeneration,
)

from fastdecode_lib import hf
from fastdecode_lib.checkpoints import transformers_private as private
from fastdecode_lib.checkpoints.t5 import T5
from fastdecode_lib.checkpoints.transformer import FAMILIES
from fastdecode_lib.laws.cases import DRAFTS, LawBroken, random_decoder
from fastdecode_lib.laws.running import tally

KINDS = (*FAMILIES, "bart")
"""Kinds of random modules: the families that our engines run, and one that runs through its own forward."""
FUNCTIONAL = tuple(kind for kind in FAMILIES if not (kind in T5 and private.t5_rounds_scores()))
"""Kinds that fastdecode's engine runs in float64, too."""
VOCABULARY, PADDING, END = 13, 1, 2


def random_module(kind: str, seed: int, **changes: Any) -> Any:
    """A tiny module in float64 whose every output depends on its prefix and its source.

    Attention is sharp and all other products have unit gain; otherwise a random model repeats one token.
    """
    sizes = {
        "vocab_size": VOCABULARY, "d_model": 8, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 12, "decoder_ffn_dim": 12, "max_position_embeddings": 48,
    }  # fmt: skip
    ids = {"pad_token_id": PADDING, "eos_token_id": END, "decoder_start_token_id": END, "bos_token_id": 0}
    options = {"forced_eos_token_id": None, "scale_embedding": kind != "bart"}
    if kind in T5:
        sizes = {
            "vocab_size": VOCABULARY, "d_model": 8, "d_kv": 3, "d_ff": 12, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 2,
            "relative_attention_num_buckets": 8, "relative_attention_max_distance": 7,
        }  # fmt: skip
        options = {}
    config, model = {
        "marian": (MarianConfig, MarianMTModel),
        "mbart": (MBartConfig, MBartForConditionalGeneration),
        "m2m_100": (M2M100Config, M2M100ForConditionalGeneration),
        "t5": (T5Config, T5ForConditionalGeneration),
        "mt5": (MT5Config, MT5ForConditionalGeneration),
        "bart": (BartConfig, BartForConditionalGeneration),
    }[kind]
    module = model(config(**(sizes | ids | options | changes))).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if "embed_positions" in name and not tensor.requires_grad:
                continue
            tensor.normal_(generator=generator)
            if name.endswith("norm.weight"):
                tensor.mul_(0.1).add_(1)
            elif name.endswith("bias"):
                tensor.mul_(0.1)
            elif not any(part in name for part in ("q_proj", "k_proj", ".q.", ".k.")):
                tensor.mul_(tensor.shape[-1] ** -0.5)
    return module


class PrefixProcessor(LogitsProcessor):
    """A user's own processor, for which every score depends on the whole prefix."""

    stateless = True

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Raise one score."""
        weights = torch.arange(1, input_ids.shape[1] + 1)
        raised = (input_ids * weights).sum(1, keepdim=True) % scores.shape[1]
        return scores.scatter_add(1, raised, torch.full_like(scores[:, :1], 1.5))


class PrefixCriterion(StoppingCriteria):
    """Stops a row depending on its whole prefix."""

    stateless = True

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        """Whether each row stops."""
        weights = torch.arange(1, input_ids.shape[1] + 1)
        return (input_ids * weights).sum(1) % 5 == 0


@dataclass(frozen=True)
class GenerateCase:
    """Arguments of one call of `generate`."""

    seed: int
    kind: str
    module: Any
    settings: dict[str, Any] = field(repr=False)

    def run(self, custom: Any = None) -> Any:
        """The output of `generate`, with a ``custom_generate`` if there is one."""
        settings = self.settings | ({} if custom is None else {"custom_generate": custom})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.module.generate(**settings)


def random_generate_case(seed: int) -> GenerateCase:
    """A case that depends only on its seed."""
    random = np.random.default_rng((seed, 3))

    def sometimes(share: float, **settings: Any) -> dict[str, Any]:
        return settings if random.random() < share else {}

    def token(low: int = 3, high: int = VOCABULARY) -> int:
        return int(random.integers(low, high))

    kind = KINDS[seed % len(KINDS)]
    rows, length = int(random.choice([1, 3])), int(random.integers(2, 9))
    ids = random.integers(3, VOCABULARY, (rows, length))
    prompt, limit = int(random.choice([1, 1, 1, 2, 4])), int(random.integers(1, 18))
    settings: dict[str, Any] = {"num_beams": 1, "do_sample": False, "max_new_tokens": limit}
    padding = random.choice(["none", "right", "left", "gaps"])
    if padding != "none":
        counts = random.integers(1, length + 1, (rows, 1))
        mask = {
            "right": np.arange(length) < counts,
            "left": np.arange(length) >= length - counts,
            "gaps": (random.random((rows, length)) < 0.6) | (np.arange(length) == counts - 1),
        }[str(padding)]
        ids = np.where(mask, ids, PADDING)
        settings["attention_mask"] = torch.from_numpy(mask.astype(np.int64))
    settings["input_ids"] = torch.from_numpy(ids)
    if prompt > 1:
        start = np.concatenate([np.full((rows, 1), END), random.integers(3, VOCABULARY, (rows, prompt - 1))], 1)
        settings["decoder_input_ids"] = torch.from_numpy(start)
        settings |= sometimes(0.3, decoder_attention_mask=torch.ones(rows, prompt, dtype=torch.long))
    settings |= sometimes(0.4, bad_words_ids=[[PADDING]])
    settings |= sometimes(0.2, bad_words_ids=[[token()], [token(), token()], [token(), token(), token()]])
    settings |= sometimes(0.2, forced_bos_token_id=token(high=7))
    settings |= sometimes(0.3, forced_eos_token_id=END)
    settings |= sometimes(0.2, min_new_tokens=int(random.integers(1, limit + 1)))
    settings |= sometimes(0.1, min_length=prompt + limit // 2)
    settings |= sometimes(0.2, repetition_penalty=float(random.choice([0.7, 1.3, 2.0])))
    settings |= sometimes(0.2, no_repeat_ngram_size=int(random.integers(1, 4)))
    settings |= sometimes(0.1, encoder_repetition_penalty=1.4)
    settings |= sometimes(0.1, encoder_no_repeat_ngram_size=int(random.integers(1, 3)))
    settings |= sometimes(0.1, suppress_tokens=[token(7), token(7)])
    settings |= sometimes(0.1, begin_suppress_tokens=[token(7), token(7)])
    settings |= sometimes(0.1, sequence_bias=[[[token()], -2.0], [[token(), token()], 3.0]])
    settings |= sometimes(0.1, exponential_decay_length_penalty=(int(random.integers(0, 5)), 1.5))
    settings |= sometimes(0.1, renormalize_logits=True) | sometimes(0.1, remove_invalid_values=True)
    settings |= sometimes(0.1, eos_token_id=[END, token()])
    settings |= sometimes(0.1, prefix_allowed_tokens_fn=lambda row, ids: [(row + int(ids[-1])) % VOCABULARY, 0, 5, 7])
    settings |= sometimes(0.1, logits_processor=[PrefixProcessor()])
    settings |= sometimes(0.15, stopping_criteria=[PrefixCriterion()])
    settings |= sometimes(0.3, return_dict_in_generate=True, output_scores=True, output_logits=True)
    module = random_module(kind, seed)
    return GenerateCase(seed, kind, module.float() if seed % 2 and kind in FUNCTIONAL else module, settings)


def random_custom_generate(seed: int) -> hf.CustomGenerate:
    """A parallel decoder with random settings that the case of the same seed can run."""
    random = np.random.default_rng((seed, 4))
    decoder = random_decoder(str(random.choice(["jacobi", "gauss_seidel", "hybrid", "window", "auto"])), random)
    if (drafts := getattr(decoder, "drafts", None)) is not None:
        trees = KINDS[seed % len(KINDS)] in FUNCTIONAL
        possible = [draft for draft in DRAFTS if trees or "|" not in draft]
        draft = replace(drafts, written=str(random.choice(possible)), head=None)
        decoder = replace(decoder, draft=draft, **({} if trees else {"candidates": 1}))  # type: ignore[type-var]
    return hf.decoder(decoder, packed=random.random() < 0.8)


def custom_generate_equals_generate(custom: Any, case: GenerateCase) -> None:
    """Inside `generate`, a decoder returns the same as `generate` without it."""
    expected, actual = case.run(), case.run(custom)
    if type(expected) is not type(actual):
        raise LawBroken(f"{custom} returned {type(actual).__name__} for {type(expected).__name__}, case {case.seed}.")
    expected_ids, ids = (x if isinstance(x, torch.Tensor) else x.sequences for x in (expected, actual))
    if expected_ids.dtype != ids.dtype or expected_ids.tolist() != ids.tolist():
        raise LawBroken(f"{custom} generated {ids.tolist()} for {expected_ids.tolist()}, case {case.seed}.")
    if not isinstance(expected, torch.Tensor):
        prompt = expected_ids.shape[1] - len(expected.scores)
        running = ~_after_end(case, ids[:, prompt:])
        for name in ("scores", "logits"):
            for step, (a, b) in enumerate(zip(expected[name], actual[name], strict=True)):
                rows = running[:, step]
                if not torch.allclose(a[rows], b[rows], atol=1e-4, equal_nan=True) or b[~rows].any():
                    raise LawBroken(f"{custom} returned other {name} for token {step + 1}, case {case.seed}.")


def _after_end(case: GenerateCase, tokens: torch.Tensor) -> torch.Tensor:
    """Which tokens (B, T) are after the end of their row, whatever ended it."""
    prompt = case.settings.get("decoder_input_ids", torch.full((len(tokens), 1), END))
    ends = torch.tensor(case.settings.get("eos_token_id", END))
    stopped = torch.isin(tokens, ends)
    for criterion in case.settings.get("stopping_criteria", []):
        sequences = torch.cat([prompt, tokens], 1)
        for step in range(tokens.shape[1]):
            stopped[:, step] |= criterion(sequences[:, : prompt.shape[1] + step + 1], None)
    return (stopped.cumsum(1) - stopped.long()) > 0


def run_law(cases: int, first_seed: int) -> dict[str, Any]:
    """Run the law on random cases; returns a row in the form of `laws.running.run_laws`."""

    def on_seed(seed: int) -> None:
        custom_generate_equals_generate(random_custom_generate(seed), random_generate_case(seed))

    seeds = range(first_seed, first_seed + cases)
    return tally(custom_generate_equals_generate.__name__, [partial(on_seed, seed) for seed in seeds])

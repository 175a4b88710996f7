"""Quality of outputs: BLEU and chrF of sacrebleu, their intervals, and the share of identical outputs."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastdecode_lib.core import optional


def same_share(one: Sequence[Any], other: Sequence[Any]) -> float:
    """The share of sentences with identical outputs of two systems."""
    return float(np.mean([tuple(a) == tuple(b) for a, b in zip(one, other, strict=True)]))


UNSPACED = dict.fromkeys(("zh", "zho", "cmn", "yue", "lzh", "wuu", "gan", "hak", "nan", "hsn", "cjy"), "zh")
UNSPACED |= dict.fromkeys(("ja", "jpn", "jap", "th", "tha", "lo", "lao", "km", "khm", "my", "mya"), "char")
"""Languages written without spaces, and sacrebleu's tokenizer for each; all others use 13a."""


def bleu_tokenizer(language: str | None) -> str:
    """The name of sacrebleu's tokenizer for a language, from a code such as ``ja``, ``zho_Hans`` or ``zh_CN``."""
    return UNSPACED.get((language or "").replace("-", "_").split("_")[0].lower(), "13a")


def _metrics(language: str | None, **settings: Any) -> dict[str, Any]:
    metrics = optional("sacrebleu.metrics", "evaluation")
    return {"bleu": metrics.BLEU(tokenize=bleu_tokenizer(language), **settings), "chrf": metrics.CHRF(**settings)}


def quality(texts: Sequence[str], references: Sequence[str], language: str | None = None) -> tuple[float, float]:
    """BLEU and chrF of sacrebleu with its default settings and the tokenizer of the target language."""
    scores = {
        name: float(metric.corpus_score(list(texts), [list(references)]).score)
        for name, metric in _metrics(language).items()
    }
    return scores["bleu"], scores["chrf"]


def paired_quality(
    outputs: Mapping[str, Sequence[str]],
    references: Sequence[str],
    against: str,
    seed: int = 0,
    samples: int = 1_000,
) -> dict[str, dict[str, float | None]]:
    """BLEU and chrF of several systems with 95% intervals, and p-values of the difference from `against`.

    Uses the paired bootstrap of sacrebleu. ``bleu_p`` and ``chrf_p`` are None for `against` itself, and for all systems if
    `against` is not among them.
    """
    PairedTest = optional("sacrebleu.significance", "evaluation").PairedTest
    if not outputs:
        return {}
    names = [*([against] if against in outputs else []), *(name for name in outputs if name != against)]
    previous_seed = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(12345 + seed)
    try:
        metrics = _metrics(None, references=[list(references)])
        systems: list[Any] = [(name, list(outputs[name])) for name in names]
        _, results = PairedTest(systems, metrics, references=None, test_type="bs", n_samples=samples)()
    finally:
        if previous_seed is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = previous_seed
    scores: dict[str, dict[str, float | None]] = {}
    for place, name in enumerate(names):
        row: dict[str, float | None] = {}
        for metric, key in (("BLEU", "bleu"), ("chrF2", "chrf")):
            result: Any = results[metric][place]
            row |= {key: result.score, f"{key}_low": result.mean - result.ci, f"{key}_high": result.mean + result.ci}
            comparable = against in outputs and result.p_value is not None
            row[f"{key}_p"] = float(np.asarray(result.p_value)) if comparable else None
        scores[name] = row
    return scores


def signatures(scored: bool = True, language: str | None = None) -> dict[str, str]:
    """The sacrebleu signatures of `quality`."""
    metrics = _metrics(language) if scored else {}
    for metric in metrics.values():
        metric.corpus_score(["a"], [["a"]])
    return {name: str(metric.get_signature()) for name, metric in metrics.items()}

"""Quality of outputs: BLEU and chrF of sacrebleu, their intervals, and how many outputs are the same."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def same_share(one: Sequence[Any], other: Sequence[Any]) -> float:
    """The share of outputs that two systems have in common, sentence by sentence."""
    return float(np.mean([tuple(a) == tuple(b) for a, b in zip(one, other, strict=True)]))


def quality(texts: Sequence[str], references: Sequence[str]) -> tuple[float, float]:
    """BLEU and chrF of sacrebleu with its default settings."""
    import sacrebleu

    return (
        float(sacrebleu.corpus_bleu(list(texts), [list(references)]).score),
        float(sacrebleu.corpus_chrf(list(texts), [list(references)]).score),
    )


def paired_quality(
    outputs: Mapping[str, Sequence[str]], references: Sequence[str], against: str, seed: int = 0, samples: int = 1_000
) -> dict[str, dict[str, float | None]]:
    """BLEU and chrF of several systems with 95% intervals, and how likely each one's distance to `against` is by chance.

    Paired bootstrap of sacrebleu; that one's own ``bleu_p`` and ``chrf_p`` are None; all are where it is missing.
    """
    from sacrebleu.metrics import BLEU, CHRF
    from sacrebleu.significance import PairedTest

    if not outputs:
        return {}
    names = [*([against] if against in outputs else []), *(name for name in outputs if name != against)]
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(12345 + seed)
    try:
        metrics: Any = {"bleu": BLEU(references=[list(references)]), "chrf": CHRF(references=[list(references)])}
        systems: list[Any] = [(name, list(outputs[name])) for name in names]
        _, results = PairedTest(systems, metrics, references=None, test_type="bs", n_samples=samples)()
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before
    found: dict[str, dict[str, float | None]] = {}
    for place, name in enumerate(names):
        row: dict[str, float | None] = {}
        for metric, key in (("BLEU", "bleu"), ("chrF2", "chrf")):
            result: Any = results[metric][place]
            row |= {key: result.score, f"{key}_low": result.mean - result.ci, f"{key}_high": result.mean + result.ci}
            known = against in outputs and result.p_value is not None
            row[f"{key}_p"] = float(np.asarray(result.p_value)) if known else None
        found[name] = row
    return found


def signatures(scored: bool = True) -> dict[str, str]:
    """The sacrebleu signatures of `quality`."""
    if not scored:
        return {}
    from sacrebleu.metrics import BLEU, CHRF

    made = {}
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF())):
        metric.corpus_score(["a"], [["a"]])
        made[name] = str(metric.get_signature())
    return made

"""Train a preset: resumable after a kill at any moment, one trainer at a time, shipping the best checkpoint at hand.

Checkpoints are single safetensors files written atomically under ``build/train/NAME``.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from fastdecode_lib.loading import torch_device
from fastdecode_lib.store import atomic_file, recover
from fastdecode_lib.text.corpus import Novels, Tatoeba, corpus_folder
from fastdecode_lib.training.learner import Learner
from fastdecode_lib.training.presets import PRESETS, Recipe
from fastdecode_lib.training.run import Run, only_trainer


def train(
    name: str,
    *,
    data: str | Path | None = None,
    folder: str | Path = "build/train",
    device: str = "cpu",
    threads: int | None = None,
    seed: int | None = None,
    updates: int | None = None,
    minutes_between_checkpoints: float = 4.0,
    progress: bool = True,
) -> Path:
    """Train a preset from where it last stopped, until what it is measured by on the dev split no longer rises.

    Parameters
    ----------
    name : str
        A name of `presets.PRESETS`.
    data : str or Path, optional
        The corpus folder; ``FASTDECODE_DATA`` otherwise.
    folder : str or Path
        Where ``NAME/`` with checkpoints, log and best model is kept.
    seed : int, optional
        The preset's own otherwise.
    updates : int, optional
        Go on to this update, instead of the preset's last (a checkpoint is left, so that a later call continues).

    Returns
    -------
    Path
        The directory of the best model so far.
    """
    if name not in PRESETS:
        raise ValueError(f"Unknown model to train: got {name!r}. Use one of {', '.join(PRESETS)}.")
    if updates is not None and updates < 1:
        raise ValueError(f"Training needs updates >= 1, got {updates}. Leave it out to train to the end.")
    preset = PRESETS[name]
    seed = preset.seed if seed is None else seed
    device = str(torch_device(device))
    work = Path(folder) / name
    work.mkdir(parents=True, exist_ok=True)
    if threads:
        torch.set_num_threads(threads)
    with only_trainer(Path(folder)):
        recover(work)
        corpus = corpus_folder(data)
        _check_same_run(work, preset, corpus / preset.corpus, seed)
        last = updates or preset.max_updates
        longer = replace(preset, max_updates=max(last, preset.max_updates))
        run = Run(longer, _learner(preset, corpus, work, device, seed), work, device, seed)
        run.resume()
        run.train(last, minutes_between_checkpoints, progress)
    return work / "best"


def _learner(preset: Any, corpus: Path, work: Path, device: str, seed: int) -> Learner:
    if preset.kind == "recurrent":
        from fastdecode_lib.training.recurrent import RecurrentLearner

        return RecurrentLearner(preset, Tatoeba(corpus), work, device, seed)
    if preset.kind == "language":
        from fastdecode_lib.training.language import LanguageLearner

        return LanguageLearner(preset, Novels(corpus), work, device, seed)
    if preset.kind == "group":
        from fastdecode_lib.training.multi_token import GroupLearner

        return GroupLearner(preset, Tatoeba(corpus), work, device, seed)
    if preset.kind == "drafting":
        from fastdecode_lib.training.for_drafting import DraftingLearner

        return DraftingLearner(preset, Tatoeba(corpus), work, device, seed)
    from fastdecode_lib.training.marian import MarianLearner

    return MarianLearner(preset, Tatoeba(corpus), work, device, seed)


def _check_same_run(work: Path, preset: Recipe, corpus: Path, seed: int) -> None:
    """Refuse to continue what was begun with another seed, recipe or corpus; note all three where nothing was begun."""
    sizes = {p.name: p.stat().st_size for p in sorted(corpus.glob("*.gz"))}
    wanted = json.loads(json.dumps({"seed": seed, "preset": asdict(preset), "corpus": sizes}))
    note = work / "run.json"
    begun = json.loads(note.read_text(encoding="utf-8")) if note.exists() else wanted
    different = [key for key in wanted if begun.get(key) != wanted[key]]
    if different:
        raise ValueError(
            f"The run in {work} was begun with another {' and '.join(different)}: got {wanted[different[0]]}, it has "
            f"{begun.get(different[0])}. Give the same again, or another --folder."
        )
    with atomic_file(note) as temporary:
        temporary.write_text(json.dumps(wanted, indent=1) + "\n", encoding="utf-8")

"""Train a preset: resumable after a kill at any moment, with the best checkpoint so far always saved.

Checkpoints are single safetensors files written atomically under ``build/train/NAME``.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from fastdecode_lib.checkpoints.folder import Checkpoint
from fastdecode_lib.checkpoints.hub import find_checkpoint
from fastdecode_lib.loading import torch_device
from fastdecode_lib.measuring.provenance import device_name
from fastdecode_lib.store import read_json, recover, write_text
from fastdecode_lib.text.corpus import CorpusNotFound, Novels, Tatoeba, corpus_folder
from fastdecode_lib.training.language import LanguageLearner
from fastdecode_lib.training.learner import begin_as, copy_vocabulary
from fastdecode_lib.training.marian import MarianLearner
from fastdecode_lib.training.multi_token import GroupLearner
from fastdecode_lib.training.presets import BEGUN_WITH, PRESETS, RUN, GroupPreset, Recipe, place_of
from fastdecode_lib.training.recurrent import RecurrentLearner
from fastdecode_lib.training.run import CHECKPOINT, Run, only_trainer

KINDS: dict[str, tuple[Any, Any, str]] = {
    "marian": (MarianLearner, Tatoeba, "tokenizer"),
    "group": (GroupLearner, Tatoeba, "."),
    "recurrent": (RecurrentLearner, Tatoeba, "words"),
    "language": (LanguageLearner, Novels, "words"),
}
"""Learner and corpus of each kind of preset, and the place of the vocabulary in the folder of a run."""


def train(
    name: str,
    *,
    data: str | Path | None = None,
    folder: str | Path = "build/train",
    device: str = "cpu",
    threads: int | None = None,
    seed: int | None = None,
    updates: int | None = None,
    stop_at: int | None = None,
    begin_with: str | Path | None = None,
    minutes_between_checkpoints: float = 4.0,
    progress: bool = True,
) -> Path:
    """Train a preset from where it last stopped to its planned length, at which the learning rate reaches zero.

    A finished run can be extended: it continues from the checkpoint before the learning rate fell, and its weights become those
    of a run planned with the greater length from the start. The history keeps the evaluations of both, each with its planned
    length, and the best model is replaced only by a better one.

    Parameters
    ----------
    name : str
        A name of `presets.PRESETS`.
    data : str or Path, optional
        The corpus folder; by default ``FASTDECODE_DATA``.
    folder : str or Path
        Where ``NAME/`` with checkpoints, log and best model is kept.
    seed : int, optional
        By default the preset's.
    updates : int, optional
        Planned length; by default that of the run begun in this folder, or else the preset's.
    stop_at : int, optional
        Stop at this update with a checkpoint, so that a later call continues.
    begin_with : str or Path, optional
        Name or folder of a trained model of the same shape: a new run begins with its weights and its vocabulary, at update 0.

    Returns
    -------
    Path
        The directory of the best model so far.
    """
    if name not in PRESETS:
        raise ValueError(f"Unknown model to train: got {name!r}. Use one of {', '.join(PRESETS)}.")
    for option, count in (("updates", updates), ("stop_at", stop_at)):
        if count is not None and count < 1:
            raise ValueError(f"Training needs {option} >= 1, got {count}. Leave it out to train to the end.")
    preset = PRESETS[name]
    new_learner, corpus_class, vocabulary_place = KINDS[preset.kind]
    seed = preset.seed if seed is None else seed
    device = str(torch_device(device))
    work = Path(folder) / name
    work.mkdir(parents=True, exist_ok=True)
    if threads:
        torch.set_num_threads(threads)
    with only_trainer(work):
        recover(work)
        corpus = corpus_folder(data)
        base = None if begin_with is None else find_checkpoint(begin_with)
        _check_same_run(work, preset, corpus / preset.corpus, seed, base)
        if base is not None and not (work / CHECKPOINT).exists():
            copy_vocabulary(base.folder, work / vocabulary_place)
        planned = replace(preset, updates=updates or _note(work).get("planned") or preset.updates)
        learner = new_learner(preset, corpus_class(corpus), work, device, seed)
        if base is not None:
            begin_as(learner.parameters, base)
        run = Run(planned, learner, work, device, seed)
        run.resume()
        _write(work / RUN, _note(work) | {"planned": planned.updates, "device": device_name(device)})
        run.train(stop_at or planned.updates, minutes_between_checkpoints, progress)
    return work / "best"


def _note(work: Path) -> dict[str, Any]:
    """The note of the run in a folder; empty if there is none."""
    note = work / RUN
    return read_json(note, again="Copy it again, or train in another --folder.") if note.exists() else {}


def _write(note: Path, content: dict[str, Any]) -> None:
    write_text(note, json.dumps(content, indent=1) + "\n")


def _check_same_run(work: Path, preset: Recipe, corpus: Path, seed: int, base: Checkpoint | None) -> None:
    """Refuse to continue a run that has another seed, recipe, corpus, model or teacher; write the note of a new run."""
    sizes = {p.name: p.stat().st_size for p in sorted(corpus.glob("*.gz"))}
    if not sizes:
        raise CorpusNotFound(f"The corpus has no files to train on: got {corpus}. Check --data or FASTDECODE_DATA.")
    recipe = {key: value for key, value in asdict(preset).items() if key != "updates"}
    settings = json.loads(json.dumps({"seed": seed, "preset": recipe, "corpus": sizes}))
    note = work / RUN
    if base is not None:
        settings[BEGUN_WITH] = base.fingerprint
    teacher = preset.teacher if isinstance(preset, GroupPreset) else ""
    if teacher and (place := place_of(teacher, work.parent)):
        settings["taught_by"] = find_checkpoint(place).fingerprint
    begun = _note(work) or settings
    if base is None and BEGUN_WITH in begun and not (work / CHECKPOINT).exists():
        raise ValueError(
            f"The run in {work} was stopped before its first checkpoint: it begins with the weights {begun[BEGUN_WITH]}, and got "
            "no model. Give it again: --begin-with MODEL"
        )
    different = [key for key in settings if begun.get(key) != settings[key]]
    if different:
        wrong = different[0]
        got, has = settings[wrong], begun.get(wrong)
        if wrong == "preset" and isinstance(has, dict):
            fields = [key for key in got.keys() | has.keys() if got.get(key) != has.get(key)]
            got, has = ({key: values.get(key) for key in sorted(fields)} for values in (got, has))
        raise ValueError(
            f"The run in {work} was begun with another {' and '.join(different)}: got {got}, it has {has}. Give the same again, or "
            "another --folder."
        )
    _write(note, begun)

"""One training run: updates, checkpoints and the best model so far, resumable after a kill at any moment.

Everything random follows from (seed, update), so an interrupted run continues as if it had not been interrupted.
"""

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from fastdecode_lib.store import atomic_file, atomic_folder, parse_json, write_text
from fastdecode_lib.training.learner import Learner, batches
from fastdecode_lib.training.presets import Recipe
from fastdecode_lib.training.stacked_muon import StackedMuon


@contextmanager
def only_trainer(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's folder, in which two trainers would write over each other."""
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(f"Another trainer is running in {folder}. Wait for it, or stop it first.") from error
        yield


POSITION = ("update", "planned", "epoch", "seconds", "processor_seconds", "averaged")
"""Fields of an evaluation in the history besides its scores."""
CHECKPOINT, BEFORE_DECAY = "checkpoint.safetensors", "before-decay.safetensors"


def is_layer_matrix(name: str, parameter: torch.Tensor) -> bool:
    """Whether Muon trains a parameter: it maps vectors to vectors, unlike an embedding, an output layer, a norm or a bias."""
    return parameter.ndim == 2 and not any(word in name for word in ("embed", "shared", "output", "length"))


class Run:
    """One training run: parameters, running average, optimisers and the position in the data."""

    def __init__(self, preset: Recipe, learner: Learner, work: Path, device: str, seed: int):
        self.preset, self.learner = preset, learner
        self.work, self.device, self.seed = work, device, seed
        self.parameters = learner.parameters
        self.average = {n: p.detach().clone() for n, p in self.parameters.items()}
        self.optimisers = self._new_optimisers()
        self.update, self.epoch, self.seen_in_epoch = 0, 0, 0
        self.seconds, self.processor_seconds = 0.0, 0.0
        self.history: list[dict[str, Any]] = []

    def _new_optimisers(self) -> list[tuple[torch.optim.Optimizer, float]]:
        """Each optimiser with its peak rate.

        `torch.optim.Muon` orthogonalises one matrix at a time, which on a CPU core takes half the time of stacked matrices of one
        shape; on a GPU stacking is faster, since it needs fewer calls.
        """
        preset = self.preset
        matrices = {
            name for name, p in self.parameters.items() if preset.optimiser == "muon" and is_layer_matrix(name, p)
        }
        vectors = [p for name, p in self.parameters.items() if name not in matrices]
        adamw = torch.optim.AdamW(vectors, lr=0.0, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.01, fused=True)
        if not matrices:
            return [(adamw, preset.peak_rate)]
        kind = torch.optim.Muon if torch.device(self.device).type == "cpu" else StackedMuon
        muon = kind(
            [self.parameters[name] for name in self.parameters if name in matrices],
            lr=0.0,
            weight_decay=0.01,
            momentum=0.95,
            nesterov=True,
            ns_steps=5,
            adjust_lr_fn="original",
        )
        return [(muon, preset.matrix_rate), (adamw, preset.peak_rate)]

    # -- position on disk

    def resume(self) -> None:
        """Continue from the last checkpoint, if there is one, or from the one before the decay, if the run is extended.

        Raises
        ------
        ValueError
            If a checkpoint is damaged, or it is too late to change the planned length.
        """
        path = self.work / CHECKPOINT
        if not path.exists():
            return
        position = self._position(path)
        planned, update, history = position["planned"], position["update"], position["history"]
        fallen = update > min(self.preset.decay_from, replace(self.preset, updates=planned).decay_from)
        if planned != self.preset.updates and fallen:
            path = self.work / BEFORE_DECAY
            if not path.exists() or self._position(path)["update"] > self.preset.decay_from:
                raise ValueError(
                    f"The length of a run can change until its learning rate falls: got {self.preset.updates:,} updates, and "
                    f"{self.work} is at {update:,} of {planned:,}, without a checkpoint from before update "
                    f"{self.preset.decay_from:,}. Give more updates than {planned:,}, or another --folder."
                )
        try:
            self._restore(path)
        except (KeyError, TypeError, RuntimeError) as error:
            raise _damaged(path, error) from error
        self.history = history

    def _position(self, path: Path) -> dict[str, Any]:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "pt") as file:
                position: dict[str, Any] = parse_json(file.metadata()["state"])
            if "planned" not in position:
                raise KeyError("planned")
            return position
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise _damaged(path, error) from error

    def _restore(self, path: Path) -> None:
        from safetensors import safe_open

        position = self._position(path)
        with safe_open(path, "pt") as file:
            stored: dict[str, dict[str, torch.Tensor]] = {}
            for key in file.keys():  # noqa: SIM118
                kind, name = key.split(".", 1)
                stored.setdefault(name, {})[kind] = file.get_tensor(key).to(self.device)
        states = self._optimiser_states()
        for name, parameter in self.parameters.items():
            tensors = stored[name]
            parameter.data.copy_(tensors.pop("model"))
            self.average[name].copy_(tensors.pop("average"))
            states[id(parameter)][parameter] = tensors
        for optimiser, _ in self.optimisers:
            if len({frozenset(state) for state in optimiser.state.values()}) > 1:
                raise KeyError("the state of a parameter")
        for key in ("update", "epoch", "seen_in_epoch", "seconds", "processor_seconds"):
            setattr(self, key, position[key])

    def _optimiser_states(self) -> dict[int, Any]:
        """The optimiser's table of states for each parameter, by its id."""
        return {id(p): optimiser.state for optimiser, _ in self.optimisers for p in optimiser.param_groups[0]["params"]}

    def save(self, file: str = CHECKPOINT) -> None:
        """Write everything that a later process needs to continue the run."""
        from safetensors.torch import save_file

        states = self._optimiser_states()
        tensors = {}
        for name, parameter in self.parameters.items():
            tensors[f"model.{name}"] = parameter.detach()
            tensors[f"average.{name}"] = self.average[name]
            tensors |= {f"{kind}.{name}": tensor for kind, tensor in states[id(parameter)][parameter].items()}
        keys = ("update", "epoch", "seen_in_epoch", "seconds", "processor_seconds", "history")
        state = {"planned": self.preset.updates} | {key: getattr(self, key) for key in keys}
        with atomic_file(self.work / file) as temporary:
            save_file(tensors, temporary, metadata={"state": json.dumps(state)})

    # -- the loop

    def train(self, stop_at: int, minutes_between_checkpoints: float, progress: bool) -> None:
        """Train to this update or to the end of the run, and save a checkpoint."""
        preset, saved_at = self.preset, time.monotonic()
        stop_at = min(stop_at, preset.updates)
        if self.update and self.update == preset.decay_from:  # a run with a longer plan was stopped here
            self.save(BEFORE_DECAY)
        bar = tqdm(total=preset.updates, initial=self.update, desc=preset.name, unit="update", disable=not progress)
        while self.update < stop_at:
            rows_of_epoch = batches(self.learner.examples, preset.tokens_per_update, self.seed, self.epoch)
            for rows in rows_of_epoch[self.seen_in_epoch :]:
                started, processor = time.monotonic(), time.process_time()
                loss, tokens = self.step(rows)
                seconds = time.monotonic() - started
                self.seconds += seconds
                self.processor_seconds += time.process_time() - processor
                bar.update()
                if self.update % 20 == 0:
                    bar.set_postfix(loss=f"{loss:.3f}", tokens_per_s=f"{tokens / seconds:.0f}", epoch=self.epoch + 1)
                if self.update % preset.evaluate_every == 0 or self.update == preset.updates:
                    self.evaluate()
                if self.update == preset.decay_from:
                    self.save(BEFORE_DECAY)
                if self.update >= stop_at:
                    break
                if time.monotonic() - saved_at > 60 * minutes_between_checkpoints:
                    self.save()
                    saved_at = time.monotonic()
            else:
                self.epoch, self.seen_in_epoch = self.epoch + 1, 0
        if self.update:
            self.save()
        bar.close()

    def step(self, rows: np.ndarray) -> tuple[float, int]:
        """Make one update; return its loss per token and its number of target tokens."""
        preset, learner = self.preset, self.learner
        self.update += 1
        self.seen_in_epoch += 1
        torch.manual_seed(self.seed * 1_000_003 + self.update)
        source, target = (ids.to(self.device) for ids in learner.examples.batch(rows, learner.padding))
        loss = learner.loss(source, target)
        for optimiser, _ in self.optimisers:
            optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters.values(), 1.0)
        for optimiser, peak in self.optimisers:
            optimiser.param_groups[0]["lr"] = peak * preset.rate(self.update)
            optimiser.step()
        learner.after_update()
        decay = min(preset.average, (1 + self.update) / (10 + self.update))
        torch._foreach_lerp_(list(self.average.values()), [p.detach() for p in self.parameters.values()], 1 - decay)
        return loss.item(), int((target != learner.padding).sum())

    # -- looking at the result

    def evaluate(self) -> None:
        """Score the weights and their running average on the dev split; save the better one if it is the best so far."""
        measure = self.preset.measure
        current = {name: parameter.detach() for name, parameter in self.parameters.items()}
        scored = [(weights, self.learner.evaluate(weights)) for weights in (self.average, current)]
        weights, scores = max(scored, key=lambda pair: pair[1][measure])
        best_score = max((entry[measure] for entry in self.history), default=None)
        averaged = weights is self.average
        position = (self.update, self.preset.updates, self.epoch, self.seconds, self.processor_seconds, averaged)
        self.history.append(dict(zip(POSITION, position, strict=True)) | scores)
        if best_score is None or scores[measure] > best_score:
            with atomic_folder(self.work / "best") as temporary:
                self.learner.export(weights, temporary)
        write_text(self.work / "history.json", json.dumps(self.history, indent=1))
        before = "" if best_score is None else f" (best before {best_score:.2f})"
        tqdm.write(f"update {self.update}: {measure} {scores[measure]:.2f}{before}")


def _damaged(path: Path, error: Exception) -> ValueError:
    return ValueError(f"The checkpoint {path} is damaged: {error!r}. Delete it to train from the start.")

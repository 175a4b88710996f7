"""One training run: updates, checkpoints and the best model so far, resumable after a kill at any moment.

Everything random follows from (seed, update), so an interrupted run continues as if it had not been interrupted.
"""

import fcntl
import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from fastdecode_lib.store import atomic_file, atomic_folder
from fastdecode_lib.training.learner import Learner, batches
from fastdecode_lib.training.presets import Recipe


@contextmanager
def only_trainer(folder: Path) -> Iterator[None]:
    """Hold the folder's lock: two trainers on one machine would halve each other's speed."""
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(f"Another trainer is running in {folder}. Wait for it, or stop it first.") from error
        yield


class Run:
    """One training run: parameters, running average, optimiser and the position in the data."""

    def __init__(self, preset: Recipe, learner: Learner, work: Path, device: str, seed: int):
        self.preset, self.learner = preset, learner
        self.work, self.device, self.seed = work, device, seed
        self.parameters = learner.parameters
        self.average = {n: p.detach().clone() for n, p in self.parameters.items()}
        self.optimiser = torch.optim.AdamW(
            self.parameters.values(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.01, fused=True
        )
        self.update, self.epoch, self.seen_in_epoch, self.seconds = 0, 0, 0, 0.0
        self.history: list[dict[str, Any]] = []

    # -- position on disk

    def resume(self) -> None:
        """Continue from the last checkpoint, if there is one."""
        path = self.work / "checkpoint.safetensors"
        if not path.exists():
            return
        from safetensors import SafetensorError, safe_open

        try:
            self._read(safe_open(path, "pt"))
        except (SafetensorError, KeyError, TypeError) as error:
            raise ValueError(
                f"The checkpoint {path} is damaged: {error!r}. Delete it to train from the start."
            ) from error

    def _read(self, opened: Any) -> None:
        with opened as file:
            state = json.loads(file.metadata()["state"])
            for name, parameter in self.parameters.items():
                parameter.data.copy_(file.get_tensor(f"model.{name}"))
                self.average[name].copy_(file.get_tensor(f"average.{name}"))
                self.optimiser.state[parameter] = {
                    "step": torch.tensor(float(state["update"]), device=parameter.device),
                    "exp_avg": file.get_tensor(f"first.{name}").to(self.device),
                    "exp_avg_sq": file.get_tensor(f"second.{name}").to(self.device),
                }
        self.update, self.epoch, self.seen_in_epoch = state["update"], state["epoch"], state["seen_in_epoch"]
        self.seconds, self.history = state["seconds"], state["history"]

    def save(self) -> None:
        """Write everything that a later process needs to go on."""
        from safetensors.torch import save_file

        tensors = {}
        for name, parameter in self.parameters.items():
            moments = self.optimiser.state[parameter]
            tensors[f"model.{name}"] = parameter.detach()
            tensors[f"average.{name}"] = self.average[name]
            tensors[f"first.{name}"] = moments["exp_avg"]
            tensors[f"second.{name}"] = moments["exp_avg_sq"]
        state = {key: getattr(self, key) for key in ("update", "epoch", "seen_in_epoch", "seconds", "history")}
        with atomic_file(self.work / "checkpoint.safetensors") as temporary:
            save_file(tensors, temporary, metadata={"state": json.dumps(state)})

    # -- the loop

    def train(self, updates: int, minutes_between_checkpoints: float, progress: bool) -> None:
        """Go on to this update at the latest, and leave a checkpoint."""
        preset, saved_at = self.preset, time.monotonic()
        bar = tqdm(total=updates, initial=self.update, desc=preset.name, unit="update", disable=not progress)
        while self.update < updates and not self.finished:
            rows_of_epoch = batches(self.learner.examples, preset.tokens_per_update, self.seed, self.epoch)
            for rows in rows_of_epoch[self.seen_in_epoch :]:
                started = time.monotonic()
                loss, tokens = self.step(rows)
                taken = time.monotonic() - started
                self.seconds += taken
                bar.update()
                if self.update % 20 == 0:
                    bar.set_postfix(loss=f"{loss:.3f}", tokens_per_s=f"{tokens / taken:.0f}", epoch=self.epoch + 1)
                if self.update % preset.evaluate_every == 0:
                    self.evaluate()
                if self.update >= updates or self.finished:
                    break
                if time.monotonic() - saved_at > 60 * minutes_between_checkpoints:
                    self.save()
                    saved_at = time.monotonic()
            else:
                self.epoch, self.seen_in_epoch = self.epoch + 1, 0
        self.save()
        bar.close()

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return self.preset.is_over(self.history)

    def step(self, rows: np.ndarray) -> tuple[float, int]:
        """One update; its loss per token and how many target tokens it held."""
        preset, learner = self.preset, self.learner
        self.update += 1
        self.seen_in_epoch += 1
        torch.manual_seed(self.seed * 1_000_003 + self.update)
        rate = preset.peak_rate * min(self.update / preset.warm_up, math.sqrt(preset.warm_up / self.update))
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        source, target = (ids.to(self.device) for ids in learner.examples.batch(rows, learner.padding))
        loss = learner.loss(source, target)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters.values(), 1.0)
        self.optimiser.step()
        learner.after_update()
        decay = min(preset.average, (1 + self.update) / (10 + self.update))
        torch._foreach_lerp_(list(self.average.values()), [p.detach() for p in self.parameters.values()], 1 - decay)
        return loss.item(), int((target != learner.padding).sum())

    # -- looking at the result

    def evaluate(self) -> None:
        """What the averaged weights reach on the dev split; keep the model if it is the best."""
        measure, scores = self.preset.measure, self.learner.evaluate(self.average)
        best = max((entry[measure] for entry in self.history), default=-math.inf)
        self.history.append({"update": self.update, "epoch": self.epoch, "seconds": self.seconds, **scores})
        if scores[measure] > best:
            with atomic_folder(self.work / "best") as temporary:
                self.learner.export(self.average, temporary)
        with atomic_file(self.work / "history.json") as temporary:
            temporary.write_text(json.dumps(self.history, indent=1))
        tqdm.write(f"update {self.update}: {measure} {scores[measure]:.2f} (best before {best:.2f})")

"""Train a preset: resumable after a kill at any moment, one trainer at a time, shipping the best checkpoint at hand.

Everything random follows from (seed, update), so an interrupted run continues as if it had not been interrupted.
Checkpoints are single safetensors files written atomically under ``build/train/NAME``.
"""

import fcntl
import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from fastdecode_lib.corpus import Novels, Tatoeba, corpus_folder, join_pairs
from fastdecode_lib.learning import (
    Examples,
    Learner,
    SmoothedLoss,
    TranslationLearner,
    autocast,
    batches,
    kept_examples,
    new_marian,
)
from fastdecode_lib.presets import LANGUAGE_TAGS, PRESETS, Preset, Recipe
from fastdecode_lib.store import atomic_file, atomic_folder, recover

END, UNKNOWN = "</s>", "<unk>"
PADDING = "<pad>"


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
        Stop at this update at the latest (a checkpoint is left, so that a later call continues).

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
    work = Path(folder) / name
    work.mkdir(parents=True, exist_ok=True)
    if threads:
        torch.set_num_threads(threads)
    with only_trainer(Path(folder)):
        recover(work)
        corpus = corpus_folder(data)
        _check_same_run(work, preset, corpus / preset.corpus, seed)
        run = Run(preset, _learner(preset, corpus, work, device, seed), work, device, seed)
        run.resume()
        run.train(min(updates or preset.max_updates, preset.max_updates), minutes_between_checkpoints, progress)
    return work / "best"


def _learner(preset: Any, corpus: Path, work: Path, device: str, seed: int) -> Learner:
    if preset.kind == "recurrent":
        from fastdecode_lib.training_recurrent import RecurrentLearner

        return RecurrentLearner(preset, Tatoeba(corpus), work, device, seed)
    if preset.kind == "language":
        from fastdecode_lib.training_language import LanguageLearner

        return LanguageLearner(preset, Novels(corpus), work, device, seed)
    if preset.kind == "group":
        from fastdecode_lib.training_groups import GroupLearner

        return GroupLearner(preset, Tatoeba(corpus), work, device, seed)
    if preset.kind == "drafting":
        from fastdecode_lib.training_drafts import DraftingLearner

        return DraftingLearner(preset, Tatoeba(corpus), work, device, seed)
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


@contextmanager
def only_trainer(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, at low priority: two trainers on one machine would halve each other's speed."""
    os.setpriority(os.PRIO_PROCESS, 0, max(10, os.getpriority(os.PRIO_PROCESS, 0)))
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(f"Another trainer is running in {folder}. Wait for it, or stop it first.") from error
        yield


# ---------------------------------------------------------------------------------------------------- preparing


def prepare(preset: Preset, corpus: Tatoeba, work: Path, seed: int) -> tuple[Examples, Any]:
    """The tokenizer and the encoded training examples, made once and then read from `work`."""
    tokenizer_folder = work / "tokenizer"
    if not (tokenizer_folder / "vocab.json").exists():
        with atomic_folder(tokenizer_folder) as temporary:
            _train_tokenizer(preset, corpus, temporary, seed)
    tokenizer = _load_tokenizer(tokenizer_folder)
    return kept_examples(work, lambda: _encode_examples(preset, corpus, tokenizer, seed)), tokenizer


def _train_tokenizer(preset: Preset, corpus: Tatoeba, folder: Path, seed: int) -> None:
    import sentencepiece

    seen: dict[str, None] = {}
    for source, target in preset.directions:
        seen.update(dict.fromkeys(text for text, _ in corpus.pairs("train", source, target)))
    sentencepiece.set_random_generator_seed(seed)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(seen),
        model_prefix=str(folder / "joint"),
        vocab_size=preset.vocabulary - len(LANGUAGE_TAGS) - 2,
        character_coverage=1.0,
        bos_id=-1,
        eos_id=-1,
        pad_id=-1,
        unk_id=0,
        num_threads=2,
        minloglevel=1,
    )
    model = (folder / "joint.model").rename(folder / "source.spm")
    (folder / "joint.vocab").unlink()
    (folder / "target.spm").write_bytes(model.read_bytes())
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    tokens = [END, UNKNOWN, *(pieces.id_to_piece(i) for i in range(1, len(pieces))), *LANGUAGE_TAGS.values(), PADDING]
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}, ensure_ascii=False))


def _load_tokenizer(folder: Path) -> Any:
    from transformers import MarianTokenizer

    return MarianTokenizer.from_pretrained(folder)


def _encode_examples(preset: Preset, corpus: Tatoeba, tokenizer: Any, seed: int) -> Examples:
    pieces, ids = tokenizer.spm_source, tokenizer.get_vocab()
    unknown, end = ids[UNKNOWN], ids[END]

    def encode(texts: list[str], tag: list[int]) -> Iterator[np.ndarray]:
        for row in pieces.encode(texts, out_type=str):
            yield np.array([*tag, *(ids.get(piece, unknown) for piece in row), end], dtype=np.uint16)

    sources: list[np.ndarray] = []
    targets: list[np.ndarray] = []
    for number, (source, target) in enumerate(tqdm(preset.directions, desc="encoding", unit="direction")):
        pairs = corpus.pairs("train", source, target)
        pairs += join_pairs(pairs, seed=seed + number, count=int(len(pairs) * preset.joined_share))
        sources += encode([a for a, _ in pairs], [ids[LANGUAGE_TAGS[target]]])
        targets += encode([b for _, b in pairs], [])
    return Examples.of(sources, targets, preset.max_positions)


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


# ---------------------------------------------------------------------------------------------------- Marian models


class MarianLearner(TranslationLearner):
    """Trains a `Preset`: a MarianMTModel, in bfloat16 where that is fast, over a joint SentencePiece vocabulary."""

    def __init__(self, preset: Preset, corpus: Tatoeba, work: Path, device: str, seed: int):
        self.preset, self.corpus, self.device = preset, corpus, device
        self.examples, self.tokenizer = prepare(preset, corpus, work, seed)
        self.padding = self.tokenizer.pad_token_id
        torch.manual_seed(seed)
        self.model = _new_model(preset, self.tokenizer).to(device)
        self.parameters = {n: p for n, p in self.model.named_parameters() if p.requires_grad}

    def loss(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Smoothed cross-entropy per target token."""
        padding = self.padding
        decoder_input = torch.cat([torch.full_like(target[:, :1], padding), target[:, :-1]], 1)
        real = target != padding
        self.model.train()
        with autocast(self.device):
            hidden = self.model.model(
                input_ids=source, attention_mask=source != padding, decoder_input_ids=decoder_input, use_cache=False
            ).last_hidden_state[real]
            return SmoothedLoss.apply(
                hidden, self.model.lm_head.weight, target[real], padding, self.preset.label_smoothing
            )

    def after_update(self) -> None:
        """Nothing: its weights are free."""

    def _with(self, weights: dict[str, torch.Tensor]) -> Any:
        model = _new_model(self.preset, self.tokenizer).to(self.device).eval()
        model.load_state_dict(weights, strict=False)
        return model

    @torch.no_grad()
    def translate(self, weights: dict[str, torch.Tensor], texts: list[str], source: str, target: str) -> list[str]:
        """Greedy translations, in batches of like length."""
        model = self._with(weights)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        outputs = [""] * len(texts)
        for start in range(0, len(order), 64):
            rows = order[start : start + 64]
            inputs = self.tokenizer(
                [f"{LANGUAGE_TAGS[target]} {texts[i]}" for i in rows], return_tensors="pt", padding=True
            ).to(self.device)
            ids = model.generate(**inputs, num_beams=1, do_sample=False, max_length=min(129, self.preset.max_positions))
            for i, text in zip(rows, self.tokenizer.batch_decode(ids, skip_special_tokens=True), strict=True):
                outputs[i] = text
        return outputs

    def export(self, weights: dict[str, torch.Tensor], folder: Path) -> None:
        """Write a Hugging Face directory."""
        export(self._with(weights), self.tokenizer, folder)


def _new_model(preset: Preset, tokenizer: Any) -> Any:
    from transformers import GenerationConfig

    padding, end = tokenizer.pad_token_id, tokenizer.eos_token_id
    model = new_marian(preset, padding, end, preset.dropout)
    model.generation_config = GenerationConfig(
        bad_words_ids=[[padding]],
        decoder_start_token_id=padding,
        pad_token_id=padding,
        eos_token_id=end,
        forced_eos_token_id=end,
        max_length=preset.max_positions,
        num_beams=1,
    )
    return model


def export(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a Hugging Face directory: float16 weights in shards under 15 MB, computed in float32 when loaded."""
    import copy

    half = copy.deepcopy(model).half()
    half.save_pretrained(folder, max_shard_size="14MB")
    tokenizer.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"dtype": "float32"}, indent=2) + "\n")

"""Models trained for parallel decoding: trunk and draft head together, Jacobi-consistency, and a control that is neither."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastdecode_lib.checkpoints.hub import find_checkpoint
from fastdecode_lib.drafts.finding import find_head
from fastdecode_lib.drafts.head import FILE, DraftHead, Shape
from fastdecode_lib.loading import load
from fastdecode_lib.text.corpus import Tatoeba, spread_over
from fastdecode_lib.training.draft_heads import NOTHING, Features, accepted, fresh, summed, unrolled
from fastdecode_lib.training.draft_tables import fitting, translations, unlabelled
from fastdecode_lib.training.learner import SmoothedLoss, autocast, begin_as, copy_vocabulary
from fastdecode_lib.training.marian import MarianLearner
from fastdecode_lib.training.presets import DraftingPreset
from fastdecode_lib.translation import Session

HEAD = "head."
HELD_OUT = 60
"""Own translations that are not trained on."""


class DraftingLearner(MarianLearner):
    """Goes on training a bundled model for parallel decoding, by the objective of its preset; see `presets.DraftingPreset`.

    Every update holds a batch of references, with the ordinary loss, and one of the base's own greedy translations, with
    the objective's.
    """

    preset: DraftingPreset

    def __init__(self, preset: DraftingPreset, corpus: Tatoeba, work: Path, device: str, seed: int):
        base = find_checkpoint(preset.base)
        tokenizer = work / "tokenizer"
        if not (tokenizer / "vocab.json").exists():
            copy_vocabulary(base.folder, tokenizer)
        super().__init__(preset, corpus, work, device, seed)
        begin_as(self.parameters, base)
        self.session = Session.of(load(preset.base, device="cpu"), *preset.directions[0], "greedy")
        self._translate_own(corpus, work)
        if preset.objective == "head":
            self._add_head(base.folder, base.fingerprint, seed)

    def _translate_own(self, corpus: Tatoeba, work: Path) -> None:
        texts = spread_over(unlabelled(corpus.folder, *self.preset.directions[0]), self.preset.own_sentences)
        sources, outputs = translations(
            self.session, fitting(self.session, texts), folder=work, progress=sys.stderr.isatty()
        )
        ended = [i for i, ids in enumerate(outputs) if len(ids) < self.preset.max_positions // 2]
        held = set(np.linspace(0, len(ended) - 1, HELD_OUT).astype(int).tolist())
        pairs = [(sources[i].astype(np.int64), outputs[i].astype(np.int64)) for i in ended]
        self.held_out = [pair for i, pair in enumerate(pairs) if i in held]
        self.own = sorted((pair for i, pair in enumerate(pairs) if i not in held), key=lambda pair: len(pair[1]))
        self.starts = np.cumsum([0, *(len(output) for _, output in self.own)])

    def _add_head(self, folder: Path, fingerprint: str, seed: int) -> None:
        """Begin with the base's own head where it has one."""
        head_file = find_head(folder, fingerprint)
        rows = self.model.lm_head.weight.detach().cpu()
        if head_file is None:
            self.shape = Shape(rows.shape[1], rows.shape[1], len(rows))
            weights = fresh(self.shape, rows, seed)
            counts = np.bincount(np.concatenate([output for _, output in self.own]), minlength=len(rows))
            words = np.sort(np.argsort(-counts, kind="stable")[: self.preset.draft_vocabulary])
        else:
            head = DraftHead.load(head_file)
            self.shape = head.shape
            weights = {name: torch.from_numpy(tensor) for name, tensor in head.tensors.items()}
            words = head.vocabularies[self.preset.directions[0][1]]
        self.words = torch.from_numpy(words).to(self.device)
        trainable = {name: tensor.detach().to(self.device).requires_grad_() for name, tensor in weights.items()}
        self.parameters |= {HEAD + name: tensor for name, tensor in trainable.items()}

    # -- learning

    def loss(self, source: Tensor, target: Tensor) -> Tensor:
        """The ordinary loss on references, and the objective's on some of the model's own translations."""
        total: Any = super().loss(source, target)
        if self.preset.objective == "none":
            return total
        sources, outputs = self._some_own(int((target != self.padding).sum()))
        with autocast(self.device):
            auxiliary = (
                self._of_head(sources, outputs)
                if self.preset.objective == "head"
                else self._consistent(sources, outputs)
            )
        return total + self.preset.weight * auxiliary

    def _some_own(self, tokens: int) -> tuple[Tensor, Tensor]:
        """Own translations of like length, with about so many tokens: sources (B, S) and outputs (B, T), padded."""
        first = int(np.searchsorted(self.starts, int(torch.randint(int(self.starts[-1]), ())), side="right")) - 1
        longest = len(self.own[first][1])
        rows = self.own[first : first + max(1, tokens // longest)]
        return self._padded([s for s, _ in rows]), self._padded([o for _, o in rows])

    def _padded(self, rows: list[np.ndarray]) -> Tensor:
        return torch.nn.utils.rnn.pad_sequence(
            [torch.from_numpy(ids) for ids in rows], batch_first=True, padding_value=self.padding
        ).to(self.device)

    def _behind(self, model: Any, sources: Tensor, fed: Tensor) -> tuple[Tensor, Tensor]:
        """Decoder's hidden vectors (B, T, D) behind tokens fed, and the encoder's (B, S, D)."""
        mask = sources != self.padding
        encoded = model.model.encoder(input_ids=sources, attention_mask=mask).last_hidden_state
        hidden = model.model.decoder(
            input_ids=fed, encoder_hidden_states=encoded, encoder_attention_mask=mask, use_cache=False
        ).last_hidden_state
        return hidden, encoded

    def _features(self, model: Any, sources: Tensor, outputs: Tensor) -> Features:
        """Features that the head sees, with the trunk's gradient."""
        fed = torch.cat([torch.full_like(outputs[:, :1], self.padding), outputs[:, :-1]], 1)
        hidden, encoded = self._behind(model, sources, fed)
        vectors = model.model.decoder.layers[-1].encoder_attn.v_proj(encoded)
        tokens = torch.where(outputs != self.padding, outputs, NOTHING)
        return Features(hidden.float(), vectors.float(), (sources != self.padding)[:, None, None], tokens)

    def _of_head(self, sources: Tensor, outputs: Tensor) -> Tensor:
        """Cross-entropy of the head's drafts."""
        weights = {n.removeprefix(HEAD): p for n, p in self.parameters.items() if n.startswith(HEAD)}
        features = self._features(self.model, sources, outputs)
        rows = self.model.lm_head.weight[self.words]
        drafted = unrolled(weights, features, self.words, rows, rows.new_zeros(len(rows)), self.preset.drafts)
        total, weight = summed(drafted, self.preset.decay)
        return total / max(weight, 1.0)

    def _consistent(self, sources: Tensor, outputs: Tensor) -> Tensor:
        """From a random state of a block's Jacobi iteration to its solution, and the ordinary loss on the own translation.

        As consistency training of language models has it (Kou et al., 2024), with the trajectories of the network as it
        stands: blocks of `block` slots behind a right beginning start as padding and are iterated a random number of times.
        """
        real = outputs != self.padding
        fed = torch.cat([torch.full_like(outputs[:, :1], self.padding), outputs[:, :-1]], 1)
        start = torch.randint(0, max(1, outputs.shape[1] - self.preset.block + 1), ()).item()
        inside = slice(int(start) + 1, min(int(start) + self.preset.block, outputs.shape[1]))
        state = fed.clone()
        state[:, inside] = self.padding
        with torch.no_grad():
            for _ in range(int(torch.randint(0, self.preset.drafts, ()).item())):
                hidden, _ = self._behind(self.model, sources, state)
                said = self.model.lm_head(hidden)[..., : self.padding].argmax(-1)
                state[:, inside] = said[:, inside.start - 1 : inside.stop - 1]
        total = torch.zeros((), device=self.device)
        for tokens in (fed, state):
            counted = real.clone()
            if tokens is state:
                counted[:, : int(start)] = False
                counted[:, int(start) + self.preset.block :] = False
            if counted.any():
                hidden, _ = self._behind(self.model, sources, tokens)
                total = total + SmoothedLoss.apply(
                    hidden[counted], self.model.lm_head.weight, outputs[counted], self.padding, 0.0
                )
        return total

    # -- looking at the result

    def _with(self, weights: dict[str, Tensor]) -> Any:
        return super()._with({name: tensor for name, tensor in weights.items() if not name.startswith(HEAD)})

    @torch.no_grad()
    def evaluate(self, weights: dict[str, Tensor]) -> dict[str, float]:
        """ChrF on the dev split, and for a head the tokens a pass settles on the base's own translations."""
        scores = super().evaluate(weights)
        if self.preset.objective == "head":
            head_weights = {n.removeprefix(HEAD): p for n, p in weights.items() if n.startswith(HEAD)}
            model = self._with(weights)
            rows = model.lm_head.weight[self.words]
            counts = []
            for sources, outputs in self.held_out:
                features = self._features(model, self._padded([sources]), self._padded([outputs]))
                counts.append(
                    accepted(head_weights, features, self.words, rows, rows.new_zeros(len(rows)), self.preset.drafts)
                )
            scores["tokens_per_pass"] = 1 + float(torch.cat(counts).mean())
        return scores

    def export(self, weights: dict[str, Tensor], folder: Path) -> None:
        """Write a Hugging Face directory, and beside it the head."""
        super().export(weights, folder)
        if self.preset.objective == "head":
            head_weights = {n.removeprefix(HEAD): p for n, p in weights.items() if n.startswith(HEAD)}
            tensors = {name: tensor.detach().cpu().numpy().astype(np.float32) for name, tensor in head_weights.items()}
            about = {"fingerprint": find_checkpoint(folder).fingerprint, "trained_with": self.preset.name}
            vocabularies = {self.preset.directions[0][1]: self.words.cpu().numpy()}
            DraftHead(self.shape, tensors, vocabularies, about).save(folder / FILE)

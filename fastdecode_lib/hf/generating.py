"""The loop over passes that `generate` calls in place of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdecode_lib.checkpoints import transformers_private as private
from fastdecode_lib.decoding.choosing import check_fits
from fastdecode_lib.decoding.passes import passes, row_batches
from fastdecode_lib.decoding.window import Window
from fastdecode_lib.hf.choosing import Choosing
from fastdecode_lib.hf.drafting import Drafting
from fastdecode_lib.hf.network import network_of, source_of
from fastdecode_lib.hf.problems import problems
from fastdecode_lib.hf.rows import Output, rounds, warn_of_ties

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class CustomGenerate:
    """A decoder as the ``custom_generate`` of `generate`; None chooses the fastest known decoder."""

    decoder: Any
    packed: bool = True

    def __call__(
        self,
        model: Any,
        input_ids: "Tensor",
        logits_processor: Sequence[Any],
        stopping_criteria: Any,
        generation_config: Any,
        synced_gpus: bool | None = None,
        streamer: Any = None,
        inputs_tensor: "Tensor | None" = None,
        **inputs: Any,
    ) -> Any:
        """Decode, and return what `generate` returns.

        Raises
        ------
        ValueError
            If the settings are not greedy decoding's, or need what parallel decoding cannot give.
        """
        caller = private.arguments_of_generate()
        caller["synced_gpus"] = synced_gpus or caller["synced_gpus"]
        streamer = caller["streamer"] if streamer is None else streamer
        for problem in problems(model, generation_config, input_ids, inputs, stopping_criteria, streamer, caller):
            raise ValueError(problem)
        processors = [(processor, private.looks_at(processor)) for processor in logits_processor]
        ends = tuple(private.ends(stopping_criteria))
        source = source_of(inputs_tensor, inputs, private.padding_of(generation_config))
        notes = private.notes(model)
        network, memory, score = network_of(model, notes, inputs, input_ids, self.packed)
        drafting = Drafting(model, notes, network, source, input_ids, generation_config, ends)
        decoder = drafting.usual() if self.decoder is None else drafting.resolved(self.decoder)
        prepared = {
            "generation_config": generation_config,
            "stopping_criteria": stopping_criteria,
            "streamer": streamer,
        }
        if decoder is None:
            return private.greedy_of_its_own(model, input_ids, logits_processor=logits_processor, **prepared, **inputs)
        check_fits(decoder, network)

        longest = stopping_criteria.max_length or generation_config.max_length
        room = max(1, min(longest, network.max_target + 1) - input_ids.shape[1])
        output = Output(input_ids, room, **prepared)
        for first, batch in row_batches(network, source):
            choosing = self.choosing(score, processors, output.prompts, first, bool(output.requested))
            choosing.rounds = rounds(model.dtype)
            rows = output.begin(decoder, network, source, range(first, first + len(batch)), ends, choosing)
            batch_memory = memory(first)
            prompts = np.array(output.prompts[first : first + len(batch)])
            state = network.start(batch_memory, prompts, output.capacity + max(row.spare for row in rows))
            watchers = drafting.watchers(decoder, rows, batch_memory)
            pace = decoder.pace() if isinstance(decoder, Window) else None
            for _ in passes(rows, network, state, choosing, watchers=watchers, pace=pace):
                pass
        if streamer is not None:
            streamer.end()
        warn_of_ties(output.rows, model.dtype)
        return output.returned()

    def choosing(self, *arguments: Any) -> Choosing:
        """Chooser of the token at every slot."""
        return Choosing(*arguments)

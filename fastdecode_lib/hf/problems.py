"""Reasons why a call of `generate` cannot be decoded in parallel."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fastdecode_lib.checkpoints import transformers_private as private

if TYPE_CHECKING:
    from torch import Tensor

INSTEAD = {
    "beam_search": "Pass num_beams=1, or leave custom_generate out for beams.",
    "beam_sample": "Pass num_beams=1 and do_sample=False, or leave custom_generate out.",
    "sample": "Pass do_sample=False, or leave custom_generate out to sample.",
    "assisted_generation": "Leave the assistant out: a window drafts by itself, from the source with draft='prompt/recycled'.",
}


def problems(
    model: Any, config: Any, ids: "Tensor", inputs: dict[str, Any], criteria: Any, streamer: Any, caller: dict[str, Any]
) -> Iterator[str]:
    """Reasons why this call cannot be decoded, each in three parts."""
    if not model.config.is_encoder_decoder:
        yield (
            f"custom_generate is for encoder-decoder models: got {type(model).__name__}, which has no encoder. Leave it out, or "
            "use a translation model such as Helsinki-NLP/opus-mt-en-de."
        )
    mode = config.get_generation_mode(caller["assistant_model"]).value
    if mode != "greedy_search":
        yield (
            f"custom_generate gives greedy decoding's output: got settings for {mode.replace('_', ' ')} (num_beams="
            f"{config.num_beams}, do_sample={config.do_sample}). {INSTEAD.get(mode, 'Leave custom_generate out.')}"
        )
    if config.return_dict_in_generate and (config.output_attentions or config.output_hidden_states):
        yield (
            f"Passes are no steps of one token, whose attentions and hidden states could be returned: got output_attentions="
            f"{config.output_attentions}, output_hidden_states={config.output_hidden_states}. Leave custom_generate out for them."
        )
    if private.in_training(model):
        yield "The model is in training mode, where dropout makes outputs random: got training=True. Call model.eval() first."
    if private.autocasts(model):
        yield (
            "Single steps and passes over several tokens are rounded alike in one precision alone: got torch.autocast. Leave it "
            "out, or load the model in that precision."
        )
    if caller["synced_gpus"]:
        yield (
            "Processes that share a model must make equally many passes, which here depends on the text: got synced_gpus=True. "
            "Leave custom_generate out."
        )
    if filled := private.filled(inputs):
        yield f"Decoding starts from an empty cache: got one with {filled} positions. Give decoder_input_ids instead."
    mask, source = inputs.get("decoder_attention_mask"), inputs.get("attention_mask")
    squeezed = model.config.model_type == "m2m_100" and ids.shape[1] > 1 and (ids == model.config.pad_token_id).any()
    if squeezed or (mask is not None and not bool(mask.all())):
        yield f"decoder_input_ids must be without padding: got {ids.tolist()}. Give the rows prompts of the same length."
    if extra := [name for name in ("decoder_position_ids", "decoder_inputs_embeds") if inputs.get(name) is not None]:
        yield f"The decoder's prompt is given as ids: got {', '.join(extra)}. Give decoder_input_ids instead."
    if source is not None and not bool(source.any(-1).all()):
        yield "A source without tokens cannot be decoded: got a row of zeros in attention_mask. Leave that sentence out."
    if streamer is not None and len(ids) > 1:
        yield f"A streamer follows one sentence: got a batch of {len(ids)}. Give one sentence at a time, or no streamer."
    unknown = [type(c).__name__ for c in criteria if not private.stops_rows_alone(c)]
    if len(ids) > 1 and unknown:
        yield (
            f"Stopping criteria are asked row by row, so that they must neither remember earlier calls nor compare rows: got "
            f"{', '.join(unknown)} for a batch of {len(ids)}. Set `stateless = True` on the class if its answer for a row depends "
            "on that row alone, or give one sentence at a time."
        )
    stops = [type(c).__name__ for c in criteria if type(c).__name__ != "MaxLengthCriteria"]
    if len(ids) > 1 and stops and not any(hasattr(c, "eos_token_id") for c in criteria):
        yield (
            f"Without an end of sentence, `generate` goes on with rows that were stopped: got a batch of {len(ids)} with "
            f"{', '.join(stops)} and no eos_token_id. Give eos_token_id, or one sentence at a time."
        )

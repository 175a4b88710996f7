"""A checkpoint's generation settings as `core.Constraints`; what would change the output is applied or raises an error.

What asks for another kind of search, such as ``do_sample``, is ignored: the decoder is named apart from the checkpoint.
"""

from collections.abc import Mapping
from typing import Any

from fastdecode_lib.checkpoints.shape import CheckpointError
from fastdecode_lib.core import Constraints

FACTORS = ("repetition_penalty", "encoder_repetition_penalty", "guidance_scale")
UNSUPPORTED = (
    *FACTORS,
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "forced_decoder_ids",
    "suppress_tokens",
    "begin_suppress_tokens",
    "sequence_bias",
    "exponential_decay_length_penalty",
    "stop_strings",
    "watermarking_config",
    "force_words_ids",
    "constraints",
    "max_time",
    "token_healing",
)
"""Rules that change the output and are not implemented; their neutral values are accepted: 1 of a factor, else 0 or nothing."""
DEFAULT_NEW_TOKENS = 20
"""Most new tokens of an output if no setting gives a limit, as in `generate`."""


def constraints_of(
    name: str,
    settings: Mapping[str, Any],
    *,
    language: tuple[int, ...] = (),
    language_ids: frozenset[int] = frozenset(),
    vocabulary: int,
    room: int,
) -> Constraints:
    """The rules that Hugging Face's ``generate`` would follow.

    Parameters
    ----------
    name : str
        Name of the model, for messages.
    settings : mapping
        Settings of the checkpoint, see `Checkpoint.rules`.
    language : tuple of int
        Id of the target language, if the tokenizer has one.
    language_ids : frozenset of int
        Ids of all languages. A checkpoint whose start symbol is one of them (mBART-cc25) starts with only the target language.
    vocabulary : int
        V, for checking ids.
    room : int
        Most slots that the network holds, with the prefix.

    Raises
    ------
    CheckpointError
        If a setting is of the wrong type, or a rule is not implemented.
    """
    checked = _Settings(name, settings, vocabulary)
    _check_supported(name, settings)
    start = checked.ids("decoder_start_token_id", required=True)
    forced = language or checked.ids("forced_bos_token_id")[:1]
    prefix = forced if forced and set(start) & language_ids else (*start, *forced)
    # Lengths in the settings count the start symbol, `*_new_tokens` count a forced language.
    language_tokens = len(prefix) - len(start)
    capacity = room - len(prefix) + 1
    max_length = checked.number("max_length")
    max_new = checked.number("max_new_tokens")
    limit = (max_new or DEFAULT_NEW_TOKENS) - language_tokens if max_new or not max_length else max_length - len(prefix)
    limit = max(1, min(limit, capacity))
    minimum = max(checked.number("min_length") - len(prefix), checked.number("min_new_tokens") - language_tokens, 0)
    return Constraints(
        prefix=prefix,
        end=checked.end(),
        max_length=limit,
        padding=(checked.ids("pad_token_id") or (0,))[0],
        banned=checked.banned(),
        forced_end=bool(checked.ids("forced_eos_token_id")),
        min_length=min(minimum, limit - 1),
    )


class _Settings:
    """Settings read with their types checked."""

    def __init__(self, name: str, settings: Mapping[str, Any], vocabulary: int):
        self.name, self.settings, self.vocabulary = name, settings, vocabulary

    def _wrong(self, setting: str, requirement: str) -> CheckpointError:
        return CheckpointError(
            f"The checkpoint {self.name!r} needs {setting} to be {requirement}: got {self.settings.get(setting)!r}. "
            "Correct config.json or generation_config.json."
        )

    def _is_id(self, value: Any) -> bool:
        return type(value) is int and 0 <= value < self.vocabulary

    def ids(self, setting: str, required: bool = False) -> tuple[int, ...]:
        """A setting with one id or a list of ids."""
        value = self.settings.get(setting)
        if value is None and not required:
            return ()
        ids = tuple(value) if isinstance(value, list) else (value,)
        if not ids or not all(map(self._is_id, ids)):
            raise self._wrong(setting, f"an id from 0 to {self.vocabulary - 1}")
        return ids

    def number(self, setting: str) -> int:
        """A setting with a length; 0 if it is absent."""
        value = self.settings.get(setting)
        if value is not None and (type(value) is not int or value < 0):
            raise self._wrong(setting, "a whole number from 0")
        return value or 0

    def banned(self) -> tuple[int, ...]:
        """Ids that must not be generated; like `generate`, it leaves out the ends."""
        value = self.settings.get("bad_words_ids") or []
        valid = isinstance(value, list) and all(isinstance(ids, list) and all(map(self._is_id, ids)) for ids in value)
        if not valid or not all(len(ids) == 1 for ids in value):
            raise self._wrong("bad_words_ids", f"a list of lists of one id from 0 to {self.vocabulary - 1} each")
        return tuple(ids[0] for ids in value if ids[0] not in self.ids("eos_token_id"))

    def end(self) -> tuple[int, ...]:
        """Ids that end an output, the one first that is forced at the longest length."""
        ends, forced = self.ids("eos_token_id", required=True), self.ids("forced_eos_token_id")
        if not set(forced) <= set(ends):
            raise self._wrong("forced_eos_token_id", f"one of the ends, {', '.join(map(str, ends))}")
        return tuple(sorted(ends, key=lambda end: end != min(forced))) if forced else ends


def _check_supported(name: str, settings: Mapping[str, Any]) -> None:
    unsupported = [
        rule
        for rule in UNSUPPORTED
        if (value := settings.get(rule)) not in (None, [], {}) and value != (1 if rule in FACTORS else 0)
    ]
    if unsupported:
        raise CheckpointError(
            f"The generation settings of {name} contain rules that fastdecode does not apply: "
            f"{', '.join(f'{rule}={settings[rule]!r}' for rule in unsupported)}. Remove them from generation_config.json."
        )

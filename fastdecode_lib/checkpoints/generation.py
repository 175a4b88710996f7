"""A checkpoint's generation settings as `core.Constraints`: every rule is applied or refused, none ignored."""

from collections.abc import Mapping
from typing import Any

from fastdecode_lib.checkpoints.shape import CheckpointError
from fastdecode_lib.core import Constraints

REFUSED = (
    "repetition_penalty",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "forced_decoder_ids",
    "suppress_tokens",
    "begin_suppress_tokens",
    "sequence_bias",
    "exponential_decay_length_penalty",
    "stop_strings",
    "watermarking_config",
    "guidance_scale",
)
"""Rules that would change the output and are not applied here; their neutral values are accepted."""
USUAL_LENGTH = 20
"""New tokens of an output, at most, where nothing says how many: as in `generate`."""


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
        The model, for messages.
    settings : mapping
        Those of the checkpoint, see `Checkpoint.rules`.
    language : tuple of int
        Id of the target language, where the tokenizer names one.
    language_ids : frozenset of int
        Ids of all languages. A checkpoint whose start symbol is one of them (mBART-cc25) starts with the target
        language alone.
    vocabulary : int
        V, for checking ids.
    room : int
        Most slots the network holds, prefix included.

    Raises
    ------
    CheckpointError
        If a setting is of the wrong type, or a rule is not applied here.
    """
    known = _Settings(name, settings, vocabulary)
    _refuse(name, settings)
    start = known.ids("decoder_start_token_id", required=True)
    forced = language or known.ids("forced_bos_token_id")[:1]
    prefix = forced if forced and set(start) & language_ids else (*start, *forced)
    # Lengths in the settings count the start symbol, `*_new_tokens` count a forced language.
    after = len(prefix) - len(start)
    fits = room - len(prefix) + 1
    longest = known.number("max_length")
    newest = known.number("max_new_tokens")
    limit = (newest or USUAL_LENGTH) - after if newest or not longest else longest - len(prefix)
    limit = max(1, min(limit, fits))
    least = max(known.number("min_length") - len(prefix), known.number("min_new_tokens") - after, 0)
    return Constraints(
        prefix=prefix,
        end=known.ids("eos_token_id", required=True),
        max_length=limit,
        padding=(known.ids("pad_token_id") or (0,))[0],
        banned=known.banned(),
        forced_end=bool(known.ids("forced_eos_token_id")),
        min_length=min(least, limit - 1),
    )


class _Settings:
    """Settings read with their types checked."""

    def __init__(self, name: str, settings: Mapping[str, Any], vocabulary: int):
        self.name, self.settings, self.vocabulary = name, settings, vocabulary

    def _wrong(self, setting: str, wanted: str) -> CheckpointError:
        return CheckpointError(
            f"The checkpoint {self.name!r} needs {setting} to be {wanted}: got {self.settings.get(setting)!r}. "
            "Correct config.json or generation_config.json."
        )

    def _is_id(self, value: Any) -> bool:
        return type(value) is int and 0 <= value < self.vocabulary

    def ids(self, setting: str, required: bool = False) -> tuple[int, ...]:
        """One id or several."""
        value = self.settings.get(setting)
        if value is None and not required:
            return ()
        ids = tuple(value) if isinstance(value, list) else (value,)
        if not ids or not all(map(self._is_id, ids)):
            raise self._wrong(setting, f"an id from 0 to {self.vocabulary - 1}")
        return ids

    def number(self, setting: str) -> int:
        """A length; 0 where there is none."""
        value = self.settings.get(setting)
        if value is not None and (type(value) is not int or value < 0):
            raise self._wrong(setting, "a whole number from 0")
        return value or 0

    def banned(self) -> tuple[int, ...]:
        """Ids that must not be chosen."""
        value = self.settings.get("bad_words_ids") or []
        right = isinstance(value, list) and all(isinstance(ids, list) and all(map(self._is_id, ids)) for ids in value)
        if not right or not all(len(ids) == 1 for ids in value):
            raise self._wrong("bad_words_ids", f"a list of lists of one id from 0 to {self.vocabulary - 1} each")
        return tuple(ids[0] for ids in value)


def _refuse(name: str, settings: Mapping[str, Any]) -> None:
    neutral: tuple[Any, ...] = (None, 0, 1, 1.0, [], {})
    found = [rule for rule in REFUSED if settings.get(rule) not in neutral]
    if found:
        raise CheckpointError(
            f"The generation settings of {name} contain rules that fastdecode does not apply: "
            f"{', '.join(f'{rule}={settings[rule]!r}' for rule in found)}. Remove them from generation_config.json."
        )

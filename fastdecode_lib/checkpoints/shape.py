"""Base of all shapes: reading settings, naming tensors, and the error of a checkpoint that cannot be used."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, Self


class CheckpointError(ValueError):
    """A checkpoint that cannot be used: missing, damaged, unsafe, or not what its settings say."""


def damaged(requirement: str, got: Any) -> CheckpointError:
    """The error of a setting that is not as a model needs it."""
    return CheckpointError(f"config.json is damaged: {requirement}, got {got!r}. Copy it again.")


def check_whole(name: str, value: Any, least: int = 1) -> None:
    """Raise a `CheckpointError` unless a setting is a whole number from `least` on."""
    if type(value) is not int or value < least:
        raise damaged(f"{name} must be a whole number from {least} on", value)


class Shape:
    """Base of a frozen dataclass of sizes; a subclass checks the sizes and names the tensors."""

    model_type: ClassVar[str]

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Read a ``config.json``.

        Raises
        ------
        CheckpointError
            If a setting is missing or invalid.
        """
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        if lacking := [name for name in names if name not in config]:
            raise CheckpointError(
                f"config.json lacks the setting {lacking[0]!r} that a {cls.model_type} model needs. Copy it again, or train "
                "the model again with fastdecode train."
            )
        try:
            return cls(**{name: config[name] for name in names})
        except ValueError as error:
            raise CheckpointError(f"config.json is damaged: {error}") from error

    @property
    def optional_tensors(self) -> dict[str, tuple[int, ...]]:
        """Tensors that a checkpoint may lack: none."""
        return {}

    def stored_as(self, name: str) -> tuple[str, ...]:
        """The names that a tensor may be stored under: its own."""
        return (name,)

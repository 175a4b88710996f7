"""What each bundled model is made of and how it is trained: one frozen record per model, read by `training`."""

from dataclasses import dataclass

from fastdecode_lib.corpus import DIRECTIONS

LANGUAGE_TAGS = {"en": ">>eng<<", "de": ">>deu<<", "fr": ">>fra<<", "es": ">>spa<<"}


@dataclass(frozen=True)
class Preset:
    """A Marian-shaped translation model and its training recipe.

    Attributes
    ----------
    directions : tuple of (source, target)
        Language pairs translated by the one model, told apart by the target's tag in front of the source.
    vocabulary : int
        Size of the joint SentencePiece vocabulary with end, unknown, tags and padding.
    joined_share : float
        Joined examples (two to four pairs each) per single pair.
    tokens_per_update : int
        Padded target tokens in one batch, at most.
    peak_rate, warm_up : float, int
        The learning rate rises linearly to its peak, then falls with the inverse square root of the update.
    average : float
        Decay of the running average of the weights; the average is what is evaluated and shipped.
    """

    name: str
    directions: tuple[tuple[str, str], ...] = DIRECTIONS
    vocabulary: int = 16_000
    encoder_layers: int = 4
    decoder_layers: int = 2
    width: int = 256
    heads: int = 4
    feed_forward: int = 1024
    max_positions: int = 256
    joined_share: float = 0.5
    dropout: float = 0.0
    label_smoothing: float = 0.1
    tokens_per_update: int = 3_000
    peak_rate: float = 1e-3
    warm_up: int = 2_000
    average: float = 0.999
    evaluate_every: int = 1_000
    patience: int = 3
    max_updates: int = 200_000
    dev_single: int = 100
    dev_joined: int = 40


PRESETS = {preset.name: preset for preset in (Preset(name="tatoeba-small"),)}

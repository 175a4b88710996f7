"""Tokenizers of Marian models and of all others; one file because both follow the same protocol."""

import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from fastdecode_lib.checkpoints import transformers_private as private
from fastdecode_lib.checkpoints.folder import Checkpoint
from fastdecode_lib.checkpoints.shape import CheckpointError
from fastdecode_lib.checkpoints.transformer import OWN
from fastdecode_lib.core import Source
from fastdecode_lib.store import read_json
from fastdecode_lib.text.languages import (
    TWO_LETTERS,
    Direction,
    UnknownLanguage,
    check_direction,
    known_as,
    listed,
    short_code,
    variant,
)

NOTE = "fastdecode.json"
"""The file in which fastdecode's own models list their directions and tags."""


class Tokenizer(Protocol):
    """Text to ids and back for one model."""

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The (source, target) pairs that the model translates; empty if they are unknown."""

    @property
    def ordered(self) -> bool:
        """Whether a missing language means the first matching direction."""

    def encode(self, texts: Sequence[str], source: str | None, target: str | None) -> Source:
        """Ids of texts with the language tags that the model needs, padded on the right."""

    def output_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of texts of the target language, as in a model's outputs without the end."""

    def decode(self, ids: Iterable[int]) -> str:
        """Text of target ids, without end, padding and other special ids."""

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The token of each id in the vocabulary's spelling (``▁`` starts a word)."""

    def source_tokens(self, ids: Iterable[int]) -> list[str]:
        """The token of each source id."""

    @property
    def language_ids(self) -> frozenset[int]:
        """Ids of all languages of the tokenizer."""

    def forced_language(self, target: str | None) -> tuple[int, ...]:
        """Ids of the target language that are fed after the start symbol; empty for most models."""


class NoLanguageIds:
    """Base of tokenizers whose outputs do not begin with a language: a tag in the source names it, or there is only one."""

    language_ids: ClassVar[frozenset[int]] = frozenset()

    def forced_language(self, target: str | None) -> tuple[int, ...]:
        """Empty."""
        return ()


def padded(rows: Sequence[Sequence[int] | np.ndarray], padding: int, languages: Direction | None = None) -> Source:
    """Rows of ids as a batch padded on the right."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    ids = np.full((len(rows), int(lengths.max(initial=0))), padding, dtype=np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    return Source(ids, lengths, languages)


def check_texts(texts: Sequence[str]) -> None:
    """Check that texts are strings of valid Unicode; badly decoded bytes can leave half a character."""
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise ValueError(f"Sentence {number} is no text: got {type(text).__name__}. Give a string.")
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise ValueError(
                f"Sentence {number} is no valid Unicode: got {text[:40]!a}. Decode the bytes it came from as UTF-8."
            )


_TAG = re.compile(r"\s*(>>[^<>\s]+<<|<2[^<>\s]+>)\s*")


class Tagged:
    """Base of tokenizers that put a tag before a source; `tags` has that of each target language, if there are any."""

    tags: dict[str, str]
    directions: tuple[Direction, ...]
    ordered: bool

    def _split_tag(self, text: str) -> tuple[str, str]:
        """The tag at the beginning of a source ("" if there is none) and the text after it."""
        match = _TAG.match(text)
        return (match[1], text[match.end() :]) if match and match[1] in self.tags.values() else ("", text)

    def typed_target(self, text: str) -> str | None:
        """The language of the tag at the beginning of a source."""
        typed_tag, _ = self._split_tag(text)
        return next((code for code, tag in self.tags.items() if tag == typed_tag), None)

    def _direction_and_tag(
        self, texts: Sequence[str], source: str | None, target: str | None
    ) -> tuple[Direction | None, str, list[str]]:
        """The direction, the tag of its target ("" if the model has none), and the texts without their tags.

        Raises
        ------
        UnknownLanguage
            If no target is given and there are several, or a text begins with the tag of another language.
        """
        tagged_texts = [self._split_tag(text) for text in texts]
        typed_tags = {tag for tag, _ in tagged_texts if tag}
        if target is None and len(typed_tags) == 1 and all(tag for tag, _ in tagged_texts):
            target = next(code for code, tag in self.tags.items() if tag in typed_tags)
        languages = None
        if self.directions:
            languages = check_direction(self.directions, source, target, ordered=self.ordered)
        tag = self.tags[languages[1]] if languages and self.tags else ""
        if other_tags := sorted(typed_tags - {tag}):
            raise UnknownLanguage(
                f"A source begins with the tag of another language: got {other_tags[0]}, the target is "
                f"{languages and languages[1]}. Leave out the tag, or translate texts of one target at a time."
            )
        return languages, tag, [text for _, text in tagged_texts]


@dataclass(frozen=True)
class InTransformers:
    """A direction's settings in transformers: the tokenizer's class and source language, text before a source, first token."""

    kind: str
    source: str | None = None
    front: str = ""
    first: str | None = None
    longest: int | None = None
    """The most new tokens, where the checkpoint's settings ask for more than it has positions."""


@dataclass(frozen=True)
class MarianText(Tagged, NoLanguageIds):
    """A Marian vocabulary over two SentencePiece models, read without transformers.

    Ids equal those of `transformers.MarianTokenizer` without sacremoses, with one deliberate difference: text that looks like a
    special token (``</s>``) stays text. A tag of the vocabulary at the beginning of a source (``>>deu<< Good morning.``) names
    the target language.
    """

    source_pieces: Any
    target_pieces: Any
    vocabulary: dict[str, int]
    target_vocabulary: dict[str, int]
    directions: tuple[Direction, ...]
    tags: dict[str, str]
    """Target language -> tag before the source; empty for models with one target."""
    ordered: bool = True
    """Whether the model's note lists its directions, the default one first."""
    backwards: bool = False
    """Whether output ids begin with the end of the sentence, as those of models that generate from right to left."""

    @classmethod
    def load(cls, checkpoint: Checkpoint) -> "MarianText":
        """Read ``source.spm``, ``target.spm``, ``vocab.json`` and, if present, ``fastdecode.json``.

        fastdecode's own models have one SentencePiece model for both sides, ``source.spm``, with the ids of the model.

        Raises
        ------
        CheckpointError
            If a file is missing or the vocabulary does not fit the weights.
        """
        folder, is_ours = checkpoint.folder, checkpoint.family == OWN
        for name in ("source.spm", "fastdecode.json") if is_ours else ("source.spm", "target.spm", "vocab.json"):
            if not (folder / name).is_file():
                raise CheckpointError(f"The tokenizer in {folder} is incomplete: {name} is missing. Copy it again.")
        source_pieces = _pieces(folder / "source.spm")
        target_pieces = source_pieces if is_ours else _pieces(folder / "target.spm")
        if is_ours:
            vocabulary = {source_pieces.id_to_piece(i): i for i in range(len(source_pieces))}
        else:
            vocabulary = read_json(folder / "vocab.json", error=CheckpointError)
        separate = folder / "target_vocab.json"
        target_vocabulary = read_json(separate, error=CheckpointError) if separate.is_file() else vocabulary
        for side, token_ids, expected in (
            ("source", vocabulary, checkpoint.architecture.source_vocabulary),
            ("target", target_vocabulary, checkpoint.architecture.vocabulary),
        ):
            if missing := [token for token in ("</s>", "<unk>") if token not in token_ids]:
                raise CheckpointError(
                    f"The {side} vocabulary lacks {' and '.join(missing)}: got {len(token_ids)} tokens. Use the tokenizer saved "
                    "with the model."
                )
            if wrong := [i for i in token_ids.values() if type(i) is not int or not 0 <= i < expected]:
                raise CheckpointError(
                    f"The {side} vocabulary does not fit the weights: got {len(token_ids)} tokens, among them the id {wrong[0]!r}, "
                    f"the model has ids from 0 to {expected - 1}. Use the tokenizer saved with the model."
                )
        if added := sorted(_added_tokens(folder) - vocabulary.keys() - target_vocabulary.keys()):
            raise CheckpointError(
                f"The tokenizer in {folder} has tokens that were added to its vocabulary, which would be split into pieces: got "
                f"{listed(added, 5)}. Train without added tokens, or add pieces to the SentencePiece models and to vocab.json."
            )
        tags, directions = _languages(folder, vocabulary)
        backwards = checkpoint.architecture.order == "right_to_left"
        has_note = (folder / NOTE).is_file()
        return cls(source_pieces, target_pieces, vocabulary, target_vocabulary, directions, tags, has_note, backwards)

    @cached_property
    def _target_pieces_by_id(self) -> dict[int, str]:
        return {i: token for token, i in self.target_vocabulary.items()}

    @cached_property
    def _source_pieces_by_id(self) -> dict[int, str]:
        return {i: token for token, i in self.vocabulary.items()}

    def encode(self, texts: Sequence[str], source: str | None, target: str | None) -> Source:
        """Ids of the tag, the pieces and the end of each text."""
        check_texts(texts)
        languages, tag, texts = self._direction_and_tag(texts, source, target)
        unknown, end = self.vocabulary["<unk>"], self.vocabulary["</s>"]
        first = [self.vocabulary[tag]] if tag else []
        rows = [
            [*first, *(self.vocabulary.get(piece, unknown) for piece in row), end]
            for row in _split(self.source_pieces, texts)
        ]
        return padded(rows, self.vocabulary.get("<pad>", end), languages)

    def output_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """See `Tokenizer.output_ids`."""
        vocabulary, pieces = self.target_vocabulary, _split(self.target_pieces, texts)
        rows = [[vocabulary.get(piece, vocabulary["<unk>"]) for piece in row] for row in pieces]
        return [row[::-1] for row in rows] if self.backwards else rows

    def decode(self, ids: Iterable[int]) -> str:
        """Text of target ids, without special ids and tags."""
        special = {"</s>", "<unk>", "<pad>", *self.tags.values()}
        pieces = [piece for piece in self.pieces(ids) if piece not in special]
        pieces = pieces[::-1] if self.backwards else pieces
        return str(self.target_pieces.decode_pieces(pieces)).replace("▁", " ").strip()

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The vocabulary's spelling of each id."""
        return [self._target_pieces_by_id.get(int(i), "<unk>") for i in ids]

    def source_tokens(self, ids: Iterable[int]) -> list[str]:
        """The source vocabulary's spelling of each id."""
        return [self._source_pieces_by_id.get(int(i), "<unk>") for i in ids]

    def in_transformers(self, source: str | None, target: str | None) -> InTransformers:
        """The settings of a direction in transformers."""
        tag = self.tags.get(target or "")
        return InTransformers("MarianTokenizer", front=f"{tag} " if tag else "")


def _added_tokens(folder: Path) -> set[str]:
    """Tokens that transformers stores outside of the vocabulary."""
    added: set[str] = set()
    for name in ("added_tokens.json", "tokenizer_config.json"):
        content = read_json(folder / name, error=CheckpointError) if (folder / name).is_file() else {}
        entries = content if name == "added_tokens.json" else content.get("added_tokens_decoder") or {}
        entries = entries if isinstance(entries, dict) else {}
        added |= {str(token["content"]) for token in entries.values() if isinstance(token, dict) and "content" in token}
        added |= {str(token) for token, number in entries.items() if type(number) is int}
    return added


def _split(pieces: Any, texts: Sequence[str]) -> list[list[str]]:
    """Pieces of each text, one text at a time: for a list, sentencepiece starts threads, which take 70 times as long."""
    return [pieces.encode(text, out_type=str) for text in texts]


def _pieces(file: Path) -> Any:
    import sentencepiece

    try:
        return sentencepiece.SentencePieceProcessor(model_file=str(file))
    except (RuntimeError, OSError) as error:
        raise CheckpointError(f"The SentencePiece model {file} is unreadable: {error}. Copy it again.") from error


def _languages(folder: Path, vocabulary: dict[str, int]) -> tuple[dict[str, str], tuple[Direction, ...]]:
    """Tags and directions of a Marian model, from its note, else from its tags, else from its tokenizer's settings."""
    note = folder / NOTE
    if note.is_file():
        return _languages_of_note(note, vocabulary)
    settings = _settings(folder)
    source, target = settings.get("source_lang"), settings.get("target_lang")
    tagged = [token for token in vocabulary if token.startswith(">>") and token.endswith("<<")]
    if not tagged:
        return {}, ((source, target),) if source and target else ()
    tags = {TWO_LETTERS.get(tag[2:-2], tag[2:-2]): tag for tag in tagged}
    return tags, tuple((source or "any", code) for code in tags)


def _languages_of_note(file: Path, vocabulary: dict[str, int]) -> tuple[dict[str, str], tuple[Direction, ...]]:
    note = read_json(file, error=CheckpointError)
    try:
        tags, directions = dict(note["tags"]), tuple((str(a), str(b)) for a, b in note["directions"])
        fits = all(tags[b] in vocabulary for _, b in directions) if tags else True
    except (KeyError, TypeError, ValueError):
        fits = False
    if not fits:
        raise CheckpointError(
            f"{file} does not fit the vocabulary: it needs directions, and a tag of vocab.json for each of their targets. "
            "Copy it again."
        )
    return tags, directions


_SOURCE_LANGUAGE = threading.Lock()
"""Lock for setting the source language of a transformers tokenizer, which stores it, and using the tokenizer."""


class HuggingFaceText(Tagged):
    """A tokenizer of transformers, for mBART, M2M-100, NLLB, T5 and every other model.

    Languages have two letters or the tokenizer's spelling (``de``, ``de_DE``, ``deu_Latn``). If the vocabulary has tags for target
    languages (MADLAD-400's ``<2de>``), the target's tag is put before the source unless it is there already.
    """

    ordered = False

    def __init__(self, checkpoint: Checkpoint):
        settings = _settings(checkpoint.folder)
        class_name = str(settings.get("tokenizer_class") or checkpoint.config.get("tokenizer_class"))
        _check_vocabulary_file(checkpoint.folder, settings)
        try:
            self.tokenizer = private.tokenizer_in(checkpoint.folder, class_name)
        except Exception as error:  # a damaged file can raise any error in transformers
            raise CheckpointError(
                f"The tokenizer in {checkpoint.folder} could not be loaded: {error}. Save tokenizer and model together."
            ) from error
        self.codes = _language_tokens(self.tokenizer)
        self.id_by_language = {token: _id(self.tokenizer, token) for token in self.codes.values()}
        largest = max(len(self.tokenizer) - 1, *self.id_by_language.values(), 0)
        size = checkpoint.config.get("vocab_size")
        if size is not None and largest >= size:
            raise CheckpointError(
                f"The vocabulary does not fit the weights: got ids up to {largest}, the model has {size} rows. "
                "Use the tokenizer saved with the model."
            )
        self.tags = {} if self.codes else _target_tags(self.tokenizer)
        self.instructions = {} if self.tags else _instructions(checkpoint.config)
        pairs = [(a, b) for a in self.codes for b in self.codes if a != b]
        self.directions = tuple(pairs or [("any", code) for code in self.tags] or self.instructions)
        """Every pair of the tokenizer's languages, or those with tags or instructions; empty if there are none."""
        forced = checkpoint.rules.get("forced_bos_token_id")
        self.own_target = next(
            (code for code, token in self.codes.items() if self.id_by_language[token] == forced), None
        )
        """The target language that the checkpoint forces, if any."""

    @cached_property
    def language_ids(self) -> frozenset[int]:
        """Ids of all languages of the tokenizer."""
        return frozenset(self.id_by_language.values())

    def check_variant(self, code: str, which: str) -> None:
        """Check that the model has the script, or the region of Chinese, of a language code.

        Raises
        ------
        UnknownLanguage
        """
        tokens = self.codes or ({tag: tag for tag in self.tags} if which == "target" else {})
        token = tokens.get(str(known_as(code, which, list(tokens)))) if tokens else None
        token_variant = token and variant(_code_in(token) or "")
        if token_variant and variant(code) not in (None, token_variant):
            raise UnknownLanguage(
                f"This model's {which} language {short_code(code)!r} is {token}: got {code!r}. Give {token}, or another language."
            )

    def _token(self, code: str | None, which: str) -> str | None:
        """The tokenizer's token for a language."""
        if not self.codes:
            return None
        if code is None:
            raise UnknownLanguage(
                f"This model needs a {which} language: got none. Pass one of {listed(list(self.codes))}."
            )
        return self.codes[str(known_as(code, which, list(self.codes)))]

    def encode(self, texts: Sequence[str], source: str | None, target: str | None) -> Source:
        """Ids of the tokenizer; a tag of the target (MADLAD-400) or an instruction to translate (T5) comes first."""
        check_texts(texts)
        token, tag = self._token(source, "source"), ""
        languages = (source, target) if source and target else None
        if self.instructions:
            languages = check_direction(self.directions, source, target, ordered=False)
            texts = [self.instructions[languages] + text for text in texts]
        if self.tags:
            languages, tag, texts = self._direction_and_tag(texts, source, target)
            texts = [f"{tag} {text}" for text in texts]
        with _SOURCE_LANGUAGE:
            if token is not None:
                self.tokenizer.src_lang = self._source_name(source)
            rows = self.tokenizer(list(texts))["input_ids"]
        for language in (token, tag):
            if language and rows and _id(self.tokenizer, language) not in rows[0]:
                raise CheckpointError(
                    f"The tokenizer does not put the language into a source: got ids without {language} from "
                    f"{type(self.tokenizer).__name__}. Save tokenizer and model again with a current transformers."
                )
        return padded(rows, self.tokenizer.pad_token_id or 0, languages)

    def output_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """See `Tokenizer.output_ids`."""
        rows: list[list[int]] = self.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        return rows

    def decode(self, ids: Iterable[int]) -> str:
        """Text of target ids, without special ids and languages."""
        text_ids = [int(i) for i in ids if int(i) not in self.language_ids]
        return str(self.tokenizer.decode(text_ids, skip_special_tokens=True)).strip()

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The tokenizer's spelling of each id."""
        return [str(piece) for piece in self.tokenizer.convert_ids_to_tokens(list(ids))]

    source_tokens = pieces

    def forced_language(self, target: str | None) -> tuple[int, ...]:
        """The id of the target language, for models whose outputs start with it."""
        token = self._token(target, "target")
        return () if token is None else (self.id_by_language[token],)

    def in_transformers(self, source: str | None, target: str | None) -> InTransformers:
        """The settings of a direction in transformers."""
        kind, tag = type(self.tokenizer).__name__, self.tags.get(target or "")
        front = f"{tag} " if tag else self.instructions.get((source or "", target or ""), "")
        if not self.codes:
            return InTransformers(kind, front=front)
        return InTransformers(kind, self._source_name(source), front, self._token(target, "target"))

    def _source_name(self, source: str | None) -> str | None:
        """The tokenizer's name of a source language."""
        token = self._token(source, "source")
        return _code_in(token) if token is not None and token.startswith("__") else token


def _settings(folder: Path) -> dict[str, Any]:
    """Content of ``tokenizer_config.json``; empty if the file is missing."""
    file = folder / "tokenizer_config.json"
    return read_json(file, error=CheckpointError) if file.is_file() else {}


def _check_vocabulary_file(folder: Path, settings: Mapping[str, Any]) -> None:
    """Check that there is a vocabulary file: without one, transformers makes an empty tokenizer."""
    bytes_only = str(settings.get("tokenizer_class")).startswith("ByT5")
    names = ("tokenizer.json", "vocab.json", "vocab.txt")
    if not bytes_only and not any(p.name in names or p.suffix in (".model", ".spm") for p in folder.iterdir()):
        raise CheckpointError(
            f"The tokenizer in {folder} is missing: found no {', '.join(names)} and no SentencePiece model. "
            "Save tokenizer and model together."
        )


def _id(tokenizer: Any, token: str) -> int:
    return int(tokenizer.convert_tokens_to_ids(token))


def _language_tokens(tokenizer: Any) -> dict[str, str]:
    """The tokenizer's language tokens by short code, or by the whole code if a language has several scripts."""
    extra = getattr(tokenizer, "extra_special_tokens", None) or []
    listed_tokens = getattr(tokenizer, "lang_code_to_token", None) or {}  # M2M-100's languages are not special tokens
    extra = extra.values() if isinstance(extra, dict) else extra
    names = [*tokenizer.all_special_tokens, *extra, *listed_tokens.values()]
    if private.knows_languages(tokenizer):  # some have languages among the added tokens, or only there
        names += filter(re.compile(r"[a-z]{2,3}_([A-Z][a-z]{3}|[A-Z]{2})").fullmatch, tokenizer.get_added_vocab())
    tokens = {code: token for token in dict.fromkeys(map(str, names)) if (code := _code_in(token))}
    uses = Counter(short_code(code) for code in tokens)
    return {short_code(code) if uses[short_code(code)] == 1 else code: token for code, token in tokens.items()}


def _target_tags(tokenizer: Any) -> dict[str, str]:
    """Tags for target languages in a vocabulary, by language: ``<2de>``, ``<2zh_Latn>``."""
    tags = {token[2:-1]: token for token in tokenizer.get_vocab() if re.fullmatch(r"<2[a-z]{2,3}([_-]\w+)*>", token)}
    return dict(sorted(tags.items())) if len(tags) > 1 else {}


def _instructions(config: Mapping[str, Any]) -> dict[Direction, str]:
    """Instructions before the source by direction, such as T5's ``translate English to German: ``."""
    instructions = {}
    tasks = config.get("task_specific_params")
    for task, settings in (tasks if isinstance(tasks, dict) else {}).items():
        source, _, target = task.removeprefix("translation_").partition("_to_")
        if task.startswith("translation_") and source and target and isinstance(settings, dict):
            instructions[source, target] = str(settings.get("prefix") or "")
    return instructions


def _code_in(token: str) -> str | None:
    """The language code in ``__de__``, ``de_DE`` or ``deu_Latn``; None for other special tokens."""
    if token.startswith("__") and token.endswith("__"):
        return token[2:-2]
    head, _, tail = token.partition("_")
    return token if head.isalpha() and len(head) in (2, 3) and tail.isalpha() and len(tail) in (2, 4) else None

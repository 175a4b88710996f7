"""Text as whole words; one file because a vocabulary is counted with the same tokenizer that reads text.

Word-based models (Devlin, 2017, sec. 2) have a limited vocabulary of each language; all other words are ``<unk>``, which
`replace_unknown` replaces in the output by means of the attention.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from fastdecode_lib.checkpoints.shape import CheckpointError
from fastdecode_lib.core import Source
from fastdecode_lib.lexicon import Lexicon
from fastdecode_lib.store import read_json, read_tensors
from fastdecode_lib.text.languages import Direction, check_direction
from fastdecode_lib.text.tokenizers import NoLanguageIds, check_texts, padded

T = TypeVar("T")

END, UNKNOWN, START = range(3)
SPECIAL = ("</s>", "<unk>", "<s>")

GENERATION = {"decoder_start_token_id": START, "eos_token_id": END, "pad_token_id": END, "bad_words_ids": [[START]]}
"""The settings of a checkpoint that name ids."""

JOINED, SPACED = "￭", "▁"
"""Marks before a token without, or with, a space before it, contrary to the rules of the language."""

CLOSING = {".", ",", ")", "]", "}", "..."}
OPENING = {"(", "[", "{", "¿", "¡"}
HIGH = {"?", "!", ":", ";", "»"}
"""French has a space before these, and after «."""

_LETTERS = r"[^\W\d_]+"
_REST = rf"(?<=\w)-{_LETTERS}|\d+(?:[.,:]\d+)*|{_LETTERS}|\.\.\.|."
_TOKENS = {  # French: the apostrophe belongs to the word before it; English: to the word after it
    True: re.compile(rf"{_LETTERS}'(?=\w)|{_REST}"),
    False: re.compile(rf"{_LETTERS}?(?=n't\b)|n't\b|(?<=\w)'{_LETTERS}|{_REST}"),
}


def normalised(text: str) -> str:
    """Text in composed characters, with straight apostrophes and single spaces, as the tokenizer returns it."""
    return " ".join(unicodedata.normalize("NFC", text).replace("’", "'").split())


def split_words(text: str, language: str) -> list[str]:
    """The words and punctuation marks of a text; `join_words` gives the `normalised` text back.

    >>> split_words("Don't you see it?", "en")
    ['Do', "n't", 'you', 'see', 'it', '?']
    >>> split_words("N'iras-tu pas ?", "fr")
    ["N'", 'iras', '-tu', 'pas', '?']
    """
    rules, tokens = _Spacing(language), []
    for number, chunk in enumerate(normalised(text).split(" ")):
        for position, piece in enumerate(_TOKENS[rules.french].findall(chunk)):
            if number == position == 0:
                mark = ""
            else:
                mark = {(True, False): SPACED, (False, True): JOINED}.get((rules.joined(piece), position > 0), "")
            tokens.append(mark + piece)
            rules.advance(piece)
    return tokens


def join_words(tokens: Iterable[str], language: str) -> str:
    """The text of tokens, with the spaces of the language."""
    rules, text = _Spacing(language), ""
    for marked in tokens:
        token = _unmarked(marked)
        mark = marked[: len(marked) - len(token)]
        joined = mark == JOINED or (mark != SPACED and rules.joined(token))
        text += token if joined or not text else f" {token}"
        rules.advance(token)
    return text


class _Spacing:
    """The rules of a language for spaces, applied to the tokens of a text one after another."""

    def __init__(self, language: str):
        self.french = language == "fr"
        self.previous = ""
        self.quotes = 0

    def joined(self, token: str) -> bool:
        """Whether there is no space before a token."""
        previous = self.previous
        if previous in OPENING or (previous == '"' and self.quotes % 2 == 1):
            return True
        if token in CLOSING or (token == '"' and self.quotes % 2 == 1):
            return True
        if self.french:
            return (len(previous) > 1 and previous[-1] == "'") or _begins(token, "-")
        return token in HIGH or token == "n't" or previous == "«" or _begins(token, "-") or _begins(token, "'")

    def advance(self, token: str) -> None:
        self.quotes += token == '"'
        self.previous = token


def _begins(token: str, mark: str) -> bool:
    return len(token) > 1 and token[0] == mark


@dataclass(frozen=True)
class Vocabulary:
    """The words of a model in one language: the special tokens, then words, most frequent first.

    Attributes
    ----------
    tokens : tuple of str
        By id: ``</s>``, ``<unk>``, ``<s>``, then words in descending order of counts.
    counts : tuple of int
        Number of occurrences in the training text; for ``<unk>``, that of all words left out.
    """

    tokens: tuple[str, ...]
    counts: tuple[int, ...]

    @classmethod
    def count(cls, sentences: Iterable[Sequence[str]], size: int) -> "Vocabulary":
        """The most frequent words and the special tokens, `size` in all; equal counts are in the order of characters."""
        counts: Counter[str] = Counter()
        sentence_count = 0
        for sentence in sentences:
            counts.update(sentence)
            sentence_count += 1
        if size <= len(SPECIAL) or not counts:
            raise ValueError(
                f"A vocabulary needs words and a size for them: got {len(counts)} words and size={size}. Give sentences, and a "
                f"size above {len(SPECIAL)}."
            )
        frequent = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[: size - len(SPECIAL)]
        words, word_counts = zip(*frequent, strict=True)
        left_out = counts.total() - sum(word_counts)
        return cls((*SPECIAL, *words), (sentence_count, left_out, sentence_count, *word_counts))

    @cached_property
    def ids(self) -> dict[str, int]:
        """Word -> id."""
        return {token: i for i, token in enumerate(self.tokens)}

    @property
    def entries(self) -> list[list[Any]]:
        """Every token with its count, as in ``vocabulary.json``."""
        return [list(entry) for entry in zip(self.tokens, self.counts, strict=True)]

    def word(self, i: int) -> str:
        """The word of an id; ``<unk>`` if there is none."""
        return self.tokens[int(i)] if 0 <= int(i) < len(self.tokens) else SPECIAL[UNKNOWN]

    def encode(self, words: Sequence[str]) -> list[int]:
        """Ids of words and the end."""
        return [*map(self.id_of, words), END]

    def id_of(self, word: str) -> int:
        """The id of a word; a marked word that the vocabulary lacks is looked up without its mark."""
        word_id = self.ids.get(word)
        return self.ids.get(_unmarked(word), UNKNOWN) if word_id is None else word_id


@dataclass(frozen=True)
class WordText(NoLanguageIds):
    """Words of two languages as ids: the `tokenizers.Tokenizer` of a word-based model.

    Attributes
    ----------
    direction : (source, target)
    source, target : Vocabulary
    lexicon : Lexicon or None
        Translations of the source's words, best first, in the ids of the two vocabularies.
    """

    direction: Direction
    source: Vocabulary
    target: Vocabulary
    lexicon: Lexicon | None = None
    ordered: ClassVar[bool] = True

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The only direction."""
        return (self.direction,)

    def words(self, text: str) -> list[str]:
        """The words of a source, one for each id of `encode` except the end."""
        return split_words(text, self.direction[0])

    def encode(self, texts: Sequence[str], source: str | None, target: str | None) -> Source:
        """Ids of the words and the end of each text."""
        check_texts(texts)
        languages = check_direction(self.directions, source, target)
        return padded([self.source.encode(self.words(text)) for text in texts], END, languages)

    def output_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of texts of the target language, without the end."""
        return [[*map(self.target.id_of, split_words(text, self.direction[1]))] for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of target ids, without unknown words and special ids."""
        return join_words((self.target.word(i) for i in ids if int(i) >= len(SPECIAL)), self.direction[1])

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The target's word of each id, with ``▁`` before it if it begins a word of the text."""
        return [_piece(self.target.word(i), self.direction[1]) for i in ids]

    def source_tokens(self, ids: Iterable[int]) -> list[str]:
        """The source's word of each id, in the form of `pieces`."""
        return [_piece(self.source.word(i), self.direction[0]) for i in ids]

    def replace_unknown(self, ids: Sequence[int], text: str, alignment: np.ndarray) -> str:
        """Text of target ids in which each ``<unk>`` is replaced by means of the alignment (Jean et al., 2015, sec. 3.3).

        The replacement is the lexicon's best translation of the source word with the highest attention, or that word itself if
        the lexicon lacks it.

        Parameters
        ----------
        ids : sequence of int, T long
        text : str
            The source.
        alignment : float array (T, S)
            Attention over the source's ids; the last column, the end's, is ignored.

        Raises
        ------
        ValueError
            If the alignment does not fit the ids and the text.
        """
        words = self.words(text)
        if np.shape(alignment) != (len(ids), len(words) + 1):
            raise ValueError(
                f"The alignment does not fit: got {np.shape(alignment)} for {len(ids)} target ids and {len(words)} source words "
                "with their end. Give the attention of the same translation."
            )
        tokens = []
        for i, weights in zip(ids, alignment, strict=True):
            if int(i) >= len(SPECIAL):
                tokens.append(self.target.word(i))
            elif int(i) == UNKNOWN and words:
                tokens.append(self._translation(words[int(np.argmax(weights[:-1]))]))
        return join_words(tokens, self.direction[1])

    def texts(self, network: Any, texts: Sequence[str], outputs: Sequence[Sequence[int]]) -> list[str]:
        """Text of the outputs for sources, with unknown words replaced by means of the network's attention.

        Parameters
        ----------
        network : Model with a method ``align``
        texts : sequence of str
        outputs : sequence of target ids, one for each text
        """
        translations = []
        for text, ids in zip(texts, outputs, strict=True):
            if UNKNOWN in ids:
                source = self.encode([text], *self.direction)
                (alignment,) = network.align(source, np.array([ids]), np.array([START]))
                translations.append(self.replace_unknown(ids, text, alignment))
            else:
                translations.append(self.decode(ids))
        return translations

    def _translation(self, word: str) -> str:
        word_id = self.source.id_of(word)
        if self.lexicon is not None and word_id != UNKNOWN:
            first, end = self.lexicon.offsets[word_id : word_id + 2]
            best = [int(i) for i in self.lexicon.ids[first:end] if i >= len(SPECIAL)][:1]
            if best:
                return self.target.tokens[best[0]]
        return _unmarked(word)

    # -- on disk

    def save(self, folder: Path) -> None:
        """Write ``vocabulary.json`` and, if there is a lexicon, ``lexicon.safetensors``."""
        sides = {"source": self.source.entries, "target": self.target.entries}
        _write(folder, {"direction": list(self.direction), **sides})
        if self.lexicon is not None:
            from safetensors.numpy import save_file

            arrays = {
                "counts": np.diff(self.lexicon.offsets).astype(np.uint16),
                "ids": self.lexicon.ids.astype(np.uint32 if self.lexicon.vocabulary > 65_536 else np.uint16),
                "probabilities": self.lexicon.probabilities.astype(np.float16),
            }
            save_file(arrays, folder / "lexicon.safetensors", {"vocabulary": str(self.lexicon.vocabulary)})

    @classmethod
    def load(cls, folder: Path, source_vocabulary: int | None = None, vocabulary: int | None = None) -> "WordText":
        """Read what `save` wrote; with sizes given, check that it fits the weights.

        Raises
        ------
        CheckpointError
            If a file is missing, damaged or does not fit.
        """

        def parsed(content: Any) -> tuple[Direction, Vocabulary, Vocabulary]:
            source, target = map(str, content["direction"])
            return (source, target), _vocabulary(content["source"]), _vocabulary(content["target"])

        needed = "a direction, and the words of both sides with their counts"
        direction, source, target = _read(folder, parsed, needed)
        _check_size("source ", source, source_vocabulary)
        _check_size("target ", target, vocabulary)
        return cls(direction, source, target, _lexicon(folder / "lexicon.safetensors", source, target))


def _unmarked(word: str) -> str:
    """A word without the mark before it."""
    return word[1:] if len(word) > 1 and word[0] in (JOINED, SPACED) else word


def _piece(token: str, language: str) -> str:
    """A token as a piece: ``▁`` comes before a token that the language does not join to the one before."""
    if token in SPECIAL or (len(token) > 1 and token[0] == SPACED):
        return token
    if len(token) > 1 and token[0] == JOINED:
        return token[1:]
    return token if _Spacing(language).joined(token) else SPACED + token


def _write(folder: Path, content: dict[str, Any]) -> None:
    """Write ``vocabulary.json``."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    (folder / "vocabulary.json").write_text(text + "\n", encoding="utf-8")


def _read(folder: Path, parse: Callable[[Any], T], needed: str) -> T:
    """Read ``vocabulary.json``; `needed` says in errors what it must have."""
    file = folder / "vocabulary.json"
    if not file.is_file():
        raise CheckpointError(f"The tokenizer in {folder} is incomplete: {file.name} is missing. Copy it again.")
    content = read_json(file, error=CheckpointError)
    try:
        return parse(content)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{file} is damaged: {error!r}. It needs {needed}. Copy it again.") from error


def _check_size(side: str, vocabulary: Vocabulary, expected: int | None) -> None:
    if expected and len(vocabulary.tokens) != expected:
        raise CheckpointError(
            f"The {side}vocabulary does not fit the weights: got {len(vocabulary.tokens)} words, the model has {expected}. "
            "Use the vocabulary saved with the model."
        )


def _vocabulary(entries: Any) -> Vocabulary:
    tokens, counts = zip(*((str(token), int(count)) for token, count in entries), strict=True)
    if tokens[: len(SPECIAL)] != SPECIAL or len(set(tokens)) != len(tokens) or not all(tokens):
        raise ValueError(f"words must differ and begin with {', '.join(SPECIAL)}")
    return Vocabulary(tokens, counts)


def _lexicon(file: Path, source: Vocabulary, target: Vocabulary) -> Lexicon | None:
    if not file.is_file():
        return None
    try:
        tensors, metadata = read_tensors(file)
        counts, ids, probabilities = (tensors[name] for name in ("counts", "ids", "probabilities"))
        vocabulary = int(metadata["vocabulary"])
        if shapes := [values.shape for values in (counts, ids, probabilities) if values.ndim != 1]:
            raise ValueError(f"a tensor of one dimension is needed, got the shape {shapes[0]}")
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{file} is damaged: {error!r}. Copy it again.") from error
    offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    fits = len(counts) == len(source.tokens) and vocabulary == len(target.tokens)
    if not fits or not offsets[-1] == len(ids) == len(probabilities) or int(ids.max(initial=0)) >= vocabulary:
        raise CheckpointError(
            f"{file} does not fit the vocabularies: got {len(counts)} source words and {vocabulary} target words with "
            f"{len(ids)} entries, there are {len(source.tokens)} and {len(target.tokens)}. Use the lexicon saved with the model."
        )
    return Lexicon(offsets, ids.astype(np.int64), probabilities.astype(np.float32), vocabulary)


@dataclass(frozen=True)
class LanguageText:
    """Words of one language as ids, for a word-based language model.

    Attributes
    ----------
    language : str
    lower : bool
        Whether text is lower-cased.
    vocabulary : Vocabulary
    """

    language: str
    lower: bool
    vocabulary: Vocabulary

    def words(self, text: str) -> list[str]:
        """The words of a text, in the vocabulary's case."""
        return split_words(text.lower() if self.lower else text, self.language)

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of the words and the end of each text, int64."""
        check_texts(texts)
        return [np.array(self.vocabulary.encode(self.words(text)), dtype=np.int64) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids with unknown words, without the other special ids."""
        return join_words((self.vocabulary.word(i) for i in ids if int(i) not in (END, START)), self.language)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The word of each id, with ``▁`` before it if it begins a word of the text."""
        return [_piece(self.vocabulary.word(i), self.language) for i in ids]

    def save(self, folder: Path) -> None:
        """Write ``vocabulary.json``."""
        _write(folder, {"language": self.language, "lower": self.lower, "words": self.vocabulary.entries})

    @classmethod
    def load(cls, folder: Path, size: int | None = None) -> "LanguageText":
        """Read what `save` wrote; with a size given, check that it fits the weights.

        Raises
        ------
        CheckpointError
            If the file is missing, damaged or does not fit.
        """

        def parsed(content: Any) -> LanguageText:
            return cls(str(content["language"]), bool(content["lower"]), _vocabulary(content["words"]))

        text: LanguageText = _read(folder, parsed, "a language, and words with their counts")
        _check_size("", text.vocabulary, size)
        return text

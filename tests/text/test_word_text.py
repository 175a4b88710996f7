"""Whole words as tokens: lossless but for what is said to be normalised, and unknown words replaced by attention."""

import json
from pathlib import Path

import fakes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdecode_lib.checkpoints.shape import CheckpointError
from fastdecode_lib.lexicon import Lexicon
from fastdecode_lib.text.words import (
    END,
    JOINED,
    SPACED,
    START,
    UNKNOWN,
    Vocabulary,
    WordText,
    join_words,
    normalised,
    split_words,
)

SENTENCES = fakes.own_sentences()


@pytest.mark.parametrize(
    ("text", "language", "tokens"),
    [
        ("Don't you see it?", "en", ["Do", "n't", "you", "see", "it", "?"]),
        ("Tom's can't, I'm.", "en", ["Tom", "'s", "ca", "n't", ",", "I", "'m", "."]),
        ("a well-known 10,000.50", "en", ["a", "well", "-known", "10,000.50"]),
        ('He said: "No..."', "en", ["He", "said", ":", '"', "No", "...", '"']),
        ("N'iras-tu pas ?", "fr", ["N'", "iras", "-tu", "pas", "?"]),
        ("« Aujourd’hui »", "fr", ["«", "Aujourd'", "hui", "»"]),
        ("Qu'est-ce que c'est ?", "fr", ["Qu'", "est", "-ce", "que", "c'", "est", "?"]),
        ("Quoi?", "fr", ["Quoi", JOINED + "?"]),
        ("What ?", "en", ["What", SPACED + "?"]),
        ("", "fr", []),
    ],
)
def test_words_and_spaces(text: str, language: str, tokens: list[str]) -> None:
    assert split_words(text, language) == tokens
    assert join_words(tokens, language) == normalised(text)


@pytest.mark.parametrize("language", ["en", "fr"])
def test_own_sentences_come_back(language: str) -> None:
    for text in [*SENTENCES[language], *fakes.awkward().values()]:
        assert join_words(split_words(text, language), language) == normalised(text), text
    marked = [t for text in SENTENCES[language] for t in split_words(text, language) if t[0] in JOINED + SPACED]
    assert len(marked) < 10, "the rules should be right nearly always"


@given(st.text(alphabet=" abé'’-.,?!:;\"«»()…1290\u00a0\n￭▁nt"), st.sampled_from(["en", "fr"]))
def test_any_text_comes_back(text: str, language: str) -> None:
    assert join_words(split_words(text, language), language) == normalised(text)


@given(st.text(), st.sampled_from(["en", "fr"]))
def test_any_unicode_comes_back(text: str, language: str) -> None:
    assert join_words(split_words(text, language), language) == normalised(text)


# -------------------------------------------------------------------------------------------------------- vocabularies


def test_a_vocabulary_is_counted() -> None:
    sentences = [["b", "a", "b"], ["c", "a", "b"], ["d"]]
    vocabulary = Vocabulary.count(sentences, 5)
    assert vocabulary.tokens == ("</s>", "<unk>", "<s>", "b", "a")
    assert vocabulary.counts == (3, 2, 3, 3, 2)
    assert vocabulary.encode(["a", "x", JOINED + "b", "b"]) == [4, UNKNOWN, 3, 3, END]
    assert len(Vocabulary.count(sentences, 100).tokens) == 7
    for wrong in (3, 0):
        with pytest.raises(ValueError, match=f"got 4 words and size={wrong}. Give sentences, and a size above 3"):
            Vocabulary.count(sentences, wrong)
    with pytest.raises(ValueError, match="got 0 words and size=9"):
        Vocabulary.count([], 9)


@pytest.fixture
def text() -> WordText:
    source = Vocabulary.count([["the", "cat", "sees", "Tom", "."]], 100)
    target = Vocabulary.count([["le", "chat", "minou", "voit", "."]], 100)
    pairs = [("the", "le", 1.0), ("cat", "minou", 0.4), ("cat", "chat", 0.6), (".", ".", 1.0)]
    entries = [(source.ids[s], target.ids[t], p) for s, t, p in pairs]
    owners, ids, probabilities = (np.array(column) for column in zip(*entries, strict=True))
    return WordText(
        ("en", "fr"),
        source,
        target,
        Lexicon.of_entries(owners, ids, probabilities, len(source.tokens), len(target.tokens)),
    )


def test_texts_to_ids_and_back(text: WordText) -> None:
    batch = text.encode(["the cat.", "Tom dreams."], "en", "fr")
    assert batch.lengths.tolist() == [4, 4] and batch.languages == ("en", "fr")
    assert text.source_tokens(batch.ids[0]) == ["▁the", "▁cat", ".", "</s>"]
    assert text.source_tokens(batch.ids[1]) == ["▁Tom", "<unk>", ".", "</s>"]
    ids = [START, *text.target.encode(["le", "chat", "voit", "l'", "."])]
    assert text.decode(ids) == "le chat voit." and text.pieces(ids)[4] == "<unk>"
    assert text.pieces([99]) == text.source_tokens([-1]) == ["<unk>"]
    with pytest.raises(ValueError, match="Sentence 1 is no text: got int"):
        text.encode([3], "en", "fr")  # type: ignore[list-item]
    with pytest.raises(ValueError, match="Unknown target language: got 'de'"):
        text.encode(["the"], "en", "de")


def test_pieces_say_where_words_begin() -> None:
    words = ["Pourriez", "-vous", "l'", "école", "?", JOINED + "?", ".", '"']
    french = Vocabulary.count([words], 100)
    text = WordText(("fr", "fr"), french, french)
    spelled = ["▁Pourriez", "-vous", "▁l'", "▁école", "▁?", "?", ".", '▁"']
    assert text.pieces(french.ids[word] for word in words) == spelled
    english = Vocabulary.count([["Is", "n't", "Tom", "'s", "?", SPACED + "?"]], 100)
    text = WordText(("en", "fr"), english, french)
    assert text.source_tokens(english.ids[word] for word in ["Is", "n't", "Tom", "'s", "?", SPACED + "?"]) == [
        "▁Is", "n't", "▁Tom", "'s", "?", "▁?",
    ]  # fmt: skip


def test_unknown_words_are_replaced(text: WordText) -> None:
    ids = [text.target.ids["le"], UNKNOWN, text.target.ids["voit"], UNKNOWN, text.target.ids["."], END]
    source = "the cat sees Zoë ."
    alignment = np.full((6, 6), 0.01)
    alignment[:, -1] = 9.0  # the end's column is not looked at
    for place, word in ((1, 1), (3, 3)):
        alignment[place, word] = 0.9
    assert text.replace_unknown(ids, source, alignment) == "le chat voit Zoë."
    alignment[3, 3], alignment[3, 2] = 0.0, 0.5  # "sees" is known, but the lexicon has nothing for it
    assert text.replace_unknown(ids, source, alignment) == "le chat voit sees."
    with pytest.raises(ValueError, match=r"does not fit: got \(6, 5\) for 6 target ids and 5 source words"):
        text.replace_unknown(ids, source, alignment[:, 1:])


def test_a_marked_word_is_looked_up_without_its_mark(text: WordText) -> None:
    """In "the,cat" the second word hangs on the comma; the model reads it as the word it is."""
    words = text.words("the,cat Zoë,Zoë")
    marked = next(word for word in words if word.endswith("cat"))
    assert marked != "cat" and text.source.id_of(marked) == text.source.ids["cat"]
    alignment = np.zeros((2, len(words) + 1))
    alignment[0, words.index(marked)], alignment[1, len(words) - 1] = 1, 1
    assert text.replace_unknown([UNKNOWN, UNKNOWN], "the,cat Zoë,Zoë", alignment) == "chat Zoë"


def test_texts_asks_the_network_only_where_it_must(text: WordText) -> None:
    class Network:
        calls = 0

        def align(self, source, tokens, prefix):
            self.calls += 1
            assert prefix.tolist() == [START] and tokens.tolist() == [[UNKNOWN, END]]
            return np.tile(np.eye(1, source.ids.shape[1], 1), (1, 2, 1))

    network = Network()
    assert text.texts(network, ["the", "the Bo"], [(text.target.ids["le"], END), (UNKNOWN, END)]) == ["le", "Bo"]
    assert network.calls == 1


# -------------------------------------------------------------------------------------------------------------- on disk


def test_it_is_read_as_it_was_written(text: WordText, tmp_path: Path) -> None:
    text.save(tmp_path)
    again = WordText.load(tmp_path, len(text.source.tokens), len(text.target.tokens))
    assert (again.direction, again.source, again.target) == (text.direction, text.source, text.target)
    assert again.lexicon is not None and text.lexicon is not None
    assert (again.lexicon.ids == text.lexicon.ids).all() and (again.lexicon.offsets == text.lexicon.offsets).all()
    (tmp_path / "lexicon.safetensors").unlink()
    assert WordText.load(tmp_path).lexicon is None


def test_what_is_damaged_is_refused(text: WordText, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"incomplete: vocabulary.json is missing. Copy it again"):
        WordText.load(tmp_path)
    text.save(tmp_path)
    with pytest.raises(
        CheckpointError, match="source vocabulary does not fit the weights: got 8 words, the model has 9"
    ):
        WordText.load(tmp_path, 9, 8)
    with pytest.raises(
        CheckpointError, match="target vocabulary does not fit the weights: got 8 words, the model has 7"
    ):
        WordText.load(tmp_path, 8, 7)
    lexicon = (tmp_path / "lexicon.safetensors").read_bytes()
    (tmp_path / "lexicon.safetensors").write_bytes(lexicon[:-9])
    with pytest.raises(CheckpointError, match=r"lexicon.safetensors is damaged: .* Copy it again"):
        WordText.load(tmp_path)
    (tmp_path / "lexicon.safetensors").write_bytes(lexicon)
    content = json.loads((tmp_path / "vocabulary.json").read_text())
    more = content | {"source": [*content["source"], ["dog", 1]]}
    (tmp_path / "vocabulary.json").write_text(json.dumps(more))
    with pytest.raises(CheckpointError, match="does not fit the vocabularies: got 8 source words and 8 target words"):
        WordText.load(tmp_path)
    for wrong in (
        {"source": 3},
        {"target": []},
        {"target": content["target"][1:]},
        {"direction": ["en"]},
        {"source": [["a"]]},
    ):
        (tmp_path / "vocabulary.json").write_text(json.dumps(content | wrong))
        with pytest.raises(CheckpointError, match=r"vocabulary.json is damaged: .*Copy it again"):
            WordText.load(tmp_path)

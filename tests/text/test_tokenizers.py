"""Text to ids and back: what transformers' tokenizers do, without their surprises."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest

from fastdecode_lib.checkpoints.hub import bundled, find_checkpoint
from fastdecode_lib.checkpoints.shape import CheckpointError
from fastdecode_lib.text.languages import UnknownLanguage
from fastdecode_lib.text.tokenizers import (
    HuggingFaceText,
    MarianText,
    padded,
)
from fastdecode_lib.training.presets import LANGUAGE_TAGS

SENTENCES = fakes.own_sentences()
AWKWARD = fakes.awkward()
SPECIAL = re.compile(r"</s>|<unk>|<pad>|>>\w*<<")


@pytest.fixture(scope="module")
def ours() -> MarianText:
    return MarianText.load(find_checkpoint("tatoeba-small"))


@pytest.fixture(scope="module")
def theirs() -> Any:
    from transformers import MarianTokenizer

    return MarianTokenizer.from_pretrained(bundled()["tatoeba-small"])


def ids_of(ours: MarianText, texts: list[str], source: str, target: str) -> list[list[int]]:
    batch = ours.encode(texts, source, target)
    return [batch.ids[i, :length].tolist() for i, length in enumerate(batch.lengths)]


def check_ids(ours: MarianText, theirs: Any, texts: list[str], source: str, target: str) -> None:
    expected = theirs([f"{LANGUAGE_TAGS[target]} {text}" for text in texts])["input_ids"]
    for text, found, wanted in zip(texts, ids_of(ours, texts, source, target), expected, strict=True):
        assert found == wanted, text


# ------------------------------------------------------------------------------------------------------------ Marian


@pytest.mark.parametrize(("source", "target"), [("en", "de"), ("de", "en"), ("en", "fr"), ("fr", "en"), ("es", "en")])
def test_ids_of_own_sentences_equal_transformers(ours: MarianText, theirs: Any, source: str, target: str) -> None:
    assert len(SENTENCES[source]) >= 120
    check_ids(ours, theirs, SENTENCES[source], source, target)


def test_ids_of_awkward_texts_equal_transformers(ours: MarianText, theirs: Any) -> None:
    texts = [text for text in AWKWARD.values() if not SPECIAL.search(text)]
    assert len(texts) >= 40
    check_ids(ours, theirs, texts, "en", "de")


@pytest.mark.corpus
@pytest.mark.parametrize("foreign", ["de", "fr", "es"])
def test_ids_of_the_dev_split_equal_transformers(ours: MarianText, theirs: Any, foreign: str) -> None:
    from fastdecode_lib.text.corpus import Tatoeba

    corpus = Tatoeba(Path(os.environ["FASTDECODE_DATA"]))
    for source, target in (("en", foreign), (foreign, "en")):
        check_ids(ours, theirs, [a for a, _ in corpus.pairs("dev", source, target)], source, target)


@pytest.mark.parametrize(
    "typed", ["</s>", "<pad>", "<unk>", ">>xyz<<", "a </s> b", "a >>fra<< b", ">>fra Good morning."]
)
def test_what_looks_like_a_special_token_is_text(ours: MarianText, typed: str) -> None:
    (row,) = ids_of(ours, [typed], "en", "de")
    end, tag = ours.vocabulary["</s>"], ours.vocabulary[">>deu<<"]
    assert row[0] == tag and row[-1] == end
    hidden = {ours.vocabulary[token] for token in ("</s>", "<pad>", *LANGUAGE_TAGS.values())}
    assert not hidden & set(row[1:-1])
    assert len(row) > 3, "the characters of the token must arrive as pieces"


def test_a_tag_in_front_of_a_source_names_the_target(ours: MarianText, theirs: Any) -> None:
    expected = theirs(">>fra<< Good morning.")["input_ids"]
    assert (
        ids_of(ours, [">>fra<< Good morning."], "en", "fr") == ids_of(ours, ["Good morning."], "en", "fr") == [expected]
    )
    assert ids_of(ours, [" >>fra<<Good morning.", ">>fra<< Good morning."], None, None) == [expected, expected]
    assert ours.typed_target(">>fra<< Good morning.") == "fr" and ours.typed_target("Good >>fra<< morning.") is None
    for texts, target in (([">>fra<< Good morning."], "de"), ([">>fra<< Good morning.", "Good morning."], None)):
        with pytest.raises(
            UnknownLanguage, match="tag of another language: got >>fra<<, the target is de. Leave out the tag"
        ):
            ours.encode(texts, "en", target)


def test_a_model_of_several_targets_that_lists_none_first_asks_for_one(broken_marian: Path) -> None:
    (broken_marian / "fastdecode.json").unlink()
    text = MarianText.load(find_checkpoint(broken_marian))
    assert {target for _, target in text.directions} >= {"de", "fr"} and not text.ordered
    with pytest.raises(UnknownLanguage, match=r"has several target languages: got none\. Pass one of .*de.*"):
        text.encode(["Good morning."], None, None)
    tagged = text.encode([">>fra<< Good morning."], None, None)
    assert tagged.ids.tolist() == text.encode(["Good morning."], None, "fr").ids.tolist()


def test_transformers_would_have_ended_the_sentence(theirs: Any) -> None:
    assert 0 in theirs(">>deu<< a </s> b")["input_ids"][:-1]


def test_decoding_random_ids_equals_transformers(ours: MarianText, theirs: Any) -> None:
    random = np.random.default_rng(5)
    tags = [ours.vocabulary[tag] for tag in LANGUAGE_TAGS.values()]
    for _ in range(200):
        ids = random.integers(0, len(ours.vocabulary), size=random.integers(0, 12))
        ids = ids[~np.isin(ids, tags)]
        assert ours.decode(ids) == theirs.decode(ids.tolist(), skip_special_tokens=True).strip()


def test_decoding_gives_the_sentence_back(ours: MarianText) -> None:
    for language, other in (("en", "de"), ("de", "en"), ("fr", "en"), ("es", "en")):
        for text in SENTENCES[language]:
            (row,) = ids_of(ours, [text], language, other)
            if ours.vocabulary["<unk>"] not in row:
                assert ours.decode(row) == " ".join(ours.source_pieces.normalize(text).replace("▁", " ").split())


def test_end_padding_and_tags_leave_no_trace(ours: MarianText) -> None:
    special = [ours.vocabulary[token] for token in ("</s>", "<pad>", "<unk>", ">>deu<<")]
    assert ours.decode(special) == "" == ours.decode([])


def test_pieces_and_unknown_ids(ours: MarianText) -> None:
    assert ours.pieces([0, len(ours.vocabulary) + 5]) == ["</s>", "<unk>"]
    assert ours.source_tokens([ours.vocabulary[">>deu<<"]]) == [">>deu<<"]
    assert ours.forced_language("de") == ()


def test_rows_are_padded_on_the_right(ours: MarianText) -> None:
    batch = ours.encode(["Good morning, everybody.", "Yes."], "en", "de")
    assert batch.ids.dtype == np.int64 and batch.languages == ("en", "de")
    assert batch.lengths[0] == batch.ids.shape[1] > batch.lengths[1]
    assert (batch.ids[1, batch.lengths[1] :] == ours.vocabulary["<pad>"]).all()
    assert padded([], 1).ids.shape == (0, 0)


def test_no_text_is_tag_and_end(ours: MarianText) -> None:
    for name, text in AWKWARD.items():
        if not ours.source_pieces.normalize(text).strip("▁ "):
            assert ids_of(ours, [text], "en", "de") == [[ours.vocabulary[">>deu<<"], 0]], name


def test_languages_without_a_note(broken_marian: Path) -> None:
    (broken_marian / "fastdecode.json").unlink()
    text = MarianText.load(find_checkpoint(broken_marian))
    assert text.tags == LANGUAGE_TAGS
    assert set(text.directions) == {("any", code) for code in LANGUAGE_TAGS}
    fakes.change_json(broken_marian / "tokenizer_config.json", source_lang="en", target_lang="mul")
    assert MarianText.load(find_checkpoint(broken_marian)).directions[0] == ("en", "en")


def test_separate_target_vocabulary(broken_marian: Path) -> None:
    size = len(MarianText.load(find_checkpoint(broken_marian)).vocabulary)
    fakes.write_json(broken_marian / "target_vocab.json", {"</s>": 0, "<unk>": 1, "▁only": 2})
    text = MarianText.load(find_checkpoint(broken_marian))
    assert len(text.vocabulary) == size
    assert text.decode([2, 2, 0]) == "only only"
    assert text.pieces([2]) == ["▁only"] != text.source_tokens([2])


def test_each_side_has_its_own_pieces(broken_marian: Path, tmp_path: Path) -> None:
    """Sources are split by the source's SentencePiece model, outputs by the target's, and no piece's mark is left in a text."""
    from transformers import MarianTokenizer

    shared = MarianText.load(find_checkpoint(broken_marian))
    shutil.copyfile(fakes.train_sentencepiece(tmp_path, size=200), broken_marian / "target.spm")
    ours, theirs = MarianText.load(find_checkpoint(broken_marian)), MarianTokenizer.from_pretrained(broken_marian)
    check_ids(ours, theirs, SENTENCES["en"][:20], "en", "de")
    german = SENTENCES["de"][:20]
    outputs = ours.output_ids(german)
    assert [[*row, 0] for row in outputs] == theirs(text_target=german)["input_ids"]
    assert outputs != shared.output_ids(german)
    for row in outputs:
        assert ours.decode(row) == theirs.decode(row, skip_special_tokens=True).strip()
        assert "▁" not in ours.decode(row)
    source = ours.encode(SENTENCES["en"][:1], "en", "de").ids[0]
    assert ours.source_tokens(source) == theirs.convert_ids_to_tokens(source.tolist())


# ------------------------------------------------------------------------------------------- tokenizers of transformers


@pytest.mark.parametrize(
    ("kind", "spelled"),
    [
        ("mbart50", {"en": "en_XX", "de": "de_DE", "fr": "fr_XX"}),
        ("m2m", {"en": "en", "de": "de", "fr": "fr"}),
        ("nllb", {"en": "eng_Latn", "de": "deu_Latn", "fr": "fra_Latn"}),
    ],
)
def test_multilingual_tokenizers_do_what_transformers_does(
    multilingual: Callable[[str], Path], kind: str, spelled: dict[str, str]
) -> None:
    import transformers

    checkpoint = find_checkpoint(multilingual(kind))
    named = {"mbart50": "MBart50Tokenizer", "m2m": "M2M100Tokenizer", "nllb": "NllbTokenizer"}[kind]
    ours, theirs = HuggingFaceText(checkpoint), getattr(transformers, named).from_pretrained(checkpoint.folder)
    for source, target in (("en", "de"), ("de", "fr"), ("fr", "en")):
        assert (source, target) in ours.directions
        inputs = theirs._build_translation_inputs(
            SENTENCES[source][:20], return_tensors=None, src_lang=spelled[source], tgt_lang=spelled[target]
        )
        for a, b in ((source, target), (spelled[source], spelled[target])):
            batch = ours.encode(SENTENCES[source][:20], a, b)
            found = [batch.ids[i, :length].tolist() for i, length in enumerate(batch.lengths)]
            assert found == inputs["input_ids"]
            assert ours.forced_language(b) == (inputs["forced_bos_token_id"],)
        language = ours.codes[source]
        assert language in ours.source_tokens(batch.ids[0]), "the source names its language"
        text = theirs.decode(inputs["input_ids"][0], skip_special_tokens=True).replace(language, "").strip()
        assert ours.decode(inputs["input_ids"][0]) == text
    with pytest.raises(UnknownLanguage, match="Unknown source language: got 'e'"):
        ours.encode(["a"], "e", "de")
    with pytest.raises(UnknownLanguage, match="needs a target language: got none. Pass one of"):
        ours.forced_language(None)


@pytest.mark.parametrize("old", [False, True])
def test_the_end_at_which_nllb_has_its_code(multilingual: Callable[[str], Path], tmp_path: Path, old: bool) -> None:
    """In front; behind where the settings ask for what transformers did before."""
    from transformers import NllbTokenizer

    folder = shutil.copytree(multilingual("nllb"), tmp_path / "nllb")
    fakes.change_json(folder / "tokenizer_config.json", legacy_behaviour=old)
    theirs, ours = NllbTokenizer.from_pretrained(folder, src_lang="deu_Latn"), HuggingFaceText(find_checkpoint(folder))
    found = ours.encode(["a b"], "de", "en").ids[0].tolist()
    assert found == theirs("a b")["input_ids"]
    assert found.index(theirs.convert_tokens_to_ids("deu_Latn")) == (len(found) - 1 if old else 0)


@pytest.mark.parametrize("kind", ["mbart50", "nllb"])
def test_a_tokenizer_that_ignores_the_source_language_is_refused(
    multilingual: Callable[[str], Path], kind: str
) -> None:
    """As the general class of transformers does, which some versions take for these."""
    import transformers

    ours = HuggingFaceText(find_checkpoint(multilingual(kind)))
    ours.tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(multilingual(kind) / "tokenizer.json"))
    with pytest.raises(CheckpointError, match="does not put the language .*without fr[a_].* from .*Save tokenizer"):
        ours.encode(["a"], "fr", "de")


def test_a_language_of_two_scripts_keeps_its_whole_code(multilingual: Callable[[str], Path]) -> None:
    ours = HuggingFaceText(find_checkpoint(multilingual("nllb")))
    assert {"zho_Hans", "zho_Hant", "de"} <= ours.codes.keys() and "zh" not in ours.codes
    with pytest.raises(
        UnknownLanguage, match="Several target languages of this model are 'zh'. Say which: zho_Hans, zho_Hant"
    ):
        ours.forced_language("zh")
    assert ours.pieces(ours.forced_language("zho_Hant")) == ["zho_Hant"]
    assert len(set(ours.directions)) == len(ours.directions)


def write_tokenizer(folder: Path, tokenizer: Any, **config: object) -> HuggingFaceText:
    tokenizer.save_pretrained(folder)
    fakes.write_json(folder / "config.json", {"is_encoder_decoder": True, "vocab_size": len(tokenizer), **config})
    return HuggingFaceText(find_checkpoint(folder))


def test_bart_and_t5_tokenizers(tmp_path: Path, own_pieces: Path) -> None:
    for name, tokenizer in (("bart", fakes.bart_tokenizer()), ("t5", fakes.t5_tokenizer(own_pieces))):
        ours = write_tokenizer(tmp_path / name, tokenizer, model_type=name)
        assert ours.directions == () and ours.forced_language("de") == ()
        for text in (*SENTENCES["en"][:20], *SENTENCES["de"][:20]):
            row = ours.encode([text], None, None).ids[0].tolist()
            assert row == tokenizer(text)["input_ids"]
            assert ours.decode(row) == tokenizer.decode(row, skip_special_tokens=True).strip()


def test_t5_is_told_to_translate(tmp_path: Path, own_pieces: Path) -> None:
    tokenizer = fakes.t5_tokenizer(own_pieces)
    prefix = "translate English to German: "
    tasks = {"translation_en_to_de": {"prefix": prefix, "num_beams": 4}, "summarization": {"prefix": "summarize: "}}
    ours = write_tokenizer(tmp_path, tokenizer, model_type="t5", task_specific_params=tasks)
    assert ours.directions == (("en", "de"),)
    expected = tokenizer(f"{prefix}The door is open.")["input_ids"]
    assert ours.encode(["The door is open."], "en", "de").ids[0].tolist() == expected
    assert ours.encode(["The door is open."], None, None).ids[0].tolist() == expected
    with pytest.raises(UnknownLanguage, match="Unknown target language: got 'fr'"):
        ours.encode(["a"], "en", "fr")

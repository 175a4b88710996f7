"""The sliding window by hand: what it feeds, what it settles, where its drafts come from and what it refuses."""

import math

import fakes
import numpy as np
import pytest

from fastdecode_lib import registry, translate
from fastdecode_lib.core import Constraints, Source
from fastdecode_lib.decoding.autoregressive import Greedy
from fastdecode_lib.decoding.window import Window, WindowRow
from fastdecode_lib.drafts import sources
from fastdecode_lib.drafts.finding import table_name
from fastdecode_lib.drafts.table import DraftTableError
from fastdecode_lib.laws.cases import decode, random_case
from fastdecode_lib.laws.decoders import run_through
from fastdecode_lib.lexicon import Lexicon
from fastdecode_lib.training import draft_tables
from fastdecode_lib.translation import Session

RULES = Constraints(prefix=(9,), end=(0,), max_length=20, padding=1)
TEXTS = sorted(fakes.own_sentences()["en"], key=len)[:20]


class Script:
    """Drafts that were written down before."""

    def __init__(self, *candidates):
        self.candidates = candidates

    def propose(self, output, count):
        return [[(token, "script") for token in candidate[:count]] for candidate in self.candidates]

    def learn(self, output, chosen, settled):
        self.seen = (list(output), chosen, settled)


def row(*candidates, width=4, rules=RULES, spare=20):
    return WindowRow(width, Script(*candidates), rules, rules.limit, spare)


def test_a_chain_is_settled_up_to_the_first_miss():
    one = row([5, 6, 7])
    feed = one.feed()
    assert feed.tokens.tolist() == [9, 5, 6, 7] and feed.slots.tolist() == [0, 1, 2, 3] and feed.parents is None
    taken = one.take(np.array([5, 6, 8, 3]))
    assert one.output == [5, 6, 8]
    assert taken.keep.tolist() == [0, 1, 2]
    assert taken.status == ("settled", "settled", "settled", "draft")
    assert taken.drafts.tolist() == [5, 6, 7, -1] and taken.origins == ("script", "script", "script", "")
    assert one.drafter.seen == ([5, 6, 8], [5, 6, 8, 3], 3)
    feed = one.feed()
    assert feed.tokens[0] == 8 and feed.slots.tolist() == [3, 4, 5, 6] and list(feed.known) == [5, 6, 8]


def test_the_end_stops_in_the_middle_of_a_window():
    one = row([5, 0, 7])
    one.feed()
    one.take(np.array([5, 0, 4, 4]))
    assert one.hypothesis.tokens == (5, 0) and one.hypothesis.stop == "end"


def test_the_window_ends_at_the_limit():
    rules = Constraints(prefix=(9,), end=(0,), max_length=2)
    one = row([5, 6, 7], rules=rules)
    assert one.feed().tokens.tolist() == [9, 5]
    one.take(np.array([5, 6]))
    assert one.hypothesis.tokens == (5, 6) and one.hypothesis.stop == "length"


def test_candidates_share_their_beginnings():
    one = row([5, 6, 7], [5, 8], [4])
    feed = one.feed()
    assert feed.tokens.tolist() == [9, 5, 6, 7, 8, 4]
    assert feed.parents.tolist() == [-1, 0, 1, 2, 1, 0]
    assert feed.slots.tolist() == [0, 1, 2, 3, 2, 1]
    assert feed.prefix(4) == (5, 8) and feed.prefix(0) == ()
    assert feed.visible()[4].tolist() == [True, True, False, False, True, False]
    taken = one.take(np.array([5, 8, 1, 1, 3, 1]))
    assert one.output == [5, 8, 3]
    assert taken.keep.tolist() == [0, 1, 4]
    assert taken.shown.tolist() == [0, 1, 4]


def test_no_more_positions_than_there_is_room():
    rules = Constraints(prefix=(9,), end=(0,), max_length=3)
    one = row([5, 6], [4, 3], [2, 1], rules=rules, spare=1)
    assert len(one.feed().tokens) <= 3 + 1


def test_right_drafts_need_a_pass_per_window():
    """An oracle that drafts greedy decoding's own output: the fewest passes there can be."""
    for seed in range(30):
        case = random_case(seed)
        for width in (1, 2, 5):
            outputs = decode(Greedy(), case)
            window = _Oracle(width, outputs)
            iterations, found = run_through(window, case)
            assert [h.tokens for h in found] == [h.tokens for h in outputs]
            for number, output in enumerate(outputs):
                passes = sum(iteration.row == number for iteration in iterations)
                assert passes == math.ceil(len(output.tokens) / width)


class _Oracle(Window):
    def __init__(self, width, outputs):
        super().__init__(width, "pad")
        object.__setattr__(self, "outputs", outputs)

    def sentences(self, model, source, constraints):
        rows = super().sentences(model, source, constraints)
        for one, output in zip(rows, self.outputs, strict=True):
            one.drafter = Script(())
            one.drafter.propose = lambda done, count, tokens=output.tokens: [
                [(token, "oracle") for token in tokens[len(done) : len(done) + count]]
            ]
        return rows


# ------------------------------------------------------------------------------------------------------------ sources


def drafter(written, source=(4, 5, 6), **files):
    batch = Source(np.array([source]), np.array([len(source)]))
    return sources.Draft(written, **files).bind(batch, RULES, 12, 2)[0]


def test_a_name_without_a_maker_is_no_silent_source(monkeypatch):
    for names in ("SLOTWISE", "NAMES"):
        monkeypatch.setattr(sources, names, (*getattr(sources, names), "phrases"))
    with pytest.raises(KeyError, match="phrases"):
        drafter("phrases")


def test_padding_and_recycling():
    both = drafter("recycled/pad")
    assert both.propose([], 2) == [[(1, "pad"), (1, "pad")]]
    both.learn([7], [7, 8, 3], 1)
    assert both.propose([7], 3) == [[(8, "recycled"), (3, "recycled"), (1, "pad")]]
    assert drafter("recycled").propose([], 2) == [[]]


def test_source_copy_by_position():
    assert drafter("source").propose([7], 3) == [[(5, "source"), (6, "source")]]
    assert drafter("source", source=(4, 40)).propose([7], 3) == [[]], (
        "an id that the target vocabulary lacks is no draft"
    )


def test_prompt_lookup_takes_the_longest_and_latest_match():
    found = drafter("prompt", source=(4, 5, 6, 5, 7, 2, 5, 8))
    assert found.propose([5], 1) == [[(8, "prompt")]]
    assert found.propose([2, 5], 1) == [[(8, "prompt")]]
    assert found.propose([6, 5], 2) == [[(7, "prompt"), (2, "prompt")]]
    assert found.propose([3], 2) == [[]]


def test_pool_forgets_what_was_not_used():
    pool = sources.Pool(candidates=2, capacity=2)
    pool.learn([5], [5, 6, 7], 1)
    assert pool.propose(5, 9) == [[(6, "pool"), (7, "pool")]]
    for tail in (8, 3, 4):
        pool.learn([9, 5], [5, tail], 1)
    assert pool.propose(5, 9) == [[(4, "pool")], [(3, "pool")]]
    assert pool.propose(11, 9) == []


def test_pool_remembers_what_stood_behind_the_token_before():
    pool = sources.Pool(candidates=1)
    pool.learn([4, 5, 6], [5, 6, 7], 2)
    assert pool.propose(4, 9) == [[(5, "pool"), (6, "pool"), (7, "pool")]]


def test_origins_are_in_the_trace(marian):
    result = translate(marian, TEXTS[0], source="en", target="de", decoder="window:width=4,draft=recycled/pad")
    origins = {origin for iteration in result.trace.iterations for origin in iteration.origins}
    assert origins <= {"recycled", "pad", ""} and "pad" in origins
    assert all(i.positions == len(i.slots) for i in result.trace.iterations)


def test_a_window_of_one_is_greedy(marian):
    greedy = translate(marian, TEXTS[0], source="en", target="de", verify=True)
    one = translate(marian, TEXTS[0], source="en", target="de", decoder="window:width=1")
    assert one.tokens == greedy.tokens and one.trace.calls == greedy.trace.calls


# ------------------------------------------------------------------------------------------------------------- tables


@pytest.fixture
def own_table(marian, tmp_path, monkeypatch):
    """A draft table of the tiny model, in the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    session = Session.of(marian, "en", "de", max_length=12)
    table = draft_tables.make_table(session, [*TEXTS, "", "word " * 99], least=1, folder=tmp_path / "work")
    table.save(draft_tables.default_path(session))
    return table


def test_auto_takes_the_table_at_hand(marian, own_table):
    session = Session.of(marian, "en", "de", "window:width=4", max_length=12)
    assert session.decoder.drafts.table.about == own_table.about
    result = session.translate(TEXTS[0])
    assert {o for i in result.trace.iterations for o in i.origins} == {"ngram+lexicon", ""}
    greedy = Session.of(marian, "en", "de", "greedy", max_length=12).translate(TEXTS[0])
    assert result.tokens == greedy.tokens and result.trace.calls < greedy.trace.calls
    other = Session.of(marian, "de", "en", "window:width=4")
    assert other.decoder.drafts.table is None, "there is no table for that direction"


def test_a_run_that_was_stopped_goes_on(marian, tmp_path, monkeypatch):
    texts = TEXTS[:8]
    session = Session.of(marian, "en", "de", max_length=12)
    whole = draft_tables.make_table(session, texts, least=1, folder=tmp_path / "a")
    monkeypatch.setattr(draft_tables, "CHUNK", 3)
    translated = []
    original = Session.decode

    def interrupted(self, part, **options):
        translated.append(len(part))
        if len(translated) == 2:
            raise KeyboardInterrupt
        return original(self, part, **options)

    monkeypatch.setattr(Session, "decode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        draft_tables.make_table(session, texts, least=1, folder=tmp_path / "b")
    again = draft_tables.make_table(session, texts, least=1, folder=tmp_path / "b")
    assert translated == [3, 3, 3, 2], "the first part is not translated twice"
    again.save(tmp_path / "again")
    whole.save(tmp_path / "whole")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_table_is_named_by_its_direction():
    assert table_name("en", "de") == "en-de.safetensors" and table_name(None, None) == "any-any.safetensors"


def test_the_lexicon_runs_in_ctranslate2(marian, own_table, tmp_path):
    """CTranslate2 decodes with our vmap file, and gives nothing but what the file allows."""
    ctranslate2 = pytest.importorskip("ctranslate2")
    names = marian.tokenizer.source_tokens(range(own_table.lexicon.source_vocabulary))
    pieces = marian.tokenizer.pieces(range(own_table.vocabulary))
    own_table.lexicon.to_vmap(tmp_path / "vmap.txt", names, pieces, always=(0,))
    converter = ctranslate2.converters.TransformersConverter(str(marian.checkpoint.folder))
    converter.convert(str(tmp_path / "converted"), vmap=str(tmp_path / "vmap.txt"))
    translator = ctranslate2.Translator(str(tmp_path / "converted"), device="cpu")
    source = marian.encode(TEXTS[:1], "en", "de")
    tokens = [names[i] for i in source.ids[0]]
    (result,) = translator.translate_batch([tokens], beam_size=1, max_decoding_length=12, use_vmap=True)
    lexicon, always = Lexicon.from_vmap(tmp_path / "vmap.txt", names, pieces)
    allowed = {pieces[i] for i in (*lexicon.candidates(source.ids[0]), *always)} | {"<unk>", "<s>", "</s>", "<pad>"}
    assert result.hypotheses[0] and set(result.hypotheses[0]) <= allowed


# ---------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("window:width=0", r"window needs width >= 1, got 0\. Use width=1 for plain greedy"),
        ("window:candidates=0", r"window needs candidates >= 1, got 0\."),
        ("window:draft=guess", r"Unknown draft: got 'guess'\. Use one of auto, pad, recycled"),
        ("window:draft=pad/", r"Unknown draft: got '' in 'pad/'\."),
        ("window:draft=pad+ngram", r"Only scores are added, each once: got 'pad\+ngram'.*Write ngram\+lexicon"),
        ("window:draft=ngram+ngram", r"Only scores are added, each once"),
        ("window:draft=pool/pad", r"A pool proposes whole candidates: got 'pool/pad'.*Set it apart"),
        ("window:draft=auto|pad", r"Unknown draft: got 'auto'"),
        ("window:loaded=x", r"Unknown option of window: got 'loaded'"),
    ],
)
def test_wrong_settings(spec, message):
    with pytest.raises(ValueError, match=message):
        registry.decoder(spec)


@pytest.mark.parametrize("width", ["3", 2.5, True])
def test_a_width_that_is_no_whole_number(width):
    with pytest.raises(ValueError, match=rf"window: width must be a whole number, got {width!r}\. Example: width=3"):
        Window(width=width)


def test_a_table_that_is_not_there(marian, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ValueError, match=r"needs a draft table, got none for this model.*draft-table.*recycled"):
        translate(marian, TEXTS[0], source="en", target="de", decoder="window:draft=ngram")
    with pytest.raises(DraftTableError, match=r"none\.safetensors is not a readable safetensors file"):
        translate(marian, TEXTS[0], source="en", target="de", decoder=f"window:table={tmp_path / 'none.safetensors'}")
    with pytest.raises(DraftTableError, match=r"is not a readable safetensors file: It is a folder\. Check the path"):
        translate(marian, TEXTS[0], source="en", target="de", decoder=f"window:table={tmp_path}")


def test_a_table_of_another_vocabulary(marian, tmp_path):
    random = np.random.default_rng(0)
    sentences = [random.integers(0, 9, size=5) for _ in range(9)]
    path = tmp_path / "t.safetensors"
    sources.DraftTable.count(sentences, sentences, source_vocabulary=9, vocabulary=9, start=0).save(path)
    with pytest.raises(DraftTableError, match=r"another vocabulary: it knows 9 target tokens, the model has \d+"):
        translate(marian, TEXTS[0], source="en", target="de", decoder=f"window:table={path}")


def test_candidates_side_by_side_need_masks():
    case = random_case(1)

    class RowByRow:
        supports = frozenset()

        def __getattr__(self, name):
            return getattr(case.model, name)

    with pytest.raises(ValueError, match=r"'pad\|pool' verifies several candidates.*cannot.*single candidate"):
        decode(Window(3, "pad|pool"), case, RowByRow())
    assert [h.tokens for h in decode(Window(3, "recycled/pad"), case, RowByRow())] == [
        h.tokens for h in decode(Greedy(), case)
    ]


def test_a_table_of_another_direction_is_refused(marian, own_table, tmp_path):
    path = tmp_path / "named.safetensors"
    own_table.save(path)
    with pytest.raises(DraftTableError, match=r"made for en-de by the model .*got de-en.*have it found"):
        Session.of(marian, "de", "en", f"window:table={path}")
    carried = Session.of(marian, "en", "de", "window").decoder
    with pytest.raises(DraftTableError, match=r"made for en-de"):
        Session.of(marian, "de", "en", carried)


def test_a_table_that_nobody_reads_is_refused():
    with pytest.raises(ValueError, match=r"read by ngram and lexicon only: got draft='pad'.*Leave table out"):
        registry.decoder("window:draft=pad,table=x")


def test_the_window_fits_the_models_positions():
    """Constraints longer than the model: where greedy decoding ends in time, the window does."""
    from dataclasses import replace

    compared = 0
    for seed in range(150):
        case = random_case(seed)
        case = replace(case, constraints=replace(case.constraints, max_length=100, forced_end=False, exact_length=None))
        case = replace(case, source=case.source.row(0))
        try:
            (expected,) = decode(Greedy(), case)
        except ValueError:
            continue
        compared += 1
        assert decode(Window(9, "recycled/pad|pool"), case)[0].tokens == expected.tokens
    assert compared > 10


def test_a_loaded_model_can_be_copied():
    import copy

    import fastdecode_lib

    model = fastdecode_lib.load()
    again = copy.deepcopy(model)
    for one in (model, again):
        assert translate(one, TEXTS[0], source="en", target="de", decoder="window:width=4").text
    assert (
        translate(model, TEXTS[0], source="en", target="de").tokens
        == translate(again, TEXTS[0], source="en", target="de").tokens
    )

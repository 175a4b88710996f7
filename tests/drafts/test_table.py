"""Lexicons and draft tables: counting against plain Python, files, kernels against formulas written out."""

import math
from collections import Counter

import fakes
import numpy as np
import pytest

from fastdecode_lib import cli
from fastdecode_lib.drafts import scores as constants
from fastdecode_lib.drafts.finding import find_table, table_name
from fastdecode_lib.drafts.scores import Scores
from fastdecode_lib.drafts.table import DraftTable, DraftTableError, NGrams
from fastdecode_lib.kernels.drafts import align, best_chain
from fastdecode_lib.lexicon import Lexicon

START = 3


def random_sentences(random, number=30, vocabulary=9, longest=8):
    return [random.integers(0, vocabulary, size=int(random.integers(1, longest))) for _ in range(number)]


def plain_model_one(sources, targets, iterations, sharpness):
    """Expectation-maximisation as the textbook writes it, with dictionaries."""
    probability = {(s, t): 1.0 for f, e in zip(sources, targets, strict=True) for s in f for t in e}
    for _ in range(iterations):
        counts = Counter()
        for f, e in zip(sources, targets, strict=True):
            for j, t in enumerate(e):
                weights = [
                    probability[s, t] * math.exp(-sharpness * abs(j / len(e) - i / len(f))) for i, s in enumerate(f)
                ]
                for s, weight in zip(f, weights, strict=True):
                    counts[s, t] += weight / sum(weights)
        totals = Counter()
        for (s, _), count in counts.items():
            totals[s] += count
        probability = {(s, t): count / totals[s] for (s, t), count in counts.items()}
    return probability


@pytest.mark.parametrize("sharpness", [0.0, 8.0])
def test_lexicon_is_model_one(sharpness):
    random = np.random.default_rng(1)
    sources, targets = random_sentences(random), random_sentences(random)
    found = Lexicon.fit(sources, targets, source_vocabulary=9, vocabulary=9, iterations=4, sharpness=sharpness)
    expected = plain_model_one([s.tolist() for s in sources], [t.tolist() for t in targets], 4, sharpness)
    assert len(found.ids) == len(expected)
    for source, target, probability in zip(found.owners, found.ids, found.probabilities, strict=True):
        assert probability == pytest.approx(expected[source, target], rel=1e-4, abs=1e-7)
    for source in range(9):
        own = found.probabilities[found.offsets[source] : found.offsets[source + 1]]
        assert (np.diff(own) <= 0).all()
        assert own.sum() == pytest.approx(1, abs=1e-5)


def test_lexicon_finds_a_planted_dictionary():
    random = np.random.default_rng(2)
    dictionary = random.permutation(40)
    sources = [random.choice(40, size=6, replace=False) for _ in range(300)]
    targets = [random.permutation(dictionary[s]) for s in sources]
    found = Lexicon.fit(sources, targets, source_vocabulary=40, vocabulary=40, sharpness=0)
    assert (found.ids[found.offsets[:-1]] == dictionary).all()
    pruned = found.pruned(1)
    assert (pruned.ids == dictionary).all() and len(pruned.ids) == 40
    assert set(pruned.candidates(np.array([3, 7, 3]))) == {dictionary[3], dictionary[7]}


def test_lexicon_needs_pairs():
    with pytest.raises(ValueError, match=r"needs sentence pairs: got 0 .*Give one target"):
        Lexicon.fit([], [], source_vocabulary=3, vocabulary=3)


# ----------------------------------------------------------------------------------------------------------- n-grams


@pytest.mark.parametrize("least", [1, 2])
def test_ngrams_are_counts(least):
    random = np.random.default_rng(3)
    sentences = random_sentences(random, vocabulary=5)
    found = NGrams.count(sentences, vocabulary=5, start=START, least=least)
    unigrams, bigrams, trigrams, contexts, totals = Counter(), Counter(), Counter(), Counter(), Counter()
    for sentence in sentences:
        padded = [START, START, *sentence.tolist()]
        for i in range(2, len(padded)):
            a, b, c = padded[i - 2 : i + 1]
            unigrams[c] += 1
            bigrams[b, c] += 1
            trigrams[a, b, c] += 1
            contexts[a, b] += 1
            totals[b] += 1
    assert found.unigrams == pytest.approx([unigrams[i] / unigrams.total() for i in range(5)])
    assert found.bigram_totals.tolist() == [totals[i] for i in range(5)]
    seen = {}
    for b in range(5):
        for entry in range(found.bigram_offsets[b], found.bigram_offsets[b + 1]):
            seen[b, int(found.bigram_ids[entry])] = found.bigram_counts[entry]
    assert seen == {key: n for key, n in bigrams.items() if n >= least}
    seen = {}
    for b in range(5):
        of_b = found.contexts[found.context_offsets[b] : found.context_offsets[b + 1]]
        assert (np.diff(of_b) > 0).all()
        for context, a in zip(range(found.context_offsets[b], found.context_offsets[b + 1]), of_b, strict=True):
            assert found.trigram_totals[context] == contexts[int(a), b]
            for entry in range(found.trigram_offsets[context], found.trigram_offsets[context + 1]):
                seen[int(a), b, int(found.trigram_ids[entry])] = found.trigram_counts[entry]
    assert seen == {key: n for key, n in trigrams.items() if n >= least}


# ----------------------------------------------------------------------------------------------------------- kernels


def dense(table):
    """The table's parts as full arrays: lexicon (S, V), bigrams (V, V), trigrams (V, V, V)."""
    n, x, size = table.ngrams, table.lexicon, table.vocabulary
    lexicon, bigrams = np.zeros((x.source_vocabulary, size)), np.zeros((size, size))
    trigrams, totals = np.zeros((size, size, size)), np.zeros((size, size))
    lexicon[x.owners, x.ids] = x.probabilities
    for b in range(size):
        bigrams[b, n.bigram_ids[n.bigram_offsets[b] : n.bigram_offsets[b + 1]]] = n.bigram_counts[
            n.bigram_offsets[b] : n.bigram_offsets[b + 1]
        ]
        for context in range(n.context_offsets[b], n.context_offsets[b + 1]):
            a = n.contexts[context]
            totals[a, b] = n.trigram_totals[context]
            inside = slice(n.trigram_offsets[context], n.trigram_offsets[context + 1])
            trigrams[a, b, n.trigram_ids[inside]] = n.trigram_counts[inside]
    return lexicon, bigrams, trigrams, totals


@pytest.mark.parametrize("name", ["ngram", "lexicon", "ngram+lexicon"])
def test_best_token_is_the_argmax_of_the_sum(name):
    random = np.random.default_rng(4)
    compared = 0
    for _ in range(60):
        sources, targets = random_sentences(random), random_sentences(random)
        table = DraftTable.count(sources, targets, source_vocabulary=9, vocabulary=9, start=START, least=1)
        lexicon, bigrams, trigrams, totals = dense(table)
        source = random.integers(0, 9, size=5)
        scores = Scores(name, table, source, START)
        scores.ahead.aligned, scores.ahead.covered[0] = int(random.integers(-1, 5)), random.random(5) * 1.5
        a, b = (int(i) for i in random.integers(0, 9, size=2))
        near = np.exp(-abs(np.arange(5) - scores.ahead.aligned - 1) / constants.REACH)
        near *= 1 - constants.DISCOUNT * np.minimum(1, scores.ahead.covered[0])
        near[near < 1e-4] = 0
        translated = near @ lexicon[source]
        probability = (bigrams[b] + constants.BIGRAM_PRIOR * table.ngrams.unigrams) / (
            table.ngrams.bigram_totals[b] + constants.BIGRAM_PRIOR
        )
        probability = (trigrams[a, b] + constants.TRIGRAM_PRIOR * probability) / (
            totals[a, b] + constants.TRIGRAM_PRIOR
        )
        total, known = np.zeros(9), np.zeros(9, dtype=bool)
        if "ngram" in name:
            total += constants.NGRAM_WEIGHT * np.log(probability + 1e-12)
            known |= (bigrams[b] > 0) | (trigrams[a, b] > 0)
        if "lexicon" in name:
            total += constants.LEXICON_WEIGHT * np.log(translated + constants.FLOOR)
            known |= translated > 0
        chain = np.full(1, -1)
        count = best_chain(
            b, a, source, scores.ahead.covered, scores.ahead.aligned, scores.weights, *scores.outputs, 0.0,
            scores.scratch, scores.touched, *scores.arrays, chain,
        )  # fmt: skip
        (found,) = chain
        if not known.any():
            assert (count, found) == (0, -1)
            continue
        compared += 1
        total[~known] = -np.inf
        assert total[found] == pytest.approx(total.max(), abs=1e-5)
        assert found <= np.flatnonzero(total == total[found])[0], "the lowest id of equals"
        assert not scores.scratch.any(), "scratch must be left clean"
    assert compared > 40


@pytest.mark.parametrize("name", ["ngram", "lexicon", "ngram+lexicon"])
def test_a_chain_is_made_of_single_tokens(table, name):
    random = np.random.default_rng(11)
    lengths = set()
    for _ in range(60):
        source, output = random.integers(0, 9, size=6), random.integers(0, 9, size=int(random.integers(0, 5))).tolist()
        at_once, singly, before = (Scores(name, table, source, START) for _ in range(2)), [], output.copy()
        whole, single = at_once
        while len(singly) < 5 and (token := single.token(before, len(output))) >= 0:
            singly.append(token)
            before.append(token)
        assert whole.tokens(output, len(output), 5) == singly
        assert whole.tokens(output, len(output), 2) == singly[:2], "the chain before leaves nothing behind"
        lengths.add(len(singly))
    assert max(lengths) == 5


def test_equal_scores_give_the_lowest_id():
    lexicon = Lexicon.of_entries(np.array([0, 0]), np.array([4, 2]), np.array([0.5, 0.5]), 1, 6)
    empty = NGrams.count([np.array([5])], vocabulary=6, start=START, least=9)
    scores = Scores("lexicon", DraftTable(empty, lexicon), np.array([0]), START)
    assert scores.token([], 0) == 2


@pytest.mark.parametrize("translated", [(0.0, 0.0), (0.0, 1e-30), (1e-30, 0.0), (1e-30, 1e-30)])
def test_equal_counts_give_the_lowest_id_whatever_the_lexicon_notes_first(translated):
    """Probabilities of the lexicon that vanish beside its floor, one of them 0, which is scored without a logarithm."""
    lexicon = Lexicon.of_entries(np.array([0, 1]), np.array([4, 2]), np.array(translated), 2, 6)
    ngrams = NGrams.count([np.array([2]), np.array([4])], vocabulary=6, start=START, least=1)
    scores = Scores("ngram+lexicon", DraftTable(ngrams, lexicon), np.array([0, 1]), START)
    assert scores.token([], 0) == 2


def test_align_follows_the_lexicon():
    lexicon = Lexicon.of_entries(np.array([0, 1, 2]), np.array([3, 4, 5]), np.array([1.0, 1.0, 1.0]), 3, 6)
    covered, source = np.zeros((2, 3)), np.array([0, 1, 2])
    arrays = (lexicon.offsets, lexicon.ids, lexicon.probabilities)
    assert align(5, source, covered, -1, 1.2, *arrays) == 2
    assert covered[0].tolist() == [0, 0, 1]
    assert align(1, source, covered, 0, 1.2, *arrays) == 1, "a token that translates nothing moves on by one"
    assert align(1, source, covered, 2, 1.2, *arrays) == 2, "but not beyond the source"


# ------------------------------------------------------------------------------------------------------------- files


@pytest.fixture
def table():
    random = np.random.default_rng(5)
    sources, targets = random_sentences(random, 200), random_sentences(random, 200)
    about = {"fingerprint": "abc", "source": "en", "target": "de"}
    return DraftTable.count(sources, targets, source_vocabulary=9, vocabulary=9, start=START, least=1, about=about)


def test_table_survives_its_file(table, tmp_path):
    path = tmp_path / table_name("en", "de")
    table.save(path)
    again = DraftTable.load(path)
    assert again.about == table.about and again.about["sentences"] == 200
    for part in ("ngrams", "lexicon"):
        for name, values in vars(getattr(table, part)).items():
            found = getattr(getattr(again, part), name)
            if name.endswith(("ids", "offsets", "contexts")):
                assert (found == values).all(), name
            elif isinstance(values, np.ndarray):
                assert found == pytest.approx(np.maximum(values, 1e-9), rel=0.05), name
    before = path.read_bytes()
    again.save(path)
    assert path.read_bytes() == before


def test_find_table_wants_the_fingerprint(table, tmp_path):
    table.save(tmp_path / "a" / table_name("en", "de"))
    folders = (tmp_path / "missing", tmp_path / "a")
    assert find_table(folders, "abc", "en", "de") == tmp_path / "a" / "en-de.safetensors"
    assert find_table(folders, "other", "en", "de") is None
    assert find_table(folders, "abc", "de", "en") is None
    (tmp_path / "a" / table_name("de", "en")).write_bytes(b"no table")
    with pytest.warns(
        UserWarning, match=r"de-en.safetensors is no draft table, damaged, or cannot be read: decoding goes on"
    ):
        assert find_table(folders, "abc", "de", "en") is None


def test_damaged_tables_are_refused(table, tmp_path):
    from safetensors.numpy import load_file, save_file

    path = tmp_path / "t.safetensors"
    with pytest.raises(DraftTableError, match="is not a readable.*draft-table"):
        DraftTable.load(path)
    table.save(path)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(DraftTableError, match="is not a readable.*draft-table"):
        DraftTable.load(path)
    table.save(path)
    tensors = load_file(path)
    save_file(tensors, path)
    with pytest.raises(DraftTableError, match="Not a draft table"):
        DraftTable.load(path)
    meta = {"fastdecode-draft-table": '{"version": 1, "vocabulary": 9, "about": {}}'}
    for name, broken in [
        ("trigram.ids", tensors["trigram.ids"] + 9),
        ("bigram.numbers", tensors["bigram.numbers"][:-1]),
        ("unigram.codes", tensors["unigram.codes"][:-1]),
        ("context.total_codes", tensors["context.total_codes"][:-1]),
        *((name, values[:, None]) for name, values in tensors.items()),
    ]:
        save_file(tensors | {name: broken}, path, metadata=meta)
        with pytest.raises(DraftTableError, match="damaged"):
            DraftTable.load(path)
    save_file({k: v for k, v in tensors.items() if k != "lexicon.ids"}, path, metadata=meta)
    with pytest.raises(DraftTableError, match="damaged"):
        DraftTable.load(path)


def test_another_vocabulary_is_refused(table):
    with pytest.raises(
        DraftTableError, match=r"another vocabulary: it knows 9 target tokens, the model has 12.*draft-table"
    ):
        table.check_vocabulary(12)
    with pytest.raises(
        DraftTableError, match=r"another vocabulary: it knows 9 source tokens, got the id 11.*draft-table"
    ):
        Scores("lexicon", table, np.array([1, 11]), START)


# -------------------------------------------------------------------------------------------------------------- vmap


def test_vmap_survives_its_file(table, tmp_path):
    pieces = [f"▁t{i}" for i in range(9)]
    sources = [f"s{i}" for i in range(9)]
    path = tmp_path / "vmap.txt"
    table.lexicon.to_vmap(path, sources, pieces, always=(0, 4))
    assert path.read_text(encoding="utf-8").startswith("\t▁t0 ▁t4\n")
    again, always = Lexicon.from_vmap(path, sources, pieces)
    assert always == (0, 4)
    assert (again.ids == table.lexicon.ids).all() and (again.offsets == table.lexicon.offsets).all()
    assert again.source_vocabulary == 9 and again.vocabulary == 9


def test_vmap_of_several_source_tokens(tmp_path):
    path = tmp_path / "vmap.txt"
    path.write_text("a\tx y\na b\tz\n\n", encoding="utf-8")
    found, always = Lexicon.from_vmap(path, ["a", "b"], ["x", "y", "z"])
    assert always == () and found.candidates(np.array([0])).tolist() == [0, 1]
    assert found.candidates(np.array([1])).tolist() == [2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a x y\n", r"line 1: a vmap line is .*got 'a x y'.*Correct"),
        ("a\tx\nb\tq\n", r"line 2: .*lacks 'q'.*made for this"),
        ("\xe4\tx\n", r"vmap.txt is not UTF-8: .* at byte 0. Save it as UTF-8"),
    ],
)
def test_wrong_vmap(tmp_path, text, message):
    path = tmp_path / "vmap.txt"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=message):
        Lexicon.from_vmap(path, ["a", "b"], ["x", "y", "z"])


# ------------------------------------------------------------------------------- what must never reach a kernel


def test_ids_outside_the_table_are_no_drafts(table):
    scores = Scores("ngram+lexicon", table, np.array([1, 2]), START)
    assert scores.token([50_000_000], 1) == -1 and scores.token([-3], 1) == -1
    assert Scores("ngram", table, np.array([1]), 50_000_000).token([], 0) == -1
    with pytest.raises(DraftTableError, match="another vocabulary: it knows 9 source tokens, got the id -1"):
        Scores("lexicon", table, np.array([1, -1]), START)


def test_offsets_that_go_back_are_refused(table, tmp_path):
    from safetensors.numpy import load_file, save_file

    path = tmp_path / "t.safetensors"
    table.save(path)
    tensors = load_file(path)
    numbers = tensors["bigram.numbers"].astype(np.int64)
    numbers[2], numbers[3] = numbers[2] + 600_000_000, numbers[3] - 600_000_000
    meta = {"fastdecode-draft-table": '{"version": 1, "vocabulary": 9, "about": {}}'}
    save_file(tensors | {"bigram.numbers": numbers}, path, metadata=meta)
    with pytest.raises(DraftTableError, match="damaged"):
        DraftTable.load(path)


def test_parts_must_fit_each_other(table):
    other = NGrams.count([np.array([1, 2])], vocabulary=5, start=START)
    with pytest.raises(DraftTableError, match="do not fit each other: got unigrams.*9 target tokens.*DraftTable.count"):
        DraftTable(other, table.lexicon)


def test_ids_outside_the_vocabulary_are_not_counted():
    with pytest.raises(ValueError, match=r"Unknown id among the target tokens: got 15.*from 0 to 12"):
        Lexicon.fit([np.array([3, 4])], [np.array([2, 15])], source_vocabulary=13, vocabulary=13)
    with pytest.raises(ValueError, match=r"Unknown id among the target tokens: got 20"):
        NGrams.count([np.array([2])], vocabulary=13, start=20)
    with pytest.raises(ValueError, match=r"got no token"):
        NGrams.count([np.array([], dtype=int)], vocabulary=13, start=1)


def test_a_table_behind_another_source_reads_what_is_there(table):
    """Asked late, or about another candidate, a table answers as a fresh one does."""
    random = np.random.default_rng(7)
    source = random.integers(0, 9, size=6)
    scores = Scores("ngram+lexicon", table, source, START)
    output: list[int] = []
    for _ in range(40):
        settled = len(output)
        for _ in range(3):
            ahead = random.integers(0, 9, size=int(random.integers(0, 4))).tolist()
            fresh = Scores("ngram+lexicon", table, source, START)
            assert scores.token(output + ahead, settled) == fresh.token(output + ahead, settled)
        output += random.integers(0, 9, size=int(random.integers(1, 3))).tolist()


def test_a_foreign_file_is_not_found(table, tmp_path):
    from safetensors.numpy import save_file

    path = tmp_path / table_name("en", "de")
    save_file({"a": np.zeros(1)}, path, metadata={"fastdecode-draft-table": '{"version": 1, "about": "x"}'})
    assert find_table((tmp_path,), "abc", "en", "de") is None


def test_command(marian_folder, capsys, tmp_path):
    texts = sorted(fakes.own_sentences()["en"], key=len)[:3]
    source = tmp_path / "source.txt"
    source.write_text("\n".join(texts), encoding="utf-8")
    model = ("--model", str(marian_folder), "--from", "en", "--to", "de", "--max-length", "8", "--least", "1")
    out, work = tmp_path / "out", tmp_path / "work"
    arguments = ["draft-table", *model, "--source", str(source), "--out", str(out), "--folder", str(work)]
    assert cli.main([*arguments, "--vmap", str(tmp_path / "vmap.txt"), "--json", str(tmp_path / "t.json")]) == 0
    output, announced = capsys.readouterr()
    assert "3 translations" in output and announced.startswith("fastdecode: translations of 3 sentences; ")
    assert (out / "en-de.safetensors").is_file() and (tmp_path / "vmap.txt").is_file()
    spec = f"window:width=4,table={out / 'en-de.safetensors'}"
    assert cli.main(["translate", *model[:-2], "--decoder", spec, texts[0]]) == 0
    windowed = capsys.readouterr().out
    assert cli.main(["translate", *model[:-2], texts[0]]) == 0
    assert capsys.readouterr().out == windowed
    assert cli.main(["draft-table", *model, "--source", str(tmp_path / "none")]) == 2
    assert cli.main(["draft-table", *model, "--source", str(source), "--sentences", "0"]) == 2

"""From a model to recorded contexts, to fitted screens, to translations: by function and by command, on our own sentences."""

import contextlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import fakes
import numpy as np
import pytest

from fastdecode_lib import cli, load, registry, translate
from fastdecode_lib.contexts.feeding import Translations
from fastdecode_lib.contexts.fitting import Precision, fit_screens, groups, screens_to_keep
from fastdecode_lib.contexts.recording import record
from fastdecode_lib.contexts.shards import Contexts
from fastdecode_lib.language_model import load_language
from fastdecode_lib.loading import TranslationModel
from fastdecode_lib.measuring.quality import same_share
from fastdecode_lib.projections.active_sets import ActiveSets
from fastdecode_lib.projections.exact_compiled import output_matrix
from fastdecode_lib.projections.learning_to_screen import Learning, Reading
from fastdecode_lib.projections.screen_compiled import ScreenScorer
from fastdecode_lib.projections.screens import Screen, ScreenProjection, load_screens, save_screens
from fastdecode_lib.runners import runner
from fastdecode_lib.translation import Session

TEXTS = fakes.own_sentences()
LEARNING = Learning(clusters=6, rounds=2, batch=64)


@pytest.fixture(scope="module")
def model() -> TranslationModel:
    return load("tatoeba-small", device="cpu", engine="compiled")


@pytest.fixture(scope="module")
def contexts(model: TranslationModel, tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    inputs = {"en-de": TEXTS["en"][:30], "fr-de": [], "de-en": TEXTS["de"][:20], "en-fr": TEXTS["en"][20:40]}
    return record(
        Translations(model),
        {direction: texts for direction, texts in inputs.items() if texts},
        tmp_path_factory.mktemp("recorded") / "contexts",
    )


@pytest.fixture(scope="module")
def screens(contexts: Contexts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fitted")
    save_screens(fit_screens(contexts, "clustered", clusters=12, always=(0,)), folder / "clustered")
    save_screens(fit_screens(contexts, "screened", budget=60, learning=LEARNING, always=(0,)), folder / "screened")
    return folder


def test_a_screen_for_each_direction_target_or_all(contexts: Contexts) -> None:
    assert groups(contexts.directions, "direction") == {name: [name] for name in ("en-de", "de-en", "en-fr")}
    assert groups(("en-de", "fr-de", "de-en"), "target") == {"de": ["en-de", "fr-de"], "en": ["de-en"]}
    everything = fit_screens(contexts, "clustered", per="all", clusters=5)
    assert list(everything) == ["all"] and everything["all"].about["contexts"] == len(contexts)
    single = fit_screens(contexts, "clustered", clusters=5)
    assert sum(screen.about["contexts"] for screen in single.values()) == len(contexts)
    assert all(screen.about["fingerprint"] == contexts.fingerprint for screen in single.values())
    with pytest.raises(ValueError, match="Unknown kind of screen: got 'other'"):
        fit_screens(contexts, "other")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Unknown grouping: got per='language'"):
        fit_screens(contexts, "clustered", per="language")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["clustered", "screened"])
def test_what_was_recorded_is_said_again(name: str, model: TranslationModel, screens: Path) -> None:
    """Every token that greedy decoding chose is active where it chose it, so that outputs are the same."""
    for source, target, texts in (("en", "de", TEXTS["en"][:8]), ("de", "en", TEXTS["de"][:8])):
        exact = translate(model, texts, source=source, target=target)
        spec = f"{name}:file={screens / name}"
        found = translate(model, texts, source=source, target=target, projection=spec)
        if name == "clustered":
            assert [a.tokens for a in found] == [b.tokens for b in exact]
        trace = found[0].trace
        assert trace.settings["projection"] == spec
        for iteration in trace.iterations:
            assert iteration.cluster is not None and iteration.num_active is not None
            for cluster, active in zip(iteration.cluster, iteration.num_active, strict=True):
                known = trace.clusters[int(cluster)]
                assert known["size"] == active and len(known["tokens"]) == min(64, active)
                assert all(token in trace.pieces for token in known["tokens"])
        assert json.loads(trace.to_json())["clusters"]


@pytest.mark.parametrize(
    "decoder", ["jacobi", "gauss_seidel:block=3", "hybrid:block=4", "window:width=4", "beam:size=1"]
)
@pytest.mark.parametrize("name", ["clustered", "screened", "clustered:precision=int8", "quantised"])
def test_parallel_decoders_equal_greedy_under_the_same_projection(
    decoder: str, name: str, model: TranslationModel, screens: Path
) -> None:
    """By law, bit for bit: each row has the set of its own cluster, whatever stands beside it in the pass."""
    kind = name.split(":")[0]
    spec = (
        name if kind == "quantised" else f"{kind}:file={screens / kind}" + (",precision=int8" if "int8" in name else "")
    )
    texts = [*TEXTS["en"][:4], *TEXTS["en"][60:66]]
    greedy, other = (
        Session.of(model, "en", "de", d, spec, max_length=40).decode(texts, threads=1) for d in ("greedy", decoder)
    )
    assert [a.tokens for a in other] == [b.tokens for b in greedy]
    if kind == "quantised":
        exact = Session.of(model, "en", "de", "greedy", max_length=40).decode(texts, threads=1)
        assert [a.tokens for a in exact] == [b.tokens for b in greedy]


@pytest.mark.parametrize(
    "spec",
    [
        "svd:window=64,full=300", "fgd:neighbours=40", "greedy_mips:budget=800", "pca_mips:depth=1", "lsh_mips:bits=4",
        "row_clusters:clusters=16,probes=16",
    ],
)  # fmt: skip
def test_baselines_go_by_name_with_their_knobs(spec: str, model: TranslationModel) -> None:
    """Candidates are found by scores alone: a window of drafts equals greedy under each of them, as under any projection."""
    texts = TEXTS["en"][:3]
    greedy, window = (
        Session.of(model, "en", "de", decoder, spec, max_length=12).decode(texts, threads=1)
        for decoder in ("greedy", "window:width=4")
    )
    assert [a.tokens for a in window] == [b.tokens for b in greedy]
    if spec.startswith("row_clusters"):  # all of them are looked at
        exact = Session.of(model, "en", "de", max_length=12).decode(texts, threads=1)
        assert [a.tokens for a in exact] == [b.tokens for b in greedy]


@pytest.mark.parametrize("name", ["svd", "fgd", "greedy_mips", "pca_mips", "lsh_mips", "row_clusters"])
def test_baselines_keep_most_outputs_of_the_bundled_model_as_they_come(name: str, model: TranslationModel) -> None:
    texts = TEXTS["en"][:40]
    exact, listed = (Session.of(model, "en", "de", "greedy", spec).decode(texts) for spec in ("exact", name))
    assert same_share([h.tokens for h in listed], [h.tokens for h in exact]) >= 0.7


@pytest.mark.parametrize("decoder", ["jacobi", "window:width=4"])
def test_models_in_float64_have_screens_too(decoder: str, screens: Path) -> None:
    precise = load("tatoeba-small", device="cpu", dtype="float64")
    spec = f"clustered:file={screens / 'clustered'}"
    greedy, other = (
        Session.of(precise, "en", "de", d, spec, max_length=14).decode(TEXTS["en"][:3]) for d in ("greedy", decoder)
    )
    assert [a.tokens for a in other] == [b.tokens for b in greedy]
    exact = Session.of(precise, "en", "de", max_length=14).decode(TEXTS["en"][:3])
    assert [a.tokens for a in exact] == [b.tokens for b in greedy]
    with pytest.raises(ValueError, match="precision belongs to float32 on the CPU"):
        Session.of(precise, "en", "de", "greedy", f"{spec},precision=int8")


def test_shared_sets_are_reached_by_their_option(model: TranslationModel, screens: Path) -> None:
    session = Session.of(model, "en", "de", projection=f"clustered:file={screens / 'clustered'},shared=true")
    projection: Any = session.projection
    assert isinstance(projection, ScreenScorer) and projection.shared
    assert len(session.decode(TEXTS["en"][:5])) == 5


def test_commands_from_text_to_translation(tmp_path: Path, capsys: pytest.CaptureFixture[str], model: Any) -> None:
    source, reference = tmp_path / "source.txt", tmp_path / "reference.txt"
    source.write_text("\n".join(TEXTS["en"][:12]) + "\n", encoding="utf-8")
    reference.write_text("\n".join(TEXTS["de"][:12]) + "\n", encoding="utf-8")
    said, fed = str(tmp_path / "said"), str(tmp_path / "fed")
    arguments = ["record", "--from", "en", "--to", "de", "--source", str(source)]
    assert cli.main([*arguments, "--out", said]) == 0
    assert cli.main([*arguments, "--reference", str(reference), "--out", fed, "--top", "2", "--float16"]) == 0
    assert "contexts in" in capsys.readouterr().out
    assert Contexts.open(said).top == 5 and Contexts.open(fed).top == 2
    for method, more in (("clustered", ["--clusters", "8"]), ("screened", ["--clusters", "5", "--budget", "40"])):
        out = str(tmp_path / method)
        assert cli.main(["fit", method, "--contexts", said, "--out", out, *more]) == 0
        assert "en-de: " in capsys.readouterr().out
        text = TEXTS["en"][0]
        assert cli.main(["translate", "--from", "en", "--to", "de", "--projection", f"{method}:file={out}", text]) == 0
        found = capsys.readouterr().out.strip()
        assert found == translate(model, text, source="en", target="de").text or method == "screened"
        end = model.constraints().end[0]
        assert all(end in screen.sets[c] for screen in load_screens(out).values() for c in range(len(screen.sets)))
    for wrong, message in (
        (
            ["fit", "clustered", "--contexts", said, "--clusters", "8", "--least-count", "0", "--out", f"{said}-none"],
            "least_count must be at least 1, got 0. 1 is the paper's.",
        ),
        (
            ["fit", "clustered", "--contexts", said, "--always", "x", "--out", said],
            "--always takes end, none or ids: got 'x'",
        ),
        (
            ["fit", "clustered", "--contexts", said, "--clusters", "8", "--out", said],
            "would be replaced as a whole, and holds something else",
        ),
        (
            ["fit", "screened", "--contexts", fed, "--out", str(tmp_path / "none")],
            "needs the 5 best tokens of each context: got contexts with 2",
        ),
        (
            ["fit", "clustered", "--contexts", str(tmp_path), "--out", str(tmp_path / "none")],
            "no recorded contexts|cannot be read|There are no",
        ),
        (
            ["fit", "clustered", "--contexts", said, "--clusters", "9999", "--out", str(tmp_path / "none")],
            "at least as many vectors as clusters",
        ),
        (
            ["fit", "clustered", "--contexts", said, "--clusters", "8"],
            "comes with fastdecode, and what is beside it stays",
        ),
        (
            ["fit", "clustered", "--contexts", said, "--clusters", "8", "--out", str(tmp_path / "screened")],
            "has screens of another kind or model",
        ),
        (["fit", "clustered", "--contexts", said, "--model", "sharp-s4"], "are of another model"),
        (["record", "--directions", "en", "--out", fed], "--directions are pairs as in en-de,de-en: got 'en'"),
        (
            ["record", "--verify", "--out", str(tmp_path / "none")],
            "--verify checks a recording: got --out",
        ),
        (["record", "--directions", "en-de,", "--out", fed], "--directions are pairs as in en-de,de-en: got ''"),
        (
            [*arguments, "--reference", str(reference), "--decoder", "greedy", "--out", fed],
            "nothing is decoded: got --decoder or --max-length",
        ),
    ):
        assert cli.main(wrong) == 2
        error = capsys.readouterr().err
        assert any(part in error for part in message.split("|")), error


def test_every_knob_of_either_method_goes_by_option(contexts: Contexts, tmp_path: Path) -> None:
    """The command's screens are the function's with the same knobs, and other knobs make other screens."""
    recorded = str(contexts.folder)

    def fitted(method: str, *more: str) -> dict[str, Screen]:
        out = str(tmp_path / method)
        assert cli.main(["fit", method, "--contexts", recorded, "--out", out, "--always", "none", *more]) == 0
        return load_screens(out)

    def kept(screens: dict[str, Screen]) -> dict[str, tuple[Any, ...]]:
        return {
            name: (screen.points.tolist(), screen.sets.offsets.tolist(), screen.sets.ids.tolist())
            for name, screen in screens.items()
        }

    plain, cut = (fitted("clustered", "--clusters", "8", *more) for more in ((), ("--least-count", "2")))
    assert kept(cut) == kept(fit_screens(contexts, "clustered", clusters=8, least_count=2))
    for name, screen in cut.items():
        assert screen.about["least_count"] == 2 and plain[name].about["least_count"] == 1
        assert len(screen.sets.ids) < len(plain[name].sets.ids)
    few = ("--clusters", "5", "--budget", "40", "--rounds", "2")
    literal, linear, skipping = (
        fitted("screened", *few, *more) for more in ((), ("--reading", "linear"), ("--reading", "literal", "--skip"))
    )
    for found, reading, skip in ((literal, "literal", False), (linear, "linear", False), (skipping, "literal", True)):
        learning = Learning(clusters=5, rounds=2, reading=reading, skip=skip)  # type: ignore[arg-type]
        assert kept(found) == kept(fit_screens(contexts, "screened", budget=40, learning=learning))
        assert all((screen.about["reading"], screen.about["skip"]) == (reading, skip) for screen in found.values())
    assert kept(linear) != kept(literal) != kept(skipping)


def test_any_keyword_of_a_fit_is_set(
    contexts: Contexts, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fitted(method: str, *more: str) -> dict[str, Screen]:
        told = ["fit", method, "--contexts", str(contexts.folder), "--out", str(tmp_path / method), "--always", "none"]
        assert cli.main([*told, *more]) == 0, capsys.readouterr().err
        return load_screens(tmp_path / method)

    for screen in fitted("clustered", "--clusters", "8", "--set", "iterations=1,top=2").values():
        assert [screen.about[name] for name in ("clusters", "iterations", "top")] == [8, 1, 2]
    for screen in fitted("screened", "--set", "clusters=5,rate=3.5,reading=linear", "--rounds", "1").values():
        assert [screen.about[name] for name in ("clusters", "rate", "reading", "rounds")] == [5, 3.5, "linear", 1]

    class Whole(ScreenProjection):
        """Says nothing of how it was made."""

        name = "whole"

        @staticmethod
        def fit(contexts: Contexts, *, kept: bool = False) -> Screen:
            tokens = np.arange(contexts.vocabulary if kept else 9)
            return Screen(
                "whole", np.zeros((1, contexts.width), np.float32), ActiveSets.of([tokens], contexts.vocabulary)
            )

    monkeypatch.setitem(registry.PROJECTIONS, "whole", Whole)
    capsys.readouterr()
    screens = fitted("whole", "--set", "kept=true")
    said, vocabulary = capsys.readouterr().out, contexts.vocabulary
    assert f"1 clusters; a context scores {vocabulary:,.1f} tokens on average, 100.0% of the vocabulary" in said
    for name, screen in screens.items():
        number = len(contexts.where(direction=name))
        assert screen.about == {"fingerprint": contexts.fingerprint, "contexts": number, "scored": vocabulary}
    monkeypatch.setitem(registry.PROJECTIONS, "part", type("Part", (Whole,), {"name": "part"}))
    with pytest.raises(ValueError, match=r"got 'whole' from the fit of part. Write Screen\('part', ...\)"):
        fit_screens(contexts, "part")
    for method, wrong, message in (
        ("clustered", "kept=true", "`fastdecode fit clustered` has no option 'kept'. Use one of "),
        ("clustered", "iteration=3", "has no option 'iteration'. Did you mean 'iterations'?"),
        ("clustered", "seed=3", "--set is for keywords without an option of their own: got seed=3. Use --seed."),
        ("clustered", "iterations=x", "clustered: iterations must be a whole number, got 'x'. Example: 3."),
        ("screened", "reading=none", "screened: reading: got 'none'. Use one of literal, linear."),
        ("screened", "points=3", "screened: points cannot be typed: got '3' for "),
        ("screened", "points", "An option is written key=value: got 'points'"),
    ):
        told = ["fit", method, "--contexts", str(contexts.folder), "--out", str(tmp_path / "none"), "--set", wrong]
        assert cli.main(told) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("method", ["clustered", "screened"])
@pytest.mark.parametrize(
    ("option", "owner"),
    [
        (("--least-count", "2"), "clustered"),
        (("--budget", "3"), "screened"),
        (("--rounds", "3"), "screened"),
        (("--reading", "linear"), "screened"),
        (("--skip",), "screened"),
    ],
)
def test_an_option_of_the_other_method_is_refused_before_anything_is_read(
    option: tuple[str, ...], owner: str, method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["fit", method, "--contexts", str(tmp_path), "--out", str(tmp_path / "none"), *option]) == 2
    error = capsys.readouterr().err
    name = option[0].removeprefix("--").replace("-", "_")
    refused = f"`fastdecode fit {method}` has no option {name!r}. "
    assert (refused in error) == (method != owner), error


@pytest.mark.parametrize("reading", ["literal", "linear", "other"])
def test_readings_of_the_loss_are_named_as_in_learning(
    reading: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = reading in get_args(Reading)
    arguments = ["fit", "screened", "--contexts", str(tmp_path), "--out", str(tmp_path / "none"), "--reading", reading]
    with contextlib.suppress(SystemExit):
        assert cli.main(arguments) == 2
    assert ("invalid choice" in capsys.readouterr().err) == (not known)


def test_fitting_one_direction_keeps_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], marian_folder: Path
) -> None:
    """Beside a model of one's own, by default; what a fit says of itself is what its contexts score."""
    mine = tmp_path / "mine"
    shutil.copytree(marian_folder, mine)
    (tmp_path / "text").write_text("\n".join(TEXTS["en"][:12]), encoding="utf-8")
    known = load(str(mine), device="cpu").directions
    for source, target in known[:2]:
        out = str(tmp_path / f"{source}-{target}")
        told = ["--model", str(mine)]
        recorded = [
            "--from",
            source,
            "--to",
            target,
            "--source",
            str(tmp_path / "text"),
            "--out",
            out,
            "--max-length",
            "9",
        ]
        assert cli.main(["record", *told, *recorded]) == 0
        capsys.readouterr()
        assert cli.main(["fit", "clustered", *told, "--contexts", out, "--clusters", "3"]) == 0
        said = capsys.readouterr().out
    first, second = ("-".join(pair) for pair in known[:2])
    assert f"kept as they were: {first}" in said and "use it: --projection clustered" in said
    found = load_screens(mine / "projections" / "clustered")
    assert set(found) == {first, second}
    screen, contexts = found[second], Contexts.open(tmp_path / second)
    hidden = np.concatenate([block.hidden for block in contexts.blocks()])
    assert screen.about["scored"] == pytest.approx(screen.sets.sizes[screen.assign(hidden)].mean())


def test_what_is_fitted_anew_takes_the_place_of_what_it_covers(screens: Path, model: TranslationModel) -> None:
    fingerprint, folder = model.checkpoint.fingerprint, screens / "clustered"
    for names, kept in (
        (["en-de"], {"de-en", "en-fr"}),
        (["de"], {"de-en", "en-fr"}),
        (["en", "fr"], {"en-de"}),
        (["all"], set()),
        (["es-en"], {"en-de", "de-en", "en-fr"}),
    ):
        assert set(screens_to_keep(folder, "clustered", fingerprint, names)) == kept
    with pytest.raises(ValueError, match="has screens of another kind or model"):
        screens_to_keep(folder, "screened", fingerprint, ["en-de"])
    assert screens_to_keep(screens / "none", "clustered", fingerprint, ["en-de"]) == {}


def test_bad_input(model: TranslationModel, screens: Path, tmp_path: Path, marian_folder: Path) -> None:
    def session(spec: str, other: Any = model, pair: tuple[str, str] = ("en", "de")) -> Any:
        return Session.of(other, *pair, projection=spec)

    marian = load(str(marian_folder), device="cpu", engine="compiled")
    kept = f"file={screens / 'clustered'}"
    for spec, message in (
        (f"clustered:{kept},sharde=true", "Unknown option of clustered: got 'sharde'. Did you mean 'shared'"),
        (f"clustered:{kept},shared=yes", "clustered: shared must be true or false, got 'yes'"),
        (f"clustered:{kept},precision=int4", "clustered: precision: got 'int4'. Did you mean 'int"),
        (f"screened:{kept}", "are clustered, not screened. Use clustered:file="),
        (f"clustered:file={tmp_path / 'none'}", "is not a folder that `fastdecode fit` wrote"),
        ("quantised:k=1", "The projection quantised has no options"),
        ("svd:windw=3", "Unknown option of svd: got 'windw'. Did you mean 'window'"),
        ("svd:window=x", "svd: window must be a whole number, got 'x'"),
        ("adaptive", "The projection adaptive needs the folder that it was saved in"),
    ):
        with pytest.raises(ValueError, match=message):
            session(spec)
    with pytest.raises(ValueError, match=r"There are no screens for screened in .*projections/screened. Fit them"):
        session("screened", marian)
    with pytest.raises(ValueError, match="are of other directions: got en-es, there are en-de, de-en, en-fr"):
        session(f"clustered:{kept}", pair=("en", "es"))
    with pytest.raises(ValueError, match="fitted on contexts of another model: its fingerprint is"):
        Session.of(marian, "en", "de", projection=f"clustered:{kept}")
    screen = load_screens(screens / "clustered")["en-de"]
    another = replace(screen, about=screen.about | {"fingerprint": "0123"})
    for made in (screen, another):
        scorer = ScreenScorer(made, output_matrix(model.network))
        if made is screen:
            assert Session.of(model, "en", "de", projection=scorer).projection is scorer
        else:
            with pytest.raises(
                ValueError, match=r"projection clustered was fitted on .* another model: .* is 0123, got"
            ):
                Session.of(model, "en", "de", projection=scorer)
    copied = tmp_path / "copied"
    shutil.copytree(screens / "clustered", copied)
    (copied / "en-de.safetensors").unlink()
    with pytest.raises(ValueError, match="en-de.safetensors is not a readable safetensors file: No such file"):
        session(f"clustered:file={copied}")
    with pytest.raises(ValueError, match="needs a folder of screens: got none"):
        registry.projection("clustered", model.network)
    assert isinstance(load_screens(screens / "clustered")["en-de"], Screen)


@pytest.mark.parametrize("method", ["clustered", "screened"])
def test_what_cannot_be_fitted_is_refused_before_any_work(
    method: Any, contexts: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    knobs: dict[str, Any] = {"clusters": 3} if method == "clustered" else {"budget": 60, "learning": LEARNING}
    for module in ("clustering", "learning_to_screen"):
        monkeypatch.setattr(f"fastdecode_lib.projections.{module}.kmeans", lambda *_, **__: pytest.fail("it has begun"))
    with pytest.raises(ValueError, match=r"no contexts to fit de-en, en-fr on: got [0-9,]+, of en-de\. Record more"):
        fit_screens(contexts.where(direction=["en-de"]), method, **knobs)
    with pytest.raises(ValueError, match="tokens that are always active"):
        fit_screens(contexts, method, always=(0, 99_999), **knobs)
    with pytest.raises(ValueError, match="at_least must be from 0 to the vocabulary's"):
        fit_screens(contexts, method, at_least=99_999, **knobs)


@pytest.mark.parametrize(
    "direction", [("en", "de"), ("de", "en"), ("en", "fr"), ("fr", "en"), ("en", "es"), ("es", "en")]
)
def test_the_bundled_model_brings_screens(direction: tuple[str, str], model: TranslationModel) -> None:
    """A parallel decoder's outputs are greedy decoding's under the same sets, and many those of the full projection.

    Our own sentences are harder than those the screens were fitted on, of which 19 in 20 are the same.
    """
    source, target = direction
    texts = TEXTS[source][::8]
    exact, clustered = (
        [found.text for found in translate(model, texts, source=source, target=target, projection=projection)]
        for projection in ("exact", "clustered")
    )
    windows = translate(model, texts, source=source, target=target, projection="clustered", decoder="window:width=5")
    assert [found.text for found in windows] == clustered
    assert np.mean([a == b for a, b in zip(exact, clustered, strict=True)]) > 0.25
    assert "clustered" in runner(model).choices()["projection"]


@pytest.mark.parametrize("token", [-1, 10, 25])
def test_tokens_that_are_always_active_are_of_the_vocabulary(token: int) -> None:
    sets = ActiveSets.of([[1, 2], [3], []], 10)
    with pytest.raises(ValueError, match="tokens that are always active"):
        sets.with_always([token])


def test_a_language_model_is_recorded_and_fitted_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").write_text("\n".join(TEXTS["en"][:40]), encoding="utf-8")
    told = ["--model", "novels-small"]
    assert cli.main(["record", *told, "--source", str(tmp_path / "text"), "--out", str(tmp_path / "contexts")]) == 0
    fit = ["fit", "screened", *told, "--contexts", str(tmp_path / "contexts"), "--out", str(tmp_path / "screens")]
    assert cli.main([*fit, "--clusters", "4", "--budget", "50", "--rounds", "1"]) == 0
    screen = load_screens(tmp_path / "screens")["text"]
    language = load_language("novels-small")
    assert len(screen.sets) == 4 and screen.about["fingerprint"] == language.checkpoint.fingerprint
    exact, lossless, screened = (
        language.log_probs(TEXTS["en"][:3], spec)
        for spec in ("exact", "quantised", f"screened:file={tmp_path / 'screens'}")
    )
    assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(exact, lossless, strict=True))
    known = [np.isfinite(c) for c in screened]
    assert sum(map(np.sum, known)) > 0 and all(
        (c[k] >= a[k]).all() for a, c, k in zip(exact, screened, known, strict=True)
    )
    same = language.perplexity(TEXTS["en"][:3])
    assert language.perplexity(TEXTS["en"][:3], "quantised") == pytest.approx(same, rel=1e-5)
    for nothing in ([], "a text"):
        with pytest.raises(ValueError, match="A language model scores a list of texts"):
            language.perplexity(nothing)
    with pytest.raises(ValueError, match="fitted on contexts of another model"):
        Session.of(load("tatoeba-small", device="cpu"), "en", "de", projection=f"screened:file={tmp_path / 'screens'}")
    record = ["record", *told, "--source", str(tmp_path / "text")]
    for wrong, message in (
        (["--from", "en"], "has no languages to choose: got --from or --to"),
        (
            ["--precision", "int8"],
            "runs on torch alone, in float32: got --engine auto --precision int8. Leave them out",
        ),
        (["--device", "tpu"], "Unsupported device|Unknown device"),
        (["--dtype", "float33"], "Unknown dtype: got 'float33'"),
    ):
        assert cli.main([*record, *wrong]) == 2
        assert re.search(message, capsys.readouterr().err)
    assert cli.main(["record", *told, "--out", str(tmp_path / "none")]) == 2
    assert "is a language model, which reads one text: give --source FILE alone" in capsys.readouterr().err
    assert cli.main([*fit[:3], "tatoeba-small", *fit[4:]]) == 2
    assert "another model" in capsys.readouterr().err


def test_precision_counts_labels_in_sets(contexts: Contexts) -> None:
    screen = fit_screens(contexts, "clustered", per="all", clusters=8, top=2, always=())["all"]
    found, block = Precision.of(screen, contexts), next(contexts.blocks(len(contexts)))
    inside = [
        [label in screen.sets[cluster] for label in labels]
        for cluster, labels in zip(screen.assign(block.hidden), block.labels, strict=True)
    ]
    assert found.p_at_1 == 1, "the best tokens of what it was fitted on"
    assert found.p_at_5 == pytest.approx(np.mean(inside)) and found.p_at_5 < 1
    assert (found.contexts, found.scored) == (len(contexts), pytest.approx(screen.about["scored"]))


def test_fit_measures_on_what_it_holds_out(
    contexts: Contexts, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = ["fit", "clustered", "--contexts", str(contexts.folder), "--out", str(tmp_path), "--clusters", "8"]
    assert cli.main(told) == 0
    assert "fewer than 5,000 contexts: none were held out" in capsys.readouterr().out
    monkeypatch.setattr("fastdecode_lib.contexts.fitting.MEASURABLE", 10)
    assert cli.main([*told, "--hold-out", "0.3"]) == 0
    said = capsys.readouterr().out
    name, screen = next(iter(load_screens(tmp_path).items()))
    _, held_out = contexts.split(0.3, 0)
    own = held_out.where(direction=name)
    found = Precision.of(screen, own)
    assert f"on {len(own):,} held-out contexts: the best token is in the set of {found.p_at_1:.2%}" in said
    assert found.p_at_1 < 0.98 and "Low: many outputs will change. More contexts help" in said
    assert screen.about["contexts"] == len(contexts.where(direction=name)) - len(own)

"""The registry: a projection needs one class and one registration, and is then everywhere by its name."""

from typing import Any

import pytest

from fastdecode_lib import cli, load, registry, translate
from fastdecode_lib.core import Model, Projection
from fastdecode_lib.projections.exact_compiled import CompiledExact
from fastdecode_lib.runners import runner
from fastdecode_lib.store import ModelFiles


class Mine:
    """The full vocabulary under another name."""

    name, needs = "mine", "nothing"

    @classmethod
    def make(cls, model: Model, files: ModelFiles, *, loud: bool = False, times: int = 1) -> Projection:
        """The exact projection; what was asked for stands in `asked`."""
        cls.asked: Any = (files.direction, loud, times)
        return CompiledExact.make(model, files)


def test_a_projection_is_one_class_and_one_registration(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(registry.PROJECTIONS, "mine", Mine)
    model = load("tatoeba-small", device="cpu")
    result = translate(model, "Good morning.", source="en", target="de", projection="mine:loud=true,times=3")
    assert result.tokens == translate(model, "Good morning.", source="en", target="de").tokens
    assert Mine.asked == (("en", "de"), True, 3)
    assert "mine" in registry.needing("nothing") and "mine" in runner(model).choices()["projection"]
    assert cli.main(["list", "projections"]) == 0
    assert "The full vocabulary under another name. [loud=False, times=1]" in " ".join(capsys.readouterr().out.split())
    for spec, message in (
        ("mine:lowd=true", "Unknown option of mine: got 'lowd'. Did you mean 'loud'"),
        ("mine:times=many", "mine: times must be a whole number, got 'many'. Example: 3"),
        ("min", "Unknown projection: got 'min'. Did you mean 'mine'"),
    ):
        with pytest.raises(ValueError, match=message):
            translate(model, "Good morning.", source="en", target="de", projection=spec)


@pytest.mark.parametrize("name", registry.PROJECTIONS)
def test_every_projection_says_what_it_is(name: str) -> None:
    cls = registry.projection_class(name)
    assert cls.name == name and cls.needs in ("nothing", "weights", "lexicon", "screens", "file")
    assert all(option.default is not option.empty for option in registry.options(cls).values())


@pytest.mark.parametrize(
    ("decoder", "projection", "fine"),
    [
        ("greedy", "exact", True),
        ("window:width=3", "quantised", True),
        ("beam:size=4", "exact", False),
        ("greedy", "clustered", False),
        ("double_token", "exact", False),
    ],
)
def test_only_what_changes_no_output_is_chosen_by_itself(decoder: str, projection: str, fine: bool) -> None:
    if fine:
        registry.check_lossless(decoder, projection)
    else:
        with pytest.raises(ValueError, match=f"Only what changes no output.*got {decoder} with {projection}"):
            registry.check_lossless(decoder, projection)
    registry.check_lossless("double_token", "exact", plain="double_token")

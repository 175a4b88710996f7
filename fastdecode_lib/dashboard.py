"""`runner`: the library as a widget drives it, one sentence at a time, without knowing anything of the widget."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastdecode_lib.translation import Session, TranslationModel

DECODERS = ("jacobi", "gauss_seidel:block=3", "hybrid:block=3", "window:width=5", "greedy", "beam:size=5")
"""What a picture offers, the usual one first."""


@dataclass(frozen=True)
class Runner:
    """A model behind the three calls a live picture makes."""

    model: TranslationModel

    def choices(self) -> dict[str, list[str]]:
        """What each control may offer: ``from``, ``to`` and ``decoder``; and the ``directions`` that exist, as ``en-de``."""
        directions = self.model.directions
        return {
            "from": list(dict.fromkeys(a for a, _ in directions)),
            "to": list(dict.fromkeys(b for _, b in directions)),
            "decoder": list(DECODERS),
            "directions": [f"{a}-{b}" for a, b in directions],
        }

    def run(
        self, text: str, settings: Mapping[str, Any], stop: Callable[[], bool] = lambda: False
    ) -> Iterator[dict[str, Any]]:
        """The events of ``docs/trace.md`` for one sentence, greedy decoding's answer beside them at the end."""
        session = Session.of(self.model, settings.get("from"), settings.get("to"), settings.get("decoder") or "jacobi")
        yield from session.events(text, verify=True, stop=stop)

    def code(self, settings: Mapping[str, Any]) -> str:
        """Python that reproduces a run."""
        options = {"source": settings.get("from"), "target": settings.get("to"), "decoder": settings.get("decoder")}
        chosen = ", ".join(f"{name}={value!r}" for name, value in options.items() if value)
        loading = f"fastdecode_lib.load({self.model.name!r}, dtype={self.model.dtype!r})"
        return (
            "import ddgviz, fastdecode_lib\n\n"
            f"model = {loading}\n"
            f"result = fastdecode_lib.translate(model, {settings.get('text', '')!r}, {chosen})\n"
            "ddgviz.show(result.trace)\n"
        )


def runner(model: TranslationModel) -> Runner:
    """Make a runner for ``ddgviz.explore``."""
    return Runner(model)

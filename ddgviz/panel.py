"""A panel to play with: type a sentence, choose a decoder, watch it work."""

import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import ipywidgets

from ddgviz.text import visible
from ddgviz.widget import Picture
from ddgviz.words import decoder, language

FIRST = "The children are playing in the garden behind the school."
SETTINGS = ("from", "to", "decoder")


class Runner(Protocol):
    """What a panel drives."""

    def choices(self) -> dict[str, list[str]]:
        """What may be chosen: ``decoder``, ``from`` and ``to``, first the usual one.

        With ``directions`` as well (``en-de``), only those are offered.
        """
        ...

    def run(self, text: str, settings: dict[str, str], stop: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        """Decode, yielding the events of docs/trace.md; end early once `stop` returns true."""
        ...

    def code(self, settings: dict[str, str]) -> str:
        """Python that does the same; the settings hold the sentence as ``text``."""
        ...


class Panel(ipywidgets.VBox):
    """A sentence, its settings and the picture of its decoding.

    Attributes
    ----------
    picture : Picture
        The live picture.
    trace : dict or None
        The last finished run, as docs/trace.md describes it.
    error : str
        Why the last run failed; empty if it did not.
    """

    def __init__(self, runner: Runner, text: str, start: bool) -> None:
        self.runner = runner
        self.picture = Picture()
        self.trace: dict[str, Any] | None = None
        self._halt = threading.Event()
        self._worker: threading.Thread | None = None
        choices = runner.choices()
        self._box = ipywidgets.Text(
            value=text, placeholder="A sentence to translate", layout={"flex": "1 1 auto", "width": "auto"}
        )
        self._button = ipywidgets.Button(
            description="Translate", button_style="primary", layout={"width": "104px", "flex": "none"}
        )
        self._directions = choices.get("directions", [])
        self._choice = {key: _dropdown(key, choices.get(key, [])) for key in SETTINGS}
        self._offer_targets()
        self._result = ipywidgets.Text(placeholder="its translation", layout={"flex": "1 1 auto", "width": "auto"})
        self._code = ipywidgets.Textarea(rows=6, layout={"width": "auto"})
        fold = ipywidgets.Accordion(children=[self._code], titles=("code",), selected_index=None)
        first = ipywidgets.HBox([self._box, self._button])
        second = ipywidgets.HBox(list(self._choice.values()), layout={"flex_flow": "row wrap"})
        super().__init__([first, second, self._result, self.picture, fold])
        self._listen()
        self._write_code()
        if start and text.strip():
            self.start()

    def _listen(self) -> None:
        self._button.on_click(lambda _: self.stop() if self.busy else self.start())
        self._box.on_msg(lambda _, content, __: self.start() if content.get("event") == "submit" else None)
        self._choice["from"].observe(lambda _: self._offer_targets(), "value")
        for choice in self._choice.values():
            choice.observe(lambda _: self._choose(), "value")
        self._box.observe(lambda _: self._write_code(), "value")

    def _offer_targets(self) -> None:
        """Offer the targets that the chosen source has."""
        chosen = self._choice["to"].value
        targets = [d.split("-")[1] for d in self._directions if d.split("-")[0] == self._choice["from"].value]
        if targets:
            self._choice["to"].options = [(language(code), code) for code in targets]
            self._choice["to"].value = chosen if chosen in targets else targets[0]

    def _choose(self) -> None:
        """Another choice decodes the sentence again, once one has been decoded."""
        self._write_code()
        if self._worker is not None:
            self.start()

    @property
    def settings(self) -> dict[str, str]:
        """What is chosen."""
        return {key: choice.value for key, choice in self._choice.items() if choice.value is not None}

    @property
    def busy(self) -> bool:
        """Whether a run is under way."""
        return self._worker is not None and self._worker.is_alive()

    @property
    def error(self) -> str:
        """Why the last run failed; empty if it did not."""
        return str(self.picture.notice)

    def start(self) -> None:
        """Decode the sentence in the background; a run under way is stopped first."""
        self.stop()
        halt = self._halt = threading.Event()
        work = (self._box.value, self.settings, halt, self._worker)
        self._worker = threading.Thread(target=self._work, args=work, name="ddgviz-run", daemon=True)
        self._worker.start()

    def stop(self) -> None:
        """Ask the run under way to end."""
        self._halt.set()

    def run(self, text: str) -> dict[str, Any] | None:
        """Decode `text` and wait for it.

        Returns
        -------
        dict or None
            The trace; None if the run failed, `error` then saying why.
        """
        self._box.value = text
        self.start()
        worker = self._worker
        if worker is not None:
            worker.join()
        return None if self.error else self.trace

    def _work(
        self, text: str, settings: dict[str, str], halt: threading.Event, before: threading.Thread | None
    ) -> None:
        if before is not None:
            before.join()
        if halt.is_set():
            return
        self.picture.notice = self._result.value = ""
        self._button.description, self._button.button_style = "Stop", ""
        try:
            if not text.strip():
                raise ValueError("A sentence is needed, got an empty one. Type one above.")
            for event in self.runner.run(text, settings, halt.is_set):
                self.picture.append(event)
            if self.picture.model.finished:
                self.trace = self.picture.model.to_dict()
                self._result.value = visible(self.trace["target"]["text"])
        except Exception as error:  # the panel is where its reader looks
            kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
            self.picture.notice = f"{kind}{error}"
        finally:
            self.picture.flush()
            self._button.description, self._button.button_style = "Translate", "primary"

    def _write_code(self) -> None:
        try:
            self._code.value = self.runner.code({**self.settings, "text": self._box.value})
        except Exception as error:  # a choice that cannot be had is shown, not raised into a callback
            self._code.value = f"# {error}"


def _dropdown(key: str, values: list[str]) -> ipywidgets.Dropdown:
    said = decoder if key == "decoder" else language
    options = [(said(value), value) for value in values]
    width = "340px" if key == "decoder" else "220px"
    style = {"description_width": "58px" if key == "decoder" else "38px"}
    return ipywidgets.Dropdown(options=options, description=key, layout={"width": width}, style=style)


def explore(runner: Runner, text: str = FIRST, *, start: bool = True) -> Panel:
    """A panel that translates what is typed and shows each pass as it happens.

    Parameters
    ----------
    runner : Runner
        ``choices()``, ``run(text, settings, stop)`` and ``code(settings)``; see `Runner`.
    text : str
        The first sentence.
    start : bool
        Whether to decode it at once.

    Returns
    -------
    Panel
        ``picture`` is the live picture, ``trace`` the last finished run, and ``run(text)`` decodes and waits.
    """
    return Panel(runner, text, start)

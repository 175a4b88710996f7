"""The panel's controls: menus whose options depend on each other."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets

from ddgviz import words

KEYS = ("from", "to", "decoder", "width", "projection", "precision", "engine")
WIDTHS = (*range(1, 17), 24, 32)
LATE = 0.5
"""Seconds after Enter within which letters still belong to it."""
NONE = ""
NO_WIDTH = [("–", NONE)]


class Controls(ipywidgets.HBox):
    """A row of menus; one with a single option is shown disabled, one with none is not shown.

    Parameters
    ----------
    choices : mapping
        Choices from `ddgviz.panel.Runner.choices`.

    Attributes
    ----------
    choice : dict of str to Dropdown
        The menus by setting, and under ``against`` and ``against_width`` those of the decoder to compare with.
    """

    def __init__(self, choices: Mapping[str, Any]) -> None:
        self._choices = choices
        self.choice = {key: menu(key.capitalize(), key) for key in KEYS}
        offer_languages(self.choice, choices)
        decoders = [(_decoder(value), value) for value in choices.get("decoder", [])]
        _offer(self.choice["decoder"], decoders)
        for key in ("projection", "precision", "engine"):
            _offer(self.choice[key], [(str(value), value) for value in choices.get(key, [])])
        self.choice["against"] = menu("Compare with", "decoder")
        self.choice["against_width"] = menu("Its width", "width")
        _offer(self.choice["against"], [("None", NONE), *decoders])
        super().__init__(list(self.choice.values()))
        self.add_class("ddg-controls")
        for key in ("decoder", "against"):
            self.adjust(self.choice[key])

    def adjust(self, owner: ipywidgets.Dropdown) -> None:
        """Offer the options that fit the choice just made in `owner`."""
        if owner is self.choice["from"]:
            offer_targets(self.choice, self._choices)
        elif owner is self.choice["decoder"]:
            self._offer_widths(self.choice["width"], owner.value)
        elif owner is self.choice["against"]:
            self._offer_widths(self.choice["against_width"], owner.value)

    def settings(self) -> list[dict[str, Any]]:
        """The chosen settings; those of the other decoder too if two are compared."""
        first = {key: self.choice[key].value for key in KEYS}
        second = self.choice["against"].value
        chosen = [first]
        if second != NONE:
            chosen.append(first | {"decoder": second, "width": self.choice["against_width"].value})
        return [{key: value for key, value in setting.items() if value not in (None, NONE)} for setting in chosen]

    def unusual(self) -> str:
        """The chosen languages, projection, precision and engine, where they are not the first: ``quantised, int8``."""
        chosen = self.settings()[0]
        changed = {key for key in chosen.keys() - {"decoder", "width"} if chosen[key] != self._choices[key][0]}
        others = [str(chosen[key]) for key in ("projection", "precision", "engine") if key in changed]
        if changed & {"from", "to"}:
            others.insert(0, " → ".join(words.language(chosen[side]) for side in ("from", "to") if side in chosen))
        return ", ".join(others)

    def restore(self, settings: Sequence[Mapping[str, Any]]) -> None:
        """Choose the values of earlier `settings`."""
        second = settings[1] if len(settings) > 1 else {}
        values = {**settings[0], "against": second.get("decoder", NONE)}
        values["against_width"] = second.get("width", NONE)
        for key, menu in self.choice.items():
            offered = [value for _, value in menu.options]
            menu.value = values.get(key) if values.get(key) in offered else NONE if NONE in offered else None
            self.adjust(menu)

    def _offer_widths(self, menu: ipywidgets.Dropdown, decoder: str | None) -> None:
        usual = self._choices.get("width", {}).get(decoder)
        if usual is None:
            _offer(menu, NO_WIDTH if self._choices.get("width") else [])
        else:
            _offer(menu, [(str(width), width) for width in sorted({*WIDTHS, usual})], usual)
        if decoder == NONE:
            menu.layout.display = "none"


def offer_languages(menus: Mapping[str, ipywidgets.Dropdown], choices: Mapping[str, Any]) -> None:
    """Offer the languages of `choices` in the menus ``from`` and ``to``."""
    for side in ("from", "to"):
        _offer(menus[side], [(words.language(code), code) for code in choices.get(side, [])])
    offer_targets(menus, choices)


def offer_targets(menus: Mapping[str, ipywidgets.Dropdown], choices: Mapping[str, Any]) -> None:
    """Offer in the menu ``to`` the languages into which the one chosen under ``from`` is translated."""
    pairs = (direction.split("-", 1) for direction in choices.get("directions", []))
    targets = [target for source, target in pairs if source == menus["from"].value]
    if targets:
        _offer(menus["to"], [(words.language(code), code) for code in targets], menus["to"].value)


def on_enter(box: ipywidgets.Text, act: Callable[[float], object]) -> None:
    """Call `act` when Enter is pressed in `box`, and again if the last letters come just after it, as pages may send them.

    Each call for the same Enter has the same number.
    """
    pressed = -LATE

    def enter(_: Any, content: dict[str, Any], __: Any) -> None:
        nonlocal pressed
        if content.get("event") == "submit":
            pressed = time.monotonic()
            act(pressed)

    box.on_msg(enter)
    box.observe(lambda _: act(pressed) if time.monotonic() - pressed < LATE else None, "value")


def _decoder(name: str) -> str:
    name_of = words.decoder(name)
    return name_of[:1].upper() + name_of[1:]


def menu(label: str, kind: str) -> ipywidgets.Dropdown:
    """An empty menu under its label."""
    dropdown = ipywidgets.Dropdown(description=label)
    dropdown.add_class("ddg-menu")
    dropdown.add_class(f"ddg-{kind}")
    return dropdown


def _offer(menu: ipywidgets.Dropdown, options: Sequence[tuple[str, Any]], value: Any = None) -> None:
    """Offer options, and choose `value` if it is among them, else the first."""
    values = [option for _, option in options]
    menu.options = options
    menu.value = value if value in values else next(iter(values), None)
    menu.disabled = len(options) < 2
    menu.layout.display = None if options else "none"

"""Calls that wait: in order of their time, one for each key, on one thread that outlives an error."""

import threading
import time
from typing import Any

import pytest

from ddgviz.later import Later


def wait_for(found: list[Any], count: int) -> None:
    deadline = time.monotonic() + 5
    while len(found) < count and time.monotonic() < deadline:
        time.sleep(0.005)


def test_calls_come_in_order_of_their_time_whatever_the_order_they_were_asked_in() -> None:
    later, found = Later(), []
    for name, seconds in (("late", 0.25), ("soon", 0.05), ("next", 0.15)):
        later.call(name, seconds, lambda name=name: found.append((name, threading.get_ident())))  # type: ignore[misc]
    wait_for(found, 3)
    assert [name for name, _ in found] == ["soon", "next", "late"]
    assert len({thread for _, thread in found}) == 1 and found[0][1] != threading.get_ident()


def test_a_key_has_one_call_and_a_cancelled_one_none() -> None:
    later, found = Later(), []
    later.call("a", 0.02, lambda: found.append("first"))
    later.call("a", 0.1, lambda: found.append("second"))
    later.call("b", 0.05, lambda: found.append("never"))
    later.cancel("b")
    later.cancel("nothing")
    wait_for(found, 2)
    assert found == ["second"]


def test_an_error_is_told_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    later, found = Later(), []
    later.call("bad", 0.0, lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    later.call("good", 0.05, lambda: found.append("good"))
    wait_for(found, 1)
    assert found == ["good"] and told[0].exc_type is ZeroDivisionError


def test_asking_is_cheap() -> None:
    """A timer's thread took longer to start than a pass to draw."""
    later = Later()
    later.call("a", 9.0, lambda: None)
    start = time.thread_time()
    for _ in range(1000):
        later.call("a", 9.0, lambda: None)
    assert time.thread_time() - start < 0.05, "50 microseconds each"
    later.cancel("a")

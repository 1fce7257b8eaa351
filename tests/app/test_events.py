"""Events: what points up is heard of at once, in the caller's transaction."""

import subprocess
import sys
from inspect import signature
from pkgutil import resolve_name
from typing import Any

import pytest

from app import events
from app.events import EnsembleTrained, Event, PoolStored, RankingReady, publish
from app.listeners import LISTENERS

heard: list[tuple[str, Any]] = []


def first(session: Any, event: Event) -> list[str]:
    heard.append(("first", session))
    return ["job 1"]


def second(session: Any, event: Event) -> list[str]:
    heard.append(("second", session))
    return ["job 2", "job 3"]


def failing(session: Any, event: Event) -> list[str]:
    raise ValueError("not this way")


@pytest.fixture
def subscribed(monkeypatch: pytest.MonkeyPatch) -> Any:
    heard.clear()
    monkeypatch.setattr(events, "_listeners", {})
    return lambda *functions: events.subscribe({RankingReady: [f"{__name__}:{each}" for each in functions]})


READY = RankingReady(ranking=None, items=())  # type: ignore[arg-type]


def test_listeners_are_called_in_order_with_the_callers_session(subscribed: Any) -> None:
    subscribed("second", "first")
    session: Any = object()
    assert publish(session, READY) == ["job 2", "job 3", "job 1"]
    assert heard == [("second", session), ("first", session)]


def test_an_error_of_a_listener_reaches_the_caller_and_stops_there(subscribed: Any) -> None:
    subscribed("first", "failing", "second")
    with pytest.raises(ValueError, match="not this way"):
        publish(None, READY)  # type: ignore[arg-type]
    assert [name for name, _ in heard] == ["first"]


def test_every_event_has_listeners_that_take_a_session_and_the_event() -> None:
    assert set(LISTENERS) == {PoolStored, RankingReady, EnsembleTrained} == set(Event.__args__)
    for paths in LISTENERS.values():
        assert paths
        for path in paths:
            assert len(signature(resolve_name(path)).parameters) == 2


def test_publishing_where_the_listeners_were_not_imported_raises() -> None:
    code = "from app.events import *; publish(None, RankingReady(ranking=None, items=()))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "RuntimeError: nobody would hear of RankingReady: this process has not imported app.listeners" in run.stderr


def test_storing_a_pool_loads_no_torch() -> None:
    code = (
        "import sys, app.listeners, app.pools.ingest, pkgutil; from app.events import PoolStored; "
        "[pkgutil.resolve_name(path) for path in app.listeners.LISTENERS[PoolStored]]; print('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"

"""Holds are given back, and `next` says when those of others lapse."""

import threading
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from app.db.tables import Reservation
from app.db.types import database_time
from app.pools import answer_size
from tests.app.conftest import Service
from tests.app.rounds.test_rounds import answer, open_round, place, take
from tests.app.working import on_sqlite

__all__ = ["place"]
Place = tuple[str, str]


def release(service: Service, round_: dict[str, Any], annotator: str, **body: Any) -> int:
    return int(service.post(f"/rounds/{round_['id']}/release", {"annotator": annotator, **body}, 200)["released"])


def ask(service: Service, round_: dict[str, Any], annotator: str, **body: Any) -> dict[str, Any]:
    return dict(service.post(f"/rounds/{round_['id']}/next", {"annotator": annotator, **body}, 200))


def holds(service: Service) -> dict[tuple[int, str], datetime]:
    with service.services.database.read() as session:
        query = select(Reservation).where(Reservation.done.is_(False))
        return {(held.row, held.annotator): held.expires_at for held in session.scalars(query)}


def test_a_released_item_goes_to_the_next_annotator(service: Service, place: Place) -> None:
    round_ = open_round(service, place, k=4)
    rows = take(service, round_, "x", 4)
    assert take(service, round_, "y", 4) == []
    assert release(service, round_, "x", rows=rows[:1]) == 1
    assert take(service, round_, "y", 4) == rows[:1]
    assert release(service, round_, "x") == 3
    assert take(service, round_, "y", 4) == rows
    assert release(service, round_, "x") == 0


def test_nobody_gives_back_what_others_hold_or_what_was_answered(service: Service, place: Place) -> None:
    round_ = open_round(service, place, k=3)
    rows = take(service, round_, "x", 3)
    answer(service, round_, "x", rows[0])
    assert release(service, round_, "y") == 0
    assert release(service, round_, "x", rows=[rows[0], 29, 10**9]) == 0
    assert service.get(f"/rounds/{round_['id']}")["n_done"] == 1
    assert take(service, round_, "y", 3) == []
    assert release(service, round_, "x", rows=[]) == 0
    assert release(service, round_, "x") == 2
    assert take(service, round_, "y", 3) == rows[1:]


def test_a_late_answer_to_an_item_given_back_counts_once(service: Service, place: Place) -> None:
    round_ = open_round(service, place, k=2, overlap=2)
    rows = take(service, round_, "x", 2)
    assert release(service, round_, "x") == 2
    answer(service, round_, "x", *rows)
    assert (take(service, round_, "x", 2), take(service, round_, "y", 2)) == ([], rows)
    answer(service, round_, "y", *rows)
    assert service.get(f"/rounds/{round_['id']}")["status"] == "complete"


def test_a_lapsed_hold_and_an_ended_round_have_nothing_to_give_back(service: Service, place: Place) -> None:
    round_ = open_round(service, place, k=2)
    rows = take(service, round_, "x", 2)
    with service.services.database.write() as session:
        session.execute(update(Reservation).values(expires_at=database_time(session) - timedelta(seconds=1)))
    assert take(service, round_, "y", 1) == rows[:1]
    assert release(service, round_, "x") == 0
    service.post(f"/rounds/{round_['id']}/close", None, 200)
    assert release(service, round_, "y") == 0


def test_releasing_while_others_ask_loses_and_doubles_nothing(service: Service, place: Place) -> None:
    """One takes all and gives it back, again and again; two others label what they get, until the round is complete."""
    round_ = open_round(service, place, k=20, retrain=False)
    over = threading.Event()
    got: dict[str, list[int]] = {"y": [], "z": []}
    errors: list[BaseException] = []

    def hoard() -> None:
        try:
            while not over.is_set():
                held = take(service, round_, "x", 5)
                assert release(service, round_, "x") == len(held)
        except BaseException as error:
            errors.append(error)

    def label(name: str) -> None:
        try:
            while service.get(f"/rounds/{round_['id']}")["status"] == "open":
                rows = take(service, round_, name, 2)
                got[name] += rows
                if rows:
                    answer(service, round_, name, *rows)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=label, args=(name,)) for name in got]
    hoarder = threading.Thread(target=hoard)
    for thread in (hoarder, *workers):
        thread.start()
    for thread in workers:
        thread.join(120)
    over.set()
    hoarder.join(120)
    assert errors == []
    handed_out = got["y"] + got["z"]
    assert len(handed_out) == len(set(handed_out)) == 20
    assert service.get(f"/rounds/{round_['id']}")["n_done"] == 20
    assert holds(service) == {}


def test_next_says_when_the_first_item_of_others_lapses(service: Service, place: Place) -> None:
    round_ = open_round(service, place, k=4)
    first = ask(service, round_, "x", count=2)
    assert (first["free_at"], first["expires_in"], first["n_left"]) == (None, 600.0, 4)  # got all that was asked for
    rows = [item["row"] for item in first["items"]]
    ask(service, round_, "y", count=1)
    ends = holds(service)
    third = ask(service, round_, "z", count=2)
    assert len(third["items"]) == 1
    assert datetime.fromisoformat(third["free_at"]) == min(ends.values()) == ends[rows[0], "x"]
    answer(service, round_, "x", *rows)
    waiting = ask(service, round_, "z", count=2)
    (other,) = (held for (_, annotator), held in ends.items() if annotator == "y")
    assert (len(waiting["items"]), datetime.fromisoformat(waiting["free_at"])) == (1, other)
    release(service, round_, "y")
    free = ask(service, round_, "z", count=3)
    assert (len(free["items"]), free["free_at"], free["n_left"]) == (2, None, 2)


@on_sqlite
def test_an_annotator_waits_neither_for_their_own_items_nor_for_those_they_answered(
    service: Service, place: Place
) -> None:
    round_ = open_round(service, place, k=2, overlap=2)
    rows = take(service, round_, "x", 2)
    answer(service, round_, "x", rows[0])
    assert take(service, round_, "y", 1) == rows[:1]
    asked = ask(service, round_, "x", count=2)
    assert ([item["row"] for item in asked["items"]], asked["n_left"], asked["free_at"]) == (rows[1:], 2, None)


@on_sqlite
def test_an_item_that_lapsed_and_went_to_another_is_waited_for(service: Service, place: Place) -> None:
    round_ = open_round(service, place, k=1)
    rows = take(service, round_, "x", 1)
    with service.services.database.write() as session:
        session.execute(update(Reservation).values(expires_at=database_time(session) - timedelta(seconds=1)))
    assert take(service, round_, "y", 1) == rows
    asked = ask(service, round_, "x", count=1)
    assert asked["items"] == []
    assert datetime.fromisoformat(asked["free_at"]) == holds(service)[rows[0], "y"]


@on_sqlite
def test_features_come_where_asked_for(service: Service, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    round_ = open_round(service, place, k=4)
    assert [item["x"] for item in ask(service, round_, "x", count=2)["items"]] == [None, None]
    items = ask(service, round_, "x", count=4, features=True)["items"]
    assert [item["x"] for item in items] == [[item["row"], item["row"] % 3] for item in items]
    assert len(items) == 4
    monkeypatch.setattr(answer_size, "FEATURES_AT_ONCE", 5)
    wide = ask(service, round_, "x", count=4, features=True)
    assert (len(wide["items"]), wide["free_at"]) == (2, None)
    monkeypatch.setattr(answer_size, "FEATURES_AT_ONCE", 1)
    assert len(ask(service, round_, "x", count=4, features=True)["items"]) == 1
    assert len(ask(service, round_, "x", count=4)["items"]) == 4


@on_sqlite
def test_a_key_that_only_reads_gives_nothing_back(service: Service, place: Place) -> None:
    round_ = open_round(service, place, k=1)
    reader = {"Authorization": f"Bearer {service.key('read')}"}
    assert service.client.post(f"/v1/rounds/{round_['id']}/release", json={}, headers=reader).status_code == 403
    labeller = {"Authorization": f"Bearer {service.key('label', name='ada')}"}
    assert take(service, round_, "ada") != []
    answered = service.client.post(f"/v1/rounds/{round_['id']}/release", json={}, headers=labeller)
    assert answered.json() == {"released": 1}  # no annotator is the key's name

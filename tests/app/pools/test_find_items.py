"""Rows of a pool by key, by number and by status."""

from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest

from app.db import rows_by_status
from app.pools import answer_size
from tests.app.conftest import Service
from tests.app.hammering import classification, pointers, pool, refused, regression


def rows_of(found: dict[str, Any]) -> list[int]:
    return [item["row"] for item in found["items"]]


def keyed(service: Service, keys: list[str]) -> str:
    rows = [[float(i), 0.0] for i in range(len(keys))]
    return pool(service, classification(service), rows=rows, keys=keys)


def ask(service: Service, pool_id: str, **query: Any) -> dict[str, Any]:
    return dict(service.get(f"/pools/{pool_id}/items?{urlencode(query)}"))


def joined(pages: list[list[int]]) -> list[int]:
    return [row for page in pages for row in page]


def walk(service: Service, pool_id: str, **query: Any) -> list[list[int]]:
    """All pages."""
    pages, cursor = [], None
    while True:
        found = ask(service, pool_id, **query, **({"cursor": cursor} if cursor else {}))
        pages.append(rows_of(found))
        cursor = found["next_cursor"]
        if cursor is None:
            return pages


def say(service: Service, project_id: str, pool_id: str, *said: tuple[int, str, Any]) -> None:
    """(row, annotator, value), where None is a skip and ... takes back."""
    labels: list[dict[str, Any]] = []
    for row, annotator, value in said:
        what = {"skip": True} if value is None else {"retract": True} if value is ... else {"value": value}
        labels.append({"pool_id": pool_id, "row": row, "annotator": annotator, **what})
    service.post(f"/projects/{project_id}/labels", {"labels": labels}, 201)


def test_the_very_key_comes_first_and_then_those_that_begin_with_it(service: Service) -> None:
    made = keyed(service, ["cat-10", "dog-1", "cat-1", "cat-2", "ca", "cat-11", "Katze", "cat"])
    path = f"/pools/{made}/items"
    assert rows_of(service.get(path, key="cat-1")) == [2, 0, 5]
    assert rows_of(service.get(path, key="cat")) == [7, 0, 2, 3, 5]
    assert rows_of(service.get(path, key="c")) == [0, 2, 3, 4, 5, 7]
    assert rows_of(service.get(path, key="cat-1x")) == []
    for limit in (1, 2, 3, 5):
        assert joined(walk(service, made, key="cat", limit=limit)) == [7, 0, 2, 3, 5]


def test_keys_in_any_script_are_found_by_their_beginning(service: Service) -> None:
    made = keyed(service, ["Ätna", "Äpfel", "Alpen", "山田", "山本", "a b/c?d"])
    path = f"/pools/{made}/items"
    assert rows_of(service.get(path, key="Ä")) == [0, 1]
    assert rows_of(service.get(path, key="山")) == [3, 4]
    assert rows_of(service.get(path, key="a b/c?")) == [5]


def test_without_keys_a_row_is_found_by_its_number(service: Service) -> None:
    made = pool(service, classification(service), rows=[[float(i), 0.0] for i in range(250)])
    path = f"/pools/{made}/items"
    assert rows_of(service.get(path, key="24")) == [24, *range(240, 250)]
    assert rows_of(service.get(path, key="2", limit=15)) == [2, *range(20, 30), *range(200, 204)]
    assert joined(walk(service, made, key="2", limit=7)) == [2, *range(20, 30), *range(200, 250)]
    assert rows_of(service.get(path, key="0")) == [0]
    for nothing in ("00", "250", "-1", "x"):
        assert service.get(path, key=nothing) == {"items": [], "next_cursor": None}


def test_named_rows_come_in_the_order_asked_for_with_their_features(service: Service) -> None:
    made = keyed(service, ["a", "b", "c", "d"])
    found = service.get(f"/pools/{made}/items", rows="3,0,3", features=True)
    assert found["next_cursor"] is None
    assert [(item["row"], item["key"], item["x"]) for item in found["items"]] == [
        (3, "d", [3, 0]),
        (0, "a", [0, 0]),
        (3, "d", [3, 0]),
    ]


def test_wide_rows_come_a_few_at_a_time(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    project_id = classification(service)
    made = pool(service, project_id, rows=[[float(i), 0.0] for i in range(5)], keys=[f"k{i}" for i in range(5)])
    say(service, project_id, made, *((row, "ada", "red") for row in range(5)))
    monkeypatch.setattr(answer_size, "FEATURES_AT_ONCE", 4)  # two rows
    assert walk(service, made, features=True) == [[0, 1], [2, 3], [4]]
    assert walk(service, made, features=True, rows="4,0,4,1,2") == [[4, 0], [4, 1], [2]]
    assert walk(service, made, features=True, key="k") == [[0, 1], [2, 3], [4]]
    assert walk(service, made, features=True, status="labelled") == [[0, 1], [2, 3], [4]]
    assert walk(service, made, rows="4,0,4,1,2", limit=2) == [[4, 0, 4, 1, 2]]
    monkeypatch.setattr(answer_size, "FEATURES_AT_ONCE", 1)  # always one
    assert walk(service, made, features=True, rows="3,1") == [[3], [1]]


def test_what_cannot_be_asked_for_is_refused(service: Service) -> None:
    path = f"/pools/{keyed(service, ['a', 'b'])}/items"
    for query, said, pointer in (
        ("rows=2", "there is no row 2; this pool has 2", "/query/rows"),
        ("rows=1,x", "got 'x'", "/query/rows"),
        ("rows=", "got ''", "/query/rows"),
        ("rows=-1", "got '-1'", "/query/rows"),
        ("rows=" + ",".join(["1"] * 1001), "at most 1,000 rows", "/query/rows"),
        ("rows=" + "9" * 19, "there is no row", "/query/rows"),
        ("rows=" + "1" * 30_000, "10", "/query/rows"),
        ("key=", "1 character", "/query/key"),
        ("key=%00", "", "/query/key"),
        ("key=" + "k" * 501, "500", "/query/key"),
        ("status=done", "", "/query/status"),
        ("key=a&status=open", "key or status, not by both", "/query/status"),
    ):
        assert pointers(refused(service, "GET", f"{path}?{query}", 422, said)) == [pointer], query


def test_every_status_lists_its_own_rows(service: Service) -> None:
    project_id = classification(service)
    made = pool(service, project_id)
    say(service, project_id, made, (0, "ann", "red"), (1, "ann", "red"), (1, "bob", "blue"), (2, "ann", None))
    say(service, project_id, made, (3, "ann", "red"), (3, "ann", ...), (4, "ann", None), (4, "bob", "blue"))
    say(service, project_id, made, (5, "ann", "red"), (5, "ann", "blue"), (6, "ann", None), (6, "ann", ...))
    expected = {"labelled": [0, 4, 5], "open": [1], "skipped": [2], "unlabelled": [3, 6, 7, 8, 9]}
    everything = service.get(f"/pools/{made}/items")["items"]
    for status, rows in expected.items():
        for limit in (1, 2, 3, 100):
            pages = walk(service, made, status=status, limit=limit)
            assert joined(pages) == rows
            assert all(len(page) <= limit for page in pages)
        found = ask(service, made, status=status)["items"]
        assert found == [item for item in everything if item["status"] == status]
    say(service, project_id, made, *((row, "eve", "red") for row in range(10)))
    assert walk(service, made, status="unlabelled") == [[]]


def test_numbers_are_never_open(service: Service) -> None:
    project_id = regression(service)
    made = pool(service, project_id)
    say(service, project_id, made, (0, "ann", 1.0), (0, "bob", 2.0), (1, "ann", None))
    for status, rows in (("labelled", [0]), ("open", []), ("skipped", [1]), ("unlabelled", list(range(2, 10)))):
        assert joined(walk(service, made, status=status, limit=3)) == rows


def test_rare_rows_among_many_are_found_over_several_short_pages(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many rows are passed over, a page has looked at a bounded number of them."""
    for name, most in (("MOST_CANDIDATES", 4), ("WINDOW", 3), ("WINDOWS", 2)):
        monkeypatch.setattr(rows_by_status, name, most)
    project_id = classification(service)
    made = pool(service, project_id, rows=[[float(i), 0.0] for i in range(40)])
    said: list[tuple[int, str, Any]] = []
    for row in range(36):  # asked about twice: skipped by one, labelled by the other, except for the last two
        said += [(row, "ann", None), *([(row, "bob", "red")] if row < 34 else [])]
    say(service, project_id, made, *said)
    for status, rows in (("skipped", [34, 35]), ("unlabelled", [36, 37, 38, 39]), ("labelled", list(range(34)))):
        pages = walk(service, made, status=status, limit=10)
        assert joined(pages) == rows
        assert len(pages) > 3


def test_random_events_are_paged_as_they_are_listed(service: Service) -> None:
    rng = np.random.default_rng(0)
    project_id = classification(service)
    made = pool(service, project_id, rows=[[float(i), 0.0] for i in range(60)])
    choices = ["red", "blue", None, ...]
    said = [
        (int(rng.integers(60)), str(rng.choice(["ann", "bob", "eve"])), choices[int(rng.integers(4))])
        for _ in range(150)
    ]
    say(service, project_id, made, *said)
    everything = service.get(f"/pools/{made}/items")["items"]
    for status in ("unlabelled", "labelled", "open", "skipped"):
        expected = [item["row"] for item in everything if item["status"] == status]
        assert expected
        assert joined(walk(service, made, status=status, limit=7)) == expected

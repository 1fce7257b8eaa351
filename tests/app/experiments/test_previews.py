"""Pictures of the catalogue's models over REST."""

import math

import pytest

from app.experiments import catalogue
from tests.app.conftest import Service
from tests.app.hammering import refused
from tests.app.working import on_sqlite


@on_sqlite
def test_a_preview_has_an_axis_an_outcome_and_three_curves(service: Service) -> None:
    found = service.get("/catalog/digit_span/preview")
    assert found["x"] == {"name": "xi", "values": list(range(1, 16)), "is_log": False}
    assert found["y"] == {"name": "y", "label": "probability of y = 1"}
    assert [curve["label"] for curve in found["curves"]][1] == "theta = 7"
    expected = [1 / (1 + math.exp(xi - 7)) for xi in range(1, 16)]
    assert found["curves"][1]["values"] == pytest.approx(expected, abs=1e-9)


@on_sqlite
def test_every_entry_has_one_and_it_is_computed_once(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [item["id"] for item in service.get("/catalog", limit=1000)["items"]]
    first = {each: service.get(f"/catalog/{each}/preview") for each in ids}
    monkeypatch.setattr(catalogue, "preview", None)
    assert {each: service.get(f"/catalog/{each}/preview") for each in ids} == first
    for each, found in first.items():
        assert len(found["curves"]) == 3, each
        assert all(len(curve["values"]) == len(found["x"]["values"]) for curve in found["curves"]), each


@on_sqlite
def test_what_is_not_in_the_catalogue_has_no_preview(service: Service) -> None:
    refused(service, "GET", "/catalog/nothing/preview", 404, "GET /v1/catalog lists")

"""The EIG as a curve: designs spread over the space, computed once a revision."""

from collections.abc import Callable
from typing import Any

import pytest

from app.db.engine import Database
from app.sessions import read_posterior
from tests.app.conftest import Service
from tests.app.designing import EIG, experiment, observe, session
from tests.app.hammering import pointers, refused

SPACE = {"xi": {"type": "float", "low": 1, "high": 15}}


def count_computations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of what is computed from now on."""
    seen: list[int] = []
    compute = read_posterior._estimates

    def counted(services: Any, state: Any, experiment: Any, listed: list[Any], **rest: Any) -> Any:
        seen.append(len(listed))
        return compute(services, state, experiment, listed, **rest)

    monkeypatch.setattr(read_posterior, "_estimates", counted)
    return seen


def test_points_of_a_list_are_thinned_and_have_the_reference_values(service: Service) -> None:
    path = f"/sessions/{session(service)['id']}/eig"
    found = {each["design"]["xi"]: each["eig"] for each in service.get(path, points=3)["items"]}
    assert found == pytest.approx({1: EIG[1], 8: EIG[8], 15: EIG[15]}, abs=1e-9)
    assert service.get(path, points=61)["items"] == service.get(path)["items"]


def test_points_of_a_space_are_even_and_agree_with_named_designs(service: Service) -> None:
    path = f"/sessions/{session(service, experiment(service, designs=SPACE))['id']}/eig"
    found = service.get(path, points=15)["items"]
    assert [each["design"]["xi"] for each in found] == pytest.approx(list(range(1, 16)))
    assert [found[xi - 1]["eig"] for xi in EIG] == pytest.approx(list(EIG.values()), abs=1e-6)
    named = service.get(path, designs='[{"xi": 7}]')["items"]
    assert named[0]["eig"] == pytest.approx(found[6]["eig"], abs=1e-12)
    refused(service, "GET", path, 422, "points=61")


def test_a_curve_is_computed_once_until_the_observations_change(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = session(service)["id"]
    path = f"/sessions/{made}/eig"
    seen = count_computations(monkeypatch)
    first = service.get(path, points=5)
    assert service.get(path, points=5) == first
    assert seen == [5]
    service.get(path, points=4)
    observe(service, made, design={"xi": 7}, outcome={"y": 1})
    changed = service.get(path, points=5)
    assert (changed["revision"], changed["n"]) == (1, 1)
    assert changed["items"] != first["items"]
    service.client.delete(f"/v1/sessions/{made}/observations/1").raise_for_status()
    again = service.get(path, points=5)
    assert (again["revision"], again["items"]) == (2, first["items"])
    assert seen == [5, 4, 5, 5]


def test_a_spec_that_is_replaced_before_the_first_trial_has_a_curve_of_its_own(service: Service) -> None:
    experiment_id = experiment(service)
    path = f"/sessions/{session(service, experiment_id)['id']}/eig"
    before = service.get(path, points=5)["items"]
    spec = service.get(f"/experiments/{experiment_id}")["spec"]
    wider = {**spec, "parameters": {"theta": {"dist": "normal", "loc": 7, "scale": 4}}}
    service.client.patch(f"/v1/experiments/{experiment_id}", json={"spec": wider}).raise_for_status()
    after = service.get(path, points=5)["items"]
    assert all(new["eig"] > old["eig"] for new, old in zip(after, before, strict=True))


def test_points_that_make_no_sense_are_refused(service: Service) -> None:
    path = f"/sessions/{session(service)['id']}/eig"
    for query in ("points=1", "points=401", "points=many"):
        refused(service, "GET", f"{path}?{query}", 422)
    found = refused(service, "GET", f'{path}?points=5&designs=[{{"xi":6}}]', 422, "not both")
    assert pointers(found) == ["/query/points"]


def test_more_points_than_a_request_may_compute_are_refused_with_a_number(
    database: Database, make_service: Callable[..., Service]
) -> None:
    service = make_service(database, max_design_work=1.0)
    path = f"/sessions/{session(service)['id']}/eig"
    assert "ask for at most 1 of them" in refused(service, "GET", f"{path}?points=5", 422)["detail"]

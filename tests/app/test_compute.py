"""Computing keeps nobody waiting: neither the event loop, nor the database, nor other sessions."""

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import update

from app.compute import Compute
from app.db.tables import DesignSession
from app.sessions import propose as proposing
from app.settings import Settings
from bensemble_core import design
from tests.app.conftest import Service
from tests.app.designing import DIGIT_SPAN, answer, observe, propose, session
from tests.app.hammering import refused
from tests.app.working import on_sqlite, wait_for

on_postgres = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


class Gate:
    """Holds the first caller back until it is opened."""

    def __init__(self, through: Callable[..., Any]) -> None:
        self.through = through
        self.reached, self.opened = threading.Event(), threading.Event()
        self.n_calls = 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.n_calls += 1
        if self.n_calls == 1:
            self.reached.set()
            assert self.opened.wait(60)
        return self.through(*arguments, **named)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    made = Gate(proposing.draft_proposals)
    monkeypatch.setattr(proposing, "draft_proposals", made)
    return made


def test_nothing_is_locked_while_a_proposal_is_computed_and_what_is_outdated_is_computed_again(
    service: Service, gate: Gate
) -> None:
    made = session(service)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(propose, service, made["id"])
        assert gate.reached.wait(60)
        observe(service, made["id"], design={"xi": 7}, outcome={"y": 0})  # writes, on SQLite too
        gate.opened.set()
        proposal = asked.result()
    assert gate.n_calls == 2
    assert (proposal["design"], proposal["round"]) == ({"xi": 6}, 1)  # after 7 digits were too many


def test_a_session_that_computes_keeps_no_other_waiting(service: Service, gate: Gate) -> None:
    slow = session(service)
    quick = session(service, slow["experiment_id"])
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(propose, service, slow["id"])
        assert gate.reached.wait(60)
        proposal = propose(service, quick["id"])
        observe(service, quick["id"], proposal_id=proposal["id"], outcome=answer(proposal["design"]))
        assert not asked.done()
        gate.opened.set()
        assert asked.result()["design"] == {"xi": 7}


@on_postgres
def test_a_locked_session_keeps_no_other_of_its_experiment_waiting(service: Service) -> None:
    held = session(service)
    free = session(service, held["experiment_id"])
    with ThreadPoolExecutor(1) as pool:
        with service.services.database.write() as locking:
            locking.execute(update(DesignSession).where(DesignSession.id == held["id"]).values(name="held"))
            asked = pool.submit(propose, service, held["id"])
            proposal = propose(service, free["id"])
            observe(service, free["id"], proposal_id=proposal["id"], outcome=answer(proposal["design"]))
            assert not asked.done()
        assert asked.result()["design"] == {"xi": 7}


@on_sqlite
def test_requests_that_compute_wait_for_a_thread_and_all_others_do_not(
    database: Any, make_service: Callable[..., Service]
) -> None:
    service = make_service(database, design_threads=1)
    made = session(service)
    busy, release = threading.Event(), threading.Event()
    compute = service.services.compute

    def hog() -> None:
        busy.set()
        assert release.wait(60)

    service.get(f"/sessions/{made['id']}/stop")  # the pool is made by its first work
    assert compute._pool is not None
    hogging = compute._pool.submit(hog)
    assert busy.wait(60)
    with ThreadPoolExecutor(60) as pool:
        asked = [pool.submit(propose, service, made["id"], client_id=f"c{i}") for i in range(60)]
        wait_for(lambda: compute._pool is not None and compute._pool._work_queue.qsize() == 60, 60)
        assert service.get(f"/sessions/{made['id']}")["n_pending"] == 0  # more wait than there are request threads
        assert service.client.get("/readyz").status_code == 200
        assert not any(each.done() for each in asked)
        release.set()
        assert len({each.result()["id"] for each in asked}) == 60
    hogging.result()


def test_experiments_are_read_once_and_share_one_memory() -> None:
    compute = Compute(threads=1, cache_bytes=8 * 2000)
    asked = []

    def load() -> dict[str, Any]:
        asked.append(1)
        return DIGIT_SPAN

    first = compute.experiment("h", None, load)
    assert compute.experiment("h", None, load) is first
    other = compute.experiment("h", 5, load)
    assert (len(asked), other.spec.select.seed, first.spec.select.seed) == (2, 5, 1)
    fresh = design.Experiment.from_spec(DIGIT_SPAN)
    for xi in range(1, 16):  # far more than is remembered
        pair = ({"xi": xi}, {"y": 1})
        assert first.posterior([pair]).mean == other.posterior([pair]).mean == fresh.posterior([pair]).mean
    assert 0 < compute._memory._size <= 2000


def test_an_experiment_that_was_put_away_comes_back_with_no_memory_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.compute.EXPERIMENTS", 1)
    compute = Compute(threads=1, cache_bytes=8 * 10**6)
    fresh = design.Experiment.from_spec(DIGIT_SPAN)
    for xi, y in ((5, 1), (9, 0), (7, 1)):
        found = compute.experiment("h", None, lambda: DIGIT_SPAN)
        assert found.posterior([({"xi": xi}, {"y": y})]).mean == fresh.posterior([({"xi": xi}, {"y": y})]).mean
        compute.experiment("other", None, lambda: DIGIT_SPAN)
        assert compute.experiment("h", None, lambda: DIGIT_SPAN) is not found


@pytest.mark.parametrize(
    ("given", "origins"),
    [
        ("", []),
        ("https://a.example", ["https://a.example"]),
        (" https://a.example/, http://localhost:3000 ", ["https://a.example", "http://localhost:3000"]),
        ('["https://a.example"]', ["https://a.example"]),
    ],
)
def test_origins_are_a_list_in_commas_or_in_json(
    monkeypatch: pytest.MonkeyPatch, given: str, origins: list[str]
) -> None:
    monkeypatch.setenv("BENSEMBLE_CORS_ORIGINS", given)
    assert Settings().cors_origins == origins


NEEDLE: dict[str, Any] = {
    "parameters": {"theta": {"dist": "normal", "loc": 7, "scale": 2}},
    "designs": {"xi": {"type": "integer", "low": 1, "high": 15}},
    "outcome": {"y": {"family": "normal", "mean": "(theta - xi) ** 3", "sd": 1e-6}},
}


@on_sqlite
def test_work_that_was_not_foreseen_becomes_a_job_and_is_not_tried_again(
    database: Any, make_service: Callable[..., Service]
) -> None:
    service = make_service(database, design_seconds=0.2)
    made = session(service, str(service.post("/experiments", NEEDLE, 201)["id"]))
    started = time.process_time()
    asked = propose(service, made["id"], 202, client_id="a")
    assert "take more than 0.2 s" in asked["explanation"]
    assert asked["evaluations"] < asked["cap"]
    tried = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(proposing, "draft_proposals", lambda *_: tried.append(1))
        assert propose(service, made["id"], 202, client_id="a")["job"]["id"] == asked["job"]["id"]
    assert not tried
    assert time.process_time() - started < 10
    service.run_jobs()
    (told,) = service.get(f"/jobs/{asked['job']['id']}")["result"]["proposals"]
    assert told["design"] == design.Experiment.from_spec(NEEDLE).propose()[0].design


@on_sqlite
def test_an_outcome_is_kept_where_its_posterior_takes_too_long(
    database: Any, make_service: Callable[..., Service]
) -> None:
    service = make_service(database, design_seconds=1e-9)
    made = session(service)
    path = f"/sessions/{made['id']}"
    learnt = service.post(f"{path}/observations?next=true", {"design": {"xi": 7}, "outcome": {"y": 1}}, 201)
    assert (learnt["n"], learnt["posterior"], learnt["guards"], learnt["next"]) == (1, None, None, None)
    assert "takes longer" in learnt["warnings"][0]
    refused(service, "GET", f"{path}/posterior", 409, "s of computing")
    assert learnt["next_job"]["kind"] == "propose"
    (told,) = service.get(f"{path}/trials")["items"]
    assert (told["outcome"], told["posterior"]) == ({"y": 1}, None)
    assert service.client.get(f"/v1{path}/trials", params={"format": "csv"}).text.splitlines()[1].startswith("1,7,1,")
    service.run_jobs()
    assert service.get(f"/jobs/{learnt['next_job']['id']}")["status"] == "succeeded"


@on_sqlite
def test_an_outcome_is_kept_whatever_goes_wrong_in_what_it_taught(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = session(service)
    path = f"/sessions/{made['id']}"

    def fail(*_: Any, **__: Any) -> Any:
        raise ValueError("beyond all numbers")

    with monkeypatch.context() as patch:
        patch.setattr(design.Experiment, "information", fail)
        patch.setattr(design.Experiment, "stop", fail)
        learnt = service.post(f"{path}/observations", {"design": {"xi": 7}, "outcome": {"y": 1}}, 201)
    assert (learnt["n"], learnt["posterior"]) == (1, None)
    assert "unforeseen error" in learnt["warnings"][0]
    assert learnt["stop"]["stop"] is False
    assert "beyond all numbers" in caplog.text
    (told,) = service.get(f"{path}/trials")["items"]
    assert told["outcome"] == {"y": 1}
    assert service.get(f"{path}/posterior")["posterior"]["theta"]["mean"] > 7


@on_sqlite
def test_a_design_too_precise_for_a_grid_is_valued_by_cells(service: Service) -> None:
    spec = {
        "parameters": {"b": {"dist": "normal", "loc": 0, "scale": 1}},
        "designs": {"x": {"type": "list", "values": [1e-6, 2]}},
        "outcome": {"y": {"family": "lognormal", "mean": "b * x", "sd": 1e-4}},
    }
    made = session(service, str(service.post("/experiments", spec, 201)["id"]))
    blunt, precise = service.get(f"/sessions/{made['id']}/eig")["items"]
    assert (blunt["method"], blunt["note"]) == ("quadrature", None)
    assert blunt["se"] is not None
    assert (precise["method"], precise["note"]) == ("cells", None)
    assert precise["eig"] == pytest.approx(0.5 * math.log1p(4e8), abs=1e-4)
    proposal = propose(service, made["id"])
    told = service.get(f"/proposals/{proposal['id']}")
    for each in (proposal, told):
        assert (each["design"], each["method"], each["eig"]) == ({"x": 2}, "cells", precise["eig"])
        assert each["runner_up"]["se"] is not None


def test_what_was_dear_is_remembered_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    compute = Compute(threads=1, cache_bytes=8)
    compute.remember_too_expensive("h", 100)
    compute.remember_too_expensive("h", 80)
    assert compute.is_too_expensive("h", 100)
    assert compute.is_too_expensive("h", 80)
    assert not compute.is_too_expensive("h", 79)
    assert not compute.is_too_expensive("other", 100)
    later = time.monotonic() + 3600
    monkeypatch.setattr("app.compute.time.monotonic", lambda: later)
    assert not compute.is_too_expensive("h", 100)


@on_sqlite
@pytest.mark.parametrize("name", ["reaction_time", "michaelis_menten"])
def test_models_that_take_a_second_are_answered_at_once(service: Service, name: str) -> None:
    made = session(service, str(service.post("/experiments", design.CATALOGUE[name].spec, 201)["id"]))
    assert propose(service, made["id"])["eig"] > 0

"""Experiments: stated as JSON, refused where they are wrong, and simulated before anyone is recruited."""

import importlib
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.db.engine import Database
from app.experiments import create as create_experiment
from app.queue import queue
from app.queue.handlers import HANDLERS
from app.queue.inline import run_due
from app.sessions import propose as proposing
from bensemble_core.design import CATALOGUE
from tests.app.conftest import Service
from tests.app.designing import DIGIT_SPAN, EIG, experiment, observe, propose, session, trial
from tests.app.hammering import classification, pointers, refused, stored
from tests.app.working import on_sqlite
from tests.core.design.spec.test_expressions import HOSTILE

DEAR = {"max_design_work": 5000.0}
simulations = importlib.import_module("bensemble_core.design.simulate")  # its package has a function of that name


def test_an_experiment_is_kept_as_it_was_stated(service: Service) -> None:
    made = service.post("/experiments", DIGIT_SPAN, 201)
    assert (made["name"], made["spec"], made["n_sessions"]) == ("digit span", DIGIT_SPAN, 0)
    assert service.get(f"/experiments/{made['id']}") == made
    session(service, made["id"])
    (item,) = service.get("/experiments")["items"]  # without its spec, of which a list could have gigabytes
    assert item == {**{name: value for name, value in made.items() if name != "spec"}, "n_sessions": 1}
    again = service.post("/experiments", dict(reversed(DIGIT_SPAN.items())), 201)
    assert again["spec_hash"] == made["spec_hash"]  # the order of keys means nothing


def test_a_model_is_checked_without_being_stored(service: Service) -> None:
    before = stored(service)
    found = service.post("/models/validate", DIGIT_SPAN, 200)
    assert stored(service) == before
    assert (found["parameters"], found["targets"], found["n_designs"]) == (["theta"], ["theta"], 15)
    assert found["designs"] == [
        {"name": "xi", "kind": "integer", "low": 1.0, "high": 15.0, "is_log": False, "values": None}
    ]
    assert found["outcomes"] == [{"name": "y", "family": "bernoulli", "is_discrete": True, "labels": []}]
    assert (found["eig_method"], found["belief"], found["is_job"]) == ("enumeration", "grid", False)
    assert 0 < found["evaluations"] < 1e6
    assert found["spec_hash"] == service.post("/experiments", DIGIT_SPAN, 201)["spec_hash"]


@on_sqlite
def test_a_model_that_takes_long_to_try_out_is_not_checked_to_the_end(
    database: Database, make_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = make_service(database, design_seconds=0.2)
    long = " + ".join(f"sin({i} * a + b * c)" for i in range(1, 26))
    spec: dict[str, Any] = {
        "parameters": {
            "a": {"dist": "normal", "loc": 0, "scale": 1},
            "b": {"dist": "normal", "loc": 0, "scale": 1},
            "c": {"dist": "grid", "values": list(range(70))},
        },
        "designs": {"x": {"type": "integer", "low": 1, "high": 200}},
        "let": {f"l{i}": long for i in range(6)},
        "outcome": {"y": {"family": "bernoulli", "logit": " + ".join(f"l{i} * x" for i in range(6))}},
    }
    started = time.process_time()
    problem = refused(service, "POST", "/models/validate", 409, "more than 0.2 s of computing", json=spec)
    assert "create the experiment" in problem["detail"]
    assert time.process_time() - started < 5  # all of it takes more than ten
    monkeypatch.setattr(create_experiment, "PROBE_SECONDS", 0.5)
    refused(service, "POST", "/experiments", 422, "more than 0.5 s of computing", json=spec)
    assert service.get("/experiments")["items"] == []
    assert service.post("/models/validate", DIGIT_SPAN, 200)["belief"] == "grid"


@on_sqlite
def test_what_is_asked_of_a_checked_model_is_limited_too(
    database: Database, make_service: Callable[..., Service]
) -> None:
    service = make_service(database, design_seconds=1e-9)
    refused(service, "POST", "/models/validate", 409, "of computing", json=DIGIT_SPAN)
    assert service.post("/experiments", DIGIT_SPAN, 201)["name"] == "digit span"


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"parameters": {}}, "/parameters"),
        ({"parameters": {"theta": {"dist": "normal", "loc": 7, "scale": -2}}}, "/parameters/theta/scale"),
        ({"designs": {"xi": {"type": "integer", "low": 3, "high": 1}}}, "/designs/xi/high"),
        ({"outcome": {"y": {"family": "bernoulli", "logit": "thta"}}}, "/outcome/y/logit"),
        ({"outcome": {"y": {"family": "bernoulli", "prob": "theta"}}}, "/outcome/y/prob"),
        ({"stop": {"max_trials": 0}}, "/stop/max_trials"),
        ({"costs": "1"}, "/costs"),
        ({"targets": ["phi"]}, "/targets/0"),
    ],
)
@on_sqlite
def test_a_wrong_spec_is_refused_with_a_pointer(service: Service, changes: dict[str, Any], pointer: str) -> None:
    wrong = {**DIGIT_SPAN, "let": {}, "outcome": {"y": {"family": "bernoulli", "logit": "theta - xi"}}, **changes}
    for path in ("/experiments", "/models/validate"):
        assert pointers(refused(service, "POST", path, 422, json=wrong)) == [pointer]


@on_sqlite
def test_hostile_expressions_are_refused_where_they_stand_and_nothing_is_stored(service: Service) -> None:
    assert len(HOSTILE) >= 60
    before = stored(service)
    for text in HOSTILE:
        outcome = {"y": {"family": "bernoulli", "logit": text}}
        response = service.client.post("/v1/experiments", json={**DIGIT_SPAN, "outcome": outcome})
        assert response.status_code == 422, text
        (error,) = response.json()["errors"]
        assert error["pointer"] == "/outcome/y/logit", text
    assert stored(service) == before


WORDS = st.sampled_from(
    [
        "theta",
        "xi",
        "z",
        "exp",
        "log",
        "(",
        ")",
        "+",
        "-",
        "*",
        "/",
        "**",
        "1",
        "1e308",
        ".",
        ",",
        "<",
        "where",
        "[",
        " ",
    ]
)


@on_sqlite
def test_no_expression_at_all_is_a_server_error(service: Service) -> None:
    @given(st.lists(WORDS, max_size=12).map("".join) | st.text(max_size=20))
    @settings(max_examples=150, database=None, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
    def ask(text: str) -> None:
        outcome = {"y": {"family": "normal", "mean": text, "sd": 1}}
        response = service.client.post("/v1/models/validate", json={**DIGIT_SPAN, "outcome": outcome})
        assert response.status_code in (200, 422), response.text

    ask()


def test_a_spec_can_be_changed_until_a_session_has_begun(service: Service) -> None:
    made = service.post("/experiments", DIGIT_SPAN, 201)
    path = f"/v1/experiments/{made['id']}"
    begun = session(service, made["id"])
    wider = {**DIGIT_SPAN, "parameters": {"theta": {"dist": "normal", "loc": 7, "scale": 3}}}
    changed = service.client.patch(path, json={"name": "wider", "spec": wider}).json()
    assert (changed["name"], changed["spec"]) == ("wider", wider)
    assert changed["spec_hash"] != made["spec_hash"]
    found = service.get(f"/sessions/{begun['id']}/posterior")
    assert found["posterior"]["theta"]["sd"] == pytest.approx(3, abs=1e-9)
    propose(service, begun["id"])
    refused(service, "PATCH", path.removeprefix("/v1"), 409, "has begun", json={"spec": DIGIT_SPAN})
    assert service.client.patch(path, json={"name": "as it was", "spec": wider}).json()["name"] == "as it was"
    assert pointers(refused(service, "PATCH", path.removeprefix("/v1"), 422, json={"spec": {}})) != []


def test_deleting_an_experiment_deletes_all_that_is_of_it(service: Service) -> None:
    empty = stored(service)[0]
    made = session(service)
    trial(service, made["id"])
    asked = service.post(f"/experiments/{made['experiment_id']}/simulations", {"trials": 2}, 202)
    assert service.client.delete(f"/v1/experiments/{made['experiment_id']}").status_code == 204
    left = {name: n for name, n in stored(service)[0].items() if n != empty[name]}
    assert left == {"job": 1}
    assert service.get(f"/jobs/{asked['job']['id']}")["status"] == "cancelled"
    service.get(f"/sessions/{made['id']}", 404)


def test_a_key_bound_to_projects_sees_no_experiment(service: Service) -> None:
    made = session(service)
    bound = {"Authorization": f"Bearer {service.key('write', projects=[classification(service)])}"}
    for path in (f"/experiments/{made['experiment_id']}", f"/sessions/{made['id']}", f"/sessions/{made['id']}/trials"):
        refused(service, "GET", path, 404, headers=bound)
    assert service.client.get("/v1/experiments", headers=bound).json()["items"] == []
    refused(service, "POST", "/experiments", 403, "no project", json=DIGIT_SPAN, headers=bound)


def test_a_spec_that_no_database_keeps_is_refused(service: Service) -> None:
    for text in ("a\0b", "half \ud800"):
        raw = json.dumps({**DIGIT_SPAN, "name": text})
        sent = {"content": raw, "headers": {"Content-Type": "application/json"}}
        refused(service, "POST", "/experiments", 422, "surrogate", **sent)


def test_numbers_that_no_computer_holds_are_refused(service: Service) -> None:
    made = session(service)
    path = f"/sessions/{made['id']}"
    huge = 10**400
    for where, body in (
        ("/experiments", {**DIGIT_SPAN, "parameters": {"theta": {"dist": "normal", "loc": huge, "scale": 1}}}),
        ("/experiments", {**DIGIT_SPAN, "select": {"seed": huge}}),
        (f"{path}/proposals", {"fixed": {"xi": huge}}),
        (f"{path}/proposals", {"excluded": [{"xi": huge}]}),
        (f"{path}/observations", {"design": {"xi": huge}, "outcome": {"y": 1}}),
        (f"{path}/observations", {"design": {"xi": 7}, "outcome": {"y": huge}}),
    ):
        assert len(pointers(refused(service, "POST", where, 422, json=body))) == 1
    refused(service, "GET", f"{path}/eig", 422, params={"designs": json.dumps([{"xi": huge}])})


def test_an_expensive_proposal_becomes_a_job_and_says_why(
    database: Database, make_service: Callable[..., Service]
) -> None:
    service = make_service(database, **DEAR)
    made = session(service)
    asked = propose(service, made["id"], 202, client_id="a")
    assert (asked["cap"], asked["job"]["kind"], asked["job"]["status"]) == (5000.0, "propose", "queued")
    assert asked["evaluations"] > 5000
    assert "15 designs" in asked["explanation"]
    assert propose(service, made["id"], 202, client_id="a")["job"]["id"] == asked["job"]["id"]
    service.run_jobs()
    (told,) = service.get(f"/jobs/{asked['job']['id']}")["result"]["proposals"]
    ready = propose(service, made["id"], client_id="a")
    assert (ready["id"], ready["design"], told["design"]) == (told["id"], {"xi": 7}, {"xi": 7})
    assert ready["eig"] == pytest.approx(EIG[7], abs=1e-9)
    body = {"proposal_id": ready["id"], "outcome": {"y": 0}}
    learnt = service.post(f"/sessions/{made['id']}/observations?next=true", body, 201)
    assert learnt["next"] is None
    assert "takes a job" in learnt["stop"]["note"]
    service.run_jobs()
    (following,) = service.get(f"/jobs/{learnt['next_job']['id']}")["result"]["proposals"]
    assert following["design"] == {"xi": 6}
    refused(service, "GET", f"/sessions/{made['id']}/eig", 422, "name at most")
    assert service.get(f"/sessions/{made['id']}/eig", designs='[{"xi": 7}]')["items"][0]["method"] == "enumeration"


def test_a_proposals_job_fails_with_words_when_nothing_is_left(
    database: Database, make_service: Callable[..., Service]
) -> None:
    service = make_service(database, **DEAR)
    made = session(service)
    asked = propose(service, made["id"], 202, excluded=[{"xi": i} for i in range(1, 16)])
    service.run_jobs()
    job = service.get(f"/jobs/{asked['job']['id']}")
    assert (job["status"], job["error"]["status"]) == ("failed", 409)
    assert "no design is left" in job["error"]["detail"]


def test_a_client_that_asks_in_a_loop_has_one_job_and_is_told_when_it_failed(
    database: Database, make_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = make_service(database, max_design_work=1.0)
    two = {"xi": {"type": "list", "values": [5, 6]}}
    made = session(service, experiment(service, select={"max_repeats": 1}, designs=two))
    for xi in (5, 6):
        observe(service, made["id"], design={"xi": xi}, outcome={"y": 1})
    asked = propose(service, made["id"], 202, client_id="page")["job"]
    with database.write() as writing:
        running = queue.claim(writing, queues=["design"], worker="w", lease_seconds=30, max_crashes=3)
    assert running is not None
    assert propose(service, made["id"], 202, client_id="page")["job"]["id"] == asked["id"] == running.id
    assert propose(service, made["id"], 202, client_id="booth")["job"]["id"] != asked["id"]
    with database.write() as writing:
        queue.release(writing, running.id, running.token)
    assert propose(service, made["id"], 202, client_id="page")["job"]["id"] == asked["id"]
    service.run_jobs()
    path = f"/sessions/{made['id']}/proposals"
    for _ in range(2):
        problem = refused(service, "POST", path, 409, "failed: no design is left", json={"client_id": "page"})
        assert problem["job_id"] == asked["id"]
    other = {"client_id": "page", "excluded": [{"xi": 5}]}  # another wish is another matter
    cancelled = propose(service, made["id"], 202, **other)["job"]["id"]
    service.post(f"/jobs/{cancelled}/cancel")
    refused(service, "POST", path, 409, "was cancelled", json=other)
    monkeypatch.setattr(proposing, "TOLD_SECONDS", 0)
    assert propose(service, made["id"], 202, client_id="page")["job"]["id"] != asked["id"]
    monkeypatch.undo()
    service.run_jobs()
    service.client.delete(f"/v1/sessions/{made['id']}/observations/1").raise_for_status()
    propose(service, made["id"], 202, client_id="page")  # the session has changed
    service.run_jobs()
    assert propose(service, made["id"], client_id="page")["design"] == {"xi": 5}


def test_a_job_under_way_is_not_handed_out_for_another_wish(
    database: Database, make_service: Callable[..., Service]
) -> None:
    service = make_service(database, **DEAR)
    made = session(service)
    asked = propose(service, made["id"], 202, client_id="a", fixed={"xi": 3})["job"]["id"]
    path = f"/sessions/{made['id']}/proposals"
    for wish in ({"fixed": {"xi": 4}}, {"count": 2}, {"excluded": [{"xi": 1}]}):
        problem = refused(service, "POST", path, 409, "wait for it", json={"client_id": "a", **wish})
        assert problem["job_id"] == asked
    assert propose(service, made["id"], 202, client_id="a")["job"]["id"] == asked
    service.run_jobs()
    assert propose(service, made["id"], client_id="a", fixed={"xi": 3})["design"] == {"xi": 3}


def test_a_simulation_shows_what_adaptive_designs_gain(service: Service) -> None:
    made = session(service)
    path = f"/experiments/{made['experiment_id']}/simulations"
    wanted = {"n_draws": 40, "trials": 6, "policies": ["adaptive", "random", "fixed", "staircase"], "seed": 1}
    asked = service.post(path, wanted, 202)
    assert asked["simulation"]["status"] == "queued"
    service.run_jobs()
    found = service.get(f"/simulations/{asked['simulation']['id']}")
    assert found["status"] == "succeeded", found
    curves = {curve["policy"]: curve for curve in found["curves"]}
    assert list(curves) == wanted["policies"]
    for curve in curves.values():
        assert curve["n_truths"] == 40
        assert curve["sd"]["theta"][0] == pytest.approx(2, abs=1e-9)
        assert len(curve["sd"]["theta"]) == len(curve["coverage"]["theta"]) == 7
        assert 0.8 <= curve["coverage"]["theta"][-1] <= 1
    last = {name: curve["sd"]["theta"][-1] for name, curve in curves.items()}
    assert last["adaptive"] < last["fixed"] < last["random"]
    again = service.post(path, wanted, 202)
    service.run_jobs()
    assert service.get(f"/simulations/{again['simulation']['id']}")["curves"] == found["curves"]
    assert len(service.get(path)["items"]) == 2


def test_a_simulation_of_chosen_truths_and_its_refusals(service: Service) -> None:
    made = session(service)
    path = f"/experiments/{made['experiment_id']}/simulations"
    wanted = {"truths": [{"theta": 5.0}], "trials": 3, "policies": [{"name": "fixed", "designs": [{"xi": 5}]}]}
    asked = service.post(path, wanted, 202)
    service.run_jobs()
    (curve,) = service.get(f"/simulations/{asked['simulation']['id']}")["curves"]
    assert curve["rmse"]["theta"][0] == pytest.approx(2.0, abs=1e-9)  # the prior's mean is 7
    for changes, pointer in (
        ({"truths": [{"phi": 1.0}]}, "/truths/0"),
        ({"truths": [{"theta": 5.0}, {"theta": 1e300}]}, "/truths/1"),
        ({"policies": [{"name": "fixed", "designs": [{"x": 1}]}]}, "/policies/0/designs"),
        ({"policies": ["random", {"name": "staircase", "start": 400}]}, "/policies/1/start"),
        ({"policies": [{"name": "staircase", "start": 0.5}]}, "/policies/0/start"),
        ({"policies": [{"name": "staircase", "start": 4.5}]}, "/policies/0/start"),
        ({"n_draws": 5}, ""),
        ({"truths": [{"theta": 5.0}] * 1001, "trials": 1000}, "/trials"),
    ):
        assert pointers(refused(service, "POST", path, 422, json={**wanted, **changes})) == [pointer]


def test_the_trials_of_a_simulation_are_still_called_rounds_too(service: Service) -> None:
    path = f"/experiments/{experiment(service)}/simulations"
    for name in ("rounds", "trials"):
        asked = service.post(path, {"n_draws": 1, name: 2, "policies": ["random"]}, 202)["simulation"]
        assert (asked["request"]["rounds"], asked["request"]["trials"]) == (2, 2)
        service.run_jobs()
        (curve,) = service.get(f"/simulations/{asked['id']}")["curves"]
        assert len(curve["information"]) == 3
    assert pointers(refused(service, "POST", path, 422, json={"rounds": 0})) == ["/rounds"]
    assert pointers(refused(service, "POST", path, 422, json={})) == ["/trials"]
    assert pointers(refused(service, "POST", path, 422, json={"rounds": 2, "trials": 2})) == ["/rounds"]


def test_a_simulation_cut_short_goes_on_where_it_was(
    database: Database, make_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = make_service(database, checkpoint_seconds=1e-9, max_attempts=1)
    made = session(service)
    path = f"/experiments/{made['experiment_id']}/simulations"
    wanted = {"n_draws": 4, "trials": 2, "policies": ["random", "fixed"], "seed": 3}
    run, truths = simulations._run, []

    def until_the_sixth(*arguments: Any) -> Any:
        truths.append(arguments[2])
        if len(truths) == 6:
            raise MemoryError
        return run(*arguments)

    monkeypatch.setattr(simulations, "_run", until_the_sixth)
    asked = service.post(path, wanted, 202)
    service.run_jobs()
    assert service.get(f"/simulations/{asked['simulation']['id']}")["status"] != "succeeded"
    service.post(f"/jobs/{asked['job']['id']}/retry")
    service.run_jobs()
    found = service.get(f"/simulations/{asked['simulation']['id']}")
    assert (found["status"], len(truths)) == ("succeeded", 6 + 3)
    again = service.post(path, wanted, 202)
    service.run_jobs()
    assert service.get(f"/simulations/{again['simulation']['id']}")["curves"] == found["curves"]


@on_sqlite
def test_a_simulation_has_a_cap_that_can_be_set(database: Database, make_service: Callable[..., Service]) -> None:
    service = make_service(database, max_simulated_trials=24)
    path = f"/experiments/{experiment(service)}/simulations"
    wanted = {"n_draws": 4, "trials": 3, "policies": ["random", "fixed"]}
    service.post(path, wanted, 202)
    problem = refused(service, "POST", path, 422, "is 32, over the cap of 24", json={**wanted, "trials": 4})
    assert pointers(problem) == ["/trials"]


def test_no_proposal_waits_for_a_simulation(database: Database, make_service: Callable[..., Service]) -> None:
    service = make_service(database, **DEAR)
    made = session(service)
    service.post(f"/experiments/{made['experiment_id']}/simulations", {"trials": 2}, 202)
    asked = propose(service, made["id"], 202)["job"]["id"]
    assert run_due(database, service.services.settings, ["ingest", "score", "design"], HANDLERS) == [asked]
    assert service.get(f"/jobs/{asked}")["status"] == "succeeded"


@pytest.mark.parametrize("how", ["the session is deleted", "the session is closed", "the experiment is deleted"])
def test_jobs_of_proposals_that_nobody_can_have_are_cancelled(
    database: Database, make_service: Callable[..., Service], how: str
) -> None:
    service = make_service(database, **DEAR)
    made = session(service)
    other = session(service, None if how == "the experiment is deleted" else made["experiment_id"])
    running, waiting = (propose(service, made["id"], 202, client_id=each)["job"]["id"] for each in "ab")
    kept = propose(service, other["id"], 202, client_id="a")["job"]["id"]
    with database.write() as writing:
        claimed = queue.claim(writing, queues=["design"], worker="w", lease_seconds=30, max_crashes=3)
    assert claimed is not None
    assert claimed.id == running
    path = f"/v1/sessions/{made['id']}"
    if how == "the session is closed":
        service.client.patch(path, json={"closed": True}).raise_for_status()
    else:
        experiment_path = f"/v1/experiments/{made['experiment_id']}"
        service.client.delete(experiment_path if "experiment" in how else path).raise_for_status()
    assert service.get(f"/jobs/{running}")["cancel_requested"]
    assert service.get(f"/jobs/{waiting}")["status"] == "cancelled"
    assert service.get(f"/jobs/{kept}")["status"] == "queued"


def test_a_waiting_simulation_can_be_cancelled(service: Service) -> None:
    made = session(service)
    asked = service.post(f"/experiments/{made['experiment_id']}/simulations", {"trials": 2}, 202)
    service.post(f"/jobs/{asked['job']['id']}/cancel")
    service.run_jobs()
    found = service.get(f"/simulations/{asked['simulation']['id']}")
    assert (found["status"], found["curves"]) == ("cancelled", None)


@on_sqlite
def test_the_catalogue_is_listed_and_each_of_its_specs_is_taken(service: Service) -> None:
    page = service.get("/catalog", limit=3)
    rest = service.get("/catalog", limit=1000, cursor=page["next_cursor"])
    items = [*page["items"], *rest["items"]]
    assert [item["id"] for item in items] == sorted(CATALOGUE)
    for item in items:
        assert service.get(f"/catalog/{item['id']}") == item
        made = service.post("/experiments", item["spec"], 201)
        assert made["spec"] == item["spec"]
    refused(service, "GET", "/catalog/nothing", 404, "lists what there is")


def test_a_model_with_three_parameters_and_two_outcomes_runs_through(service: Service) -> None:
    """A nuisance, a continuous and a categorical outcome, and named designs."""
    spec = {
        "parameters": {"a": {"dist": "normal", "loc": 0, "scale": 1}, "b": {"dist": "uniform", "low": 0, "high": 1}},
        "designs": {
            "dose": {"type": "list", "values": [0.5, 1, 2]},
            "arm": {"type": "categorical", "values": ["left", "right"]},
        },
        "outcome": {
            "response": {"family": "bernoulli", "logit": "a * dose + where(arm == 1, b, 0)"},
            "pain": {"family": "categorical", "logits": ["0", "a", "b"], "labels": ["none", "some", "much"]},
        },
        "targets": ["a"],
    }
    made = session(service, str(service.post("/experiments", spec, 201)["id"]))
    proposal = propose(service, made["id"])
    assert set(proposal["design"]) == {"dose", "arm"}
    learnt = observe(service, made["id"], proposal_id=proposal["id"], outcome={"response": 1, "pain": "some"})
    assert learnt["posterior"]["a"]["mean"] > 0
    assert set(learnt["posterior"]) == {"a", "b"}


@on_sqlite
def test_the_table_on_the_page_about_experiments_is_taken(service: Service) -> None:
    page = (Path(__file__).parents[3] / "docs" / "experiments.md").read_text()
    (text,) = re.findall(r"<!-- example: table -->\n```json\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    made = session(service, str(service.post("/experiments", json.loads(text), 201)["id"]))
    assert propose(service, made["id"])["design"] == {"task": "hard"}
    learnt = observe(service, made["id"], design={"task": "hard"}, outcome={"y": "solves"})
    assert learnt["posterior"]["skill"]["mean"] == pytest.approx((0.3 * 0.4 + 2 * 0.2 * 0.9) / 0.325, abs=1e-12)

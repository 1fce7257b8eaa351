"""Sessions of an experiment: propose, observe, learn."""

import csv
import io
import math
import threading
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from pydantic import TypeAdapter

from app.db.engine import Database
from app.db.tables import Proposal
from app.sessions import read_trials as reading
from app.web.fields import Result
from bensemble_core.design import CATALOGUE, Experiment
from bensemble_core.errors import NotFinite
from tests.app.conftest import Service
from tests.app.designing import DIGIT_SPAN, EIG, GREEDY, answer, experiment, observe, propose, session, trial
from tests.app.hammering import pointers, refused, stored


def test_ten_greedy_rounds_are_the_reference_sequence(service: Service) -> None:
    made = session(service)
    designs = []
    for n in range(1, 11):
        proposal = propose(service, made["id"])
        designs.append(proposal["design"]["xi"])
        learnt = observe(service, made["id"], proposal_id=proposal["id"], outcome=answer(proposal["design"]))
        assert (learnt["n"], learnt["revision"]) == (n, n)
    assert designs == GREEDY
    assert learnt["posterior"]["theta"]["mean"] == pytest.approx(5.4081102848, abs=1e-9)
    assert learnt["posterior"]["theta"]["sd"] == pytest.approx(0.6550636263, abs=1e-9)
    assert service.get(f"/sessions/{made['id']}/posterior")["posterior"] == learnt["posterior"]


def test_one_round_trip_a_trial_gives_the_same_sequence(service: Service) -> None:
    made = session(service)
    proposal = propose(service, made["id"], client_id="lab")
    designs = []
    for _ in GREEDY:
        designs.append(proposal["design"]["xi"])
        body = {"proposal_id": proposal["id"], "outcome": answer(proposal["design"])}
        learnt = service.post(f"/sessions/{made['id']}/observations?next=true", body, 201)
        proposal = learnt["next"]
    assert designs == GREEDY
    assert proposal["client_id"] == "lab"
    assert learnt["posterior"]["theta"]["mean"] == pytest.approx(5.4081102848, abs=1e-9)


def test_outcomes_named_by_their_design_answer_what_was_proposed(service: Service) -> None:
    made = session(service)
    designs = []
    for _ in GREEDY:
        proposal = propose(service, made["id"])
        designs.append(proposal["design"]["xi"])
        learnt = observe(service, made["id"], design=proposal["design"], outcome=answer(proposal["design"]))
        assert learnt["proposal_id"] == proposal["id"]
    assert designs == GREEDY


def test_the_whole_eig_curve_has_the_reference_values(service: Service) -> None:
    made = session(service)
    curve = service.get(f"/sessions/{made['id']}/eig")["items"]
    assert [item["design"]["xi"] for item in curve] == list(range(1, 16))
    for xi, expected in EIG.items():
        assert curve[xi - 1]["eig"] == pytest.approx(expected, abs=1e-9)
    some = service.get(f"/sessions/{made['id']}/eig", designs='[{"xi": 10}, {"xi": 3}]')["items"]
    assert [item["eig"] for item in some] == pytest.approx([curve[9]["eig"], curve[2]["eig"]], abs=1e-14)


def test_the_first_proposal_is_the_best_design_with_its_runner_up(service: Service) -> None:
    proposal = propose(service, session(service)["id"])
    assert proposal["design"] == {"xi": 7}
    assert proposal["eig"] == pytest.approx(EIG[7], abs=1e-9)
    assert proposal["method"] == "enumeration"
    assert proposal["runner_up"]["design"] == {"xi": 6}  # of 6 and 8, which promise the same, by the seed
    assert proposal["runner_up"]["eig"] == pytest.approx(EIG[6], abs=1e-9)
    assert proposal["stop"] == {"stop": False, "reasons": [], "note": None}
    assert proposal["batch"] is None


def test_both_meanings_of_information_are_told(service: Service) -> None:
    experiment_id = experiment(service)
    for y, drop, kl in ((1, 0.151444, 0.065631), (0, 0.263347, 0.559264)):
        learnt = observe(service, session(service, experiment_id)["id"], design={"xi": 5}, outcome={"y": y})
        assert learnt["entropy_drop"] == pytest.approx(drop, abs=1e-6)
        assert learnt["kl"] == pytest.approx(kl, abs=1e-6)
        assert learnt["surprise"] == pytest.approx(-learnt["log_evidence"])


def test_the_order_of_outcomes_does_not_matter_and_undo_leaves_no_trace(service: Service) -> None:
    """Posterior and evidence of xi = 5, 7, 9 with y = 1, 1, 0 are known."""
    made = session(service)
    path = f"/sessions/{made['id']}"
    for xi, y in ((9, 0), (2, 0), (5, 1), (7, 1)):
        observe(service, made["id"], design={"xi": xi}, outcome={"y": y})
    assert service.client.delete(f"/v1{path}/observations/2").status_code == 204
    found = service.get(f"{path}/posterior")
    assert (found["n"], found["revision"]) == (3, 5)
    assert found["posterior"]["theta"]["mean"] == pytest.approx(7.744812878, abs=1e-9)
    assert found["posterior"]["theta"]["sd"] == pytest.approx(1.229420209, abs=1e-9)
    assert found["log_evidence"] == pytest.approx(-1.271770834, abs=1e-9)
    refused(service, "DELETE", f"{path}/observations/2", 404, "no observation 2")
    assert [item["n"] for item in service.get(f"{path}/trials")["items"]] == [1, 3, 4]


def test_what_later_outcomes_taught_is_computed_anew_after_an_undo(service: Service) -> None:
    experiment_id = experiment(service)
    made, alone = (session(service, experiment_id)["id"] for _ in range(2))
    proposal = propose(service, made)
    observe(service, made, design={"xi": 2}, outcome={"y": 0})
    body = {"proposal_id": proposal["id"], "design": {"xi": 5}, "outcome": {"y": 1}}
    before = observe(service, made, **body)
    observe(service, made, design={"xi": 9}, outcome={"y": 0})
    assert service.client.delete(f"/v1/sessions/{made}/observations/1").status_code == 204
    expected = [observe(service, alone, design={"xi": xi}, outcome={"y": y}) for xi, y in ((5, 1), (9, 0))]
    figures = ("posterior", "entropy_drop", "kl", "log_evidence", "surprise", "guards", "warnings")
    again = observe(service, made, **body)  # what is sent again is answered with what holds now
    assert again["n"] == before["n"] == 2
    assert again["posterior"] == expected[0]["posterior"] != before["posterior"]
    for _ in range(2):  # the second time as it was kept
        found = service.get(f"/sessions/{made}/trials")["items"]
        assert [(item["n"], item["is_stale"]) for item in found] == [(2, False), (3, False)]
        for item, fresh in zip(found, expected, strict=True):
            assert {name: item[name] for name in figures} == {name: fresh[name] for name in figures}
            assert (
                item["stop"]["note"]
                == "whether the best design still promised enough is not looked at again after an undo"
            )
    assert found[-1]["posterior"] == service.get(f"/sessions/{made}/posterior")["posterior"]
    sheet = service.client.get(f"/v1/sessions/{made}/trials", params={"format": "csv"}).text
    row = list(csv.DictReader(io.StringIO(sheet)))[-1]
    assert (float(row["theta_sd"]), row["is_stale"]) == (expected[-1]["posterior"]["theta"]["sd"], "False")


def test_rounds_that_take_too_long_to_compute_anew_are_marked_and_have_no_figures(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = session(service)["id"]
    for xi in (2, 5, 9):
        observe(service, made, design={"xi": xi}, outcome={"y": 1})
    assert service.client.delete(f"/v1/sessions/{made}/observations/2").status_code == 204
    path = f"/sessions/{made}/trials"
    with monkeypatch.context() as patched:
        patched.setattr(reading, "PATIENCE", -1)
        first, last = service.get(path)["items"]
        assert (first["is_stale"], last["is_stale"]) == (False, True)
        assert first["posterior"] is not None
        assert (last["posterior"], last["log_evidence"], last["surprise"]) == (None, None, None)
        assert "taken back" in last["warnings"][0]
        sheet = service.client.get(f"/v1{path}", params={"format": "csv"}).text
        row = list(csv.DictReader(io.StringIO(sheet)))[-1]
        assert (row["theta_mean"], row["surprise"], row["is_stale"]) == ("", "", "True")
    last = service.get(path)["items"][-1]
    assert not last["is_stale"]
    assert last["posterior"] == service.get(f"/sessions/{made}/posterior")["posterior"]


def test_an_undo_that_is_sent_again_takes_nothing_else_back(service: Service) -> None:
    made = session(service)
    path = f"/sessions/{made['id']}"
    for n in (1, 2):
        assert observe(service, made["id"], design={"xi": 7}, outcome={"y": 1})["n"] == n
    assert service.client.delete(f"/v1{path}/observations/2").status_code == 204
    assert observe(service, made["id"], design={"xi": 5}, outcome={"y": 0})["n"] == 3
    refused(service, "DELETE", f"{path}/observations/2", 404, "no observation 2")
    assert [item["n"] for item in service.get(f"{path}/trials")["items"]] == [1, 3]


def test_an_outcome_sent_again_is_recorded_once_and_another_is_refused(service: Service) -> None:
    made = session(service)
    proposal = propose(service, made["id"], client_id="a")
    body = {"proposal_id": proposal["id"], "outcome": {"y": 1}}
    path = f"/sessions/{made['id']}/observations"
    first = service.post(f"{path}?next=true", body, 201)
    assert service.post(f"{path}?next=true", body, 201) == first
    assert service.post(path, {**body, "revision": 0}, 201) == {**first, "next": None}
    refused(service, "POST", path, 409, "has the outcome {'y': 1}", json={**body, "outcome": {"y": 0}})
    refused(service, "POST", path, 409, "take that back", json={**body, "design": {"xi": 3}})
    assert service.get(f"/sessions/{made['id']}")["n_observations"] == 1
    assert service.client.delete(f"/v1{path}/1").status_code == 204
    corrected = service.post(path, {**body, "outcome": {"y": 0}}, 201)
    assert (corrected["n"], corrected["revision"], corrected["proposal_id"]) == (2, 3, proposal["id"])


def test_the_optimistic_lock_tells_of_a_change_by_others(service: Service) -> None:
    made = session(service)
    path = f"/sessions/{made['id']}/observations"
    body = {"design": {"xi": 7}, "outcome": {"y": 1}, "revision": 0}
    assert service.post(path, body, 201)["revision"] == 1
    refused(service, "POST", path, 409, "at revision 1, not 0", json=body)
    assert service.post(path, {**body, "revision": 1}, 201)["revision"] == 2


def test_a_revision_is_still_called_a_round_too(service: Service) -> None:
    made = session(service)
    proposal = propose(service, made["id"])
    path = f"/sessions/{made['id']}"
    body = {"proposal_id": proposal["id"], "outcome": {"y": 1}}
    refused(service, "POST", f"{path}/observations", 409, "at revision 0, not 3", json={**body, "round": 3})
    both = refused(service, "POST", f"{path}/observations", 422, json={**body, "round": 0, "revision": 0})
    assert pointers(both) == ["/round"]
    recorded = service.post(f"{path}/observations?next=true", {**body, "round": 0}, 201)
    assert (made["round"], proposal["round"], recorded["round"], recorded["next"]["round"]) == (0, 0, 1, 1)
    read = [service.get(path + each) for each in ("", "/posterior", "/eig", "/stop")]
    assert all(each["round"] == each["revision"] for each in (made, proposal, recorded, *read))


def test_the_design_that_was_run_counts_and_the_proposal_is_answered(service: Service) -> None:
    made = session(service)
    proposal = propose(service, made["id"])
    learnt = observe(service, made["id"], proposal_id=proposal["id"], design={"xi": 5}, outcome={"y": 1})
    assert learnt["entropy_drop"] == pytest.approx(0.151444, abs=1e-6)
    assert service.get(f"/proposals/{proposal['id']}")["status"] == "observed"
    (round_,) = service.get(f"/sessions/{made['id']}/trials")["items"]
    assert (round_["proposed"], round_["design"], round_["outcome"]) == ({"xi": 7}, {"xi": 5}, {"y": 1})
    assert round_["eig"] == proposal["eig"]


def test_a_client_gets_its_pending_proposal_again_and_others_get_what_that_leaves(service: Service) -> None:
    """The best pair is {7, 7}: its joint EIG is known."""
    made = session(service)
    mine = propose(service, made["id"], client_id="a")
    assert propose(service, made["id"], client_id="a", count=1) == mine
    theirs = propose(service, made["id"], client_id="b")
    assert theirs["id"] != mine["id"]
    assert theirs["joint_eig"] == pytest.approx(0.3823915169, abs=1e-9)
    assert theirs["eig"] == pytest.approx(0.3823915169 - EIG[7], abs=1e-9)
    observe(service, made["id"], proposal_id=mine["id"], outcome={"y": 1})
    assert propose(service, made["id"], client_id="a")["id"] not in (mine["id"], theirs["id"])
    assert propose(service, made["id"], client_id="b") == theirs


def test_a_batch_comes_together_and_comes_again(service: Service) -> None:
    made = session(service)
    batch = propose(service, made["id"], client_id="a", count=2)
    assert [item["design"] for item in batch["batch"]] == [{"xi": 7}, {"xi": 7}]
    assert batch["batch"][1]["joint_eig"] == pytest.approx(0.3823915169, abs=1e-9)
    assert batch["id"] == batch["batch"][0]["id"]
    assert propose(service, made["id"], client_id="a") == batch
    path = f"/sessions/{made['id']}/observations?next=true"
    body = {"proposal_id": batch["id"], "outcome": {"y": 1}}
    assert service.post(path, body, 201)["next"]["id"] == batch["batch"][1]["id"]


def test_fixed_and_excluded_designs_are_heeded(service: Service) -> None:
    made = session(service)
    assert propose(service, made["id"], excluded=[{"xi": 7}])["design"]["xi"] in (6, 8)
    assert propose(service, made["id"], fixed={"xi": 3})["design"] == {"xi": 3}
    path = f"/sessions/{made['id']}/proposals"
    everything = [{"xi": i} for i in range(1, 16)]
    refused(service, "POST", path, 409, "no design is left", json={"excluded": everything})
    problem = refused(service, "POST", path, 422, "to fix", json={"fixed": {"x": 3}})
    assert pointers(problem) == ["/fixed"]
    assert pointers(refused(service, "POST", path, 422, json={"excluded": [{}]})) == ["/excluded"]


def test_a_pending_proposal_is_not_handed_out_for_a_wish_that_it_does_not_meet(service: Service) -> None:
    made = session(service)
    path = f"/sessions/{made['id']}/proposals"
    mine = propose(service, made["id"], client_id="a")
    assert mine["design"] == {"xi": 7}
    for wish, words in (
        ({"fixed": {"xi": 3}}, "has not the fixed {'xi': 3}"),
        ({"excluded": [{"xi": 5}, {"xi": 7}]}, "which is excluded"),
        ({"count": 3}, "1 of them, not 3"),
    ):
        problem = refused(service, "POST", path, 409, words, json={"client_id": "a", **wish})
        assert "abandon" in problem["detail"]
        assert problem["proposal_ids"] == [mine["id"]]
    met = {"fixed": {"xi": 7}, "excluded": [{"xi": 5}], "count": 1}
    assert propose(service, made["id"], client_id="a", **met) == mine
    assert pointers(refused(service, "POST", path, 422, json={"client_id": "a", "fixed": {"x": 3}})) == ["/fixed"]
    service.post(f"/proposals/{mine['id']}/abandon", {}, 200)
    assert propose(service, made["id"], client_id="a", fixed={"xi": 3})["design"] == {"xi": 3}


def test_a_proposal_expires_and_its_late_outcome_is_taken(service: Service) -> None:
    made = session(service)
    late = propose(service, made["id"], client_id="a", expires_in=600)
    assert service.get(f"/sessions/{made['id']}")["n_pending"] == 1
    with service.services.database.write() as session_:
        stored = session_.get_one(Proposal, late["id"])
        assert stored.expires_at is not None
        assert (stored.expires_at - stored.created_at).total_seconds() == pytest.approx(600, abs=1)
        stored.expires_at = stored.created_at
    assert service.get(f"/sessions/{made['id']}")["n_pending"] == 0
    fresh = propose(service, made["id"], client_id="a")
    assert fresh["id"] != late["id"]
    assert fresh["eig"] == late["eig"]  # the stale one no longer counts as run
    found = service.get(f"/proposals/{late['id']}")
    assert (found["status"], found["reason"]) == ("stale", "no outcome came in time")
    assert observe(service, made["id"], proposal_id=late["id"], outcome={"y": 1})["n"] == 1
    assert service.get(f"/proposals/{late['id']}")["status"] == "observed"


def test_an_abandoned_proposal_is_not_pending(service: Service) -> None:
    made = session(service)
    first = propose(service, made["id"], client_id="a")
    given_up = service.post(f"/proposals/{first['id']}/abandon", {"reason": "a fire alarm"}, 200)
    assert (given_up["status"], given_up["reason"]) == ("abandoned", "a fire alarm")
    again = propose(service, made["id"], client_id="a")
    assert again["id"] != first["id"]
    assert (again["design"], again["eig"]) == (first["design"], first["eig"])
    listed = service.get(f"/sessions/{made['id']}/proposals")["items"]
    assert [item["status"] for item in listed] == ["abandoned", "pending"]
    observe(service, made["id"], proposal_id=again["id"], outcome={"y": 1})
    refused(service, "POST", f"/proposals/{again['id']}/abandon", 409, "outcome already", json={})


def test_the_stopping_rule_is_told_with_its_reason(service: Service) -> None:
    made = session(service, experiment(service, stop={"any": [{"max_rounds": 2}, {"sd": {"theta": 0.1}}]}))
    assert not trial(service, made["id"])["stop"]["stop"]
    told = trial(service, made["id"])["stop"]
    assert (told["stop"], told["reasons"]) == (True, ["2 trials of at most 2"])
    assert service.get(f"/sessions/{made['id']}/stop")["reasons"] == told["reasons"]
    assert propose(service, made["id"])["stop"]["stop"]  # and you may go on


def test_a_budget_ends_the_proposals(service: Service) -> None:
    made = session(service, experiment(service, stop={"budget": 2}))
    trial(service, made["id"])
    trial(service, made["id"])
    path = f"/sessions/{made['id']}/proposals"
    refused(service, "POST", path, 409, "no design is left", json={})
    assert service.get(f"/sessions/{made['id']}/stop")["stop"]


def test_a_session_starts_from_another_ones_posterior(service: Service) -> None:
    experiment_id = experiment(service)
    first = session(service, experiment_id)
    for _ in range(3):
        trial(service, first["id"])
    second = session(service, experiment_id, prior={"session_id": first["id"]})
    assert (second["n_prior_observations"], second["n_observations"]) == (3, 0)
    known = service.get(f"/sessions/{first['id']}/posterior")
    inherited = service.get(f"/sessions/{second['id']}/posterior")
    assert inherited["posterior"] == known["posterior"]
    assert inherited["log_evidence"] == 0.0
    assert propose(service, second["id"])["design"] == propose(service, first["id"])["design"]
    trial(service, first["id"])  # what comes later is not inherited
    assert service.get(f"/sessions/{second['id']}/posterior")["posterior"] == known["posterior"]


def test_a_pooled_prior_counts_every_observation_once(service: Service) -> None:
    experiment_id = experiment(service)
    first = session(service, experiment_id)
    for xi, y in ((5, 1), (7, 1)):
        observe(service, first["id"], design={"xi": xi}, outcome={"y": y})
    second = session(service, experiment_id, prior={"session_id": first["id"]})
    observe(service, second["id"], design={"xi": 9}, outcome={"y": 0})
    for prior in ("pooled", {"session_ids": [second["id"], first["id"]]}, {"session_ids": [second["id"]]}):
        third = session(service, experiment_id, prior=prior)
        assert third["n_prior_observations"] == 3
        found = service.get(f"/sessions/{third['id']}/posterior")["posterior"]["theta"]
        assert found["mean"] == pytest.approx(7.744812878, abs=1e-9)
        assert service.client.delete(f"/v1/sessions/{third['id']}").status_code == 204


def test_what_is_inherited_counts_neither_as_a_round_nor_as_a_cost(service: Service) -> None:
    experiment_id = experiment(service, stop={"any": [{"max_rounds": 2}, {"budget": 2}]})
    first = session(service, experiment_id)
    trial(service, first["id"])
    trial(service, first["id"])
    second = session(service, experiment_id, prior="pooled")
    assert not service.get(f"/sessions/{second['id']}/stop")["stop"]
    assert not trial(service, second["id"])["stop"]["stop"]
    assert trial(service, second["id"])["stop"]["stop"]


def test_a_session_of_another_experiment_is_no_prior(service: Service) -> None:
    other = session(service)
    path = f"/experiments/{experiment(service)}/sessions"
    problem = refused(service, "POST", path, 422, "no session", json={"prior": {"session_id": other["id"]}})
    assert pointers(problem) == ["/prior/session_id"]
    problem = refused(service, "POST", path, 422, json={"prior": {"session_ids": [other["id"]]}})
    assert pointers(problem) == ["/prior/session_ids/0"]


def test_rounds_as_csv_have_a_line_an_outcome(service: Service) -> None:
    made = session(service)
    for _ in range(3):
        learnt = trial(service, made["id"])
    response = service.client.get(f"/v1/sessions/{made['id']}/trials", params={"format": "csv"})
    assert response.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(response.text)))
    assert [(row["n"], row["xi"], row["y"]) for row in rows] == [("1", "7", "0"), ("2", "6", "0"), ("3", "5", "1")]
    assert float(rows[-1]["theta_mean"]) == learnt["posterior"]["theta"]["mean"]
    assert float(rows[0]["eig"]) == pytest.approx(EIG[7], abs=1e-9)
    page = service.get(f"/sessions/{made['id']}/trials", limit=2)
    rest = service.get(f"/sessions/{made['id']}/trials", limit=2, cursor=page["next_cursor"])
    assert [item["n"] for item in (*page["items"], *rest["items"])] == [1, 2, 3]
    assert rest["next_cursor"] is None


def test_the_posterior_in_its_forms_is_one_posterior(service: Service) -> None:
    made = session(service)
    trial(service, made["id"])
    path = f"/sessions/{made['id']}/posterior"
    theta = service.get(path)["posterior"]["theta"]
    grid = service.get(path, form="grid")["grid"]
    mean = sum(w * x for w, x in zip(grid["weights"], grid["values"]["theta"], strict=True))
    assert mean == pytest.approx(theta["mean"], abs=1e-12)
    samples = service.get(path, form="samples", n=5000, seed=3)["samples"]["theta"]
    assert len(samples) == 5000
    assert sum(samples) / 5000 == pytest.approx(theta["mean"], abs=4 * theta["sd"] / 5000**0.5)
    assert service.get(path, form="samples", n=5000, seed=3)["samples"]["theta"] == samples
    marginal = service.get(path, form="marginals", n=400, mass=0.5)["marginals"]["theta"]
    step = marginal["values"][1] - marginal["values"][0]
    assert sum(marginal["densities"]) * step == pytest.approx(0.999, abs=1e-3)
    low, high = marginal["hdi"]
    inside = sum(d for v, d in zip(marginal["values"], marginal["densities"], strict=True) if low <= v <= high) * step
    assert inside == pytest.approx(0.5, abs=0.02)


def test_a_closed_session_is_read_only_until_it_is_opened_again(service: Service) -> None:
    made = session(service)
    path = f"/sessions/{made['id']}"
    first = propose(service, made["id"], client_id="a")
    told = {"proposal_id": first["id"], "outcome": {"y": 1}}
    pending = service.post(f"{path}/observations?next=true", told, 201)["next"]
    assert service.client.patch(f"/v1{path}", json={"closed": True, "name": "done"}).json()["status"] == "closed"
    before = stored(service)
    for method, where, body in (
        ("POST", f"{path}/proposals", {"json": {}}),
        ("POST", f"{path}/proposals", {"json": {"client_id": "a"}}),
        ("POST", f"{path}/observations", {"json": {"design": {"xi": 7}, "outcome": {"y": 1}}}),
        ("POST", f"{path}/observations", {"json": {"proposal_id": pending["id"], "outcome": {"y": 1}}}),
        ("POST", f"/proposals/{pending['id']}/abandon", {"json": {}}),
        ("DELETE", f"{path}/observations/1", {}),
    ):
        refused(service, method, where, 409, "is closed", **body)
    again = service.post(f"{path}/observations?next=true", told, 201)  # recorded before: it is told as it was
    assert (again["n"], again["next"]) == (1, None)
    assert "is closed" in again["next_problem"]
    assert stored(service) == before
    assert service.get(f"{path}/posterior")["n"] == 1
    assert service.client.patch(f"/v1{path}", json={"closed": False}).json()["status"] == "open"
    assert propose(service, made["id"], client_id="a")["id"] == pending["id"]
    trial(service, made["id"])


def test_an_outcome_that_cannot_be_is_refused_where_it_is_wrong(service: Service) -> None:
    made = session(service)
    path = f"/sessions/{made['id']}/observations"
    for body, pointer in (
        ({"design": {"xi": 7}, "outcome": {"y": 2}}, "/outcome"),
        ({"design": {"xi": 7}, "outcome": {"y": "yes"}}, "/outcome"),
        ({"design": {"xi": 7}, "outcome": {}}, "/outcome"),
        ({"design": {"xi": 7.5}, "outcome": {"y": 1}}, "/design"),
        ({"design": {"x": 7}, "outcome": {"y": 1}}, "/design"),
        ({"outcome": {"y": 1}}, ""),
    ):
        assert pointers(refused(service, "POST", path, 422, json=body)) == [pointer]
    unknown = {"proposal_id": "no", "outcome": {"y": 1}}
    refused(service, "POST", path, 404, "no proposal 'no'", json=unknown)


def test_an_outcome_that_the_model_rules_out_is_refused(service: Service) -> None:
    """Above the threshold every answer is right: a wrong one there has no chance under any parameter."""
    sure = {"y": {"family": "bernoulli", "prob": "where(xi > 0, 1, 0.5 + 0 * theta)"}}
    made = session(service, experiment(service, outcome=sure, let={}))
    path = f"/sessions/{made['id']}/observations"
    for query in ("", "?next=true"):
        problem = refused(
            service, "POST", path + query, 422, "no chance", json={"design": {"xi": 7}, "outcome": {"y": 0}}
        )
        assert pointers(problem) == ["/outcome"]


def test_a_seed_of_its_own_breaks_ties_differently_and_always_the_same(service: Service) -> None:
    """Two designs of equal worth: which comes first is the seed's."""
    experiment_id = experiment(service, designs={"xi": {"type": "list", "values": [5, 9]}})
    first = {
        seed: propose(service, session(service, experiment_id, seed=seed)["id"])["design"]["xi"] for seed in range(12)
    }
    again = {
        seed: propose(service, session(service, experiment_id, seed=seed)["id"])["design"]["xi"] for seed in range(12)
    }
    assert first == again
    assert set(first.values()) == {5, 9}


def test_fifty_sessions_in_parallel_are_each_consistent(service: Service) -> None:
    """Each with a participant of its own, and all on one experiment; none sees anything of another."""
    experiment_id = experiment(service)
    made = [session(service, experiment_id)["id"] for _ in range(50)]
    found: dict[str, tuple[list[int], dict[str, Any]]] = {}

    def take_part(session_id: str) -> None:
        proposal = propose(service, session_id, client_id="p")
        designs = []
        for _ in range(4):
            designs.append(proposal["design"]["xi"])
            body = {"proposal_id": proposal["id"], "outcome": answer(proposal["design"])}
            learnt = service.post(f"/sessions/{session_id}/observations?next=true", body, 201)
            proposal = learnt["next"]
        found[session_id] = designs, learnt

    threads = [threading.Thread(target=take_part, args=(session_id,)) for session_id in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) == set(made)
    assert all(designs == GREEDY[:4] for designs, _ in found.values())
    assert len({str(learnt["posterior"]) for _, learnt in found.values()}) == 1
    assert all(learnt["revision"] == 4 for _, learnt in found.values())


def test_many_clients_of_one_session_lose_nothing(service: Service) -> None:
    made = session(service)
    seen: list[dict[str, Any]] = []

    def take_part(client_id: str) -> None:
        proposal = propose(service, made["id"], client_id=client_id)
        body = {"proposal_id": proposal["id"], "outcome": answer(proposal["design"])}
        seen.append(observe(service, made["id"], **body))

    threads = [threading.Thread(target=take_part, args=(f"client {i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(learnt["n"] for learnt in seen) == list(range(1, 9))
    rounds = service.get(f"/sessions/{made['id']}/trials")["items"]
    assert len({item["proposal_id"] for item in rounds}) == 8
    alone = session(service)
    for item in reversed(rounds):
        observe(service, alone["id"], design=item["design"], outcome=item["outcome"])
    same = [service.get(f"/sessions/{i}/posterior")["posterior"]["theta"]["mean"] for i in (made["id"], alone["id"])]
    assert same[0] == pytest.approx(same[1], abs=1e-12)


def test_a_replay_gives_the_librarys_own_proposals_on_either_database(service: Service) -> None:
    """With ties, random rounds and a cost, all drawn from the seed; stored JSON may come back in another order."""
    spec = {
        "parameters": {"a": {"dist": "normal", "loc": 0, "scale": 1}, "b": {"dist": "normal", "loc": 0, "scale": 1}},
        "designs": {
            "x": {"type": "list", "values": [-1, -0.5, 0.1, 0.5, 1]},
            "z": {"type": "integer", "low": 1, "high": 3},
        },
        "outcome": {"y": {"family": "bernoulli", "logit": "a * z + b * x"}},
        "cost": "1 + 0.1 * z",
        "select": {"epsilon": 0.3, "seed": 11},
    }
    made = session(service, str(service.post("/experiments", spec, 201)["id"]))
    library = Experiment.from_spec(spec)
    observations: list[tuple[dict[str, Any], dict[str, Any]]] = []
    chosen = set()
    for i in range(8):
        (expected,) = library.propose(observations)
        proposal = propose(service, made["id"])
        assert (proposal["design"], proposal["eig"], proposal["chosen"]) == (
            expected.design,
            expected.eig,
            expected.reason,
        )
        chosen.add(proposal["chosen"])
        outcome = {"y": i % 2}
        learnt = observe(service, made["id"], proposal_id=proposal["id"], outcome=outcome)
        observations.append((expected.design, outcome))
        assert learnt["posterior"]["a"]["mean"] == library.posterior(observations).mean["a"]
    assert "random" in chosen


@pytest.mark.parametrize(
    ("name", "belief", "method"),
    [
        ("linear_regression", "gaussian", "linear_gaussian"),
        ("dose_response_4pl", "particles", "quadrature"),
        ("poisson_regression", "grid", "quadrature"),
        ("quest_plus", "listed", "enumeration"),
    ],
)
def test_every_kind_of_belief_goes_through_the_databases(service: Service, name: str, belief: str, method: str) -> None:
    spec = CATALOGUE[name].spec
    library = Experiment.from_spec(spec)
    truth = {key: float(values[0]) for key, values in library.posterior().samples(1, 3).items()}
    made = session(service, str(service.post("/experiments", spec, 201)["id"]))
    proposal = propose(service, made["id"])
    assert proposal["method"] == method
    observations: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for i in range(2):
        ran = proposal["design"]
        outcome = library.draw(truth, ran, i)
        body = {"proposal_id": proposal["id"], "outcome": outcome}
        learnt = service.post(f"/sessions/{made['id']}/observations?next=true", body, 201)
        observations.append((ran, outcome))
        proposal = learnt["next"]
    path = f"/sessions/{made['id']}/posterior"
    found = service.get(path, form="marginals")
    assert found["method"] == belief
    expected = library.posterior(observations)
    for key, told in found["posterior"].items():
        assert told["mean"] == pytest.approx(expected.mean[key], rel=1e-9, abs=1e-9)
        assert found["marginals"][key]["hdi"][0] < found["marginals"][key]["hdi"][1]
    assert found["log_evidence"] == pytest.approx(expected.log_evidence, rel=1e-9)
    if belief == "gaussian":
        refused(service, "GET", f"{path}?form=grid", 422, "closed form")


BETAS: dict[str, Any] = {
    "parameters": {"m": {"dist": "beta", "a": 1, "b": 1}},
    "designs": {"x": {"type": "integer", "low": 1, "high": 5}},
    "outcome": {"y": {"family": "beta", "mean": "m", "concentration": "3*x"}},
}


def test_an_outcome_at_the_edges_of_its_range_is_learnt_from_and_followed_up(service: Service) -> None:
    made = session(service, str(service.post("/experiments", BETAS, 201)["id"]))
    proposal = propose(service, made["id"])
    body = {"proposal_id": proposal["id"], "outcome": {"y": 0.2}}
    learnt = service.post(f"/sessions/{made['id']}/observations?next=true", body, 201)
    assert learnt["next"]["eig"] > 0
    assert learnt["next_problem"] is None


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NotFinite("no design has an estimate that is finite"), "no design has an estimate"),
        (IndexError("list index out of range"), "unforeseen error"),
    ],
    ids=["foreseen", "unforeseen"],
)
def test_an_outcome_is_kept_whatever_happens_to_the_next_proposal(
    service: Service, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    made = session(service)
    proposal = propose(service, made["id"], client_id="a")
    body = {"proposal_id": proposal["id"], "outcome": {"y": 1}}
    path = f"/sessions/{made['id']}/observations?next=true"

    def fails(*_: Any, **__: Any) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(Experiment, "propose", fails)
        learnt = service.post(path, body, 201)
        assert (learnt["n"], learnt["next"], learnt["next_job"]) == (1, None, None)
        assert words in learnt["next_problem"]
        assert learnt["posterior"]["theta"]["mean"] > 7
        assert "was not looked at" in learnt["stop"]["note"]
        assert observe(service, made["id"], design={"xi": 5}, outcome={"y": 1})["n"] == 2
    assert [item["outcome"] for item in service.get(f"/sessions/{made['id']}/trials")["items"]] == [{"y": 1}] * 2
    again = service.post(path, body, 201)
    assert (again["n"], again["next_problem"]) == (1, None)
    assert again["next"]["design"]["xi"] > 0


def test_no_note_is_made_of_what_no_rule_looks_at(database: Database, make_service: Callable[..., Service]) -> None:
    service = make_service(database, max_design_work=1000.0)
    for stop, is_noted in ((None, False), ({"max_rounds": 3}, False), ({"max_eig_below": 0.02}, True)):
        spec = {key: value for key, value in {**DIGIT_SPAN, "stop": stop}.items() if value is not None}
        made = session(service, str(service.post("/experiments", spec, 201)["id"]))
        learnt = observe(service, made["id"], design={"xi": 7}, outcome={"y": 1})
        assert (learnt["stop"]["note"] is not None) == is_noted


TABLE: dict[str, Any] = {
    "table": {
        "parameters": {"skill": [0, 1]},
        "designs": [{"task": "easy"}, {"task": "hard"}],
        "outcomes": ["fails", "solves"],
        "probs": [[[0.4, 0.6], [0.1, 0.9]], [[0.9, 0.1], [0.3, 0.7]]],
    }
}


def test_an_outcome_sent_by_its_number_is_kept_by_its_label(service: Service) -> None:
    made = session(service, str(service.post("/experiments", TABLE, 201)["id"]))
    proposal = propose(service, made["id"])
    first = observe(service, made["id"], proposal_id=proposal["id"], outcome={"y": 1})
    assert first["outcome"] == {"y": "solves"}
    assert observe(service, made["id"], proposal_id=proposal["id"], outcome={"y": "solves"}) == first
    assert observe(service, made["id"], proposal_id=proposal["id"], outcome={"y": 1}) == first
    path = f"/sessions/{made['id']}/observations"
    for other in (0, "fails"):
        body = {"proposal_id": proposal["id"], "outcome": {"y": other}}
        refused(service, "POST", path, 409, "has the outcome {'y': 'solves'}", json=body)
    observe(service, made["id"], design={"task": "easy"}, outcome={"y": 0.0})
    sheet = service.client.get(f"/v1/sessions/{made['id']}/trials", params={"format": "csv"}).text
    assert [row["y"] for row in csv.DictReader(io.StringIO(sheet))] == ["solves", "fails"]


def test_the_csv_of_a_session_without_rounds_has_all_columns(service: Service) -> None:
    made = session(service)
    path = f"/v1/sessions/{made['id']}/trials"
    empty = service.client.get(path, params={"format": "csv"}).text
    assert empty.startswith("n,xi,y,theta_mean,theta_sd,eig,")
    trial(service, made["id"])
    assert service.client.get(path, params={"format": "csv"}).text.splitlines()[0] == empty.strip()


def test_answers_under_the_widest_prior_are_as_the_schema_says(service: Service) -> None:
    wide = {"theta": {"dist": "normal", "loc": 0, "scale": 1e99}}
    made = session(service, experiment(service, parameters=wide, stop={"max_rounds": 5}))
    proposal = propose(service, made["id"])
    learnt = observe(service, made["id"], proposal_id=proposal["id"], outcome={"y": 1})
    answers = {
        "ObservationOut": learnt,
        "PosteriorOut": service.get(f"/sessions/{made['id']}/posterior"),
        "TrialOut": service.get(f"/sessions/{made['id']}/trials")["items"][0],
        "EigOut": service.get(f"/sessions/{made['id']}/eig"),
    }
    schema = service.client.get("/openapi.json").json()
    for name, answer_ in answers.items():
        jsonschema.validate(answer_, {**schema, "$ref": f"#/components/schemas/{name}"})
    sd = math.sqrt(1 - 2 / math.pi) * 1e99  # of half a normal: theta is positive, and nothing else was learnt
    assert answers["PosteriorOut"]["posterior"]["theta"]["sd"] == pytest.approx(sd, rel=1e-3)
    assert schema["components"]["schemas"]["ParameterOut"]["properties"]["sd"]["description"].startswith("Null where")


def test_a_result_that_is_not_finite_is_null() -> None:
    result = TypeAdapter(Result)
    assert [result.validate_python(x) for x in (math.inf, -math.inf, math.nan, 1.5, None)] == [None] * 3 + [1.5, None]
    assert result.dump_json(result.validate_python(math.inf)) == b"null"


def test_a_design_that_is_a_slip_of_the_pen_is_refused(service: Service) -> None:
    made = session(service)
    path = f"/sessions/{made['id']}/observations"
    problem = refused(
        service, "POST", path, 422, "declared range", json={"design": {"xi": 10**16}, "outcome": {"y": 1}}
    )
    assert pointers(problem) == ["/design"]
    assert observe(service, made["id"], design={"xi": 20}, outcome={"y": 0})["n"] == 1


def test_the_older_names_of_trials_still_work(service: Service) -> None:
    made = session(service, experiment(service, stop={"max_rounds": 1}))
    observed = service.post(f"/sessions/{made['id']}/observations", {"design": {"xi": 5}, "outcome": {"y": 1}}, 201)
    assert observed["stop"]["reasons"] == ["1 trials of at most 1"]
    assert service.get(f"/sessions/{made['id']}/rounds") == service.get(f"/sessions/{made['id']}/trials")

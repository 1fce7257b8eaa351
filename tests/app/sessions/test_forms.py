"""The form of a session: all that a participant's page needs to run trials and to enter what came out."""

from typing import Any

from tests.app.conftest import Service
from tests.app.designing import experiment, session, with_token
from tests.app.hammering import refused

OUTCOMES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "seen": (
        {"family": "bernoulli", "logit": "theta - xi"},
        {"kind": "choice", "choices": [{"value": 0, "label": "0"}, {"value": 1, "label": "1"}], "integer": True},
    ),
    "said": (
        {"family": "categorical", "logits": ["0", "theta", "xi"], "labels": ["no", "maybe", "yes"]},
        {"kind": "choice", "choices": [{"value": v, "label": v} for v in ("no", "maybe", "yes")], "integer": True},
    ),
    "rated": (
        {"family": "ordinal", "eta": "theta", "cuts": [1, 2]},
        {"kind": "choice", "choices": [{"value": i, "label": str(i)} for i in range(3)], "integer": True},
    ),
    "hits": ({"family": "binomial", "n": 8, "logit": "theta"}, {"kind": "count", "low": 0, "high": 8, "integer": True}),
    "some": ({"family": "binomial", "n": "xi", "logit": "theta"}, {"kind": "count", "low": 0, "integer": True}),
    "counts": ({"family": "poisson", "log_rate": "theta"}, {"kind": "count", "low": 0, "integer": True}),
    "level": ({"family": "normal", "mean": "theta", "sd": 1}, {"kind": "number", "integer": False}),
    "wait": ({"family": "lognormal", "mean": "theta", "sd": 1}, {"kind": "number", "low": 0, "integer": False}),
    "life": ({"family": "exponential", "rate": "exp(theta)"}, {"kind": "number", "low": 0, "integer": False}),
    "share": (
        {"family": "beta", "mean": "sigmoid(theta)", "concentration": 5},
        {"kind": "number", "low": 0, "high": 1, "integer": False},
    ),
}


def spec(**changes: Any) -> dict[str, Any]:
    return {
        "parameters": {"theta": {"dist": "normal", "loc": 0, "scale": 1}},
        "designs": {"xi": {"type": "integer", "low": 1, "high": 4}},
        "outcome": {"y": {"family": "bernoulli", "logit": "theta - xi"}},
        **changes,
    }


def form(service: Service, stated: dict[str, Any]) -> dict[str, Any]:
    made = service.post("/experiments", stated, 201)
    return dict(session(service, made["id"])["form"])


def test_outcomes_of_every_family_say_how_they_are_entered(service: Service) -> None:
    for names in (list(OUTCOMES)[:4], list(OUTCOMES)[4:8], list(OUTCOMES)[8:]):
        stated = spec(outcome={name: OUTCOMES[name][0] for name in names})
        found = {each["name"]: each for each in form(service, stated)["outcomes"]}
        assert sorted(found) == sorted(names)
        for name in names:
            given, expected = OUTCOMES[name]
            blank = {"choices": None, "low": None, "high": None}
            assert found[name] == {"name": name, "family": given["family"], **blank, **expected}


def test_designs_of_a_form_are_the_variables_with_their_ranges(service: Service) -> None:
    designs = {
        "dose": {"type": "float", "low": 0.1, "high": 10, "scale": "log"},
        "kind": {"type": "categorical", "values": ["old", "new"]},
        "xi": {"type": "integer", "low": 1, "high": 4},
    }
    found = form(service, spec(designs=designs))
    assert found["instructions"] is None
    assert found["designs"] == [
        {"name": "dose", "kind": "float", "low": 0.1, "high": 10, "is_log": True, "values": None},
        {"name": "kind", "kind": "values", "low": None, "high": None, "is_log": False, "values": ["old", "new"]},
        {"name": "xi", "kind": "integer", "low": 1, "high": 4, "is_log": False, "values": None},
    ]


def test_a_table_is_a_choice_of_its_outcomes(service: Service) -> None:
    table = {
        "parameters": {"skill": [0, 1]},
        "designs": [{"task": "easy"}, {"task": "hard"}],
        "outcomes": ["fails", "solves"],
        "probs": [[[0.4, 0.6], [0.1, 0.9]], [[0.9, 0.1], [0.6, 0.4]]],
    }
    (outcome,) = form(service, {"table": table})["outcomes"]
    assert (outcome["name"], outcome["family"], outcome["kind"]) == ("y", "table", "choice")
    assert [each["value"] for each in outcome["choices"]] == ["fails", "solves"]


def test_a_token_reads_the_form_and_the_instructions_of_its_session(service: Service) -> None:
    text = "Repeat the digits aloud.\nTake your time."
    made = session(service, experiment(service, instructions=text))
    with with_token(service, made["token"]) as participant:
        found = participant.get(f"/v1/sessions/{made['id']}").json()
    assert found["form"] == made["form"]
    assert found["form"]["instructions"] == text
    assert [each["name"] for each in found["form"]["designs"]] == ["xi"]
    (listed,) = service.get(f"/experiments/{made['experiment_id']}/sessions")["items"]
    assert "form" not in listed
    renamed = service.client.patch(f"/v1/sessions/{made['id']}", json={"name": "Ada"}).json()
    assert renamed["form"] == made["form"]


def test_what_is_sent_by_a_form_is_taken(service: Service) -> None:
    stated = spec(outcome={"said": OUTCOMES["said"][0], "hits": OUTCOMES["hits"][0]})
    made = session(service, service.post("/experiments", stated, 201)["id"])
    hits, said = made["form"]["outcomes"]
    for choice in said["choices"]:
        body = {"design": {"xi": 2}, "outcome": {"said": choice["value"], "hits": int(hits["high"])}}
        assert service.post(f"/sessions/{made['id']}/observations", body, 201)["outcome"] == body["outcome"]


def test_instructions_are_a_text_of_limited_length(service: Service) -> None:
    for wrong in (7, "x" * 10_001):
        found = refused(service, "POST", "/experiments", 422, "expected", json=spec(instructions=wrong))
        assert found["errors"][0]["pointer"] == "/instructions"


def test_a_seed_that_no_spec_can_have_is_refused_when_the_session_is_opened(service: Service) -> None:
    experiment_id = experiment(service)
    path = f"/experiments/{experiment_id}/sessions"
    found = refused(service, "POST", path, 422, json={"seed": 2**53 + 1})
    assert found["errors"][0]["pointer"] == "/seed"
    made = session(service, experiment_id, seed=2**53)
    assert service.get(f"/sessions/{made['id']}/posterior")["n"] == 0

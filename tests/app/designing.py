"""What the tests of experiments share: the digit span, and a participant who answers by rule."""

from typing import Any

import httpx

from tests.app.conftest import Service

DIGIT_SPAN: dict[str, Any] = {
    "name": "digit span",
    "parameters": {"theta": {"dist": "normal", "loc": 7, "scale": 2}},
    "designs": {"xi": {"type": "integer", "low": 1, "high": 15}},
    "let": {"z": "theta - xi"},
    "outcome": {"y": {"family": "bernoulli", "logit": "z"}},
    "targets": ["theta"],
    "constraints": [],
    "cost": "1",
    "stop": {"any": [{"sd": {"theta": 0.6}}, {"max_eig_below": 0.02}, {"max_trials": 30}]},
    "select": {"rule": "argmax", "tie_tol": 1e-6, "seed": 1},
}
GREEDY = [7, 6, 5, 6, 5, 6, 5, 6, 5, 6]
EIG = {
    1: 0.022194651907,
    3: 0.079644620817,
    5: 0.176599709500,
    6: 0.216066729865,
    7: 0.231138302111,
    8: 0.216066729865,
    10: 0.126454579234,
    15: 0.004241963878,
}


def experiment(service: Service, **changes: Any) -> str:
    return str(service.post("/experiments", {**DIGIT_SPAN, **changes}, 201)["id"])


def session(service: Service, experiment_id: str | None = None, **body: Any) -> dict[str, Any]:
    found = experiment_id or experiment(service)
    return dict(service.post(f"/experiments/{found}/sessions", body, 201))


def answer(design: dict[str, Any]) -> dict[str, Any]:
    """A participant whose span is five."""
    return {"y": int(design["xi"] < 6)}


def propose(service: Service, session_id: str, status: int = 201, **body: Any) -> dict[str, Any]:
    return dict(service.post(f"/sessions/{session_id}/proposals", body, status))


def observe(service: Service, session_id: str, status: int = 201, **body: Any) -> dict[str, Any]:
    return dict(service.post(f"/sessions/{session_id}/observations", body, status))


def trial(service: Service, session_id: str) -> dict[str, Any]:
    """Propose, run, observe."""
    proposal = propose(service, session_id)
    return observe(service, session_id, proposal_id=proposal["id"], outcome=answer(proposal["design"]))


def with_token(service: Service, token: str) -> httpx.Client:
    return httpx.Client(base_url=service.client.base_url, headers={"Authorization": f"Bearer {token}"}, timeout=60)

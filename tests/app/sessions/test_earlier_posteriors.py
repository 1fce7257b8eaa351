"""What was believed after the first so many trials."""

import pytest

from tests.app.conftest import Service
from tests.app.designing import observe, session
from tests.app.hammering import refused


def test_before_the_first_trial_the_prior_is_believed(service: Service) -> None:
    made = session(service)["id"]
    for xi, y in ((7, 1), (8, 0), (8, 1)):
        observe(service, made, design={"xi": xi}, outcome={"y": y})
    path = f"/sessions/{made}/posterior"
    found = service.get(path, after=0)
    assert (found["n"], found["log_evidence"]) == (0, pytest.approx(0, abs=1e-12))
    assert found["posterior"]["theta"]["mean"] == pytest.approx(7, abs=1e-6)
    assert found["posterior"]["theta"]["sd"] == pytest.approx(2, abs=1e-3)


def test_after_some_trials_it_is_what_a_session_of_these_believes(service: Service) -> None:
    made, shorter = session(service)["id"], session(service)["id"]
    for xi, y in ((7, 1), (9, 0)):
        observe(service, shorter, design={"xi": xi}, outcome={"y": y})
    for xi, y in ((7, 1), (9, 0), (8, 1)):
        observe(service, made, design={"xi": xi}, outcome={"y": y})
    earlier = service.get(f"/sessions/{made}/posterior", after=2, form="marginals")
    expected = service.get(f"/sessions/{shorter}/posterior", form="marginals")
    assert earlier["n"] == 2
    for part in ("posterior", "marginals", "log_evidence", "covariance"):
        assert earlier[part] == expected[part]
    assert service.get(f"/sessions/{made}/posterior", after=99) == service.get(f"/sessions/{made}/posterior")


def test_a_negative_number_of_trials_is_refused(service: Service) -> None:
    refused(service, "GET", f"/sessions/{session(service)['id']}/posterior?after=-1", 422, "/query/after")

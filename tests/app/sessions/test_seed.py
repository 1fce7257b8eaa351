"""A session's seed stands in for the spec's, so it has the same bounds."""

from tests.app.conftest import Service
from tests.app.designing import experiment, propose
from tests.app.hammering import refused
from tests.app.working import on_sqlite


@on_sqlite
def test_a_seed_that_no_spec_could_have_is_refused(service: Service) -> None:
    path = f"/experiments/{experiment(service)}/sessions"
    largest = service.post(path, {"seed": 2**53}, 201)
    assert "xi" in propose(service, largest["id"])["design"]
    refused(service, "POST", path, 422, "/seed", json={"seed": 2**53 + 1})

"""With BENSEMBLE_COMPILE a convolutional ensemble is compiled when it is trained, and wherever it is scored."""

from collections.abc import Callable
from typing import Any

import pytest

import bensemble_core as bc
from app.db.engine import Database
from tests.app.conftest import Service
from tests.app.working import on_sqlite
from tests.compiling import needs_compiler, old_torch_names

pytestmark = [on_sqlite, needs_compiler, old_torch_names]


def ranked(service: Service, digits: Any, **project: Any) -> tuple[dict[str, Any], dict[str, Any], bc.Ensemble]:
    """The training job, a ranking and the ensemble, of a project whose rows are digits."""
    x, y = digits
    made = service.project(posterior={"name": "deep_ensemble", "members": 2, "epochs": 1}, **project)
    rows = {"name": "rows", "rows": x[:60].tolist(), "labels": [*y[:30], *[None] * 30]}
    pool = service.post(f"/projects/{made['id']}/pools", rows, 201)
    asked = service.post(f"/projects/{made['id']}/ensembles", {}, 202)
    service.run_jobs()
    ranking = service.post(f"/pools/{pool['id']}/rankings", {"acquisition": {"name": "bald"}, "k": 5}, 202)
    service.run_jobs()
    file = service.client.get(f"/v1/ensembles/{asked['ensemble']['id']}/file").content
    job = service.get(f"/jobs/{asked['job']['id']}")
    return job, service.get(f"/rankings/{ranking['ranking']['id']}"), bc.load(file)


def test_a_convolutional_network_is_compiled_and_ranks(
    database: Database, make_service: Callable[..., Service], digits: Any
) -> None:
    service = make_service(database, compile=True)
    conv = {"input": {"shape": [1, 8, 8]}, "model": {"name": "conv", "channels": [4], "hidden": 8}}
    job, ranking, ensemble = ranked(service, digits, **conv)
    assert job["result"]["compile_seconds"] > 0
    assert ensemble.plan.compiled
    scores = bc.score(ensemble, digits[0][:60].reshape(-1, 1, 8, 8), "bald")
    assert [item["score"] for item in ranking["items"]] == pytest.approx(
        [float(scores[item["row"]]) for item in ranking["items"]], abs=1e-6
    )


def test_a_network_of_batched_products_is_left_as_it_is(
    database: Database, make_service: Callable[..., Service], digits: Any
) -> None:
    job, ranking, ensemble = ranked(make_service(database, compile=True), digits)
    assert "batched products" in job["result"]["compile_note"]
    assert not ensemble.plan.compiled
    assert len(ranking["items"]) == 5

"""Every entry of POSTERIORS from the REST field: a project that names it trains, and ranks a pool."""

from typing import Any

import numpy as np

import bensemble_core as bc
from tests.app.conftest import Service
from tests.contracts.test_posteriors import REGRESSION, small


def test_every_posterior_trains_and_ranks_over_rest(service: Service) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4)).round(3)
    for name in bc.POSTERIORS:
        task: dict[str, Any] = {"kind": "classification", "classes": ["low", "high"]}
        labels: list[Any] = ["high" if row[0] > 0 else "low" for row in x[:40]]
        if name in REGRESSION:
            task, labels = {"kind": "regression"}, [float(row[0]) for row in x[:40]]
        posterior = {"name": name, **small(name)}
        body = {"name": name, "task": task, "input": {"shape": [4]}, "posterior": posterior}
        project = service.post("/projects", {**body, "model": {"name": "mlp", "hidden": [6]}}, 201)
        rows = {"name": "p", "rows": x.tolist(), "labels": [*labels, *[None] * 20]}
        pool = service.post(f"/projects/{project['id']}/pools", rows)
        if getattr(bc.POSTERIORS[name], "needs_tasks", False):
            other = {"name": "another task", "purpose": "task", "rows": x[:20].tolist(), "labels": labels[20:]}
            service.post(f"/projects/{project['id']}/pools", other, 201)
        trained = service.post(f"/projects/{project['id']}/ensembles", {"n_members": 5})
        service.run_jobs()
        ensemble = service.get(f"/ensembles/{trained['ensemble']['id']}")
        assert ensemble["status"] == "succeeded", (name, ensemble["error"])
        ranking = service.post(f"/pools/{pool['id']}/rankings", {"k": 3})["ranking"]
        service.run_jobs()
        ranking = service.get(f"/rankings/{ranking['id']}")
        assert len(ranking["items"]) == 3, name
        kind = bc.POSTERIORS[name]
        assert (ensemble["diagnostics"] is not None) == hasattr(kind, "diagnose")
        if ensemble["diagnostics"] is not None:
            assert set(ensemble["diagnostics"]["warnings"]) <= set(ranking["notes"])

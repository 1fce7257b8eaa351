"""Files that no row speaks of are removed; all others stay."""

import os
import time
from typing import Any

from sqlalchemy import func, select

from app.db.tables import Job, StoredAnswer
from app.housekeeping.sweep import queue_sweep
from tests.app.conftest import Service
from tests.app.test_loop import start, train


def keys(service: Service) -> set[str]:
    return {stored.key for stored in service.services.objects.list()}


def age(service: Service, days: float) -> None:
    root = service.services.objects.root
    assert root is not None
    for path in root.rglob("*"):
        if path.is_file():
            os.utime(path, (time.time() - days * 86400,) * 2)


def test_a_sweep_removes_strays_of_some_age_and_nothing_else(service: Service, digits: Any) -> None:
    project, pool = start(service, digits)
    ensemble = train(service, project)
    good = keys(service)
    objects = service.services.objects
    strays = {
        "pools/00000000-0000-7000-8000-000000000000/1/features-00000.npy",
        f"pools/{pool['id']}/77/features-00000.npy",
        f"ensembles/{ensemble['id']}/77/ensemble.safetensors",
        "snapshots/00000000-0000-7000-8000-000000000000/1-x.safetensors",
    }
    for key in strays:
        objects.put(key, b"stray")
    age(service, 2)
    objects.put("uploads/00000000-0000-7000-8000-000000000000/fresh", b"it may be an upload under way")
    queue_sweep(service.services.database)
    service.run_jobs()
    assert keys(service) == good | {"uploads/00000000-0000-7000-8000-000000000000/fresh"}


def test_sweeps_are_queued_now_and_then_only(service: Service) -> None:
    for _ in range(3):
        queue_sweep(service.services.database)
        service.run_jobs()
    with service.services.database.read() as session:
        n_sweeps = session.execute(select(func.count()).where(Job.kind == "sweep_storage")).scalar_one()
        assert (n_sweeps, session.scalars(select(StoredAnswer)).all()) == (1, [])

"""Pools and their rows as the API shows them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from app.db.tables import (
    Pool,
    PoolData,
)
from app.pools.schemas import PoolOut
from app.services import Services
from app.web.job_view import job_state


def pool_view(session: Session, pool: Pool) -> PoolOut:
    data = session.get(PoolData, pool.id)
    status, error = ("empty", None)
    if data is not None:
        status = "ready"
    elif pool.ingest_job_id is not None:
        state, error = job_state(session, pool.ingest_job_id, False)
        status = "ingesting" if state in ("queued", "running") else "failed"
    return PoolOut(
        id=pool.id,
        project_id=pool.project_id,
        name=pool.name,
        purpose=pool.purpose,
        status=status,
        n_rows=data.n_rows if data else 0,
        n_bytes=data.n_bytes if data else 0,
        n_labelled=pool.n_labelled,
        n_skipped=pool.n_skipped,
        error=error if status == "failed" else None,
        job_id=pool.ingest_job_id,
        created_at=pool.created_at,
    )


def payloads_of(services: Services, session: Session, pool_id: str, rows: Sequence[int]) -> list[Any]:
    if not rows:
        return []
    return list(services.pool(session.get_one(PoolData, pool_id)).payloads(np.array(rows, dtype=np.int64)))

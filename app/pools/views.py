"""Pools and their rows as the API shows them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from app.db import consensus
from app.db.tables import Job, Pool, PoolData
from app.pools.schemas import IngestOut, ItemOut, PoolOut
from app.services import Services
from app.web.job_view import job_state, job_view


def pool_view(session: Session, pool: Pool) -> PoolOut:
    data = session.get(PoolData, pool.id)
    status, error = ("empty", None)
    if data is not None:
        status = "ready"
    elif pool.ingest_job_id is not None:
        state, error = job_state(session, pool.ingest_job_id, False)
        status = "ingesting" if state in ("queued", "running") else "failed"
    return PoolOut.of(
        pool,
        status=status,
        n_rows=data.n_rows if data else 0,
        n_bytes=data.n_bytes if data else 0,
        error=error if status == "failed" else None,
        job_id=pool.ingest_job_id,
    )


def payloads_of(services: Services, session: Session, pool_id: str, rows: Sequence[int]) -> list[Any]:
    if not rows:
        return []
    return list(services.pool(session.get_one(PoolData, pool_id)).payloads(np.array(rows, dtype=np.int64)))


def ingest_view(services: Services, session: Session, *, job: Job, pool: Pool) -> IngestOut:
    return IngestOut(job=job_view(session, job), pool=pool_view(session, pool))


def items_view(
    services: Services, session: Session, data: PoolData, rows: Sequence[int], *, kind: str, features: bool
) -> list[ItemOut]:
    """In the order asked for."""
    files = services.pool(data)
    numbers = np.array(rows, dtype=np.int64)
    said = consensus.verdicts(session, data.pool_id, rows, kind=kind)
    x = files.rows(numbers).tolist() if features else [None] * len(rows)
    items = []
    for row, key, payload, vector in zip(rows, files.keys(numbers), files.payloads(numbers), x, strict=True):
        verdict = said.get(row)
        items.append(
            ItemOut(
                row=row,
                key=key,
                payload=payload,
                status=verdict.status if verdict else "unlabelled",
                label=verdict.value if verdict else None,
                n_annotators=verdict.n_annotators if verdict else 0,
                x=vector,
            )
        )
    return items

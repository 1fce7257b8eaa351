"""Queries about pools."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.tables import Pool, PoolData
from app.errors import Conflict, NotFound


def pool_of(session: Session, project_id: str, pool_id: str) -> Pool:
    pool = session.get(Pool, pool_id)
    if pool is None or pool.project_id != project_id:
        raise NotFound(f"this project has no pool {pool_id!r}")
    return pool


def data_of(session: Session, pool: Pool) -> PoolData:
    data = session.get(PoolData, pool.id)
    if data is None:
        raise Conflict(
            f"pool {pool.name!r} has no rows yet; send them with PUT /v1/pools/{pool.id}/data and wait for its job"
        )
    return data


def pools_with_data(session: Session, project_id: str, purpose: str) -> list[tuple[Pool, PoolData]]:
    query = (
        select(Pool, PoolData)
        .join(PoolData, PoolData.pool_id == Pool.id)
        .where(Pool.project_id == project_id, Pool.purpose == purpose)
        .order_by(Pool.id)
    )
    return [(pool, data) for pool, data in session.execute(query)]

"""Queries about pools."""

from dataclasses import dataclass

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from app.db.tables import Base, Pool, PoolData
from app.errors import Conflict, NotFound

_POOL, _DATA = (Base.metadata.tables[table.__tablename__] for table in (Pool, PoolData))
_READY = (  # built once and without the mapper: every label goes through it
    select(_POOL.c.name, _POOL.c.purpose, _DATA.c.prefix)
    .join(_DATA, _DATA.c.pool_id == _POOL.c.id)
    .where(_POOL.c.id == bindparam("pool_id"), _POOL.c.project_id == bindparam("project_id"))
)


@dataclass(frozen=True, kw_only=True)
class ReadyPool:
    name: str
    purpose: str
    prefix: str


def ready_pool(session: Session, project_id: str, pool_id: str) -> ReadyPool:
    """What labelling needs to know of a pool; says what is wrong if it is not there or has no rows."""
    found = session.execute(_READY, {"pool_id": pool_id, "project_id": project_id}).one_or_none()
    if found is None:
        data = data_of(session, pool := pool_of(session, project_id, pool_id))
        return ReadyPool(name=pool.name, purpose=pool.purpose, prefix=data.prefix)
    return ReadyPool(name=found.name, purpose=found.purpose, prefix=found.prefix)


def refuse_ranking(pool: Pool) -> None:
    """Raise unless the pool's rows may be asked for."""
    if pool.purpose == "evaluation":
        raise Conflict(f"pool {pool.name!r} is for evaluation; its rows are measured on, never ranked or trained on")
    if pool.purpose != "candidates":
        raise Conflict(f"pool {pool.name!r} is a {pool.purpose} of its own; its rows are trained on, never ranked")


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

"""Open a labelling round: rank now, hand out when the ranking is there."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from app.db import pools, projects
from app.db.tables import Job, Pool, Project, Ranking, Round, RoundItem
from app.db.types import database_time, new_id
from app.errors import Conflict
from app.events import RankingReady
from app.rankings.request import request_ranking, rows_left
from app.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Opened:
    job_id: str
    round: Round
    k: int


def open_round(
    session: Session,
    project: Project,
    settings: Settings,
    wanted: dict[str, Any],
    *,
    origin: str = "request",
) -> Opened:
    """`wanted` is a stored `RoundIn`: pool_id, acquisition, selection, k, overlap, seed, retrain, target."""
    project = projects.lock(session, project.id)
    pool = pools.pool_of(session, project.id, wanted["pool_id"])
    refuse_while_ranking(session, pool)
    round_id = new_id()
    ranking = request_ranking(
        session,
        project,
        pool,
        settings,
        acquisition=wanted["acquisition"],
        selection=wanted["selection"],
        k=wanted["k"],
        seed=wanted["seed"],
        target=wanted.get("target"),
        round_id=round_id,
    )
    project.last_round += 1
    opened = Round(
        id=round_id,
        project_id=project.id,
        number=project.last_round,
        pool_id=pool.id,
        ranking_id=ranking.id,
        overlap=wanted["overlap"],
        retrain=wanted["retrain"],
        status="ranking",
        origin=origin,
    )
    session.add(opened)
    session.flush()
    return Opened(job_id=ranking.job_id, round=opened, k=ranking.k)


def refuse_while_ranking(session: Session, pool: Pool) -> None:
    """A round leaves out what others of its pool hand out, so these have to be known first."""
    query = (
        select(Round.number)
        .join(Ranking, Ranking.id == Round.ranking_id)
        .join(Job, Job.id == Ranking.job_id)
        .where(Round.pool_id == pool.id, Round.status == "ranking", Job.status.in_(("queued", "running")))
    )
    if (number := session.scalars(query).first()) is not None:
        raise Conflict(f"round {number} of pool {pool.name!r} is still being ranked; open the next one after that")


def open_following_round(
    session: Session, project: Project, settings: Settings, wanted: dict[str, Any], *, origin: str
) -> Opened | None:
    """For schedules: as many items as there are rows left, or no round when there are none."""
    pool = pools.pool_of(session, project.id, wanted["pool_id"])
    k = min(wanted["k"], rows_left(session, project, pool, for_round=True))
    return open_round(session, project, settings, {**wanted, "k": k}, origin=origin) if k > 0 else None


def hand_out(session: Session, ready: RankingReady) -> list[str]:
    """The items of a round's ranking become the round's queue. A round closed meanwhile stays closed."""
    if ready.ranking.round_id is None:
        return []
    round_ = session.get_one(Round, ready.ranking.round_id, with_for_update=True)
    if round_.status == "ranking":
        items = [{"round_id": round_.id, "rank": rank, "row": row} for rank, row in ready.items]
        session.execute(insert(RoundItem), items)
        round_.status = "open"
        round_.opened_at = database_time(session)
        session.flush()
    return []

"""Make a stored ranking again: the same ensemble or none, and the labels as they stood when it was asked for."""

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

import bensemble_core as bc
from app.db import projects
from app.db.jobs import status_of
from app.db.tables import EnsembleResult, Job, Pool, PoolData, Ranking, RankingResult
from app.db.types import new_id
from app.errors import Conflict
from app.rankings.request import enqueue_ranking, target_key
from app.services import Services
from app.storage.errors import MissingObject

REPEATED = (
    *("project_id", "pool_id", "ensemble_id", "acquisition", "selection"),
    *("k", "seed", "target", "watermark"),
)


def replay_ranking(services: Services, session: Session, ranking: Ranking) -> Ranking:
    """Its rows of a target are copied before the transaction begins, so that writing them holds no lock."""
    ranking_id = new_id()
    with services.database.read() as before:
        _check_that_all_is_there(before, ranking)
    if "n_rows" in (ranking.target or {}):
        _copy_target(services, ranking, ranking_id)
    projects.lock(session, ranking.project_id)  # nothing is deleted meanwhile
    _check_that_all_is_there(session, ranking)
    job = session.get(Job, ranking.job_id)
    again = Ranking(id=ranking_id, replay_of=ranking.id, **{name: getattr(ranking, name) for name in REPEATED})
    return enqueue_ranking(session, again, job.payload.get("notes", ()) if job is not None else ())


def kept_context(session: Session, ranking_id: str) -> dict[str, Any] | None:
    """What the ranking saw beside its request and the labels: the rows that were `waiting` in rounds, and the pools
    whose `labelled` rows its selection kept away from. None of one that was made before this was kept."""
    result = session.get(RankingResult, ranking_id)
    return result.context if result is not None else None


def _check_that_all_is_there(session: Session, ranking: Ranking) -> None:
    if session.get(RankingResult, ranking.id) is None:
        job = session.get(Job, ranking.job_id)
        status = status_of(session, job) if job is not None else "failed"
        raise Conflict(f"this ranking is {status}; only one that has succeeded can be replayed")
    if ranking.ensemble_id is not None and session.get(EnsembleResult, ranking.ensemble_id) is None:
        raise Conflict("the ensemble was deleted with which this ranking was made; ask for a new ranking")
    target_pool = (ranking.target or {}).get("pool_id")
    if target_pool is not None and session.get(PoolData, target_pool) is None:
        raise Conflict("the target pool was deleted; ask for a new ranking with another target")
    context, selection = kept_context(session, ranking.id), ranking.selection["name"]
    if context is None:
        if ranking.round_id is not None or "features" in bc.SELECTIONS[selection].needs:
            raise Conflict("what this ranking left out was not kept when it was made; ask for a new ranking")
        return
    there = set(session.scalars(select(Pool.id).where(Pool.project_id == ranking.project_id)))
    if gone := [pool_id for pool_id in context["labelled"] if pool_id not in there]:
        raise Conflict(
            f"pool {', '.join(gone)} was deleted, and {selection} kept away from its labelled rows; "
            "ask for a new ranking"
        )


def _copy_target(services: Services, ranking: Ranking, ranking_id: str) -> None:
    try:
        services.objects.put(target_key(ranking_id), services.objects.get(target_key(ranking.id)))
    except MissingObject as error:
        raise Conflict("the target rows of this ranking are no longer stored; ask for a new ranking") from error

"""Rounds as the API shows them."""

import numpy as np
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.db.tables import PoolData, Ranking, Round, RoundItem
from app.rounds.advance import count_open
from app.rounds.reserve import HandedOut
from app.rounds.schemas import NextItem, NextOut, RoundJobOut, RoundOut
from app.services import Services
from app.web.job_view import job_state, view_of_job


def round_view(session: Session, round_: Round) -> RoundOut:
    counts = select(func.count(), func.count().filter(RoundItem.n_done >= round_.overlap))
    n_items, n_done = session.execute(counts.where(RoundItem.round_id == round_.id)).one()
    status, error = round_.status, None
    if status == "ranking":  # a ranking that came to nothing ends its round
        ranking = session.get_one(Ranking, round_.ranking_id)
        state, error = job_state(session, ranking.job_id, False)
        status = "closed" if state in ("failed", "cancelled") else "ranking"
    return RoundOut.of(round_, status=status, n_items=n_items, n_done=n_done, error=error)


def round_job_view(services: Services, session: Session, *, round: Round) -> RoundJobOut:
    job_id = session.get_one(Ranking, round.ranking_id).job_id
    return RoundJobOut(job=view_of_job(session, job_id), round=round_view(session, round))


def next_view(
    services: Services,
    session: Session,
    round_: Round,
    handed_out: HandedOut,
    *,
    expires_in: float,
    features: bool,
) -> NextOut:
    items: list[NextItem] = []
    if handed_out.items:
        files = services.pool(session.get_one(PoolData, round_.pool_id))
        rows = np.array([item.row for item in handed_out.items], dtype=np.int64)
        x = files.rows(rows).tolist() if features else [None] * len(rows)
        items = [
            NextItem.of(item, key=key, payload=payload, x=vector)
            for item, key, payload, vector in zip(
                handed_out.items, files.keys(rows), files.payloads(rows), x, strict=True
            )
        ]
    n_left = count_open(session, round_)
    return NextOut(items=items, n_left=n_left, free_at=handed_out.free_at, expires_in=expires_in)

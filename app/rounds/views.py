"""Rounds as the API shows them."""

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.db.tables import (
    Ranking,
    Round,
    RoundItem,
)
from app.rounds.schemas import RoundOut
from app.web.job_view import job_state


def round_view(session: Session, round_: Round) -> RoundOut:
    counts = select(func.count(), func.count().filter(RoundItem.n_done >= round_.overlap))
    n_items, n_done = session.execute(counts.where(RoundItem.round_id == round_.id)).one()
    status, error = round_.status, None
    if status == "ranking":  # a ranking that came to nothing ends its round
        ranking = session.get_one(Ranking, round_.ranking_id)
        state, error = job_state(session, ranking.job_id, False)
        status = "closed" if state in ("failed", "cancelled") else "ranking"
    columns = {name: getattr(round_, name) for name in RoundOut.model_fields if hasattr(round_, name)}
    return RoundOut(**{**columns, "status": status}, n_items=n_items, n_done=n_done, error=error)

"""End a round before all of its items are done."""

from sqlalchemy.orm import Session

from app.db import projects
from app.db.tables import Ranking, Round
from app.db.types import database_time
from app.errors import Conflict
from app.queue import queue


def close_round(session: Session, round_: Round) -> Round:
    """What was labelled stays labelled; nothing is trained. A ranking still under way is cancelled."""
    projects.lock(session, round_.project_id)
    round_ = session.get_one(Round, round_.id, populate_existing=True)
    if round_.status == "complete":
        raise Conflict("this round is complete already")
    if round_.status == "ranking":
        queue.request_cancel(session, session.get_one(Ranking, round_.ranking_id).job_id)
    if round_.status != "closed":
        round_.status = "closed"
        round_.ended_at = database_time(session)
        session.flush()
    return round_

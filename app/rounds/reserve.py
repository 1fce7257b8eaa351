"""Hand out the next items of a round: an annotator's own first, then the best that nobody holds."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session, aliased

from app.db import projects
from app.db.tables import Reservation, Round, RoundItem
from app.db.types import database_time
from app.errors import Conflict


@dataclass(frozen=True, kw_only=True)
class Reserved:
    rank: int
    row: int
    expires_at: datetime


def reserve_items(
    session: Session, round_: Round, *, annotator: str, count: int, reserve_seconds: float
) -> list[Reserved]:
    """Two annotators never get the same item at once unless its `overlap` asks for both; a lapsed hold is free."""
    projects.lock(session, round_.project_id)
    round_ = session.get_one(Round, round_.id, populate_existing=True)
    if round_.status == "ranking":
        raise Conflict("this round's ranking is still under way; try again when GET /v1/rounds/… says open")
    if round_.status != "open":
        return []
    now = database_time(session)
    expires_at = now + timedelta(seconds=reserve_seconds)
    others = aliased(Reservation)
    n_held = (
        select(func.count())
        .where(
            others.round_id == RoundItem.round_id,
            others.row == RoundItem.row,
            others.annotator != annotator,
            others.done.is_(False),
            others.expires_at > now,
        )
        .scalar_subquery()
    )
    is_free = RoundItem.n_done + n_held < round_.overlap
    mine = select(Reservation.row).where(Reservation.round_id == round_.id, Reservation.annotator == annotator)
    free = select(RoundItem).where(RoundItem.round_id == round_.id, is_free).order_by(RoundItem.rank)
    held = list(session.scalars(free.where(RoundItem.row.in_(mine.where(Reservation.done.is_(False)))).limit(count)))
    fresh = list(session.scalars(free.where(RoundItem.row.not_in(mine)).limit(count - len(held))))
    rows = [item.row for item in (*held, *fresh)]
    session.execute(
        delete(Reservation).where(
            Reservation.round_id == round_.id, Reservation.annotator == annotator, Reservation.row.in_(rows)
        )
    )
    session.add_all(
        Reservation(round_id=round_.id, row=row, annotator=annotator, expires_at=expires_at, done=False) for row in rows
    )
    session.flush()
    return [Reserved(rank=item.rank, row=item.row, expires_at=expires_at) for item in (*held, *fresh)]

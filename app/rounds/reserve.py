"""Hand out the next items of a round: an annotator's own first, then the best that nobody holds."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, delete, func, select
from sqlalchemy.orm import Session, aliased

from app.db import projects
from app.db.tables import Reservation, Round, RoundItem
from app.db.types import database_time
from app.errors import Conflict
from app.pools.answer_size import rows_at_once


@dataclass(frozen=True, kw_only=True)
class Reserved:
    rank: int
    row: int
    expires_at: datetime


@dataclass(frozen=True, kw_only=True)
class HandedOut:
    """`free_at` is when the first item that others hold would be free for this annotator; None where they got all that
    they asked for, or nobody holds one."""

    items: list[Reserved]
    free_at: datetime | None


def reserve_items(
    session: Session, round_: Round, *, annotator: str, count: int, reserve_seconds: float, features: bool = False
) -> HandedOut:
    """Two annotators never get the same item at once unless its `overlap` asks for both; a lapsed hold is free."""
    project = projects.lock(session, round_.project_id)
    count = rows_at_once(project, count, features=features)
    round_ = session.get_one(Round, round_.id, populate_existing=True)
    if round_.status == "ranking":
        raise Conflict("this round's ranking is still under way; try again when GET /v1/rounds/… says open")
    if round_.status != "open":
        return HandedOut(items=[], free_at=None)
    now = database_time(session)
    expires_at = now + timedelta(seconds=reserve_seconds)
    others = aliased(Reservation)
    is_held: tuple[ColumnElement[bool], ...] = (
        others.round_id == RoundItem.round_id,
        others.row == RoundItem.row,
        others.annotator != annotator,
        others.done.is_(False),
        others.expires_at > now,
    )
    n_held = select(func.count()).where(*is_held).scalar_subquery()
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
    items = [Reserved(rank=item.rank, row=item.row, expires_at=expires_at) for item in (*held, *fresh)]
    free_at: datetime | None = None
    if len(items) < count:  # whatever is free was handed out: what is left is held by others, or done by this one
        waited_for = (
            select(func.min(others.expires_at))
            .join(RoundItem, and_(*is_held))
            .where(
                RoundItem.round_id == round_.id,
                RoundItem.n_done < round_.overlap,
                RoundItem.row.not_in(mine.where(Reservation.done.is_(True))),
                RoundItem.row.not_in(rows),
            )
        )
        free_at = session.execute(waited_for).scalar_one()
    return HandedOut(items=items, free_at=free_at)

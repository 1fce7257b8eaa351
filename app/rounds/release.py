"""Give an annotator's holds on items of a round back, so that others need not wait until these lapse."""

from collections.abc import Sequence

from sqlalchemy import delete
from sqlalchemy.orm import Session

from app.db import projects
from app.db.tables import Reservation, Round
from app.db.types import database_time


def release_items(session: Session, round_: Round, *, annotator: str, rows: Sequence[int] | None) -> int:
    """How many holds were given back, of these rows or of all. What was answered stays answered, and what has lapsed,
    or is of a round that has ended, is nobody's to give back."""
    projects.lock(session, round_.project_id)
    round_ = session.get_one(Round, round_.id, populate_existing=True)
    if round_.status != "open":
        return 0
    held = delete(Reservation).where(
        Reservation.round_id == round_.id,
        Reservation.annotator == annotator,
        Reservation.done.is_(False),
        Reservation.expires_at > database_time(session),
    )
    if rows is not None:
        held = held.where(Reservation.row.in_(rows))
    return len(session.scalars(held.returning(Reservation.row)).all())

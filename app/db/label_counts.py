"""How many rows of a pool have an agreed label, and how many are skipped: kept up to date with every label, since to
count them anew takes 12 µs a label and is asked for with every ranking."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, select, update
from sqlalchemy.orm import Session

from app.db import consensus
from app.db.tables import Base, Pool
from app.errors import NotFound

_POOL = Base.metadata.tables[Pool.__tablename__]
_CHANGE = (  # built once and without the mapper: every label goes through it
    update(_POOL)
    .where(_POOL.c.id == bindparam("pool_id"))
    .values(
        n_labelled=_POOL.c.n_labelled + bindparam("more_labelled"),
        n_skipped=_POOL.c.n_skipped + bindparam("more_skipped"),
    )
)


@dataclass(frozen=True, kw_only=True)
class Counts:
    n_labelled: int
    n_skipped: int


def read_counts(session: Session, pool_id: str) -> Counts:
    """As they are now, whatever was read of the pool before the project was locked."""
    found = session.execute(select(_POOL.c.n_labelled, _POOL.c.n_skipped).where(_POOL.c.id == pool_id)).one_or_none()
    if found is None:
        raise NotFound(f"there is no pool {pool_id!r} any more")
    return Counts(n_labelled=found.n_labelled, n_skipped=found.n_skipped)


def count_events(session: Session, events: Sequence[dict[str, Any]], *, kind: str) -> None:
    """For events, in their order, that are about to be inserted. The caller holds the project's lock."""
    by_pool: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        by_pool.setdefault(event["pool_id"], []).append(event)
    for pool_id, of_pool in by_pool.items():
        said = consensus.latest_events(session, pool_id, {event["row"] for event in of_pool})
        before = {row: consensus.status_of(by_annotator.values(), kind) for row, by_annotator in said.items()}
        for event in of_pool:
            by_annotator = said.setdefault(event["row"], {})
            if event["action"] == "retract":
                by_annotator.pop(event["annotator"], None)
            else:
                by_annotator[event["annotator"]] = (event["action"], event["value"])
        after = [consensus.status_of(by_annotator.values(), kind) for by_annotator in said.values()]
        more_labelled, more_skipped = (
            after.count(status) - list(before.values()).count(status) for status in ("labelled", "skipped")
        )
        if more_labelled or more_skipped:
            change = {"pool_id": pool_id, "more_labelled": more_labelled, "more_skipped": more_skipped}
            session.execute(_CHANGE, change)

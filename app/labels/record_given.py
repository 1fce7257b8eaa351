"""Record the labels that came with a pool's rows, all at once, and let them count for schedules."""

from sqlalchemy import insert, update
from sqlalchemy.orm import Session

from app.db import projects
from app.db.tables import Label, Pool
from app.events import PoolStored
from app.schedules.fire import count_labels

LABELS_AT_ONCE = 10_000


def record_given(session: Session, stored: PoolStored) -> list[str]:
    """The caller holds the project's lock. Only labels of candidates count for schedules; returns the jobs set off."""
    labels, project, pool = stored.labels, stored.project, stored.pool
    if not labels:
        return []
    session.execute(update(Pool).where(Pool.id == pool.id).values(n_labelled=len(labels)))
    first, now = projects.take_label_numbers(session, project.id, len(labels))
    for start in range(0, len(labels), LABELS_AT_ONCE):
        session.execute(
            insert(Label),
            [
                {
                    "project_id": project.id,
                    "seq": first + start + i,
                    "pool_id": pool.id,
                    "row": row,
                    "annotator": stored.annotator,
                    "action": "label",
                    "value": value,
                    "source": "pool",
                    "created_at": now,
                    "key_id": stored.key_id,
                }
                for i, (row, value) in enumerate(labels[start : start + LABELS_AT_ONCE])
            ],
        )
    return count_labels(stored.settings, session, project, len(labels)) if pool.purpose == "candidates" else []

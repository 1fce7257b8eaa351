"""Draw a pool: where its rows lie, and what is said of them now."""

import threading
from typing import Any

from sqlalchemy.orm import Session

from app.db import consensus, pools
from app.db.tables import Pool, Project
from app.pools.project_rows import Projection, project_rows
from app.pools.schemas import MapOut
from app.services import Services

DIGITS = 4
_COMPUTING = threading.Lock()  # one at a time: a sample of wide rows takes 400 MB


def project_pool(services: Services, prefix: str) -> Projection:
    """Kept by the process; of the same pool only the first who asks computes it."""
    found: Projection | None = services.projections.get(prefix)
    if found is None:
        with _COMPUTING:
            found = services.projections.get_or_make(
                prefix, lambda: project_rows(services.pool_at(prefix)), lambda made: len(made.rows)
            )
    return found


def draw_map(services: Services, session: Session, pool: Pool, *, n: int) -> MapOut:
    """Computed before the labels are read, so that no transaction waits for it."""
    with services.database.read() as before:
        prefix = pools.data_of(before, pool).prefix
    found = project_pool(services, prefix)
    rows = found.rows[:n].tolist()
    x, y = found.points[:n].astype(float).round(DIGITS).T.tolist()
    kind = session.get_one(Project, pool.project_id).task["kind"]
    said = consensus.verdicts(session, pool.id, rows, kind=kind)
    return MapOut(
        row=rows,
        x=x,
        y=y,
        label=[_shown(said[row].value) if row in said else None for row in rows],
        status=[said[row].status if row in said else "unlabelled" for row in rows],
        explained=found.explained,
    )


def _shown(value: Any) -> Any:
    """What a point can be coloured by; several numbers can't be."""
    return value if not isinstance(value, list) else value[0] if len(value) == 1 else None

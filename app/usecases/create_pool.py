"""Create a pool: with its rows in the request, or empty, for a file to follow."""

from typing import Any

from sqlalchemy.orm import Session

from app.db import projects
from app.db.tables import Pool, Project
from app.db.types import new_id
from app.errors import Malformed
from app.schemas.pools import PoolIn
from app.services import Services
from app.storage.readers import BadData, inline_batch
from app.targets import parse_label, row_width
from app.usecases.store_pool import publish_pool, write_pool


def create_pool(
    services: Services, session: Session, project: Project, wanted: PoolIn, *, annotator: str, key_id: str | None
) -> Pool:
    """Rows go to storage before the transaction begins, so that writing them holds no lock."""
    pool = Pool(id=new_id(), project_id=project.id, name=wanted.name, purpose=wanted.purpose)
    if wanted.rows is None:
        for name in ("keys", "payloads", "labels"):
            if getattr(wanted, name) is not None:
                raise Malformed(f"`{name}` came without `rows`; send both, or neither and a file", pointer=f"/{name}")
        projects.lock(session, project.id)
        session.add(pool)
        session.flush()
        return pool
    if not wanted.rows:
        raise Malformed("`rows` is empty; send at least one row, or leave it out to send a file", pointer="/rows")
    if len(wanted.rows) > services.settings.max_pool_rows:
        raise Malformed(f"a pool has at most {services.settings.max_pool_rows:,} rows", pointer="/rows")
    try:
        batch = inline_batch(
            wanted.rows,
            width=row_width(project.input),
            keys=wanted.keys,
            payloads=wanted.payloads,
        )
        labels = _labels(project, wanted)
        stored = write_pool(services, f"pools/{pool.id}/inline", project, pool.purpose, [batch], labels=labels)
    except BadData as error:
        raise Malformed(error.message, pointer=_pointer(error)) from error
    projects.lock(session, project.id)
    session.add(pool)
    session.flush()
    publish_pool(services, session, project, pool, stored, annotator=annotator, key_id=key_id)
    return pool


def _labels(project: Project, wanted: PoolIn) -> list[tuple[int, Any]]:
    labels = wanted.labels if wanted.labels is not None else [None] * len(wanted.rows or ())
    if len(labels) != len(wanted.rows or ()):
        raise Malformed(
            f"there are {len(wanted.rows or ())} rows but {len(labels)} labels; use null for unknown", pointer="/labels"
        )
    return [
        (row, parse_label(project.task, value, pointer=f"/labels/{row}"))
        for row, value in enumerate(labels)
        if value is not None
    ]


def _pointer(error: BadData) -> str:
    field = {"label": "labels", "key": "keys", "payload": "payloads"}.get(error.column or "", error.column or "rows")
    field = field if field in ("labels", "keys", "payloads") else "rows"
    return f"/{field}" if error.row is None else f"/{field}/{error.row}"

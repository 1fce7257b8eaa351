"""Labels as the API shows them: every event, or the consensus of each row, in pages or as CSV."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db import consensus
from app.db.tables import Job, Label, PoolData, Project
from app.labels.schemas import ConsensusOut, LabelOut, LabelsOut
from app.services import Services
from app.web.csv import cell, lines
from app.web.job_view import job_view
from app.web.paging import Order, Page, Paging, encode_cursor
from app.web.waiting import First

EXPORT_AT_ONCE = 1000  # events


def labels_view(labels: list[LabelOut], triggered: list[str]) -> LabelsOut:
    return LabelsOut(accepted=len(labels), labels=labels, triggered=triggered)


def labels_with_jobs(services: Services, session: Session, first: First) -> LabelsOut:
    query = select(Job).where(Job.id.in_(first["triggered"])).order_by(Job.id)
    return LabelsOut(**{**first, "jobs": [job_view(session, job) for job in session.scalars(query)]})


def label_page(services: Services, session: Session, project: Project, paging: Paging, *, history: bool) -> Page[Any]:
    return (_events if history else _consensus)(services, session, project, paging)


def _events(services: Services, session: Session, project: Project, paging: Paging) -> Page[Any]:
    after, limit = paging.after(int), paging.limit
    query = select(Label).where(Label.project_id == project.id)
    if after is not None:
        query = query.where(paging.beyond(Label.seq, after[0]))
    events = list(session.scalars(query.order_by(*paging.sorted_by(Label.seq)).limit(limit + 1)))
    keys = _keys(services, session, [(event.pool_id, event.row) for event in events[:limit]])
    items = [LabelOut.of(event, key=key) for event, key in zip(events[:limit], keys, strict=True)]
    return Page(items=items, next_cursor=encode_cursor(items[-1].seq) if len(events) > limit else None)


def _consensus(services: Services, session: Session, project: Project, paging: Paging) -> Page[Any]:
    after, limit = paging.after(str, int), paging.limit
    start = (after[0], after[1]) if after else None
    kind = project.task["kind"]
    pages = consensus.verdict_pages(
        session, project.id, kind=kind, after=start, limit=limit + 1, is_descending=paging.is_descending
    )
    found = list(pages)
    more, found = len(found) > limit, found[:limit]
    keys = _keys(services, session, [(verdict.pool_id, verdict.row) for verdict in found])
    items = [ConsensusOut.of(verdict, key=key) for verdict, key in zip(found, keys, strict=True)]
    return Page(items=items, next_cursor=encode_cursor(items[-1].pool_id, items[-1].row) if more else None)


def _keys(services: Services, session: Session, places: list[tuple[str, int]]) -> list[str]:
    found: dict[tuple[str, int], str] = {}
    for pool_id in {pool_id for pool_id, _ in places}:
        rows = sorted({row for other, row in places if other == pool_id})
        keys = services.pool(session.get_one(PoolData, pool_id)).keys(np.array(rows, dtype=np.int64))
        found.update({(pool_id, row): key for row, key in zip(rows, keys, strict=True)})
    return [found[place] for place in places]


def label_lines(services: Services, project: Project, order: Order, *, history: bool) -> Iterator[str]:
    """Page by page, each in a transaction of its own: none is open while the client reads."""
    fields = list((LabelOut if history else ConsensusOut).model_fields)
    yield lines([fields])
    page: Page[Any] | None = None
    while page is None or page.next_cursor is not None:
        paging = Paging(cursor=page.next_cursor if page else None, limit=EXPORT_AT_ONCE, order=order)
        with services.database.read() as session:
            page = label_page(services, session, project, paging, history=history)
        yield lines([cell(getattr(item, name)) for name in fields] for item in page.items)

"""Take label events: all of them or none, in order, with the rounds and schedules they set off."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from sqlalchemy import bindparam, exists, insert, select
from sqlalchemy.orm import Session

from app.db import label_counts, pools, projects
from app.db.tables import Base, Label, Project, Round, Schedule
from app.errors import Conflict, Malformed
from app.labels.schemas import LabelOut, RoundLabelIn
from app.projects.targets import parse_label
from app.rounds.advance import advance_rounds
from app.schedules.fire import count_labels
from app.services import Services
from app.web.bodies.long import LongList, in_pieces

L = TypeVar("L", bound=RoundLabelIn)
# built once and without the mapper, either of which costs more than running the statement for one label
_LABEL, _ROUND, _SCHEDULE = (Base.metadata.tables[table.__tablename__] for table in (Label, Round, Schedule))
_INSERT = insert(_LABEL)
_WAITING = select(
    exists().where(_ROUND.c.pool_id.in_(bindparam("pool_ids", expanding=True)), _ROUND.c.status == "open"),
    exists().where(
        _SCHEDULE.c.project_id == bindparam("project_id"),
        _SCHEDULE.c.paused.is_(False),
        _SCHEDULE.c.every_labels.is_not(None),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Recorded:
    labels: list[LabelOut]
    triggered: list[str]


def record_labels(
    services: Services,
    session: Session,
    project: Project,
    said: Sequence[tuple[str, RoundLabelIn]],
    *,
    default_annotator: str,
    key_id: str | None,
    within: Round | None = None,
) -> Recorded:
    """`said` pairs a pool id with what is said of one of its rows; `key_id` names the API key by which it came, and
    `within` is the round it was said in."""
    found = _resolve(services, session, project, said)
    values = [
        parse_label(project.task, label.value, pointer=f"/labels/{i}/value") if label.action == "label" else None
        for i, (_, label) in enumerate(said)
    ]
    first, now = projects.take_label_numbers(session, project.id, len(said))
    events: list[dict[str, Any]] = [
        {
            "project_id": project.id,
            "seq": first + i,
            "pool_id": pool_id,
            "row": row,
            "annotator": label.annotator or default_annotator,
            "action": label.action,
            "value": value,
            "source": "api",
            "lead_time": label.lead_time,
            "created_at": now,
            "key_id": key_id,
        }
        for i, ((pool_id, label), (row, _), value) in enumerate(zip(said, found.places, values, strict=True))
    ]
    label_counts.count_events(session, events, kind=project.task["kind"])
    session.execute(_INSERT, events)
    waiting = {"pool_ids": list({pool_id for pool_id, _ in said}), "project_id": project.id}
    has_rounds, has_schedules = session.execute(_WAITING, waiting).one()
    triggered: list[str] = []
    if has_rounds or within is not None:
        triggered += advance_rounds(services, session, project, events, within=within)
    if has_schedules:
        n_labels = sum(event["action"] == "label" and event["pool_id"] in found.candidates for event in events)
        triggered += count_labels(services.settings, session, project, n_labels)
    labels = [LabelOut(**event, key=key) for event, (_, key) in zip(events, found.places, strict=True)]
    return Recorded(labels=labels, triggered=list(dict.fromkeys(triggered)))


@dataclass(frozen=True, kw_only=True)
class _Found:
    places: list[tuple[int, str]]  # (row, key) of each label
    candidates: frozenset[str]  # the pools among those named that are ranked


def _resolve(
    services: Services, session: Session, project: Project, said: Sequence[tuple[str, RoundLabelIn]]
) -> _Found:
    by_pool: dict[str, list[int]] = {}
    for i, (pool_id, _) in enumerate(said):
        by_pool.setdefault(pool_id, []).append(i)
    places: dict[int, tuple[int, str]] = {}
    candidates = set()
    for pool_id, indices in by_pool.items():
        row = pools.ready_pool(session, project.id, pool_id)
        pool = services.pool_at(row.prefix)
        if row.purpose == "candidates":
            candidates.add(pool_id)
        keyed = [i for i in indices if said[i][1].key is not None]
        rows_of_keys = dict(zip(keyed, pool.row_of([str(said[i][1].key) for i in keyed]), strict=True))
        rows = []
        for i in indices:
            label = said[i][1]
            number = int(rows_of_keys[i]) if label.row is None else label.row
            if number < 0:
                raise Malformed(f"pool {row.name!r} has no row with key {label.key!r}", pointer=f"/labels/{i}/key")
            if number >= pool.n_rows:
                raise Malformed(
                    f"pool {row.name!r} has {pool.n_rows:,} rows, counted from 0; there is no row {number}",
                    pointer=f"/labels/{i}/row",
                )
            rows.append(number)
        for i, number, key in zip(indices, rows, pool.keys(np.array(rows)), strict=True):
            places[i] = (number, key)
    return _Found(places=[places[i] for i in range(len(said))], candidates=frozenset(candidates))


def read_labels(labels: list[L] | LongList[L], *, cap: int) -> list[L]:
    """Those of a request, of which more than the cap are not even read."""
    taken: list[L] = []
    for piece in in_pieces(labels):
        taken += piece
        if len(taken) > cap:
            raise Malformed(f"more than {cap:,} labels came in one request; send several requests", pointer="/labels")
    return taken


def in_round(round_: Round, labels: Sequence[RoundLabelIn]) -> list[tuple[str, RoundLabelIn]]:
    """Labels posted to a round are about its pool; a round takes them while it is open."""
    if round_.status != "open":
        raise Conflict(f"this round is {round_.status}; labels for its rows go to POST /v1/projects/…/labels")
    return [(round_.pool_id, label) for label in labels]

"""Rows of which annotators say different things, and how far each pair of annotators agrees."""

from collections import defaultdict
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
from sqlalchemy import func, select
from sqlalchemy.orm import Session

import bensemble_core as bc
from app.advice.schemas import DisagreementOut, DisagreementsAdvice, PairOut
from app.db import consensus
from app.db.tables import Label, Pool, PoolData, Project
from app.services import Services

COMPARED = 10_000  # rows
SHOWN_ROWS, SHOWN_PAIRS = 200, 50
APART = 0.5  # standard deviations of the labels, from where on numbers differ

Said = dict[str, Any]  # values by annotator


def read_disagreements(services: Services, session: Session, project: Project) -> DisagreementsAdvice:
    several = _rows_of_several(session, project)
    differ = _differ(project, list(several.values()))
    kind = project.task["kind"]
    places = [place for place, said in several.items() if differ(list(said.values()))]
    status = {
        place: consensus.status_of([("label", value) for value in several[place].values()], kind) for place in places
    }
    is_open = {place: kind == "regression" or status[place] == "open" for place in places}
    shown = sorted(places, key=lambda place: (not is_open[place], place))[:SHOWN_ROWS]
    keys = _keys(services, session, shown)
    items = [
        DisagreementOut(pool_id=place[0], row=place[1], key=keys[place], status=status[place], said=several[place])
        for place in shown
    ]
    return DisagreementsAdvice(
        n=len(places),
        n_open=sum(is_open.values()),
        n_several=len(several),
        items=items,
        pairs=_pairs(kind, list(several.values()), differ),
    )


def _rows_of_several(session: Session, project: Project) -> dict[tuple[str, int], Said]:
    """What annotators say of rows that several of them have labelled, as it stands."""
    found: dict[tuple[str, int], Said] = {}
    left = COMPARED
    for pool_id in session.scalars(select(Pool.id).where(Pool.project_id == project.id).order_by(Pool.id)):
        named = func.min(Label.annotator) != func.max(Label.annotator)  # answered by an index alone
        query = select(Label.row).where(Label.pool_id == pool_id).group_by(Label.row).having(named).limit(left)
        for row, events in consensus.latest_events(session, pool_id, list(session.scalars(query))).items():
            said = {who: value for who, (action, value) in events.items() if action == "label"}
            if len(said) > 1:
                found[pool_id, row] = said
        left = COMPARED - len(found)
    return found


def _differ(project: Project, said: list[Said]) -> Callable[[list[Any]], bool]:
    """Whether some answers of one row are not the same."""
    if project.task["kind"] == "classification":
        return lambda values: any(value != values[0] for value in values)
    every = np.array([np.atleast_1d(value) for each in said for value in each.values()], dtype=float)
    unit = every.std(0) if len(every) else np.ones(1)

    def apart(values: list[Any]) -> bool:
        numbers = np.array([np.atleast_1d(value) for value in values], dtype=float)
        return bool((np.ptp(numbers, axis=0) > APART * unit).any())

    return apart


def _pairs(kind: str, said: list[Said], differ: Callable[[list[Any]], bool]) -> list[PairOut]:
    common: dict[tuple[str, str], list[list[Any]]] = defaultdict(list)
    for each in said:
        for one, other in combinations(sorted(each), 2):
            common[one, other].append([each[one], each[other]])
    largest = sorted(common, key=lambda pair: (-len(common[pair]), pair))[:SHOWN_PAIRS]
    measure = bc.advice.kappa if kind == "classification" else bc.advice.concordance
    return [
        PairOut(
            annotators=list(pair),
            n=len(rows),
            agreement=sum(not differ(values) for values in rows) / len(rows),
            kappa=measure([a for a, _ in rows], [b for _, b in rows]) if len(rows) > 1 else None,
        )
        for pair in largest
        for rows in [common[pair]]
    ]


def _keys(services: Services, session: Session, places: list[tuple[str, int]]) -> dict[tuple[str, int], str]:
    found: dict[tuple[str, int], str] = {}
    for pool_id in {pool_id for pool_id, _ in places}:
        rows = [row for other, row in places if other == pool_id]
        keys = services.pool(session.get_one(PoolData, pool_id)).keys(np.array(rows, dtype=np.int64))
        found |= {(pool_id, row): key for row, key in zip(rows, keys, strict=True)}
    return found

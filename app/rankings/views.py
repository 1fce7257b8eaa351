"""Rankings as the API shows them."""

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.tables import Ranking, RankingItem, RankingResult
from app.pools.views import payloads_of
from app.rankings.schemas import RankedItem, RankingJobOut, RankingOut
from app.services import Services
from app.web.csv import cell, lines
from app.web.job_view import job_state, view_of_job


def ranking_view(
    services: Services, session: Session, ranking: Ranking, *, with_items: bool, explain: bool = False
) -> RankingOut:
    result = session.get(RankingResult, ranking.id)
    status, error = job_state(session, ranking.job_id, result is not None)
    notes = result.notes if result else []
    items = ranked_items(services, session, ranking, explain=explain) if result and with_items else None
    return RankingOut.of(ranking, result, status=status, error=error, notes=notes, items=items)


def ranked_items(services: Services, session: Session, ranking: Ranking, *, explain: bool) -> list[RankedItem]:
    query = select(RankingItem).where(RankingItem.ranking_id == ranking.id).order_by(RankingItem.rank)
    items = list(session.scalars(query))
    payloads = payloads_of(services, session, ranking.pool_id, [item.row for item in items])
    return [
        RankedItem.of(item, payload=payload, explanation=item.explanation if explain else None)
        for item, payload in zip(items, payloads, strict=True)
    ]


def ranking_job_view(services: Services, session: Session, *, ranking: Ranking) -> RankingJobOut:
    view = ranking_view(services, session, ranking, with_items=True)
    return RankingJobOut(job=view_of_job(session, ranking.job_id), ranking=view)


def ranking_csv(view: RankingOut, items: Sequence[RankedItem], *, explain: bool) -> str:
    rows: list[list[Any]] = [["rank", "row", "key", "score", "payload", "value", "measure", *["explanation"] * explain]]
    for item in items:
        payload = item.payload if isinstance(item.payload, str) or item.payload is None else json.dumps(item.payload)
        why = json.dumps(item.explanation) if item.explanation is not None else None
        known = [item.rank, item.row, cell(item.key), item.score, cell(payload), item.value, view.measure]
        rows.append([*known, *[why] * explain])
    return lines(rows)

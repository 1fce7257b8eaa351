"""Rankings as the API shows them."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.tables import Project, Ranking, RankingItem, RankingResult
from app.errors import Conflict
from app.pools.views import payloads_of
from app.rankings.figures import Figures, read_figures
from app.rankings.schemas import RankedItem, RankingJobOut, RankingOut, SampleOut, ScoresOut
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


def scores_view(services: Services, session: Session, ranking: Ranking) -> ScoresOut:
    found = _figures(services, session, ranking)
    return ScoresOut(
        n=int(found.counts.sum()),
        edges=found.edges.tolist(),
        counts=found.counts.tolist(),
        picks=found.picks.tolist(),
    )


def sample_view(services: Services, session: Session, ranking: Ranking, *, n: int) -> SampleOut:
    """All picks, where they are no more than half, and the beginning of the sample of the others. By numpy: threads of
    torch wait for each other, 300 ms beside a busy worker for what takes one."""
    found = _figures(services, session, ranking)
    kind = session.get_one(Project, ranking.project_id).task["kind"]
    n_picked = int(found.n_picked)
    rows = found.rows.numpy()
    at = np.arange(len(rows))
    picks = at[: min(n_picked, max(1, n // 2))]
    at = np.concatenate([picks, at[n_picked:][: n - len(picks)]])
    at = at[rows[at].argsort()]
    return SampleOut(
        row=rows[at].tolist(),
        score=found.scores.numpy()[at].tolist(),
        aleatoric=None if found.aleatoric is None else found.aleatoric.numpy()[at].tolist(),
        epistemic=None if found.epistemic is None else found.epistemic.numpy()[at].tolist(),
        picked=(at < n_picked).tolist(),
        unit="nats" if kind == "classification" else "sd",
    )


def _figures(services: Services, session: Session, ranking: Ranking) -> Figures:
    result = session.get(RankingResult, ranking.id)
    if result is None:
        status, _ = job_state(session, ranking.job_id, False)
        raise Conflict(f"this ranking is {status}; there is nothing to draw yet. Look at its job {ranking.job_id}")
    return read_figures(services, result)


def ranking_csv(view: RankingOut, items: Sequence[RankedItem], *, explain: bool) -> str:
    rows: list[list[Any]] = [["rank", "row", "key", "score", "payload", "value", "measure", *["explanation"] * explain]]
    for item in items:
        payload = item.payload if isinstance(item.payload, str) or item.payload is None else json.dumps(item.payload)
        why = json.dumps(item.explanation) if item.explanation is not None else None
        known = [item.rank, item.row, cell(item.key), item.score, cell(payload), item.value, view.measure]
        rows.append([*known, *[why] * explain])
    return lines(rows)

"""Which labelled rows were picked with a known probability, and out of which rows.

A ranking counts if each of its rows was drawn with a chance that is stored: `random` taken by `top_k`, or the selection
`power` (among rows with a score above 0: the others have no chance). It counts up to its first pick that nobody
answered: those after it may have been chosen by somebody else. A row that several rankings picked before it was
answered counts in the newest of them. Two rankings by `power` with one seed share their random numbers, and the chances
of the second are not those stored: it does not count.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.label_history import LabelHistory, label_history
from app.db.tables import PoolData, Project, Ranking, RankingItem, RankingResult

DRAWN_BY = ("top_k", "power")  # badge draws too, but the first row is fixed and the others come from a short list
_AT_ONCE = 500  # rankings whose items are read by one query


@dataclass(frozen=True, kw_only=True)
class KnownRanking:
    rows: NDArray[np.int64]  # [M] in the order of the picks
    probabilities: NDArray[np.float64]  # [M] of each given the earlier ones
    is_inside: NDArray[np.bool_]  # [M] the first ranking could have picked it, too
    n_rows: int  # that could be picked
    gone: NDArray[np.int64]  # [K] rows that the first ranking could have picked, and this one could not


@dataclass(frozen=True, kw_only=True)
class KnownPicks:
    pools: dict[str, list[KnownRanking]]  # oldest first, by pool
    n_seed_again: int  # rankings left out because an earlier one had their seed


def known_picks(session: Session, project: Project, watermark: int) -> KnownPicks:
    query = (
        select(Ranking, RankingResult, PoolData.n_rows)
        .join(RankingResult, RankingResult.ranking_id == Ranking.id)
        .join(PoolData, PoolData.pool_id == Ranking.pool_id)
        .where(Ranking.project_id == project.id, Ranking.replay_of.is_(None), Ranking.watermark < watermark)
        .where(RankingResult.measure == "probability")
        .order_by(Ranking.watermark, Ranking.id)
    )
    by_pool: dict[str, list[_Asked]] = {}
    for ranking, result, n_rows in session.execute(query):
        if ranking.selection["name"] in DRAWN_BY:
            by_pool.setdefault(ranking.pool_id, []).append(_Asked(ranking=ranking, result=result, n_rows=n_rows))
    found, n_again = {}, 0
    for pool_id, asked in by_pool.items():
        history = label_history(session, pool_id, kind=project.task["kind"], watermark=watermark)
        counted, again = _count(asked, dict(_items(session, asked)), history)
        n_again += again
        if sum(len(one.rows) for one in counted) > 1:  # one pick says nothing of its error
            found[pool_id] = counted
    return KnownPicks(pools=found, n_seed_again=n_again)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    ranking: Ranking
    result: RankingResult
    n_rows: int  # of the pool

    def excluded(self, history: LabelHistory) -> NDArray[np.int64]:
        waiting = (self.result.context or {}).get("waiting", [])
        return np.union1d(history.settled_at(self.ranking.watermark), np.array(waiting, dtype=np.int64))


def _items(session: Session, asked: Sequence[_Asked]) -> Iterator[tuple[str, list[tuple[int, float]]]]:
    """Row and chance of each pick, by ranking."""
    ids = [one.ranking.id for one in asked]
    for start in range(0, len(ids), _AT_ONCE):
        by_ranking: dict[str, list[tuple[int, float]]] = {}
        query = (
            select(RankingItem.ranking_id, RankingItem.row, RankingItem.value)
            .where(RankingItem.ranking_id.in_(ids[start : start + _AT_ONCE]))
            .order_by(RankingItem.ranking_id, RankingItem.rank)
        )
        for ranking_id, row, value in session.execute(query):
            by_ranking.setdefault(ranking_id, []).append((row, value or 0.0))
        yield from by_ranking.items()


def _count(
    asked: Sequence[_Asked], items: dict[str, list[tuple[int, float]]], history: LabelHistory
) -> tuple[list[KnownRanking], int]:
    newest: dict[int, str] = {}  # the ranking in which a row counts
    for one in asked:
        for row, _ in items.get(one.ranking.id, ()):
            if history.newest.get(row, 0) > one.ranking.watermark:
                newest[row] = one.ranking.id
    found: list[KnownRanking] = []
    seeds: set[int] = set()
    outside: NDArray[np.int64] | None = None  # rows that the first ranking could not pick
    n_again = 0
    for one in asked:
        picks = []
        for row, chance in items.get(one.ranking.id, ()):
            if row not in history.answered or newest.get(row) != one.ranking.id:
                break
            picks.append((row, chance))
        excluded = one.excluded(history)
        is_sound = one.n_rows - len(excluded) == one.result.n_scored and all(chance > 0 for _, chance in picks)
        if not picks or not is_sound:
            continue
        if one.ranking.selection["name"] == "power":
            if one.ranking.seed in seeds:
                n_again += 1
                continue
            seeds.add(one.ranking.seed)
        if outside is None:
            outside = excluded
        rows = np.array([row for row, _ in picks], dtype=np.int64)
        found.append(
            KnownRanking(
                rows=rows,
                probabilities=np.array([chance for _, chance in picks]),
                is_inside=~np.isin(rows, outside),
                n_rows=one.result.n_scored,
                gone=np.setdiff1d(excluded, outside),
            )
        )
    return found, n_again

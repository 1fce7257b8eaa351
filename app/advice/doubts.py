"""Labels that the newest ensemble contradicts and that nobody has looked at again since."""

from typing import Any

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.advice.schemas import DoubtOut, DoubtsAdvice
from app.db.tables import EnsembleResult, Label, PoolData
from app.services import Services

CONFIRMED = 2  # answers with the same label, of one or of several annotators


def read_doubts(services: Services, session: Session, newest: EnsembleResult | None) -> DoubtsAdvice:
    stored: dict[str, Any] = ((newest.retrospect or {}).get("doubts") or {}) if newest is not None else {}
    if newest is None or not stored:
        return DoubtsAdvice(n=0, n_strong=0, n_labels=0, n_sure=0, n_other=0, expected=None, in_sample=None, items=[])
    by_pool: dict[str, dict[int, dict[str, Any]]] = {pool_id: {} for pool_id in stored.get("by_pool", ())}
    for item in stored["items"]:
        by_pool.setdefault(item["pool_id"], {})[item["row"]] = item
    deleted: list[str] = []
    standing: dict[tuple[str, int], DoubtOut] = {}
    for pool_id, items in by_pool.items():
        data = session.get(PoolData, pool_id)
        if data is None:  # it was deleted, and its labels with it
            deleted.append(pool_id)
        if data is None or not items:
            continue
        keys = dict(zip(items, services.pool(data).keys(np.array(list(items), dtype=np.int64)), strict=True))
        for row, events in _events(session, pool_id, list(items)).items():
            item = items[row]
            same = [who for seq, who, value in events if value == item["label"]]
            if len(same) < CONFIRMED and all(seq <= newest.watermark for seq, _, _ in events):
                who = sorted({*same} or {who for _, who, _ in events})
                standing[pool_id, row] = DoubtOut.of(**item, key=keys[row], annotators=who)
    kept = [standing[place] for item in stored["items"] if (place := (item["pool_id"], item["row"])) in standing]
    there = [item for item in stored["items"] if item["pool_id"] not in deleted]
    settled = len(there) - len(kept)
    settled_strong = sum(item["is_strong"] for item in there) - sum(item.is_strong for item in kept)
    counts = _without(stored, deleted)
    return DoubtsAdvice(
        n=counts["n"] - settled,
        n_strong=counts["n_strong"] - settled_strong,
        n_labels=counts["n_rows"],
        n_sure=counts["n_sure"],
        n_other=counts["n_other"],
        expected=None if deleted else stored["expected"],
        in_sample=stored["in_sample"],
        items=kept,
    )


def _without(stored: dict[str, Any], deleted: list[str]) -> dict[str, int]:
    """The counts of all labels that were looked at, less those of pools that were deleted since."""
    gone = [stored["by_pool"][pool_id] for pool_id in deleted if pool_id in stored.get("by_pool", ())]
    names = ("n_rows", "n", "n_strong", "n_sure", "n_other")
    return {name: stored[name] - sum(counts[name] for counts in gone) for name in names}


def _events(session: Session, pool_id: str, rows: list[int]) -> dict[int, list[tuple[int, str, Any]]]:
    """(seq, annotator, value) of everything that was said of some rows, by row."""
    found: dict[int, list[tuple[int, str, Any]]] = {}
    query = select(Label.row, Label.seq, Label.annotator, Label.value)
    for row, seq, annotator, value in session.execute(query.where(Label.pool_id == pool_id, Label.row.in_(rows))):
        found.setdefault(row, []).append((seq, annotator, value))
    return found

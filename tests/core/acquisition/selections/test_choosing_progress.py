"""A selection reports while it chooses, and an exception raised by the report stops it."""

from typing import Any

import pytest
import torch

import bensemble_core as bc
from bensemble_core.acquisition import SELECTIONS, progress
from bensemble_core.errors import Cancelled
from bensemble_core.ranking import conclude, rank, score
from tests.core.ranking.test_scoring import LinearEnsemble, inputs

SLOW = [(name, family) for name, entry in SELECTIONS.items() if entry.short_list for family in entry.families]
GREEDY = [pair for pair in SLOW if pair[0] != "cluster_margin"]  # which takes all of its picks at once


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "REPORT_SECONDS", 0.0)


@pytest.mark.parametrize(("selection", "family"), GREEDY)
def test_every_greedy_selection_reports_each_of_its_picks(selection: str, family: str) -> None:
    calls: list[tuple[int, int, str]] = []
    ensemble, x = LinearEnsemble(family=family), inputs(60)
    ranking = rank(ensemble, x, selection=selection, k=8, report=lambda *call: calls.append(call))
    choosing = [call for call in calls if call[2].startswith("choosing rows")]
    assert {(done, 8, f"choosing rows: {done} of 8") for done in range(1, 8)} <= set(choosing)
    assert choosing[0][0] == 0
    assert [done for done, _, _ in choosing] == sorted(done for done, _, _ in choosing)
    assert torch.equal(ranking.rows, rank(ensemble, x, selection=selection, k=8).rows)


@pytest.mark.parametrize(("selection", "family", "at"), [(*pair, 0) for pair in SLOW] + [(*pair, 3) for pair in GREEDY])
def test_a_report_that_raises_stops_the_choosing(selection: str, family: str, at: int) -> None:
    ensemble, x = LinearEnsemble(family=family), inputs(60)
    seen: list[int] = []

    def stop(done: int, total: int, message: str) -> None:
        seen.append(done)
        if done >= at:
            raise Cancelled("enough")

    def gather(rows: torch.Tensor) -> torch.Tensor:
        return x[rows]

    with pytest.raises(Cancelled):
        conclude(ensemble, score(ensemble, x), selection=selection, k=8, gather=gather, report=stop)
    assert seen[-1] == at


def test_reports_come_no_more_often_than_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "REPORT_SECONDS", 3600.0)
    calls: list[Any] = []
    bc.rank(None, inputs(60), acquisition="random", selection="kcenter", k=8, report=lambda *call: calls.append(call))
    assert [call[2] for call in calls] == ["scored 60 of 60 rows"]

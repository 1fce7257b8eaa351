"""Backtests: the same seeds give the same curves, a run that was cut goes on, and what cannot be said is refused."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

import bensemble_core as bc
from bensemble_core.backtesting.play import Play

QUICK = bc.DeepEnsemble(members=3, epochs=15)
SMALL = {"posterior": QUICK, "model": {"name": "mlp", "hidden": [16]}, "k": 8, "rounds": 3, "seeds": 2}


def rare_class(n: int = 240, rare: int = 24) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Two blobs, far from each other, one of them ten times larger."""
    rng = np.random.default_rng(0)
    y = np.zeros(n, dtype=np.int64)
    y[:rare] = 1
    return (rng.normal(size=(n, 2)) + 6 * y[:, None]).astype(np.float32), y


def play(**changes: Any) -> bc.Backtest:
    x, y = rare_class()
    return bc.backtest(x, y, likelihood="categorical", **{**SMALL, "strategies": ["margin"], **changes})


@pytest.fixture(scope="module")
def whole() -> bc.Backtest:
    return play()


def without_seconds(found: bc.Backtest) -> Any:
    return [{**asdict(run), "seconds": None} for run in found.runs], asdict(found.choice), [*map(asdict, found.curves)]


def test_the_default_and_random_rows_are_played_beside_and_only_test_rows_measure(whole: bc.Backtest) -> None:
    assert [each.name for each in whole.strategies] == ["default", "random", "margin"]
    assert (whole.n_test, whole.n_pool, whole.metric) == (60, 180, "accuracy")
    assert whole.curves[0].n == (8, 16, 24)
    assert {point.n for run in whole.runs if run.strategy == "all labels" for point in run.points} == {0, 180}
    assert whole.chosen.choice().keys() == {"acquisition", "selection"}


@pytest.mark.parametrize("kept", [0, 1, 4, 7])
def test_a_backtest_that_was_cut_goes_on_with_the_same_bits_and_fits_nothing_twice(
    kept: int, whole: bc.Backtest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds 1 to 3 are the default's with seed 0, 4 to 6 random rows', 7 the first of margin."""
    seen: list[bc.BacktestRun] = []

    class Cut(Exception):
        pass

    def cut(run: bc.BacktestRun) -> None:
        seen.append(run)
        if len(seen) == kept:
            raise Cut

    n_fits = _count_fits(monkeypatch)
    if kept:
        with pytest.raises(Cut):
            play(on_round=cut)
    done = {(run.strategy, run.seed): run for run in seen}
    again = play(done=list(done.values()))
    assert json.dumps(without_seconds(again)) == json.dumps(without_seconds(whole))
    assert n_fits() == 2 * (3 * 3 + 1)


def _count_fits(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    learn, fits = Play._learn, []

    def counted(self: Play, *arguments: Any) -> Any:
        fits.append(arguments)
        return learn(self, *arguments)

    monkeypatch.setattr(Play, "_learn", counted)
    return lambda: len(fits)


def test_runs_of_another_backtest_are_refused(whole: bc.Backtest) -> None:
    with pytest.raises(bc.InvalidSnapshot, match="other k or rounds"):
        play(k=9, done=whole.runs)


def test_active_learning_finds_a_rare_class_sooner_than_random_rows() -> None:
    """The rare blob is a tenth; typical rows of each cluster have it in the first batch, four random ones may not."""
    x, y = rare_class()
    found = bc.backtest(x, y, likelihood="categorical", **{**SMALL, "k": 4, "rounds": 2, "seeds": 6, "strategies": []})
    default = found.curves[0]
    assert default.strategy == "default"
    assert default.mean["accuracy"][0] > 0.98
    assert default.gain.mean > 0
    assert found.choice.strategy == "default"


def test_numbers_are_compared_by_their_rmse() -> None:
    x = np.random.default_rng(0).normal(size=(120, 2)).astype(np.float32)
    found = bc.backtest(
        x, 3 * x[:, 0], likelihood="gaussian", **{**SMALL, "strategies": ["variance"], "rounds": 2, "with_all": False}
    )
    assert found.metric == "rmse"
    assert set(found.curves[0].mean) == {"rmse", "nll", "crps"}
    assert found.curves[0].area.mean == pytest.approx(np.mean(found.curves[0].mean["rmse"]))
    assert all(curve.saved_near_all is None for curve in found.curves)


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"k": 80}, bc.InvalidData, "at least 260 labelled rows .* there are 240. Label 20 more, or take a smaller k"),
        ({"rounds": 23}, bc.InvalidOption, "180 of the 240 labelled rows .* at most 22 rounds"),
        ({"seeds": 1}, bc.InvalidOption, "at least 2 different seeds"),
        ({"strategies": ["marginal"]}, bc.InvalidOption, "no strategy 'marginal'; name one of default"),
        ({"strategies": ["margin", "margin"]}, bc.InvalidOption, "'margin' is there twice"),
        ({"strategies": [{"name": "random"}]}, bc.InvalidOption, "'random' is the name of what is always played"),
        ({"strategies": [{"name": "a", "score": 1}]}, bc.InvalidOption, "a strategy has a name and any of acquisition"),
        (
            {"strategies": [{"name": "a", "acquisition": "epig"}]},
            bc.InvalidOption,
            "epig needs a target set with every",
        ),
        ({"strategies": [{"name": "a", "posterior": "gp"}]}, bc.InvalidOption, "strategy 'a': "),
        ({"strategies": [{"name": "a", "posterior": {}}]}, bc.InvalidOption, "strategy 'a': unknown posterior"),
    ],
)
def test_what_cannot_be_played_is_refused_before_any_work(changes: Any, kind: Any, said: str) -> None:
    with pytest.raises(kind, match=said):
        play(**changes)


def test_a_class_seen_once_is_refused_by_its_name() -> None:
    x, y = rare_class()
    y[-1] = 2
    with pytest.raises(bc.InvalidData, match=r"1 of 3 classes were: 2\. Label at least 1 more row of each"):
        bc.backtest(x, y, likelihood="categorical", **SMALL)


def test_notes_repeat_what_the_first_rankings_say_once_each() -> None:
    """One member cannot disagree with itself."""
    same = [{"name": name, "acquisition": "bald", "selection": "top_k"} for name in ("mine", "yours")]
    quick: dict[str, Any] = {"posterior": {"name": "map", "epochs": 5}, "k": 4, "strategies": same, "with_all": False}
    seen: list[bc.BacktestRun] = []
    found = play(**quick, on_round=seen.append)
    said = [note for note in found.notes if "bald is 0 for every row" in note]
    assert len(said) == 1
    assert said[0].startswith("mine, yours: one member cannot disagree with itself")
    first = {(run.strategy, run.seed): run for run in reversed(seen)}  # after a round each
    assert play(**quick, done=list(first.values())).notes == found.notes

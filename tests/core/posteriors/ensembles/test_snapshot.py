"""Snapshot ensembles: the schedules step by step, which weights are members, and the trajectory across rounds."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.posteriors.ensembles import snapshot
from bensemble_core.training import descent as training
from bensemble_core.types import Snapshot


def rows(n: int = 40, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=g, dtype=torch.float64)
    return x, (x @ torch.randn(3, 3, generator=g, dtype=torch.float64)).argmax(1)


def net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(4)
        return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)).double()


def fit(data: tuple[Tensor, Tensor] | None = None, **options: Any) -> bc.Fitted:
    options = {"likelihood": "categorical", "batch_size": 10} | options
    return bc.fit("snapshot_ensemble", net(), data or rows(), **options)


def weights_by_epoch(monkeypatch: pytest.MonkeyPatch) -> tuple[list[Tensor], list[float]]:
    """Weights before the first step and after each, and the rate of each step."""
    seen: list[Tensor] = []
    rates: list[float] = []
    move = training._State._move

    def note(run: Any, gradient: list[Tensor], lr: float) -> None:
        if not run.step:
            seen.clear()
            rates.clear()
            seen.append(torch.cat([v.flatten(1) for v in run.theta.values()], 1))
        move(run, gradient, lr)
        seen.append(torch.cat([v.flatten(1) for v in run.theta.values()], 1))
        rates.append(lr)

    monkeypatch.setattr(training._State, "_move", note)
    return seen, rates


def flat(state: Any, member: int) -> Tensor:
    names = ["0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"]
    return torch.cat([state[k][member].flatten() for k in names])


def test_members_are_the_weights_at_the_ends_of_the_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, _ = weights_by_epoch(monkeypatch)
    state = fit(epochs=9, cycles=3).state  # 4 steps an epoch
    assert [torch.equal(flat(state, m), seen[12 * (m + 1)][0]) for m in range(3)] == [True] * 3
    assert len({float(v) for v in state["1.running_mean"][:, 0]}) == 3


def test_the_last_members_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, _ = weights_by_epoch(monkeypatch)
    fitted = fit(epochs=10, cycles=5, members=2)
    assert len(fitted.state["0.weight"]) == 2
    assert torch.equal(flat(fitted.state, 0), seen[4 * 8][0])
    assert torch.equal(flat(fitted.state, 1), seen[4 * 10][0])
    assert fitted.sample(20).n_members == 2


def test_cosine_restarts_follow_huang_et_al(monkeypatch: pytest.MonkeyPatch) -> None:
    """α(t) = α₀/2 (cos(π mod(t − 1, c)/c) + 1), t from 1."""
    _, rates = weights_by_epoch(monkeypatch)
    fit(epochs=6, cycles=2, lr=0.2)
    expected = [0.1 * (math.cos(math.pi * ((t - 1) % 12) / 12) + 1) for t in range(1, 25)]
    assert rates == pytest.approx(expected, abs=1e-15)
    assert rates[12] == 0.2


def test_cycles_that_do_not_divide_the_epochs_differ_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, rates = weights_by_epoch(monkeypatch)
    state = fit(epochs=8, cycles=3, lr=0.2).state
    assert snapshot.cycle_ends(bc.SnapshotEnsemble(epochs=8, cycles=3)) == [2, 5, 8]
    assert [i // 4 for i, rate in enumerate(rates) if rate == 0.2] == [0, 2, 5]
    assert torch.equal(flat(state, 2), seen[-1][0])


def test_the_constant_rate_is_ten_times_lr_after_half_of_the_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, rates = weights_by_epoch(monkeypatch)
    state = fit(epochs=8, cycles=2, schedule="constant", lr=0.002).state
    assert rates == pytest.approx([0.002] * 16 + [0.02] * 16)
    assert torch.equal(flat(state, 0), seen[4 * 6][0])
    fit(epochs=4, cycles=2, schedule="constant", lr=0.002, burn_in=0.0, high=5.0)
    assert rates == pytest.approx([0.01] * 16)


@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_the_weights_that_open_a_round_are_the_last_of_the_round_before(
    schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, _ = weights_by_epoch(monkeypatch)
    first = fit(epochs=6, cycles=3, schedule=schedule)
    last, statistics = seen[-1].clone(), first.state["1.running_mean"][-1]
    assert torch.equal(flat(first.state, -1), last[0])
    second = first.update(rows(8, seed=1))
    assert torch.equal(seen[0], last)
    assert torch.equal(flat(second.state, -1), seen[-1][0])
    opened = seen[-1].clone()
    third = bc.fit(
        "snapshot_ensemble",
        net(),
        rows(60, seed=2),
        likelihood="categorical",
        epochs=6,
        cycles=3,
        warm=second,
        schedule=schedule,
    )
    assert torch.equal(seen[0], opened)
    assert len(third.state["0.weight"]) == 3
    still = first.update(rows(8, seed=1), epochs=0)
    assert torch.equal(still.state["1.running_mean"][0], statistics)  # buffers travel too


def test_a_round_read_from_a_file_goes_on_the_same(tmp_path: Any) -> None:
    first = fit(epochs=4, cycles=2)
    first.save(tmp_path / "f")
    again = bc.load(tmp_path / "f", model=net())
    data = rows(50, seed=3)
    a, b = first.update(data, keep=False), again.update(data, keep=False)
    assert all(torch.equal(a.state[k], b.state[k]) for k in a.state)


@pytest.mark.parametrize("stop", [3, 9, 14])
def test_a_run_interrupted_between_members_ends_in_the_same_bits(stop: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_QUIET_SECONDS", 0.0)
    options: dict[str, Any] = {"epochs": 6, "cycles": 3}
    whole = fit(**options)
    kept: dict[int, dict[str, Tensor]] = {}

    def interrupt(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        kept[done] = snapshot()
        if done >= stop:
            raise bc.Cancelled("enough")

    with pytest.raises(bc.Cancelled):
        fit(report=interrupt, **options)
    resumed = fit(resume=bc.load_tensors(bc.save_tensors(kept[stop])), **options)
    assert all(torch.equal(whole.state[k], resumed.state[k]) for k in whole.state)


def test_members_disagree_more_off_the_data() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(60, 1, generator=g)
    model, likelihood = {"name": "mlp", "hidden": [20]}, bc.Gaussian(noise=0.1)
    fitted = bc.fit("snapshot_ensemble", model, (x, x[:, 0].sin()), likelihood=likelihood, epochs=60, lr=0.05)
    ensemble = fitted.sample(5)
    on, off = (ensemble.predict(torch.full((1, 1), v)).epistemic_variance() for v in (0.0, 8.0))
    assert float(off) > 4 * float(on)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cycles": 5, "epochs": 4}, "4 epochs less 0 of burn-in do not hold 5 cycles"),
        ({"cycles": 5, "epochs": 8, "schedule": "constant"}, "8 epochs less 4 of burn-in"),
        ({"cycles": 3, "members": 4}, "members is at most cycles"),
        ({"patience": 3}, "drop patience"),
    ],
)
def test_what_cannot_give_members_is_refused_before_any_work(options: dict[str, Any], words: str) -> None:
    def called(*args: Any) -> None:
        raise AssertionError("work was begun")

    with pytest.raises(bc.InvalidOption, match=words):
        fit(report=called, **options)

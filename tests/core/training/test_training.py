"""The descent loop: resuming, cancelling, grouping of members, generators, early stopping."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.ensemble.members import Mode
from bensemble_core.posteriors.start import start_members
from bensemble_core.randomness import derive
from bensemble_core.training import descent as training
from bensemble_core.training.descent import Descent, Run, Trained, descend
from bensemble_core.types import Data, Problem, Snapshot


def data(n: int = 50, d: int = 4, classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=g)
    return x, (x @ torch.randn(d, classes, generator=g)).argmax(1)


def image_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(48, 3)
    )


class LSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 5, batch_first=True)
        self.head = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.lstm(x)[0][:, -1])
        return out


def train(problem: Problem, rows: Data, seeds: list[int], mode: Mode | None = None, **options: Any) -> Trained:
    theta, fixed = start_members(problem, seeds, warm=None, from_weights=False, device=torch.device("cpu"))
    return descend(
        Run(problem=problem, data=rows, theta=theta, fixed=fixed, options=Descent(**options), seeds=seeds, mode=mode)
    )


def problem_of(model: Any, x: Tensor, y: Tensor) -> tuple[Problem, Data]:
    fitted = bc.fit("map", model, (x, y), likelihood="categorical", epochs=0, standardise=False)
    return fitted.problem, Data(x=x, y=y)


CASES: dict[str, Callable[[], tuple[Any, tuple[Tensor, Tensor]]]] = {
    "mlp, all at once": lambda: ({"name": "mlp", "hidden": [8]}, data()),
    "batch norm and dropout, one by one": lambda: (
        image_net(),
        (data(50, 16)[0].reshape(50, 1, 4, 4), data(50, 16)[1]),
    ),
    "early stopping": lambda: ({"name": "mlp", "hidden": [8]}, data()),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("stop", [1, 5, 6, 11])
def test_training_interrupted_at_any_step_ends_in_the_same_bits(
    case: str, stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_QUIET_SECONDS", 0.0)  # a report after every step, so that mid-epoch is met too
    model, rows = CASES[case]()
    options: dict[str, Any] = {"epochs": 5, "batch_size": 16, "members": 2, "seed": 3, "likelihood": "categorical"}
    if case == "early stopping":
        options |= {"patience": 2, "validation": 0.3}
    whole = bc.fit("deep_ensemble", model, rows, **options)
    kept: dict[int, dict[str, Tensor]] = {}

    def interrupt(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        kept[done] = snapshot()
        if done >= stop:
            raise bc.Cancelled("enough")

    with pytest.raises(bc.Cancelled):
        bc.fit("deep_ensemble", model, rows, report=interrupt, **options)
    stored = bc.load_tensors(bc.save_tensors(kept[stop]))
    resumed = bc.fit("deep_ensemble", model, rows, resume=stored, **options)
    assert all(torch.equal(whole.state[k], resumed.state[k]) for k in whole.state)


def test_dropout_training_resumes_in_the_same_bits() -> None:
    rows = data()
    options: dict[str, Any] = {"epochs": 4, "batch_size": 16, "likelihood": "categorical", "rate": 0.4}
    model = {"name": "mlp", "hidden": [8, 8]}
    snapshots = []
    whole = bc.fit("mc_dropout", model, rows, report=lambda d, t, m, snapshot: snapshots.append(snapshot()), **options)
    resumed = bc.fit("mc_dropout", model, rows, resume=snapshots[1], **options)
    assert all(torch.equal(whole.state[k], resumed.state[k]) for k in whole.state)


def test_a_snapshot_of_another_training_is_refused() -> None:
    rows, snapshots = data(), []
    model = {"name": "mlp", "hidden": [8]}
    keep = lambda d, t, m, snapshot: snapshots.append(snapshot())  # noqa: E731
    bc.fit("map", model, rows, likelihood="categorical", epochs=2, report=keep)
    with pytest.raises(bc.InvalidData, match="another training"):
        bc.fit("map", model, rows, likelihood="categorical", epochs=3, resume=snapshots[0])


def test_members_at_once_equal_one_after_another() -> None:
    x, y = data()
    problem, rows = problem_of({"name": "mlp", "hidden": [8, 8]}, x.double(), y)
    seeds = [derive(1, m) for m in range(3)]
    at_once = train(problem, rows, seeds, "vmap", epochs=20, batch_size=16)
    one_by_one = train(problem, rows, seeds, "loop", epochs=20, batch_size=16)
    for name in at_once.theta:
        torch.testing.assert_close(at_once.theta[name], one_by_one.theta[name], rtol=1e-9, atol=1e-9)


def test_plain_stacks_agree_with_vmap_of_the_same_layers() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.net(x)
            return out

    x, y = data()
    options: dict[str, Any] = {"likelihood": "categorical", "epochs": 10, "members": 3}
    plain = bc.fit("deep_ensemble", Own().net, (x.double(), y), **options)
    own = bc.fit("deep_ensemble", Own(), (x.double(), y), **options)
    for name in plain.state:
        torch.testing.assert_close(plain.state[name], own.state[f"net.{name}"], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [1, 2])
def test_a_member_alone_or_among_others_is_the_same_to_rounding(size: int) -> None:
    x, y = data()
    problem, rows = problem_of({"name": "mlp", "hidden": [8]}, x.double(), y)
    seeds = [derive(1, m) for m in range(8)]
    many = train(problem, rows, seeds, epochs=10, batch_size=16)
    few = train(problem, rows, seeds[3 : 3 + size], epochs=10, batch_size=16)
    for name in many.theta:
        torch.testing.assert_close(many.theta[name][3 : 3 + size], few.theta[name], rtol=1e-10, atol=1e-10)


def test_a_member_alone_or_among_others_has_the_same_start_rows_and_noise_bit_for_bit() -> None:
    x, y = data()
    problem, rows = problem_of({"name": "mlp", "hidden": [8]}, x, y)
    seeds = [derive(1, m) for m in range(5)]
    met: list[Tensor] = []

    def augment(batch: Tensor, rng: torch.Generator) -> Tensor:
        met.append(batch + torch.randn(batch.shape, generator=rng))
        return met[-1]

    for own in (seeds, seeds[3:4]):
        train(problem, replace(rows, augment=augment), own, epochs=2, batch_size=16)
    many, alone = met[3:-8:5], met[-8:]  # of the fourth member, in two epochs of four steps
    assert len(many) == len(alone) == 8
    assert all(torch.equal(a, b) for a, b in zip(many, alone, strict=True))
    group, one = (start_members(problem, s, warm=None, from_weights=False, device=x.device)[0] for s in (seeds, own))
    assert all(torch.equal(group[name][3:4], one[name]) for name in one)


def test_members_start_apart_and_see_rows_in_their_own_order() -> None:
    fitted = bc.fit("deep_ensemble", {"name": "mlp", "hidden": [8]}, data(), likelihood="categorical", epochs=1)
    first, second = fitted.state["linear1.weight"][:2]
    assert (first - second).abs().max() > 0.1


@pytest.mark.parametrize("method", ["map", "deep_ensemble", "mc_dropout"])
def test_the_global_generator_and_the_inputs_are_left_alone(method: str) -> None:
    x, y = data(40, 16)
    net, images = image_net(), x.reshape(40, 1, 4, 4)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    copies, state = (images.clone(), y.clone()), torch.get_rng_state()
    fitted = bc.fit(method, net, (images, y), likelihood="categorical", epochs=2)
    fitted.sample(3).predict(images)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(images, copies[0])
    assert torch.equal(y, copies[1])
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())


def test_same_seed_same_bits_and_another_seed_other_bits() -> None:
    make = lambda seed: bc.fit(  # noqa: E731
        "deep_ensemble", {"name": "mlp", "hidden": [8]}, data(), likelihood="categorical", epochs=3, seed=seed
    )
    a, b, c = make(0), make(0), make(1)
    assert all(torch.equal(a.state[k], b.state[k]) for k in a.state)
    assert not torch.equal(a.state["linear1.weight"], c.state["linear1.weight"])


def test_report_is_called_every_epoch_and_counts_steps() -> None:
    calls: list[tuple[int, int]] = []
    bc.fit(
        "map",
        {"name": "mlp", "hidden": [4]},
        data(),
        likelihood="categorical",
        epochs=6,
        batch_size=20,
        report=lambda done, total, message, snapshot: calls.append((done, total)),
    )
    assert {(3 * e, 18) for e in range(1, 7)} <= set(calls)


def test_early_stopping_keeps_the_best_epoch_and_ends_before_the_last() -> None:
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 20, generator=g), torch.randint(2, (40,), generator=g)  # pure noise: only overfitting to do
    calls: list[int] = []
    fitted = bc.fit(
        "map",
        {"name": "mlp", "hidden": [64]},
        (x, y),
        likelihood="categorical",
        prior=None,
        epochs=200,
        patience=5,
        validation=0.25,
        report=lambda done, total, message, snapshot: calls.append(done),
    )
    assert len(calls) < 100
    late = bc.fit("map", {"name": "mlp", "hidden": [64]}, (x, y), likelihood="categorical", prior=None, epochs=200)
    fresh_x, fresh_y = torch.randn(500, 20, generator=g), torch.randint(2, (500,), generator=g)
    loss = [-float(f.sample(1).predict(fresh_x).log_prob(fresh_y).mean()) for f in (fitted, late)]
    assert loss[0] < loss[1]


def test_training_that_diverges_names_the_epoch_and_asks_for_a_smaller_step() -> None:
    x, _ = data()
    with pytest.raises(bc.NotFinite, match=r"in epoch \d+ of 100 .* lower lr \(now 50\)"):
        bc.fit(
            "map",
            {"name": "mlp", "hidden": [8, 8]},
            (x, x.sum(1) * 1e3),
            likelihood=bc.Gaussian(noise=0.001),
            optimiser="sgd",
            lr=50.0,
            standardise=False,
        )


def test_sgd_follows_the_textbook_update() -> None:
    x = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    y = torch.tensor([1.0, 3.0], dtype=torch.float64)
    net = nn.Linear(1, 1, bias=False).double()
    w = net.weight.item()
    velocity = 0.0
    for _ in range(3):
        residual = y - x[:, 0] * w
        gradient = float(-(residual * x[:, 0]).mean() + w / (4 * 2))  # noise 1, prior sd 2, N = 2
        velocity = 0.5 * velocity + gradient
        w -= 0.1 * velocity
    fitted = bc.fit(
        "map",
        net,
        (x, y),
        likelihood=bc.Gaussian(noise=1.0),
        prior=bc.Normal(scale=2.0),
        optimiser="sgd",
        momentum=0.5,
        schedule="constant",
        lr=0.1,
        epochs=3,
        standardise=False,
    )
    assert fitted.state["weight"].item() == pytest.approx(w, abs=1e-14)


def test_modules_that_vmap_refuses_are_trained_one_by_one() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(30, 6, 3, generator=g)
    y = (x[:, -1, 0] > 0).long()
    fitted = bc.fit("deep_ensemble", LSTM(), (x, y), likelihood="categorical", members=2, epochs=60, batch_size=10)
    ensemble = fitted.sample(2)
    assert ensemble.plan.mode == "loop"
    assert (ensemble.predict(x).mean().argmax(1) == y).double().mean() > 0.9


def test_frozen_parameters_keep_their_values_and_are_shared() -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    net[0].requires_grad_(False)
    fitted = bc.fit("deep_ensemble", net, data(), likelihood="categorical", epochs=3, members=2)
    ensemble = fitted.sample(2)
    assert torch.equal(ensemble.shared["0.weight"], net[0].weight)
    assert set(ensemble.stacked) == {"2.weight", "2.bias"}


def test_a_parameter_that_no_layer_resets_still_differs_between_members() -> None:
    class Raw(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(4, 3))
            self.scale = nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.w * self.scale

    state = bc.fit("deep_ensemble", Raw(), data(), likelihood="categorical", epochs=0, members=2).state
    assert (state["w"][0] - state["w"][1]).abs().max() > 0.1
    assert torch.equal(state["scale"], torch.ones(2, 3))

"""What a caller may hang into the descent: augmentation of batches, and a limit on the norm of weights."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.training import descent as training
from bensemble_core.types import Snapshot

MLP: dict[str, Any] = {"name": "mlp", "hidden": [8]}


def data(n: int = 50, d: int = 4) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    x = 3 + 2 * torch.randn(n, d, generator=g)
    return x, (x @ torch.randn(d, 3, generator=g)).argmax(1)


def jitter(x: Tensor, rng: torch.Generator) -> Tensor:
    return x + 0.3 * torch.randn(x.shape, generator=rng, dtype=x.dtype)


def fit(method: str = "deep_ensemble", model: Any = MLP, **options: Any) -> bc.Fitted:
    settings: dict[str, Any] = {"likelihood": "categorical", "epochs": 5, "batch_size": 16, "seed": 3}
    return bc.fit(method, model, data(), **settings | options)


def same(a: bc.Fitted, b: bc.Fitted) -> bool:
    return all(torch.equal(a.state[k], b.state[k]) for k in a.state)


def test_augmentation_is_reproducible_and_changes_the_training() -> None:
    before = torch.get_rng_state()
    first, second, plain = fit(augment=jitter, members=2), fit(augment=jitter, members=2), fit(members=2)
    assert same(first, second)
    assert not same(first, plain)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_function_that_draws_from_the_global_generator_is_reproducible_too() -> None:
    def careless(x: Tensor, rng: torch.Generator) -> Tensor:
        return x + torch.randn_like(x)

    before = torch.get_rng_state()
    assert same(fit(augment=careless, members=2), fit(augment=careless, members=2))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("batch_size", [16, 1000])
@pytest.mark.parametrize("stop", [1, 3, 5])
def test_augmented_training_interrupted_at_any_step_ends_in_the_same_bits(
    stop: int, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_QUIET_SECONDS", 0.0)
    options: dict[str, Any] = {"augment": jitter, "members": 2, "batch_size": batch_size}
    kept: dict[int, dict[str, Tensor]] = {}

    def interrupt(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        kept[done] = snapshot()
        if done >= stop:
            raise bc.Cancelled("enough")

    with pytest.raises(bc.Cancelled):
        fit(report=interrupt, **options)
    resume = bc.load_tensors(bc.save_tensors(kept[stop]))
    assert same(fit(resume=resume, **options), fit(**options))
    with pytest.raises(bc.InvalidData, match="another training"):
        fit(resume=resume, **options | {"augment": None})


def test_each_member_and_step_sees_rows_of_its_own_in_the_units_handed_in() -> None:
    seen: list[Tensor] = []

    def watch(x: Tensor, rng: torch.Generator) -> Tensor:
        seen.append(x.clone())
        return x + torch.rand(1, generator=rng)

    x, _ = data()
    fit(augment=watch, members=2, epochs=2, batch_size=1000)
    assert len(seen) == 4
    for rows in seen:
        torch.testing.assert_close(rows.sort(0).values, x.sort(0).values, rtol=1e-5, atol=1e-5)
    alone = fit(augment=jitter, members=1)
    among = fit(augment=jitter, members=3)
    for name in alone.state:
        torch.testing.assert_close(alone.state[name][0], among.state[name][0], rtol=1e-4, atol=1e-5)


def test_noise_on_the_inputs_is_ridge_regression() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(60, 2, generator=g, dtype=torch.float64)
    y = x @ torch.tensor([1.0, -2.0], dtype=torch.float64)

    def noisy(x: Tensor, rng: torch.Generator) -> Tensor:
        return x + 0.5 * torch.randn(x.shape, generator=rng, dtype=x.dtype)

    fitted = bc.fit(
        "map",
        nn.Linear(2, 1, bias=False).double(),
        (x, y),
        likelihood=bc.Gaussian(noise=1.0),
        prior=None,
        standardise=False,
        augment=noisy,
        lr=0.05,
        epochs=1500,
        batch_size=60,
    )
    expected = torch.linalg.solve(x.T @ x + 60 * 0.25 * torch.eye(2).double(), x.T @ y)  # Bishop 1995
    torch.testing.assert_close(fitted.state["weight"][0, 0], expected, rtol=0, atol=0.02)


def test_held_out_rows_are_not_augmented() -> None:
    def ruin(x: Tensor, rng: torch.Generator) -> Tensor:
        return torch.zeros_like(x)

    x = torch.tensor([[-1.0], [1.0]]).repeat(20, 1)
    y = (x[:, 0] > 0).long()
    net = nn.Linear(1, 2)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[-4.0], [4.0]]))
        net.bias.zero_()
    messages: list[str] = []
    fitted = bc.fit(
        "map",
        net,
        (x, y),
        likelihood="categorical",
        standardise=False,
        prior=None,
        augment=ruin,
        patience=3,
        validation=0.5,
        epochs=4,
        report=lambda done, total, message, snapshot: messages.append(message),
    )
    assert "loss 0.69" in messages[0]  # the rows trained on say nothing
    assert float(fitted.sample(1).predict(x).log_prob(y).mean()) > -0.01


def test_augmentation_is_kept_by_an_update_and_refused_where_it_has_no_use() -> None:
    calls: list[int] = []

    def count(x: Tensor, rng: torch.Generator) -> Tensor:
        calls.append(len(x))
        return x

    fitted = fit(augment=count, members=1)
    before = len(calls)
    fitted.update(data(), epochs=1)
    assert sum(calls[before:]) == 100
    fitted.update(data(), keep=False, epochs=1)
    assert sum(calls[before:]) == 150

    class Idle:
        name = "idle"
        batches = False
        starts_from_weights = False

    with pytest.raises(bc.InvalidOption, match="not trained in batches"):
        bc.fitting._fit(
            Idle(),  # type: ignore[arg-type]
            fitted.problem,
            bc.Data(x=data()[0], y=data()[1], augment=count),
            seed=0,
            warm=None,
            resume=None,
            report=bc.types.silent,
        )


@pytest.mark.parametrize("wrong", [lambda x, rng: x[:1], lambda x, rng: x.double(), lambda x, rng: None])
def test_a_function_that_changes_the_shape_of_rows_is_refused(wrong: Any) -> None:
    with pytest.raises(bc.InvalidData, match="augment has to give back rows as it got them"):
        fit(augment=wrong)


class Image(nn.Module):
    """Grouped, transposed and plain convolutions of unlike layouts, a linear layer, and a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, padding=1, groups=2)
        self.up = nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2)
        self.head = nn.Linear(6 * 64, 3)
        self.gain = nn.Parameter(torch.full((3,), 9.0))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.relu(self.up(torch.relu(self.first(x)))).flatten(1)) * self.gain
        return out


def test_the_weights_into_every_unit_stay_below_the_norm() -> None:
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(20, 2, 4, 4, generator=g), torch.randint(3, (20,), generator=g)
    options: dict[str, Any] = {"likelihood": "categorical", "epochs": 3, "members": 2, "lr": 0.1, "prior": None}
    state = bc.fit("deep_ensemble", Image(), (x, y), max_norm=0.5, **options).state
    free = bc.fit("deep_ensemble", Image(), (x, y), **options).state
    first = state["first.weight"].flatten(2).norm(dim=-1)  # [M, out]
    # a transposed weight is [in, out / groups, …]: output o of group g is fed by the inputs of group g
    up = state["up.weight"].reshape(2, 2, 2, 3, 4).transpose(2, 3).flatten(3).norm(dim=-1)
    head = state["head.weight"].norm(dim=-1)
    for norms in (first, up, head):
        assert float(norms.max()) == pytest.approx(0.5, rel=1e-5)
    assert float(state["gain"].min()) > 5
    assert float(free["head.weight"].norm(dim=-1).min()) > 0.6


def test_a_step_is_projected_as_the_formula_says() -> None:
    net = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[3.0, 4.0], [0.3, 0.4]], dtype=torch.float64))
    x, y = torch.tensor([[[1.0, 0.0]], [[3.0, 0.3]]], dtype=torch.float64)
    fitted = bc.fit(
        "map",
        net,
        (x, y),
        likelihood=bc.Gaussian(noise=1.0),
        prior=None,
        standardise=False,
        optimiser="sgd",
        schedule="constant",
        lr=0.1,
        epochs=1,
        max_norm=1.0,
    )  # the residuals are 0: the step changes nothing, and the projection is all that happens
    expected = torch.tensor([[[0.6, 0.8], [0.3, 0.4]]], dtype=torch.float64)
    torch.testing.assert_close(fitted.state["weight"], expected, rtol=1e-14, atol=0)


def test_a_row_of_zeros_stays_zero_under_the_limit() -> None:
    net = nn.Linear(2, 2, bias=False)
    nn.init.zeros_(net.weight)
    x, y = torch.tensor([[1.0, 1.0]]), torch.tensor([[0.0, 0.0]])
    fitted = bc.fit(
        "map", net, (x, y), likelihood=bc.Gaussian(noise=1.0), prior=None, standardise=False, epochs=2, max_norm=1.0
    )
    assert torch.equal(fitted.state["weight"], torch.zeros(1, 2, 2))


def test_limited_training_resumes_bit_for_bit() -> None:
    kept: list[dict[str, Tensor]] = []

    def stop(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        kept.append(snapshot())
        raise bc.Cancelled("enough")

    with pytest.raises(bc.Cancelled):
        fit(max_norm=0.4, report=stop)
    assert same(fit(max_norm=0.4, resume=kept[0]), fit(max_norm=0.4))


def test_a_limit_with_nothing_to_limit_is_refused() -> None:
    class Raw(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(4, 3))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.w

    with pytest.raises(bc.InvalidOption, match="drop max_norm"):
        fit("map", Raw(), max_norm=1.0)
    with pytest.raises(bc.InvalidOption, match="max_norm is above 0"):
        fit("map", max_norm=0.0)


@pytest.mark.parametrize("name", [n for n, kind in bc.POSTERIORS.items() if issubclass(kind, training.Descent)])
def test_every_method_of_descent_is_shown_augmented_rows(name: str) -> None:
    seen: list[int] = []

    def count(x: Tensor, rng: torch.Generator) -> Tensor:
        seen.append(len(x))
        return jitter(x, rng)

    options: dict[str, Any] = {"rank": 2} if "swag" in name else {}
    if name == "fbnn":  # of classes, a method over functions is told which
        options["prior"] = bc.GP(lengthscale=1.0, scale=1.0)
    first, second = (fit(name, augment=count, epochs=6, **options) for _ in range(2))
    assert len(seen) >= 2 * 6
    assert same(first, second)

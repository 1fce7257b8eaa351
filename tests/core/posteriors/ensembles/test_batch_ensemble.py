"""BatchEnsemble against dense networks with weights W ∘ (s rᵀ), and against its objective written out by hand."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import bensemble_core as bc
from bensemble_core.ensemble.members import gather
from bensemble_core.models.transforms import RankOne
from bensemble_core.posteriors.ensembles.factors import deal, factored_layers
from bensemble_core.training.objectives import Batch

F64 = torch.float64
EXACT: dict[str, Any] = {"standardise": False, "batch_size": 1000, "split": False}


def rows(n: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def regression(n: int = 30, d: int = 4, noise: float = 0.3) -> tuple[Tensor, Tensor]:
    x = rows(n, d)
    return x, x @ rows(d, seed=1) + noise * rows(n, seed=2)


def classes(n: int, n_classes: int = 3) -> Tensor:
    return torch.arange(n) % n_classes


def log_normal(value: Tensor, mean: float, sd: float) -> Tensor:
    return -0.5 * ((value - mean) / sd).square() - math.log(sd) - 0.5 * math.log(2 * math.pi)


def shake(fitted: bc.Fitted, scale: float = 0.3) -> bc.Fitted:
    """The same posterior at a point where no tensor is special."""
    g = torch.Generator().manual_seed(5)
    for tensor in fitted.state.values():
        if tensor.is_floating_point():
            tensor.add_(scale * torch.randn(tensor.shape, generator=g, dtype=tensor.dtype).abs())
    return fitted


def dense(ensemble: bc.Ensemble, m: int) -> dict[str, Tensor]:
    """Member m as an ordinary network."""
    tensors = {**ensemble.shared, **{k: v[m] for k, v in ensemble.stacked.items()}}
    module = ensemble.problem.model.skeleton()
    for name in [k for k in tensors if k.endswith("factor_r")]:
        layer = name.removesuffix("factor_r")
        r, s = tensors.pop(name), tensors.pop(layer + "factor_s")
        weight = tensors[layer + "weight"]
        part = module.get_submodule(layer.rstrip("."))
        if isinstance(part, nn.Linear):
            tensors[layer + "weight"] = weight * torch.outer(s, r)
            continue
        groups, gaps = part.groups, [1] * (weight.ndim - 2)
        if part.transposed:  # [in, out / groups, …]
            full = torch.cat([torch.outer(a, b) for a, b in zip(r.chunk(groups), s.chunk(groups), strict=True)])
        else:  # [out, in / groups, …]
            full = torch.cat([torch.outer(b, a) for a, b in zip(r.chunk(groups), s.chunk(groups), strict=True)])
        tensors[layer + "weight"] = weight * full.view(*full.shape, *gaps)
    return {k: v for k, v in tensors.items() if "/" not in k}


def objectives(fitted: bc.Fitted, x: Tensor, y: Tensor, seeds: Sequence[int]) -> Tensor:
    """The loss at a state on all rows, for each seed of a step: [S]."""
    transform = RankOne(layers=factored_layers(fitted.state))
    members = gather(fitted.problem, fitted.state, {}, transform=transform, mode="loop")
    run = lambda theta, x: members(theta, {}, x, own_rows=True)  # noqa: E731
    posterior: Any = fitted.posterior
    y = y[None, :, None]
    with torch.no_grad():
        losses = [
            posterior.objective(fitted.problem, run, fitted.state, Batch(x=x, y=y, n_rows=len(x), seeds=[seed]))
            for seed in seeds
        ]
    return torch.cat(losses)


def objective(fitted: bc.Fitted, x: Tensor, y: Tensor) -> Tensor:
    return objectives(fitted, x, y, [0])[0]


LAYERS: dict[str, tuple[tuple[int, ...], nn.Module]] = {
    "linear": ((4,), nn.Linear(4, 3)),
    "linear without bias": ((4,), nn.Linear(4, 3, bias=False)),
    "linear over a sequence": ((5, 4), nn.Sequential(nn.Linear(4, 2), nn.Tanh(), nn.Flatten(), nn.Linear(10, 3))),
    "conv1d": ((2, 9), nn.Sequential(nn.Conv1d(2, 4, 3, stride=2), nn.Flatten(), nn.Linear(16, 3))),
    "conv2d": ((2, 5, 5), nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(100, 3))),
    "grouped conv2d": (
        (4, 3, 3),
        nn.Sequential(nn.Conv2d(4, 6, 3, groups=2, bias=False), nn.Flatten(), nn.Linear(6, 3)),
    ),
    "conv3d": ((1, 2, 3, 3), nn.Sequential(nn.Conv3d(1, 3, 2), nn.Flatten(), nn.Linear(12, 3))),
    "transposed conv": (
        (4, 3, 3),
        nn.Sequential(nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2), nn.Flatten(), nn.Linear(216, 3)),
    ),
    "batch norm": ((4,), nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))),
}


@pytest.mark.parametrize("case", LAYERS)
def test_members_are_dense_networks_with_rank_one_products(case: str) -> None:
    shape, net = LAYERS[case]
    x = rows(12, *shape)
    fitted = bc.fit("batch_ensemble", net, (x, classes(12)), likelihood="categorical", epochs=2, standardise=False)
    ensemble = shake(fitted).sample(4)
    logits = ensemble.predict(x).logits
    plain = ensemble.problem.model.skeleton().eval()
    for m in range(4):
        expected = functional_call(plain, dense(ensemble, m), (x,))
        torch.testing.assert_close(logits[m], expected, rtol=1e-12, atol=1e-12)
    assert float((logits[0] - logits[1]).abs().max()) > 1e-3


def test_the_objective_is_the_average_log_joint_with_the_data_counted_once() -> None:
    x, y = regression(12)
    model = {"name": "mlp", "hidden": [5], "activation": "tanh"}
    entry = bc.BatchEnsemble(members=3, epochs=0, init="normal", factor_scale=0.5, split=False)
    fitted = shake(
        bc.fit(entry, model, (x, y), likelihood=bc.Gaussian(noise=0.7), prior=bc.Normal(scale=2.0), standardise=False)
    )
    ensemble = fitted.sample(3)
    by_hand = sum(float(log_normal(v, 0.0, 2.0).sum()) for v in ensemble.shared.values())
    for m in range(3):
        outputs = functional_call(ensemble.problem.model.skeleton(), dense(ensemble, m), (x,))[:, 0]
        by_hand += float(log_normal(y - outputs.detach(), 0.0, 0.7).sum()) / 3
        for name, value in ensemble.stacked.items():
            by_hand += float(log_normal(value[m], *((0.0, 2.0) if name.endswith("bias") else (1.0, 0.5))).sum()) / 3
    assert -12 * float(objective(fitted, x, y)) == pytest.approx(by_hand, rel=1e-12)


def test_after_random_signs_either_sign_is_as_likely() -> None:
    x, y = regression(12)
    entry = bc.BatchEnsemble(members=1, epochs=0, factor_scale=0.2)
    fitted = bc.fit(entry, nn.Linear(4, 1), (x, y), likelihood=bc.Gaussian(noise=1.0), standardise=False)
    for factor in ("factor_r", "factor_s"):
        assert set(fitted.state[factor].unique().tolist()) <= {-1.0, 1.0}
    before = objective(fitted, x, y)
    fitted.state["factor_r"].neg_()
    fitted.state["factor_s"].neg_()
    torch.testing.assert_close(objective(fitted, x, y), before, rtol=1e-12, atol=0)
    fitted.state["factor_r"][0, 0, 0] = 0.7
    moved = torch.tensor(0.7, dtype=F64)
    ratio = [torch.logaddexp(log_normal(v, 1.0, 0.2), log_normal(v, -1.0, 0.2)) for v in (moved, moved.new_tensor(1))]
    flat = bc.Fitted(
        posterior=bc.BatchEnsemble(members=1, factor_scale=None), problem=fitted.problem, state=fitted.state, seed=0
    )
    both = objective(fitted, x, y) - objective(flat, x, y)  # what the prior on factors adds, over N
    n_factors = 5
    exact = -(ratio[0] + (n_factors - 1) * ratio[1] - n_factors * math.log(2)) / 12
    torch.testing.assert_close(both, exact, rtol=1e-10, atol=0)


def test_without_a_prior_every_member_of_a_linear_model_is_least_squares() -> None:
    x, y = regression()
    fitted = bc.fit(
        "batch_ensemble",
        nn.Linear(4, 1, bias=False),
        (x, y),
        likelihood=bc.Gaussian(noise=0.3),
        prior=None,
        epochs=700,
        lr=0.05,
        **EXACT,
    )
    exact = torch.linalg.lstsq(x, y[:, None]).solution[:, 0]
    ensemble = fitted.sample(4)
    for m in range(4):
        torch.testing.assert_close(dense(ensemble, m)["weight"][0], exact, rtol=0, atol=1e-6)


def test_the_optimum_of_a_linear_model_is_stationary_for_the_objective_by_hand() -> None:
    x, y = regression()
    y = y + 1
    entry = bc.BatchEnsemble(members=3, init="normal", epochs=800, lr=0.05, batch_size=100, split=False)
    fitted = bc.fit(entry, nn.Linear(4, 1), (x, y), likelihood=bc.Gaussian(noise=0.7), standardise=False)
    leaves = {k: v[0].clone().requires_grad_() for k, v in fitted.state.items()}
    w, r, s, b = (leaves[k] for k in ("weight", "factor_r", "factor_s", "bias"))
    total = -0.5 * w.square().sum()
    for m in range(3):
        means = x @ (w * torch.outer(s[m], r[m]))[0] + b[m]
        total = total - (0.5 * ((y - means) / 0.7).square().sum() + 0.5 * b[m].square().sum()) / 3
        total = total - 0.5 * (((r[m] - 1) / 0.5).square().sum() + ((s[m] - 1) / 0.5).square().sum()) / 3
    gradients = torch.autograd.grad(total, list(leaves.values()))
    assert max(float(g.abs().max()) for g in gradients) < 1e-3


def test_dealing_a_batch_scales_the_likelihood_by_all_rows_over_the_rows_of_a_member() -> None:
    """The mean over deals of the split objective is the unsplit one, for batches that members divide or do not."""
    x, y = regression(6)
    whole = bc.fit(
        bc.BatchEnsemble(members=4, epochs=0, split=False),
        {"name": "mlp", "hidden": [3]},
        (x, y),
        likelihood=bc.Gaussian(noise=0.5),
        standardise=False,
    )
    shake(whole)
    exact = float(objective(whole, x, y))
    parted = bc.Fitted(posterior=bc.BatchEnsemble(members=4), problem=whole.problem, state=whole.state, seed=0)
    losses = objectives(parted, x, y, range(1000))
    error = losses.std() / math.sqrt(1000)
    assert float(error) < 0.03 * abs(exact)
    assert abs(float(losses.mean()) - exact) < 4 * float(error)


@pytest.mark.parametrize(("n", "each"), [(64, 16), (10, 3), (3, 1), (2, 1)])
@pytest.mark.parametrize("all_rows", [True, False])
def test_each_member_sees_its_share_of_a_batch_and_no_row_twice(n: int, each: int, all_rows: bool) -> None:
    problem = bc.fit("map", nn.Linear(1, 2), (rows(4, 1), classes(4, 2)), likelihood="categorical", epochs=0).problem
    x = torch.arange(n, dtype=F64)[:, None]
    batch = Batch(x=x if all_rows else x[None], y=torch.arange(n)[None], n_rows=n, seeds=[7])
    dealt, labels = deal(problem, batch, 4, split=True)
    assert torch.equal(dealt[:, 0].long(), labels)
    shares = labels.view(4, each)
    assert all(len(set(share.tolist())) == each for share in shares)
    assert set(labels.tolist()) == set(range(n))
    if all_rows and n == 64:
        again = deal(problem, Batch(x=x, y=batch.y, n_rows=n, seeds=[8]), 4, split=True)[1]
        assert not torch.equal(labels, again)


def test_mini_batches_dealt_to_members_find_the_same_optimum() -> None:
    x, y = regression(64)
    fitted = bc.fit(
        "batch_ensemble",
        nn.Linear(4, 1, bias=False),
        (x, y),
        likelihood=bc.Gaussian(noise=1.0),
        prior=None,
        epochs=250,
        batch_size=16,
        lr=0.02,
        standardise=False,
    )
    exact = torch.linalg.lstsq(x, y[:, None]).solution[:, 0]
    ensemble = fitted.sample(4)
    for m in range(4):
        torch.testing.assert_close(dense(ensemble, m)["weight"][0], exact, rtol=0, atol=0.02)


def test_a_member_costs_its_factors_and_biases_alone() -> None:
    x, y = rows(20, 64), classes(20, 10)
    model = {"name": "mlp", "hidden": [128, 128]}
    state = bc.fit("batch_ensemble", model, (x, y), likelihood="categorical", members=7, epochs=0).state
    weights = 64 * 128 + 128 * 128 + 128 * 10
    assert sum(v.numel() for v in state.values()) == weights + 7 * ((64 + 128 + 128) + 2 * (128 + 128 + 10))
    ensemble = bc.fit("batch_ensemble", model, (x, y), likelihood="categorical", members=7, epochs=0).sample(3)
    assert set(ensemble.shared) == {f"linear{i}.weight" for i in (1, 2, 3)}
    assert set(ensemble.stacked) == {f"linear{i}.{k}" for i in (1, 2, 3) for k in ("factor_r", "factor_s", "bias")}
    assert torch.equal(ensemble.stacked["linear1.factor_r"], state["linear1.factor_r"][0, [0, 2, 4]])


def test_batch_normalisation_is_over_the_rows_of_all_members_and_shared() -> None:
    x = rows(40, 4)
    net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    fitted = bc.fit("batch_ensemble", net, (x, classes(40)), likelihood="categorical", epochs=3, batch_size=40)
    ensemble = fitted.sample(4)
    assert {"1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked"} <= set(ensemble.shared)
    assert int(ensemble.shared["1.num_batches_tracked"]) == 3


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic_gaussian"])
def test_regression_does_not_depend_on_the_units_of_the_data(likelihood: str) -> None:
    x, y = regression(40)
    model = {"name": "mlp", "hidden": [8]}
    fit = lambda x, y: bc.fit("batch_ensemble", model, (x, y), likelihood=likelihood, epochs=60, batch_size=20)  # noqa: E731
    ours = fit(x, y).sample(4).predict(x)
    theirs = fit(x * 50 - 7, y * 200 + 1e4).sample(4).predict(x * 50 - 7)
    torch.testing.assert_close(theirs.means, ours.means * 200 + 1e4, rtol=1e-9, atol=1e-6)
    torch.testing.assert_close(theirs.variances, ours.variances * 200**2, rtol=1e-6, atol=0)
    assert float((ours.mean() - y).square().mean()) < 0.3 * float(y.var())


def test_members_differ_more_away_from_the_data() -> None:
    x, y = regression(60, 1)
    fitted = bc.fit("batch_ensemble", {"name": "mlp", "hidden": [32]}, (x, y), likelihood="gaussian", members=8)
    ensemble = fitted.sample(8)
    near = ensemble.predict(x).epistemic_variance().mean()
    far = ensemble.predict(torch.tensor([[-12.0], [12.0]], dtype=F64)).epistemic_variance().mean()
    assert float(far) > 10 * float(near)


def test_early_stopping_holds_rows_out_that_members_do_not_divide() -> None:
    x, y = rows(43, 4), classes(43)
    calls: list[int] = []
    fitted = bc.fit(
        "batch_ensemble",
        {"name": "mlp", "hidden": [32]},
        (x, y),
        likelihood="categorical",
        epochs=300,
        patience=4,
        validation=0.25,
        report=lambda done, total, message, snapshot: calls.append(done),
    )
    assert len(calls) < 150
    assert fitted.sample(4).n_members == 4


def test_frozen_tensors_stay_and_are_shared() -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    net[0].requires_grad_(False)
    fitted = bc.fit("batch_ensemble", net, (rows(20, 4), classes(20)), likelihood="categorical", epochs=3)
    ensemble = fitted.sample(4)
    assert torch.equal(ensemble.shared["0.weight"], net[0].weight.double())
    assert torch.equal(ensemble.shared["0.bias"], net[0].bias.double())
    assert set(ensemble.stacked) == {"0.factor_r", "0.factor_s", "2.factor_r", "2.factor_s", "2.bias"}


def test_an_update_keeps_the_members_there_are_and_adds_others() -> None:
    x, y = rows(30, 4), classes(30)
    first = bc.fit("batch_ensemble", {"name": "mlp", "hidden": [5]}, (x, y), likelihood="categorical", epochs=3)
    more = first.update((x[:2], y[:2]), epochs=0, members=6)
    for name, old in first.state.items():
        own = name.endswith(("factor_r", "factor_s", "bias"))
        assert torch.equal(more.state[name][:, :4] if own else more.state[name], old)
    assert more.state["linear1.factor_r"].shape == (1, 6, 4)
    plain = bc.fit("map", {"name": "mlp", "hidden": [5]}, (x, y), likelihood="categorical", epochs=3)
    start = bc.fit(
        "batch_ensemble", {"name": "mlp", "hidden": [5]}, (x, y), likelihood="categorical", warm=plain, epochs=0
    )
    assert torch.equal(start.state["linear2.weight"], plain.state["linear2.weight"])


def test_tied_weights_have_factors_of_their_own() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
            self.second.weight = self.first.weight

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(self.second(self.first(x).tanh()).tanh())
            return out

    x = rows(12, 4)
    fitted = bc.fit(
        "batch_ensemble", Tied(), (x, classes(12, 2)), likelihood="categorical", epochs=2, standardise=False
    )
    ensemble = fitted.sample(4)
    t = {**ensemble.shared, **{k: v[1] for k, v in ensemble.stacked.items()}}
    h = x
    for name in ("first", "second", "head"):
        weight = t["first.weight" if name != "head" else "head.weight"]
        h = h @ (weight * torch.outer(t[f"{name}.factor_s"], t[f"{name}.factor_r"])).T + t[f"{name}.bias"]
        h = h.tanh() if name != "head" else h
    torch.testing.assert_close(ensemble.predict(x).logits[1], h, rtol=1e-12, atol=1e-12)


class TimeFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(3, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.inner(x.transpose(0, 1)).tanh().mean(0))
        return out


class NoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 2))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.w


@pytest.mark.parametrize("method", ["batch_ensemble", "rank1_bnn"])
def test_modules_without_layers_or_with_rows_elsewhere_are_refused_before_any_work(method: str) -> None:
    def work(*_: Any) -> None:
        raise AssertionError("training began")

    with pytest.raises(bc.InvalidModel, match="calls none"):
        bc.fit(method, NoLayers(), (rows(8, 4), classes(8, 2)), likelihood="categorical", report=work)
    for length in (4, 3):
        with pytest.raises(bc.InvalidModel, match="first axis"):
            bc.fit(method, TimeFirst(), (rows(8, length, 3), classes(8, 2)), likelihood="categorical", report=work)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"members": 0}, "at least 1"), ({"init": "ones"}, "one of 'signs', 'normal'"), ({"factor_scale": 0}, "above 0")],
)
def test_options_out_of_bounds_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(bc.InvalidOption, match=words):
        bc.fit("batch_ensemble", {"name": "mlp"}, regression(), likelihood="gaussian", **options)

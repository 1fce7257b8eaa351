"""Variational online Newton against closed forms and the authors' own optimiser, in float64."""

import math
from typing import Any

import pytest
import torch
from ivon import IVON
from sklearn.datasets import make_blobs
from torch import Tensor, nn
from torch.func import functional_call

import bensemble_core as bc
from bensemble_core.ensemble.members import gather
from bensemble_core.io import below
from bensemble_core.posteriors.variational.elbo import Elbo
from bensemble_core.posteriors.variational.vogn import _NewtonSteps, _Squares
from bensemble_core.training.objectives import Batch
from bensemble_core.types import Snapshot

X = torch.tensor([[1, 2], [2, 1], [1, -1], [0, 1]], dtype=torch.float64)
Y = torch.tensor([1, 2, 0, 1], dtype=torch.float64)
MEAN = torch.tensor([0.531915, 0.425532], dtype=torch.float64)
TO_THE_END: dict[str, Any] = {"epochs": 400, "samples": 100, "curvature_lr": 0.1, "init_sigma": 0.3, "map_epochs": 0}


def at_zero(d: int = 2) -> nn.Linear:
    net = nn.Linear(d, 1, bias=False)
    nn.init.zeros_(net.weight)
    return net


def linear(x: Tensor = X, y: Tensor = Y, **changes: Any) -> bc.Fitted:
    options = {"likelihood": bc.Gaussian(noise=1.0), "standardise": False} | TO_THE_END | changes
    return bc.fit("vogn", at_zero(x.shape[1]), (x, y), **options)


def moments(fitted: bc.Fitted) -> tuple[Tensor, Tensor]:
    return fitted.state["weight"][0, 0], (2 * fitted.state["log_sd/weight"][0, 0]).exp()


def test_the_noise_of_the_draws_finds_the_best_factorised_gaussian() -> None:
    mean, variance = moments(linear())
    torch.testing.assert_close(mean, MEAN, rtol=0, atol=0.01)
    torch.testing.assert_close(variance, torch.tensor([1 / 7, 1 / 8], dtype=torch.float64), rtol=0.04, atol=0)


def test_squared_gradients_have_a_fixed_point_of_their_own() -> None:
    """1/σ² = Σ_n E g_n² + 1, with g_n = x_n (x_nᵀθ − y_n) under q."""
    expected = torch.ones(2, dtype=torch.float64)
    for _ in range(200):
        residual = (Y - X @ MEAN).square() + X.square() @ (1 / expected)
        expected = (X.square() * residual[:, None]).sum(0) + 1
    torch.testing.assert_close(1 / expected, torch.tensor([0.156329, 0.153539], dtype=torch.float64), rtol=0, atol=1e-5)
    mean, variance = moments(linear(hessian="squares"))
    torch.testing.assert_close(mean, MEAN, rtol=0, atol=0.01)
    torch.testing.assert_close(variance, 1 / expected, rtol=0.04, atol=0)


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_a_step_is_that_of_the_authors_code(scale: float) -> None:
    """Given the same gradients under the same draws: theirs takes g and gε/σ, ours the gradient of the bound."""
    n, lr, init_sigma = 50, 0.1, 0.2
    options = bc.VOGN(lr=lr, curvature_lr=0.05, clip=None)
    decay = 1 / (n * scale**2)
    weight = nn.Parameter(torch.linspace(-1, 1, 7, dtype=torch.float64))
    theta = {"w": weight.detach().clone()[None]}
    theta["log_sd/w"] = torch.full_like(theta["w"], math.log(init_sigma))
    moment = {k: torch.zeros_like(v) for k, v in theta.items()}
    prior = {"prior_mean/w": torch.zeros(1, 1).double(), "prior_sd/w": torch.full((1, 1), scale).double()}
    ours = _NewtonSteps(options=options, prior=prior, weights=("w",))
    theirs = IVON(
        [weight],
        lr=lr,
        ess=n,
        weight_decay=decay,
        hess_init=1 / (n * init_sigma**2) - decay,
        beta1=options.momentum,
        beta2=1 - options.curvature_lr,
        rescale_lr=False,
    )
    g = torch.Generator().manual_seed(0)
    for step in range(1, 20):
        gradient, epsilon = torch.randn(2, 1, 7, generator=g, dtype=torch.float64)
        sd = theta["log_sd/w"].exp()
        theirs.state["avg_grad"], theirs.state["avg_nxg"] = gradient[0], (gradient * epsilon * sd)[0]
        theirs._update()
        of_bound = {
            "w": gradient + decay * theta["w"],
            "log_sd/w": gradient * epsilon * sd + (sd.square() / scale**2 - 1) / n,
        }
        ours.move(theta, of_bound, moment, step=step, lr=lr, decay=1.0, n_rows=n)
        torch.testing.assert_close(theta["w"][0], weight.detach())
        torch.testing.assert_close((-2 * theta["log_sd/w"]).exp()[0], n * (theirs.param_groups[0]["hess"] + decay))


def test_no_step_of_a_mean_is_longer_than_the_clip_allows() -> None:
    sd, lr = 0.1, 0.5
    theta = {"w": torch.zeros(1, 2), "log_sd/w": torch.full((1, 2), math.log(sd))}
    prior = {"prior_mean/w": torch.zeros(1, 1), "prior_sd/w": torch.ones(1, 1)}
    steps = _NewtonSteps(options=bc.VOGN(clip=2.0), prior=prior, weights=("w",))
    gradient = {"w": torch.tensor([[1e6, 1e-3]]), "log_sd/w": torch.zeros(1, 2)}
    moment = {k: torch.zeros_like(v) for k, v in theta.items()}
    steps.move(theta, gradient, moment, step=1, lr=lr, decay=1.0, n_rows=100)
    torch.testing.assert_close(theta["w"], -lr * torch.tensor([[2.0 * sd, 100 * sd**2 * 1e-3]]))


def test_batches_stand_for_all_rows_and_the_prior_counts_once() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(64, 3, generator=g, dtype=torch.float64)
    y = x @ torch.tensor([1.0, -1.0, 0.5], dtype=torch.float64) + torch.randn(64, generator=g, dtype=torch.float64)
    fitted = linear(x, y, prior=bc.Normal(scale=0.2), batch_size=16, epochs=150, init_sigma=0.1, curvature_lr=0.05)
    precision = x.T @ x + 25 * torch.eye(3, dtype=torch.float64)
    mean, variance = moments(fitted)
    sd = precision.diagonal().rsqrt()
    torch.testing.assert_close(mean / sd, torch.linalg.solve(precision, x.T @ y) / sd, rtol=0, atol=0.15)
    torch.testing.assert_close(variance * precision.diagonal(), torch.ones(3).double(), rtol=0, atol=0.06)
    together = fitted.bound(samples=200)
    mfvi = bc.fit(
        "mfvi",
        at_zero(3),
        (x, y),
        likelihood=bc.Gaussian(noise=1.0),
        prior=bc.Normal(scale=0.2),
        standardise=False,
        lr=0.1,
    )
    assert together == pytest.approx(mfvi.bound(samples=1), abs=0.3)


NETWORKS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "products": (nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), (4,)),
    "member by member": (nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)), (1, 4, 4)),
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_squares_are_those_of_single_rows(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bensemble_core.posteriors.variational.vogn._AT_ONCE", 250)  # so that rows come in parts
    net, shape = NETWORKS[kind][0].double(), NETWORKS[kind][1]
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(7, *shape, generator=g, dtype=torch.float64), torch.randint(3, (7,), generator=g)
    fitted = bc.fit("vogn", net, (x, y), likelihood="categorical", epochs=0)
    theta = dict(fitted.state)
    objective = _Squares(elbo=Elbo(samples=2, prior={}, extra={}, pruned={}))
    weights = {k: theta[k] for k in below("log_sd/", theta)}
    theta = weights | {k: v.fill_(-20.0) for k, v in theta.items() if k.startswith("log_sd/")}  # all draws are the mean
    members = gather(fitted.problem, weights, {}, training=True)
    batch = Batch(x=x, y=y[None], n_rows=7, seeds=[0])
    found = objective._squares(fitted.problem, lambda t, x: members(t, {}, x), theta, batch)
    for name, squares in found.items():
        expected = torch.zeros_like(weights[name][0])
        for row, label in zip(x, y, strict=True):
            leaves = {k: v[0].clone().requires_grad_() for k, v in weights.items()}
            loss = nn.functional.cross_entropy(functional_call(net, leaves, (row[None],)), label[None])
            expected += torch.autograd.grad(loss, leaves[name])[0].square() / 7
        torch.testing.assert_close(squares[0], expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("hessian", ["price", "squares"])
def test_a_learnt_noise_and_points_find_their_values(hessian: str) -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(200, 2, generator=g, dtype=torch.float64)
    y = (
        x @ torch.tensor([1.0, -0.5], dtype=torch.float64)
        + 2
        + 0.5 * torch.randn(200, generator=g, dtype=torch.float64)
    )
    options: dict[str, Any] = {"bayesian_biases": False, "epochs": 60, "hessian": hessian, "curvature_lr": 0.05}
    best = torch.linalg.lstsq(torch.cat([x, torch.ones(200, 1, dtype=torch.float64)], 1), y)
    model = {"name": "mlp", "hidden": []}
    fitted = bc.fit("vogn", model, (x, y), likelihood="gaussian", standardise=False, **options)
    assert "log_sd/linear1.bias" not in fitted.state
    assert float(fitted.state["linear1.bias"]) == pytest.approx(float(best.solution[-1]), abs=0.03)
    rmse = float((y - x @ best.solution[:2] - best.solution[2]).square().mean().sqrt())
    assert float(fitted.state["likelihood/log_noise"].exp()) == pytest.approx(rmse, rel=0.03)


def test_squares_resume_bit_for_bit_in_an_update_too() -> None:
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(20, 3, generator=g), torch.randn(20, generator=g)
    model, options = (
        {"name": "mlp", "hidden": [4]},
        {"epochs": 3, "map_epochs": 1, "batch_size": 8, "hessian": "squares"},
    )
    fitted = bc.fit("vogn", model, (x, y), likelihood="gaussian", **options)
    kept: list[dict[str, Tensor]] = []

    def cancel(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        kept.append(snapshot())
        raise bc.Cancelled("stop")

    with pytest.raises(bc.Cancelled):
        bc.fit("vogn", model, (x, y), likelihood="gaussian", report=cancel, **options)
    again = bc.fit("vogn", model, (x, y), likelihood="gaussian", resume=kept[0], **options)
    assert all(torch.equal(again.state[k], v) for k, v in fitted.state.items())
    with pytest.raises(bc.Cancelled):
        fitted.update((x[:9], y[:9]), report=cancel)
    updated, resumed = fitted.update((x[:9], y[:9])), fitted.update((x[:9], y[:9]), resume=kept[1])
    assert all(torch.equal(resumed.state[k], v) for k, v in updated.state.items())
    pruned = bc.prune(fitted, share=0.5).fitted.update((x[:9], y[:9]))
    assert bool((pruned.state["linear1.weight"][pruned.state["pruned/linear1.weight"]] == 0).all())


def test_squares_refuse_layers_without_gradients_of_single_rows() -> None:
    x, y = torch.randn(8, 3), torch.randn(8)
    norm = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    with pytest.raises(bc.InvalidModel, match='BatchNorm1d does not allow; use hessian="price"'):
        bc.fit("vogn", norm, (x, y), likelihood="gaussian", hessian="squares")

    class Branches(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = super().forward(x)
            return out if float(x.sum()) > 0 else -out

    with pytest.raises(bc.InvalidModel, match=r'gradients of single rows .* use hessian="price"'):
        bc.fit("vogn", Branches(3, 1), (x, y), likelihood="gaussian", hessian="squares", epochs=1)


@pytest.mark.parametrize("hessian", ["price", "squares"])
def test_the_defaults_classify_as_well_as_mfvi(hessian: str) -> None:
    rows, labels = make_blobs(400, n_features=4, centers=4, cluster_std=2.0, random_state=0)
    x, y = torch.tensor(rows, dtype=torch.float32), torch.tensor(labels)
    found = {}
    for method, options in (("mfvi", {}), ("vogn", {"hessian": hessian})):
        given: dict[str, Any] = {"epochs": 60, "batch_size": 20, **options}
        model = {"name": "mlp", "hidden": [32]}
        fitted = bc.fit(method, model, (x[:100], y[:100]), likelihood="categorical", **given)
        found[method] = bc.metrics.evaluate(fitted.sample(30).predict(x[100:]), y[100:])["nll"]
    assert found["vogn"] < found["mfvi"] + 0.03

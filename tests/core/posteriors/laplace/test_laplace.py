"""Laplace against closed forms in float64, and beside laplace-torch on the same trained networks."""

import math
import warnings
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.optimize import minimize, minimize_scalar
from torch import Tensor, nn
from torch.func import functional_call, jacrev
from torch.utils.data import DataLoader, TensorDataset

import bensemble_core as bc
from bensemble_core.linalg import Kronecker, gram
from bensemble_core.posteriors.laplace.held_out import held_out_loss
from bensemble_core.posteriors.laplace.network import look_at
from bensemble_core.posteriors.laplace.state import from_state

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # laplace-torch imports what torch has deprecated
    from laplace import Laplace as Peer
    from laplace.curvature import CurvlinopsGGN

S, TAU = 0.3, 0.8
EXACT: dict[str, Any] = {"standardise": False, "epochs": 800, "lr": 0.05, "batch_size": 1000}
POST_HOC: dict[str, Any] = {"epochs": 0}


def regression(n: int = 30, d: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=g, dtype=torch.float64) * torch.linspace(0.5, 2, d, dtype=torch.float64)
    w = torch.randn(d, generator=g, dtype=torch.float64)
    return x, x @ w + S * torch.randn(n, generator=g, dtype=torch.float64)


def precision(x: Tensor, s: float = S, tau: float = TAU) -> Tensor:
    return x.T @ x / s**2 + torch.eye(x.shape[1], dtype=torch.float64) / tau**2


def solved(x: Tensor, y: Tensor) -> nn.Linear:
    """A linear model at its exact posterior mean."""
    net = nn.Linear(x.shape[1], 1, bias=False, dtype=torch.float64)
    net.weight.data = torch.linalg.solve(precision(x), x.T @ y / S**2)[None]
    return net


def log_normal(y: Tensor, covariance: Tensor) -> float:
    mean = torch.zeros_like(y)
    return float(torch.distributions.MultivariateNormal(mean, covariance).log_prob(y))


def marginal(x: Tensor, y: Tensor, s: float = S, tau: float = TAU) -> float:
    return log_normal(y, s**2 * torch.eye(len(y), dtype=torch.float64) + tau**2 * x @ x.T)


def linear_fit(x: Tensor, y: Tensor, **options: Any) -> bc.Fitted:
    return bc.fit(
        "laplace",
        solved(x, y),
        (x, y),
        likelihood=bc.Gaussian(noise=S),
        prior=bc.Normal(scale=TAU),
        **POST_HOC,
        **options,
    )


def covariance_of(fitted: bc.Fitted) -> Tensor:
    """By the identity as rows: a linear model's function covariance at e_i is Σ_ii; joint draws give the rest."""
    draws = fitted.sample(100_000, seed=3).stacked["weight"][:, 0]
    return torch.cov(draws.T)


@pytest.mark.parametrize("structure", ["full", "kron"])
def test_linear_regression_is_exact(structure: str) -> None:
    x, y = regression()
    fitted = linear_fit(x, y, structure=structure)
    exact = torch.linalg.inv(precision(x))
    variances = fitted.posterior.variances(fitted.problem, fitted.state)["weight"][0]
    torch.testing.assert_close(variances, exact.diagonal(), rtol=1e-10, atol=0)
    spread = fitted.function_variance(x)[:, 0]
    torch.testing.assert_close(spread, (x @ exact * x).sum(1), rtol=1e-10, atol=0)
    assert abs(fitted.log_evidence - marginal(x, y)) < 1e-8
    drawn, scale = covariance_of(fitted), exact.diagonal().sqrt()
    assert float(((drawn - exact) / (scale[:, None] * scale)).abs().max()) < 0.02


def test_the_mean_found_by_descent_and_its_evidence_are_exact() -> None:
    x, y = regression()
    net = nn.Linear(4, 1, bias=False)
    options = EXACT | {"structure": "full"}
    fitted = bc.fit("laplace", net, (x, y), likelihood=bc.Gaussian(noise=S), prior=bc.Normal(scale=TAU), **options)
    torch.testing.assert_close(fitted.state["weight"][0], solved(x, y).weight.detach(), rtol=0, atol=1e-8)
    assert abs(fitted.log_evidence - marginal(x, y)) < 1e-8


def test_the_diagonal_is_one_over_the_diagonal_of_the_precision() -> None:
    x, y = regression()
    fitted = linear_fit(x, y, structure="diag")
    variances = fitted.posterior.variances(fitted.problem, fitted.state)["weight"][0]
    torch.testing.assert_close(variances, 1 / precision(x).diagonal(), rtol=1e-10, atol=0)
    drawn = covariance_of(fitted)
    torch.testing.assert_close(drawn.diagonal(), 1 / precision(x).diagonal(), rtol=0.02, atol=0)


def test_kronecker_is_exact_for_several_targets() -> None:
    x, y = regression()
    both = torch.stack([y, x[:, 0] - y], 1)
    net = nn.Linear(4, 2, bias=False, dtype=torch.float64)
    options = {"likelihood": bc.Gaussian(noise=S), "prior": bc.Normal(scale=TAU), **POST_HOC}
    fits = [bc.fit("laplace", net, (x, both), structure=s, **options) for s in ("kron", "full")]
    exact = torch.linalg.inv(precision(x)).diagonal().expand(2, 4)
    for fitted in fits:
        variances = fitted.posterior.variances(fitted.problem, fitted.state)["weight"]
        torch.testing.assert_close(variances, exact, rtol=1e-10, atol=0)
    assert abs(fits[0].log_evidence - fits[1].log_evidence) < 1e-8


def test_a_joint_bias_block_is_exact_where_an_own_one_is_not() -> None:
    x, y = regression()
    x = x + 1  # so that weight and bias are correlated
    wide = torch.cat([x, torch.ones(30, 1, dtype=torch.float64)], 1)
    net = nn.Linear(4, 1, dtype=torch.float64)
    exact = torch.linalg.inv(precision(wide)).diagonal()
    found = {}
    for bias in ("joint", "own"):
        fitted = bc.fit(
            "laplace", net, (x, y), likelihood=bc.Gaussian(noise=S), prior=bc.Normal(scale=TAU), bias=bias, epochs=0
        )
        parts = fitted.posterior.variances(fitted.problem, fitted.state)
        found[bias] = torch.cat([parts["weight"][0], parts["bias"]])
        spread = fitted.function_variance(x)[:, 0]
        if bias == "joint":
            torch.testing.assert_close(
                spread, (wide @ torch.linalg.inv(precision(wide)) * wide).sum(1), rtol=1e-9, atol=0
            )
    torch.testing.assert_close(found["joint"], exact, rtol=1e-10, atol=0)
    assert float(found["own"][4]) < 0.9 * float(exact[4])
    torch.testing.assert_close(found["own"][4], exact.new_tensor(1 / (30 / S**2 + 1 / TAU**2)), rtol=1e-10, atol=0)


def test_the_evidence_is_in_the_units_of_the_labels() -> None:
    """With standardised rows and labels the weights of the standardised problem have the prior."""
    x, y = regression()
    y = 100 + 20 * y
    options = EXACT | {"standardise": True, "structure": "full"}
    fitted = bc.fit("laplace", {"name": "mlp", "hidden": []}, (x, y), likelihood=bc.Gaussian(noise=6.0), **options)
    sd = y.std(correction=0)
    z = torch.cat([(x - x.mean(0)) / x.std(0, correction=0), torch.ones(30, 1, dtype=torch.float64)], 1)
    exact = marginal(z, (y - y.mean()) / sd, s=float(6 / sd), tau=1.0) - 30 * math.log(sd)
    assert abs(fitted.log_evidence - exact) < 1e-8
    spread = fitted.function_variance(x)[:, 0]
    inverse = torch.linalg.inv(precision(z, float(6 / sd), 1.0))
    torch.testing.assert_close(spread, (z @ inverse * z).sum(1) * sd**2, rtol=1e-9, atol=0)


def small_conv() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, stride=2, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(3, 4, 2, dilation=2),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


def small_mlp(n_outputs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 6), nn.ReLU(), nn.Linear(6, n_outputs))


@pytest.fixture(scope="module")
def trained() -> dict[str, tuple[nn.Module, Tensor, Tensor]]:
    """Networks in float64 with rows and labels, by the name of the task."""
    g = torch.Generator().manual_seed(1)
    state = torch.get_rng_state()
    rows = {"mlp": (60, 5), "regression": (60, 5), "conv": (50, 1, 8, 8)}
    made = {}
    for name, shape in rows.items():
        x = torch.randn(*shape, generator=g, dtype=torch.float64)
        flat = x.flatten(1)
        net = (small_conv() if name == "conv" else small_mlp(2 if name == "regression" else 3)).double()
        if name == "regression":
            y = torch.stack([flat[:, 0].sin() + flat[:, 1], flat[:, 2] * flat[:, 3]], 1)
            y = y + 0.2 * torch.randn(y.shape, generator=g, dtype=torch.float64)
        else:
            y = (flat[:, :3] + 0.5 * torch.randn(len(x), 3, generator=g, dtype=torch.float64)).argmax(1)
        likelihood = bc.Gaussian(noise=S) if name == "regression" else "categorical"
        fitted = bc.fit("map", net, (x, y), likelihood=likelihood, standardise=False, epochs=60, batch_size=60)
        net.load_state_dict({k: v[0] for k, v in fitted.state.items()})
        made[name] = (net.eval(), x, y)
    torch.set_rng_state(state)
    return made


def post_hoc(task: tuple[nn.Module, Tensor, Tensor], **options: Any) -> bc.Fitted:
    net, x, y = task
    likelihood = bc.Gaussian(noise=S) if y.is_floating_point() else "categorical"
    return bc.fit("laplace", net, (x, y), likelihood=likelihood, prior=bc.Normal(scale=TAU), epochs=0, **options)


@pytest.mark.parametrize("subset", ["all", "last_layer"])
@pytest.mark.parametrize("structure", ["full", "diag", "kron"])
@pytest.mark.parametrize("name", ["mlp", "regression", "conv"])
def test_variances_evidence_and_predictive_agree_with_laplace_torch(
    trained: dict[str, tuple[nn.Module, Tensor, Tensor]], name: str, structure: str, subset: str
) -> None:
    net, x, y = trained[name]
    kind = "regression" if name == "regression" else "classification"
    noise = {"sigma_noise": S} if name == "regression" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = Peer(
            net,
            kind,
            subset_of_weights=subset,
            hessian_structure=structure,
            prior_precision=1 / TAU**2,
            backend=CurvlinopsGGN,
            **noise,
        )
        peer.fit(DataLoader(TensorDataset(x, y), batch_size=25))
        _, theirs = peer._glm_predictive_distribution(x[:20])
        evidence = float(peer.log_marginal_likelihood())
        if structure == "full":
            their_variances = peer.posterior_covariance.diagonal()
        elif structure == "diag":
            their_variances = peer.posterior_variance
        else:
            their_variances = peer.posterior_precision.diag(exponent=-1)
    fitted = post_hoc(trained[name], structure=structure, subset=subset)
    found = fitted.posterior.variances(fitted.problem, fitted.state)
    ours = torch.cat([found[k].flatten() for k, _ in net.named_parameters() if k in found])
    torch.testing.assert_close(ours, their_variances.detach(), rtol=1e-4, atol=0)
    if subset == "all":
        assert abs(fitted.log_evidence - evidence) < 1e-6 * abs(evidence)
    else:  # theirs counts the last layer's weights alone as well
        assert abs(fitted.log_evidence - evidence) < 0.01 * abs(evidence)
    spread = fitted.function_variance(x[:20], joint=True)
    torch.testing.assert_close(spread, theirs.detach(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "options", [{"structure": "kron"}, {"structure": "kron", "bias": "joint"}, {"structure": "diag"}]
)
@pytest.mark.parametrize("name", ["mlp", "regression", "conv"])
def test_the_function_variance_is_that_of_the_jacobian(
    trained: dict[str, tuple[nn.Module, Tensor, Tensor]], name: str, options: dict[str, Any]
) -> None:
    net, x, _ = trained[name]
    fitted = post_hoc(trained[name], **options)
    theta = {k: v.detach() for k, v in net.named_parameters()}
    jacobian = jacrev(lambda p: functional_call(net, p, (x[:4],)))(theta)
    draws = fitted.sample(40_000, seed=1).stacked
    offsets = {k: draws[k] - theta[k] for k in theta}
    moved = sum(torch.einsum("no...,m...->mno", jacobian[k], offsets[k]) for k in theta)
    torch.testing.assert_close(fitted.function_variance(x[:4]), moved.var(0), rtol=0.06, atol=0)


@pytest.mark.parametrize("name", ["mlp", "conv"])
def test_members_are_linear_in_their_weights_and_their_spread_is_the_function_variance(
    trained: dict[str, tuple[nn.Module, Tensor, Tensor]], name: str
) -> None:
    net, x, _ = trained[name]
    fitted = post_hoc(trained[name])
    ensemble = fitted.sample(5, seed=2)
    theta = {k: v.detach() for k, v in net.named_parameters()}
    assert set(ensemble.stacked) == set(theta)
    assert all(torch.equal(ensemble.shared[k], theta[k]) for k in theta)
    jacobian = jacrev(lambda p: functional_call(net, p, (x[:9],)))(theta)
    expected = net(x[:9]) + sum(
        torch.einsum("no...,m...->mno", jacobian[k], ensemble.stacked[k] - theta[k]) for k in theta
    )
    torch.testing.assert_close(ensemble.predict(x[:9]).logits, expected.detach(), rtol=1e-9, atol=1e-9)
    hidden = ensemble.features(x[:9])
    torch.testing.assert_close(hidden, net[:-1](x[:9]).detach(), rtol=1e-12, atol=1e-12)
    if name == "mlp":
        many = fitted.sample(8000, seed=1).predict(x[:6]).logits
        torch.testing.assert_close(many.var(0), fitted.function_variance(x[:6]), rtol=0.12, atol=0)


def test_sampled_members_are_networks_of_their_own(trained: dict[str, tuple[nn.Module, Tensor, Tensor]]) -> None:
    net, x, _ = trained["mlp"]
    ensemble = post_hoc(trained["mlp"], predictive="sampled").sample(3, seed=2)
    by_hand = [functional_call(net, {k: v[m] for k, v in ensemble.stacked.items()}, (x,)) for m in range(3)]
    torch.testing.assert_close(ensemble.predict(x).logits, torch.stack(by_hand).detach(), rtol=1e-10, atol=1e-10)
    assert not ensemble.shared


def test_only_the_head_of_a_last_layer_posterior_differs_and_the_trunk_runs_once() -> None:
    class Counting(nn.Conv2d):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            Counting.calls += 1
            return super().forward(x)

    net = nn.Sequential(Counting(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)).eval()
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 1, 6, 6, generator=g), torch.randint(3, (40,), generator=g)
    for predictive in ("linearised", "sampled"):
        fitted = bc.fit(
            "laplace", net, (x, y), likelihood="categorical", epochs=0, subset="last_layer", predictive=predictive
        )
        ensemble = fitted.sample(50)
        assert set(ensemble.stacked) == {"4.weight", "4.bias"}
        assert {"0.weight", "0.bias", "1.weight", "1.running_mean"} <= set(ensemble.shared)
        assert ensemble.plan.mode == "vmap"
        Counting.calls = 0
        logits = ensemble.predict(x).logits
        assert Counting.calls == -(-40 // ensemble.plan.rows)
        hidden = net[:4](x)
        by_hand = (
            torch.einsum("nf,mof->mno", hidden, ensemble.stacked["4.weight"]) + ensemble.stacked["4.bias"][:, None]
        )
        torch.testing.assert_close(logits, by_hand.detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("structure", ["full", "diag", "kron"])
@pytest.mark.parametrize("name", ["mlp", "regression", "conv"])
def test_doubling_the_rows_doubles_the_data_precision(
    trained: dict[str, tuple[nn.Module, Tensor, Tensor]], name: str, structure: str
) -> None:
    net, x, y = trained[name]
    once = post_hoc((net, x, y), structure=structure)
    twice = post_hoc((net, torch.cat([x, x]), torch.cat([y, y])), structure=structure)
    seen = 0
    for key, value in once.state.items():
        if key.startswith(("laplace/dense", "laplace/diagonal", "laplace/left_values")):
            torch.testing.assert_close(twice.state[key], 2 * value, rtol=1e-8, atol=1e-8 * float(value.max()))
            seen += 1
        elif key.startswith("laplace/right_values"):
            torch.testing.assert_close(twice.state[key], value, rtol=1e-8, atol=1e-8 * float(value.max()))
    assert seen == {"full": 1}.get(structure, 6)


def test_kronecker_algebra_is_that_of_the_matrix_written_out() -> None:
    g = torch.Generator().manual_seed(0)
    a, b = (torch.randn(9, k, generator=g, dtype=torch.float64) for k in (4, 3))
    left, right, delta = a.T @ a, b.T @ b / 9, torch.tensor(0.7, dtype=torch.float64)
    whole = torch.kron(left, right) + delta * torch.eye(12, dtype=torch.float64)
    kron = Kronecker.of(left, right, 9)
    d = torch.randn(4, 3, generator=g, dtype=torch.float64)
    torch.testing.assert_close(kron.log_det(delta), torch.logdet(whole))
    torch.testing.assert_close(kron.variances(delta).flatten(), torch.linalg.inv(whole).diagonal())
    torch.testing.assert_close(kron.quadratic(delta, d), d.flatten() @ whole @ d.flatten())
    draws = kron.draw(delta, torch.eye(12, dtype=torch.float64).reshape(12, 4, 3)).flatten(1)
    torch.testing.assert_close(draws.T @ draws, torch.linalg.inv(whole))
    eye = [torch.eye(k, dtype=torch.float64) * delta.sqrt() for k in (4, 3)]
    damped = torch.kron(left / 3 + eye[0], right * 3 + eye[1])
    factored = Kronecker.of(left, right, 9, factored=True)
    torch.testing.assert_close(factored.log_det(delta), torch.logdet(damped))
    draws = factored.draw(delta, torch.eye(12, dtype=torch.float64).reshape(12, 4, 3)).flatten(1)
    torch.testing.assert_close(draws.T @ draws, torch.linalg.inv(damped))
    double = kron.plus(kron)
    torch.testing.assert_close(torch.kron(double.left(), double.right()), 2 * torch.kron(left, right))
    wide = torch.randn(50, 700, generator=g, dtype=torch.float64)
    torch.testing.assert_close(gram(wide), wide.T @ wide)


def test_draws_are_the_same_in_whatever_basis_the_factors_were_diagonalised() -> None:
    """Signs of eigenvectors, and the basis of equal eigenvalues, are decided by the CPU's library."""
    g = torch.Generator().manual_seed(0)

    def rotation(n: int) -> Tensor:
        return torch.linalg.qr(torch.randn(n, n, generator=g, dtype=torch.float64)).Q

    left, right = rotation(5), rotation(3)
    one = Kronecker(
        left_values=torch.tensor([0.0, 0.0, 2.0, 2.0, 9.0], dtype=torch.float64),
        left_vectors=left,
        right_values=torch.tensor([1.0, 3.0, 4.0], dtype=torch.float64),
        right_vectors=right,
        n_rows=9,
    )
    turned = torch.block_diag(rotation(2), rotation(2), -torch.ones(1, 1, dtype=torch.float64))
    signs = torch.tensor([-1.0, 1.0, -1.0], dtype=torch.float64)
    other = replace(one, left_vectors=left @ turned, right_vectors=right * signs)
    z, delta = torch.randn(4, 5, 3, generator=g, dtype=torch.float64), torch.tensor(0.7, dtype=torch.float64)
    for factored in (False, True):
        a, b = (replace(k, factored=factored).draw(delta, z) for k in (one, other))
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_a_state_with_other_eigenvectors_of_the_same_curvature_gives_the_same_members(
    trained: dict[str, tuple[nn.Module, Tensor, Tensor]],
) -> None:
    fitted = post_hoc(trained["mlp"])
    state = {k: v * (-1) ** torch.arange(v.shape[-1]) if "_vectors/" in k else v for k, v in fitted.state.items()}
    a, b = (f.sample(3, seed=1).stacked for f in (fitted, replace(fitted, state=state)))
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-9, atol=1e-9)


def test_a_precision_chosen_on_held_out_rows_does_not_depend_on_the_signs_of_eigenvectors(
    trained: dict[str, tuple[nn.Module, Tensor, Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, x, y = trained["mlp"]
    fitted = post_hoc(trained["mlp"])
    names, blocks, deltas = from_state(fitted.problem, fitted.state, factored=False)
    tensors = {k: v[0] for k, v in fitted.state.items() if not k.startswith("laplace/")}
    loss = held_out_loss(
        fitted.problem, look_at(fitted.problem, tensors, names), blocks, {}, bc.Data(x=x[:9], y=y[:9]), 0
    )
    before, eigh = loss(deltas), torch.linalg.eigh
    signs = torch.tensor([1.0, -1.0, -1.0], dtype=torch.float64)

    def other_signs(matrix: Tensor) -> tuple[Tensor, Tensor]:
        values, vectors = eigh(matrix)
        return values, vectors * signs

    monkeypatch.setattr(torch.linalg, "eigh", other_signs)
    assert abs(loss(deltas) - before) < 1e-10


def test_damping_does_what_its_description_says() -> None:
    """A weight's block is (L/√N + √δ) ⊗ (√N R + √δ) instead of L ⊗ R + δ; the bias keeps H + δ."""
    x, y = regression(25, 3)
    x, y = x + 1, torch.stack([y, -y], 1)
    net = nn.Linear(3, 2, dtype=torch.float64)
    delta = torch.tensor(1 / TAU**2, dtype=torch.float64)
    left, right = 25 / S**2 * torch.eye(2, dtype=torch.float64), x.T @ x / 25
    eyes = [delta.sqrt() * torch.eye(n, dtype=torch.float64) for n in (2, 3)]
    blocks = {
        "exact": torch.kron(left, right) + delta * torch.eye(6, dtype=torch.float64),
        "factored": torch.kron(left / 5 + eyes[0], 5 * right + eyes[1]),
    }
    for damping, precision_of_weight in blocks.items():
        options: dict[str, Any] = {"likelihood": bc.Gaussian(noise=S), "prior": bc.Normal(scale=TAU), "epochs": 0}
        fitted = bc.fit("laplace", net, (x, y), damping=damping, **options)
        found = fitted.posterior.variances(fitted.problem, fitted.state)
        exact = torch.linalg.inv(precision_of_weight).diagonal()
        torch.testing.assert_close(found["weight"].flatten(), exact, rtol=1e-10, atol=0)
        torch.testing.assert_close(found["bias"], (1 / (25 / S**2 + delta)).expand(2), rtol=1e-10, atol=0)
    description = next(f for f in fields(bc.Laplace) if f.name == "damping").metadata["description"]
    assert "(L/√N + √δ) ⊗ (√N R + √δ)" in description


def test_the_factored_posterior_is_tighter(trained: dict[str, tuple[nn.Module, Tensor, Tensor]]) -> None:
    exact, factored = (post_hoc(trained["mlp"], damping=d) for d in ("exact", "factored"))
    a, b = (f.posterior.variances(f.problem, f.state) for f in (exact, factored))
    assert all(bool((b[k] < a[k]).all()) for k in a if k.endswith("weight"))
    assert all(torch.equal(b[k], a[k]) for k in a if k.endswith("bias"))


class Odd(nn.Module):
    """Weights used in every way that is no plain layer: tied, called twice, normed, grouped, embedded, functional."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 6)
        self.twice = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)
        self.grouped = nn.Conv1d(6, 6, 3, padding=1, groups=2)
        self.tied = nn.Linear(6, 7, bias=False)
        self.tied.weight = self.embed.weight
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.shared_positions = nn.Linear(6, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.twice(self.twice(self.embed(x)).tanh()))
        h = h + self.attention(h, h, h, need_weights=False)[0] + self.tied(h)[..., :6]
        h = self.grouped(h.mT).mT
        out: Tensor = self.head(self.shared_positions(h).tanh().mean(1))
        return out


def test_parameters_of_other_layers_get_the_exact_diagonal() -> None:
    torch.manual_seed(0)
    net = Odd().double().eval()
    g = torch.Generator().manual_seed(0)
    x, y = torch.randint(7, (11, 5), generator=g), torch.randint(3, (11,), generator=g)
    fits = {
        s: bc.fit("laplace", net, (x, y), likelihood="categorical", structure=s, epochs=0, predictive="sampled")
        for s in ("full", "diag", "kron")
    }
    theta = {k: v.detach() for k, v in net.named_parameters()}
    seen = look_at(fits["kron"].problem, {k: v[0] for k, v in fits["kron"].state.items()}, list(theta))
    assert [layer.name for layer in seen.layers] == ["shared_positions", "head"]
    jacobian = jacrev(lambda p: functional_call(net, p, (x,)), chunk_size=1)(theta)  # attention cannot be vmapped
    p = net(x).detach().softmax(-1)
    hessian = torch.diag_embed(p) - p[:, :, None] * p[:, None]
    flat = torch.cat([jacobian[k].flatten(2) for k in theta], 2)
    whole = torch.einsum("noi,nop,npj->ij", flat, hessian, flat)
    torch.testing.assert_close(fits["full"].state["laplace/dense"][0], whole, rtol=1e-8, atol=1e-10)
    diagonal = torch.split(whole.diagonal(), [v.numel() for v in theta.values()])
    for name, exact in zip(theta, diagonal, strict=True):
        torch.testing.assert_close(fits["diag"].state[f"laplace/diagonal/{name}"][0], exact, rtol=1e-8, atol=1e-12)
        if not name.startswith(("shared_positions", "head")):
            torch.testing.assert_close(fits["kron"].state[f"laplace/diagonal/{name}"][0], exact, rtol=1e-8, atol=1e-12)
    covariance = torch.linalg.inv(whole + torch.eye(len(whole), dtype=torch.float64))
    expected = torch.einsum("noi,ij,npj->nop", flat, covariance, flat)
    torch.testing.assert_close(fits["full"].function_variance(x, joint=True), expected, rtol=1e-7, atol=1e-12)
    assert fits["kron"].function_variance(x).shape == (11, 3)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.lstm(x)[0][:, -1])
        return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_recurrent_layers_are_sampled_and_their_linearisation_is_refused_or_right(dtype: torch.dtype) -> None:
    """The kernel for float32 has no forward derivative, that for float64 has one."""
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(6, 5, 3, generator=g, dtype=dtype), torch.randint(2, (6,), generator=g)
    net = Recurrent().to(dtype)
    options: dict[str, Any] = {"likelihood": "categorical", "epochs": 0, "structure": "diag"}
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-12}

    sampled = bc.fit("laplace", net, (x, y), predictive="sampled", **options).sample(3)
    for m, logits in enumerate(sampled.predict(x).logits):
        by_hand = functional_call(net, {k: v[m] for k, v in sampled.stacked.items()}, (x,))
        torch.testing.assert_close(logits, by_hand.detach(), **tolerance)

    if dtype == torch.float32:
        with pytest.raises(bc.InvalidModel, match=r'without a forward derivative .* use predictive="sampled"'):
            bc.fit("laplace", net, (x, y), predictive="linearised", **options)
        return
    linear = bc.fit("laplace", net, (x, y), predictive="linearised", **options).sample(3)
    centre = {k: v.detach() for k, v in net.named_parameters()}
    slopes = jacrev(lambda theta: functional_call(net, theta, (x,)))(centre)  # each [N, O, ...]
    for m, logits in enumerate(linear.predict(x).logits):
        by_hand = net(x).detach()
        for name, slope in slopes.items():
            by_hand = by_hand + (slope * (linear.stacked[name][m] - centre[name])).flatten(2).sum(2)
        torch.testing.assert_close(logits, by_hand, **tolerance)


def test_heteroscedastic_curvature_is_the_expected_hessian() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(12, 3, generator=g, dtype=torch.float64)
    y = x[:, 0] + 0.2 * torch.randn(12, generator=g, dtype=torch.float64)
    net = nn.Linear(3, 2, dtype=torch.float64)
    likelihood = bc.HeteroscedasticGaussian()
    fitted = bc.fit("laplace", net, (x, y), likelihood=likelihood, structure="full", epochs=0)
    bound = fitted.problem.likelihood
    outputs = net(x).detach()
    spread = y.std(correction=0) ** 2
    raw = outputs[:, 1]
    v = spread * (torch.nn.functional.softplus(raw) + 1e-6)
    slope = spread * torch.sigmoid(raw)
    fisher = torch.stack([1 / v, 0.5 * (slope / v) ** 2], 1)
    noise = torch.randn(200_000, generator=g, dtype=torch.float64)
    draws = outputs[0, 0] + v[0].sqrt() * noise
    hessian = torch.func.vmap(torch.func.hessian(lambda o, t: -bound.log_prob(o, t[None], {})), in_dims=(None, 0))(
        outputs[0], draws[:20_000]
    ).mean(0)
    torch.testing.assert_close(hessian, torch.diag(fisher[0]), rtol=0.05, atol=0.05 * float(fisher[0].max()))
    exact = torch.einsum("no,ni,nj->oij", fisher, x, x)
    whole = fitted.state["laplace/dense"][0]
    torch.testing.assert_close(whole[:3, :3], exact[0], rtol=1e-9, atol=0)
    torch.testing.assert_close(whole[3:6, 3:6], exact[1], rtol=1e-9, atol=1e-12)
    assert fitted.function_variance(x).shape == (12, 1)


def test_the_root_of_the_categorical_information_has_one_column_less() -> None:
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 4, generator=g, dtype=torch.float64)
    logits[0] = torch.tensor([-800.0, 0.0, -900.0, 5.0])
    root = bc.Categorical(n_classes=4).fisher_root(logits, {})
    p = logits.softmax(-1)
    assert root.shape == (6, 4, 3)
    exact = torch.diag_embed(p) - p[:, :, None] * p[:, None]
    torch.testing.assert_close(root @ root.mT, exact, rtol=0, atol=1e-14)


def evidence_at(task: tuple[nn.Module, Tensor, Tensor], scale: float, noise: float = S, **options: Any) -> float:
    net, x, y = task
    likelihood = bc.Gaussian(noise=noise) if y.is_floating_point() else "categorical"
    return bc.fit(
        "laplace", net, (x, y), likelihood=likelihood, prior=bc.Normal(scale=scale), epochs=0, **options
    ).log_evidence


@pytest.mark.parametrize("structure", ["full", "diag", "kron"])
@pytest.mark.parametrize("name", ["mlp", "regression"])
def test_the_prior_precision_by_evidence_is_its_maximum(
    trained: dict[str, tuple[nn.Module, Tensor, Tensor]], name: str, structure: str
) -> None:
    fitted = post_hoc(trained[name], structure=structure, prior_precision="marglik")
    chosen = {float(v) for k, v in fitted.state.items() if k.startswith("laplace/prior_precision/")}
    assert len(chosen) == 1
    best = minimize_scalar(
        lambda log: -evidence_at(trained[name], math.exp(-0.5 * log), structure=structure),
        bounds=(-8, 8),
        method="bounded",
    )
    assert abs(math.log(chosen.pop()) - best.x) < 1e-3
    assert fitted.log_evidence >= -best.fun - 1e-6


@pytest.mark.parametrize("structure", ["full", "kron"])
def test_precisions_of_each_tensor_are_a_stationary_point_above_the_common_one(
    trained: dict[str, tuple[nn.Module, Tensor, Tensor]], structure: str
) -> None:
    one = post_hoc(trained["mlp"], structure=structure, prior_precision="marglik")
    each = post_hoc(trained["mlp"], structure=structure, prior_precision="marglik", per_layer=True)
    assert each.log_evidence > one.log_evidence
    _, blocks, deltas = from_state(each.problem, each.state, factored=False)
    logs = {k: v.log().requires_grad_() for k, v in deltas.items()}
    assert len({round(float(v), 9) for v in deltas.values()}) == 6
    now = {k: v.exp() for k, v in logs.items()}
    theta = {k: v.detach() for k, v in trained["mlp"][0].named_parameters()}
    total = sum(0.5 * (theta[k].numel() * logs[k] - now[k] * theta[k].square().sum()) for k in now)
    total = total - 0.5 * torch.stack([b.log_det(now) for b in blocks]).sum()
    slopes = torch.autograd.grad(total, list(logs.values()))
    assert max(abs(float(s)) for s in slopes) < 1e-5


def test_noise_by_evidence_is_its_maximum(trained: dict[str, tuple[nn.Module, Tensor, Tensor]]) -> None:
    net, x, y = trained["regression"]
    fitted = bc.fit(
        "laplace",
        net,
        (x, y),
        likelihood=bc.Gaussian(noise=1.0, learn_noise=True),
        epochs=0,
        structure="full",
        prior_precision="marglik",
        noise="marglik",
    )
    found = fitted.sample(2).predict(x).variances[0, 0].sqrt()
    assert float(found[0]) == pytest.approx(float(found[1]), rel=1e-4)  # the floor is of each target's own size
    scale = float(fitted.state["laplace/prior_precision/0.weight"]) ** -0.5
    best = minimize(
        lambda v: -evidence_at(trained["regression"], math.exp(v[0]), math.exp(v[1]), structure="full"),
        x0=[math.log(scale) + 0.3, math.log(float(found[0])) + 0.3],
        method="Nelder-Mead",
        options={"xatol": 1e-5, "fatol": 1e-8},
    )
    assert math.log(scale) == pytest.approx(best.x[0], abs=2e-3)
    assert math.log(float(found[0])) == pytest.approx(best.x[1], abs=2e-3)
    assert fitted.log_evidence == pytest.approx(-best.fun, abs=1e-4)


def test_evidence_chooses_the_model_that_made_the_data() -> None:
    g = torch.Generator().manual_seed(3)
    x = torch.rand(60, 1, generator=g, dtype=torch.float64) * 4 - 2
    y = (1 - 2 * x + 1.5 * x**2)[:, 0] + S * torch.randn(60, generator=g, dtype=torch.float64)
    found = []
    for degree in range(1, 7):
        features = torch.cat([x**k for k in range(degree + 1)], 1)
        found.append(linear_fit(features, y, structure="full").log_evidence)
        assert abs(found[-1] - marginal(features, y)) < 1e-8
    assert max(range(6), key=found.__getitem__) + 1 == 2


def test_validation_takes_the_precision_with_the_least_held_out_loss() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(200, 30, generator=g, dtype=torch.float64)
    y = x[:, 0] + torch.randn(200, generator=g, dtype=torch.float64)
    options = {"epochs": 0, "validation": 0.3, "seed": 4}
    net = nn.Linear(30, 1, bias=False, dtype=torch.float64)
    torch.nn.init.zeros_(net.weight)
    net.weight.data[0, 0] = 1.0
    likelihood = bc.Gaussian(noise=1.0)
    fitted = bc.fit("laplace", net, (x, y), likelihood=likelihood, prior_precision="validation", **options)
    chosen = float(fitted.state["laplace/prior_precision/weight"])
    assert chosen == pytest.approx(1e4)  # the weights are the truth: the less spread the better
    net.weight.data[0, 0] = -4.0
    wrong = bc.fit("laplace", net, (x, y), likelihood=likelihood, prior_precision="validation", **options)
    assert float(wrong.state["laplace/prior_precision/weight"]) == pytest.approx(1e-4)
    assert int(fitted.state["laplace/n_rows"]) == 140


@pytest.mark.parametrize("structure", ["full", "kron"])
def test_an_update_with_the_posterior_as_prior_is_the_fit_to_all_rows(structure: str, tmp_path: Path) -> None:
    x, y = regression(50)
    first = linear_fit(x[:20], y[:20], structure=structure)
    first.save(tmp_path / "first")
    loaded = bc.load(tmp_path / "first", model=nn.Linear(4, 1, bias=False, dtype=torch.float64))
    both = loaded.update((x[20:], y[20:]), epochs=700, lr=0.05, batch_size=1000)
    torch.testing.assert_close(both.state["weight"][0], solved(x, y).weight.detach(), rtol=0, atol=1e-7)
    variances = both.posterior.variances(both.problem, both.state)["weight"][0]
    torch.testing.assert_close(variances, torch.linalg.inv(precision(x)).diagonal(), rtol=1e-9, atol=0)
    assert abs(both.log_evidence - marginal(x, y)) < 1e-8
    assert int(both.state["laplace/n_rows"]) == 50


def test_after_an_update_a_learnt_noise_is_that_of_a_fit_to_all_rows() -> None:
    """Of a linear model, with the evidence and the spread that come with the noise."""
    x, y = regression(60, 2)
    options = EXACT | {"structure": "full", "likelihood": "gaussian", "prior": bc.Normal(scale=10.0), "epochs": 400}
    whole = bc.fit("laplace", nn.Linear(2, 1), (x, y), **options)
    for n_new in (1, 45):
        first = bc.fit("laplace", nn.Linear(2, 1), (x[:-n_new], y[:-n_new]), **options)
        updated = first.update((x[-n_new:], y[-n_new:]))
        noises = [float(f.state["likelihood/log_noise"].exp()) for f in (updated, whole)]
        assert noises[0] == pytest.approx(noises[1], rel=1e-4)
        assert updated.log_evidence == pytest.approx(whole.log_evidence, abs=1e-3)
        torch.testing.assert_close(updated.state["weight"], whole.state["weight"], rtol=1e-3, atol=0)
        torch.testing.assert_close(updated.function_variance(x), whole.function_variance(x), rtol=2e-4, atol=0)


@pytest.mark.parametrize("structure", ["kron", "diag", "full"])
def test_the_noise_of_each_target_is_kept_through_an_update(structure: str) -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(102, 2, generator=g)
    y = x + torch.tensor([0.2, 1.0]) * torch.randn(102, 2, generator=g)
    options: dict[str, Any] = {"likelihood": "gaussian", "structure": structure, "epochs": 40, "batch_size": 20}
    options |= {"lr": 0.1}
    first = bc.fit("laplace", nn.Linear(2, 2), (x[:100], y[:100]), **options)
    updated = first.update((x[100:], y[100:]))
    before, after = (f.sample(1).predict(x[:1]).variances[0, 0].sqrt() for f in (first, updated))
    wide = torch.cat([x[:100], torch.ones(100, 1)], 1)
    residuals = y[:100] - wide @ torch.linalg.lstsq(wide, y[:100]).solution
    torch.testing.assert_close(before, residuals.square().mean(0).sqrt(), rtol=0.03, atol=0)
    torch.testing.assert_close(after, before, rtol=0.05, atol=0)


def test_five_updates_with_one_row_each_leave_a_network_as_good_as_it_was() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(605, 2, generator=g)
    y = x[:, 0].sin() + 0.5 * torch.randn(605, generator=g)
    fitted = bc.fit("laplace", {"name": "mlp", "hidden": [16]}, (x[:100], y[:100]), likelihood="gaussian", epochs=50)

    def nll() -> float:
        predictive = fitted.sample(30, seed=1).predict(x[105:])
        return float(bc.metrics.nll(predictive, y[105:]))

    first = nll()
    for row in range(100, 105):
        fitted = fitted.update((x[row : row + 1], y[row : row + 1]))
    assert first < 0.9
    assert nll() < first + 0.1


def test_an_update_of_factors_is_their_sum_as_in_one_pass(trained: dict[str, tuple[nn.Module, Tensor, Tensor]]) -> None:
    net, x, y = trained["conv"]
    both = post_hoc((net, x[:20], y[:20])).update((x[20:], y[20:]), epochs=0)
    whole = post_hoc(trained["conv"])
    for block, exact in zip(
        from_state(both.problem, both.state, factored=False)[1],
        from_state(whole.problem, whole.state, factored=False)[1],
        strict=True,
    ):
        assert block.names == exact.names
        torch.testing.assert_close(block.curvature.left(), exact.curvature.left(), rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(block.curvature.right(), exact.curvature.right(), rtol=1e-8, atol=1e-10)


def test_an_update_can_refit_to_all_rows_instead() -> None:
    x, y = regression(40)
    first = linear_fit(x[:20], y[:20], structure="full")
    refit = first.update((x[20:], y[20:]), keep=True, epochs=700, lr=0.05, batch_size=1000)
    torch.testing.assert_close(refit.state["weight"][0], solved(x, y).weight.detach(), rtol=0, atol=1e-8)
    assert abs(refit.log_evidence - marginal(x, y)) < 1e-8


def test_a_wide_network_never_needs_a_matrix_of_all_its_weights() -> None:
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(50, 784, generator=g), torch.randint(10, (50,), generator=g)
    model = {"name": "mlp", "hidden": [512, 256]}
    fitted = bc.fit("laplace", model, (x, y), likelihood="categorical", epochs=1)
    assert max(v.numel() for v in fitted.state.values()) <= 784**2
    ensemble = fitted.sample(2)
    assert ensemble.stacked["linear1.weight"].shape == (2, 512, 784)
    single = fitted.function_variance(x)
    wide = {k: v.double() if v.is_floating_point() else v for k, v in fitted.state.items()}
    again = bc.Fitted(
        posterior=fitted.posterior,
        problem=bc.Problem(
            model=fitted.problem.model,
            likelihood=fitted.problem.likelihood,
            prior=fitted.problem.prior,
            scaling=fitted.problem.scaling,
            dtype=torch.float64,
        ),
        state=wide,
        seed=0,
    )
    double = again.function_variance(x.double())
    torch.testing.assert_close(single, double.float(), rtol=1e-3, atol=0)


def test_a_post_hoc_fit_reports_and_can_be_cancelled() -> None:
    x, y = regression()
    heard: list[tuple[int, int]] = []

    def report(done: int, total: int, message: str, snapshot: Any) -> None:
        heard.append((done, total))
        raise bc.Cancelled("stop")

    with pytest.raises(bc.Cancelled):
        linear_fit(x, y, report=report)
    assert heard == [(30, 30)]


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"prior": None}, "has no prior precision"),
        ({"per_layer": True}, 'prior_precision="marglik"'),
        ({"damping": "factored", "prior_precision": "marglik"}, 'damping="exact"'),
        ({"noise": "marglik"}, "learn_noise=True"),
        ({"structure": "full", "model": {"name": "mlp", "hidden": [100, 100]}}, 'at most 5,000 .* structure="kron"'),
        ({"structure": "block"}, "one of 'kron', 'diag', 'full'"),
    ],
)
def test_what_cannot_be_done_is_refused_before_any_work(extra: dict[str, Any], words: str) -> None:
    heard: list[int] = []
    options: dict[str, Any] = {"likelihood": bc.Gaussian(noise=S), "model": {"name": "mlp", "hidden": [3]}} | extra
    model = options.pop("model")
    with pytest.raises(bc.InvalidOption, match=words):
        bc.fit("laplace", model, regression(), report=lambda done, *_: heard.append(done), **options)
    assert heard == []


def test_a_posterior_without_evidence_says_so() -> None:
    fitted = bc.fit("map", {"name": "mlp", "hidden": []}, regression(), likelihood="gaussian", epochs=1)
    with pytest.raises(bc.InvalidOption, match="map has no log evidence"):
        _ = fitted.log_evidence
    with pytest.raises(bc.InvalidOption, match="no variance in closed form"):
        fitted.function_variance(regression()[0])

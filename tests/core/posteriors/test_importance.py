"""Importance sampling: weights and evidence against closed forms, and what it says of itself."""

import math
import sys
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.posteriors import importance
from bensemble_core.posteriors.importance import log_joints, log_mean, posterior_of, smooth, student_t_log_density
from bensemble_core.predictive.mixtures import effective_size, member_average
from bensemble_core.randomness import generator
from bensemble_core.types import Snapshot

X = torch.tensor([[1.0, 2.0], [2.0, 1.0], [1.0, -1.0], [0.0, 1.0]], dtype=torch.float64)
Y = torch.tensor([1.0, 2.0, 0.0, 1.0], dtype=torch.float64)
TO_THE_END: dict[str, Any] = {"epochs": 400, "lr": 0.05, "batch_size": 1000}
MLP = {"name": "mlp", "hidden": [6]}
WAYS = [{}, {"subset": "all"}, {"proposal": "mfvi"}, {"proposal": "mfvi", "subset": "all"}]


def rows(n: int = 24) -> Tensor:
    return torch.randn(n, 4, generator=generator(0))


def log_weights_of_normals(mean: float, variance: float, n: int = 40_000) -> Tensor:
    """Of N(0, 1) under the proposal N(mean, variance), at its quantiles: draws without the luck."""
    z = torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n)
    x = mean + z * variance**0.5
    return -0.5 * x.square() + 0.5 * z.square() + 0.5 * math.log(variance)


def linear(**options: Any) -> bc.Fitted:
    return bc.fit(
        "importance",
        nn.Linear(2, 1, bias=False),
        (X, Y),
        likelihood=bc.Gaussian(noise=1.0),
        standardise=False,
        **(TO_THE_END | {"samples": 20_000} | options),
    )


def moments(fitted: bc.Fitted, name: str = "weight") -> tuple[Tensor, Tensor]:
    """Weighted mean and variances of all draws."""
    drawn, log_weights = fitted.state[name].flatten(1), fitted.state["importance/log_weights"]
    mean = member_average(drawn, log_weights)
    return mean, member_average((drawn - mean).square(), log_weights)


def test_a_shifted_and_wide_proposal_has_the_share_and_the_evidence_of_the_formula() -> None:
    log_weights = log_weights_of_normals(0.5, 1.2**2)
    assert effective_size(log_weights, len(log_weights)) / len(log_weights) == pytest.approx(0.8336, abs=1e-4)
    assert float(log_mean(log_weights)) == pytest.approx(0, abs=1e-5)


def test_the_tail_index_of_a_narrow_proposal_is_one_minus_its_variance() -> None:
    found = {variance: smooth(log_weights_of_normals(0, variance))[1] for variance in (0.2, 0.5, 0.8)}
    for variance, khat in found.items():
        assert khat == pytest.approx(1 - variance, abs=0.08)
    assert found[0.2] > importance.LARGEST_KHAT > found[0.5]


def test_smoothing_keeps_the_bulk_lowers_no_order_and_adds_up_to_one() -> None:
    raw = 1.5 * torch.randn(1000, generator=generator(0), dtype=torch.float64)
    smoothed, _ = smooth(raw + 7)
    plain = raw.log_softmax(0)
    order = raw.argsort()
    assert float(smoothed.logsumexp(0)) == pytest.approx(0, abs=1e-12)
    assert bool((smoothed[order].diff() >= 0).all())
    bulk = order[: 1000 - math.floor(3 * 1000**0.5) - 1]
    apart = (smoothed - plain)[bulk]
    torch.testing.assert_close(apart, apart[:1].expand_as(apart))


def test_weights_without_a_tail_to_fit_stay_as_they_are() -> None:
    even, khat = smooth(torch.zeros(500, dtype=torch.float64))
    assert khat == -10
    torch.testing.assert_close(even, torch.full_like(even, -math.log(500)))
    one = torch.full((500,), -1e4, dtype=torch.float64)
    one[3] = 0
    for log_weights in (one, one.masked_fill(one < 0, -math.inf)):
        smoothed, khat = smooth(log_weights)
        assert khat == 10
        assert float(smoothed[3]) == 0
    spread = 1000 * torch.randn(2000, generator=generator(0), dtype=torch.float64)
    smoothed, khat = smooth(spread)
    assert khat == 10
    torch.testing.assert_close(smoothed, spread.log_softmax(0))


def test_the_density_of_a_student_t_is_the_one_of_scipy() -> None:
    g = generator(1)
    root = torch.randn(3, 3, generator=g, dtype=torch.float64) + 2 * torch.eye(3, dtype=torch.float64)
    precision, x = root @ root.T, torch.randn(50, 3, generator=g, dtype=torch.float64)
    squares = ((x @ precision) * x).sum(1)
    log_det = float(torch.logdet(precision))
    for df in (1.0, 5.0, 300.0):
        other = stats.multivariate_t(np.zeros(3), torch.linalg.inv(precision).numpy(), df=df, seed=0)
        found = student_t_log_density(squares, 3, df, log_det)
        torch.testing.assert_close(found, torch.from_numpy(other.logpdf(x.numpy())))


@pytest.mark.parametrize("options", WAYS)
def test_linear_regression_has_its_closed_form(options: dict[str, Any]) -> None:
    fitted = linear(**options)
    values = fitted.diagnostics.values
    mean, variances = moments(fitted)
    exact = torch.linalg.inv(X.T @ X + torch.eye(2, dtype=torch.float64)).diagonal()
    size = values["ess"]
    assert size > 10_000
    assert bool(((mean - torch.tensor([0.531915, 0.425532])).abs() < 5 * (exact / size).sqrt()).all())
    torch.testing.assert_close(variances / exact, torch.ones_like(exact), rtol=0, atol=5 * (2 / size) ** 0.5)
    error = ((1 / values["ess_share"] - 1) / 20_000) ** 0.5
    assert fitted.log_evidence == pytest.approx(-6.207211, abs=5 * error)
    assert fitted.diagnostics.warnings == ()


def test_the_evidence_is_in_the_units_of_y() -> None:
    x, y = rows().double(), 1e3 + 50 * rows()[:, 0].double()
    options: dict[str, Any] = {"likelihood": bc.Gaussian(noise=20.0), "prior": bc.Normal(scale=0.7), **TO_THE_END}
    exact = bc.fit("laplace", nn.Linear(4, 1), (x, y), structure="full", **options)
    fitted = bc.fit("importance", nn.Linear(4, 1), (x, y), samples=20_000, **options)
    error = ((1 / fitted.diagnostics.values["ess_share"] - 1) / 20_000) ** 0.5
    assert fitted.log_evidence == pytest.approx(exact.log_evidence, abs=5 * error)


def test_a_last_layer_is_a_linear_model_of_its_features_however_short_the_descent() -> None:
    """Found at its peak: of a Gaussian with 21 weights, .57 of the draws of a Student-t with 5 degrees count."""
    x = rows(40).double()
    y = x[:, 0] - x[:, 1].abs()
    noise, tau, n = 0.5, 0.8, 10_000
    fitted = bc.fit(
        "importance",
        {"name": "mlp", "hidden": [20]},
        (x, y),
        likelihood=bc.Gaussian(noise=noise),
        prior=bc.Normal(scale=tau),
        standardise=False,
        epochs=2,
        samples=n,
    )
    features = fitted.sample(1).features(x)
    features = torch.cat([features, torch.ones_like(features[:, :1])], 1)
    covariance = noise**2 * torch.eye(40, dtype=torch.float64) + tau**2 * features @ features.T
    exact = torch.distributions.MultivariateNormal(torch.zeros(40, dtype=torch.float64), covariance).log_prob(y)
    share = fitted.diagnostics.values["ess_share"]
    assert share == pytest.approx(0.57, abs=0.05)
    assert fitted.log_evidence == pytest.approx(float(exact), abs=5 * ((1 / share - 1) / n) ** 0.5)


class Logistic(nn.Module):
    """Two classes by one score: its last layer is not the last to run."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(2, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        score = self.score(x)
        return torch.cat([torch.zeros_like(score), score], 1)


def test_logistic_regression_with_five_rows_is_that_of_a_grid() -> None:
    """Few rows and a wide prior: the posterior is skewed, and its peak well off its mean."""
    x = torch.tensor([[1.0, 0.3], [2.0, -1.0], [-0.5, 1.5], [0.5, 1.0], [-1.0, -0.2]], dtype=torch.float64)
    y = torch.tensor([1, 1, 1, 1, 0])
    fitted = bc.fit(
        "importance",
        Logistic(),
        (x, y),
        likelihood="categorical",
        prior=bc.Normal(scale=3.0),
        standardise=False,
        **(TO_THE_END | {"samples": 20_000}),
    )
    axis = torch.linspace(-15, 25, 600, dtype=torch.float64)
    theta = torch.cartesian_prod(axis, axis)
    scores = theta @ x.T
    log_joint = torch.where(y == 1, -torch.nn.functional.softplus(-scores), -torch.nn.functional.softplus(scores)).sum(
        1
    )
    log_joint = log_joint + torch.distributions.Normal(0, 3).log_prob(theta).sum(1)
    exact = (log_joint.softmax(0)[:, None] * theta).sum(0)
    variance = (log_joint.softmax(0)[:, None] * (theta - exact).square()).sum(0)
    evidence = float(log_joint.logsumexp(0) + 2 * (axis[1] - axis[0]).log())
    values = fitted.diagnostics.values
    mean, spread = moments(fitted, "score.weight")
    peak = fitted.state["importance/centre/score.weight"][0, 0]
    assert bool(((peak - exact).abs() > 0.2 * variance.sqrt()).any())
    assert bool(((mean - exact).abs() < 5 * (variance / values["ess"]).sqrt()).all())
    torch.testing.assert_close(spread / variance, torch.ones(2, dtype=torch.float64), rtol=0, atol=0.1)
    error = ((1 / values["ess_share"] - 1) / 20_000) ** 0.5
    assert fitted.log_evidence == pytest.approx(evidence, abs=5 * error)
    assert values["khat"] < 0.7


@pytest.mark.parametrize("kind", ["categorical", "gaussian", "heteroscedastic_gaussian"])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("ending", [nn.Identity(), nn.Tanh()])  # after the last layer
def test_a_trunk_computed_once_gives_what_the_whole_network_gives(kind: str, frozen: bool, ending: nn.Module) -> None:
    x = rows().double()
    y = x[:, :3].argmax(1) if kind == "categorical" else 3 + x[:, 0]
    out = {"categorical": 3, "gaussian": 1, "heteroscedastic_gaussian": 2}[kind]
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, out), ending)
    net[3].bias.requires_grad_(not frozen)
    fitted = bc.fit("importance", net, (x, y), likelihood=kind, epochs=3, samples=120)
    names = ("3.weight",) if frozen else ("3.weight", "3.bias")
    assert fitted.posterior.names(fitted.problem) == names  # type: ignore[attr-defined]
    drawn = {name: fitted.state[name] for name in names}
    centre = {k: v[0] for k, v in fitted.posterior.unfold(fitted.problem, fitted.state).items()}  # type: ignore[attr-defined]
    scaled = fitted.problem.scaling(x) if fitted.problem.scaling is not None else x
    data = bc.Data(x=scaled, y=fitted.problem.likelihood.encode(y, dtype=torch.float64))
    told: list[tuple[int, int, str]] = []
    before = {k: v.clone() for k, v in centre.items()}
    target = posterior_of(fitted.problem, centre, names, data, lambda *step: told.append(step))
    assert told == [(24, 24, "features of 24 of 24 rows")]
    assert target.problem.model.input_shape == ((6,) if isinstance(ending, nn.Identity) else (4,))
    assert all(torch.equal(centre[k], v) for k, v in before.items())
    found = log_joints(target, drawn, lambda *step: told.append(step))
    assert fitted.problem.prior is not None
    found = found - fitted.problem.prior.log_prob(drawn)
    predictive = fitted.sample(120).predict(x)  # as many as there are: in their order
    if isinstance(predictive, bc.CategoricalPredictive):
        each = predictive.log_probs.gather(2, y.expand(120, -1)[..., None])[..., 0]
    else:
        each = torch.distributions.Normal(predictive.means, predictive.variances.sqrt()).log_prob(y)
        each = each + math.log(fitted.problem.likelihood.scale[0])  # type: ignore[attr-defined]
    torch.testing.assert_close(found, each.sum(1))
    assert told[-1] == (120, 120, "weighed 120 of 120 draws")


def test_a_tied_last_layer_runs_through_the_whole_network() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.layer(torch.tanh(self.layer(x)))
            return out

    x = rows()
    fitted = bc.fit("importance", Tied(), (x, x[:, :3].argmax(1)), likelihood="categorical", epochs=2, samples=100)
    names = ("layer.weight", "layer.bias")
    centre = {name: fitted.state["importance/centre/" + name][0] for name in names}
    target = posterior_of(fitted.problem, centre, names, bc.Data(x=x, y=x[:, :3].argmax(1)), lambda *step: None)
    assert target.problem is fitted.problem


@pytest.mark.parametrize("proposal", ["laplace", "mfvi"])
def test_the_trunk_runs_as_often_for_many_draws_as_for_few(proposal: str) -> None:
    calls: list[int] = []

    class Counted(nn.Tanh):
        def forward(self, x: Tensor) -> Tensor:
            calls.append(len(x))
            return super().forward(x)

    x = rows()
    counts = []
    for samples in (100, 3000):
        net = nn.Sequential(nn.Linear(4, 6), Counted(), nn.Linear(6, 3))
        calls.clear()
        options: dict[str, Any] = {"epochs": 1, "samples": samples, "proposal": proposal}
        bc.fit("importance", net, (x, x[:, :3].argmax(1)), likelihood="categorical", **options)
        counts.append(len(calls))
    assert counts[0] == counts[1]


def test_kronecker_factors_serve_where_a_full_covariance_would_be_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importance, "LARGEST_FULL", 0)
    fitted = linear(samples=5000)
    error = ((1 / fitted.diagnostics.values["ess_share"] - 1) / 5000) ** 0.5
    assert fitted.log_evidence == pytest.approx(-6.207211, abs=5 * error)


def test_a_proposal_far_too_narrow_is_warned_of_and_members_repeat_it() -> None:
    options: dict[str, Any] = {"proposal": "mfvi", "epochs": 0, "df": 1000.0, "samples": 500}
    fitted = bc.fit("importance", MLP, (rows(), rows()[:, :3].argmax(1)), likelihood="categorical", **options)
    assert fitted.diagnostics.values["khat"] > 0.7
    assert [w for w in fitted.diagnostics.warnings if "k̂" in w]
    assert fitted.sample(3).notes == fitted.diagnostics.warnings


def test_few_draws_are_warned_of() -> None:
    fitted = linear(samples=100)
    (warning,) = fitted.diagnostics.warnings
    assert warning.startswith("100 weighted draws count as")
    assert "more samples" in warning


def test_members_are_different_draws_with_their_weights() -> None:
    fitted = linear(samples=1000)
    few = fitted.sample(30)
    assert few.n_members == len(torch.unique(few.stacked["weight"], dim=0)) == 30
    assert few.log_weights is not None
    assert float(few.log_weights.logsumexp(0)) == pytest.approx(0, abs=1e-9)
    every = fitted.sample(5000)
    assert every.n_members == 1000
    assert torch.equal(every.stacked["weight"], fitted.state["weight"])
    assert "this importance keeps no more" in every.notes[-1]


def test_it_goes_on_from_a_snapshot_taken_while_it_weighs() -> None:
    kept: list[dict[str, Tensor]] = []
    x = rows()
    data, options = (x, x[:, :3].argmax(1)), {"epochs": 3, "samples": 300}

    def report(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        assert 0 < done <= total
        if message.startswith("weighed"):
            kept.append(snapshot())

    fitted = bc.fit("importance", MLP, data, likelihood="categorical", report=report, **options)
    stored = bc.load_tensors(bc.save_tensors(kept[-1]))
    again = bc.fit("importance", MLP, data, likelihood="categorical", resume=stored, **options)
    assert set(again.state) == set(fitted.state)
    assert all(torch.equal(again.state[k], fitted.state[k]) for k in fitted.state)


def test_another_method_starts_from_the_mean_of_the_gaussian_and_so_does_it_itself() -> None:
    x = rows()
    data = (x, x[:, :3].argmax(1))
    fitted = bc.fit("importance", MLP, data, likelihood="categorical", epochs=3, samples=100)
    head = [k for k in fitted.state if k.startswith("importance/centre/")]
    for method in ("map", "importance"):
        again = bc.fit(method, MLP, data, likelihood="categorical", epochs=0, warm=fitted)
        prefix = "" if method == "map" else "importance/centre/"
        for name in head:
            own = name.removeprefix("importance/centre/")
            assert torch.equal(again.state[prefix + own], fitted.state[name])


def test_what_cannot_be_done_is_refused_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(model: Any = MLP, **options: Any) -> None:
        bc.check("importance", model, likelihood="gaussian", input_shape=[4], **options)

    check()
    with pytest.raises(bc.InvalidOption, match=r"at most 1,000 weights, these are 1,[0-9]+.*last_layer"):
        check({"name": "mlp", "hidden": [30, 30]}, subset="all")
    with pytest.raises(bc.InvalidOption, match="pass fewer samples, at most 134,150"):
        check({"name": "mlp", "hidden": [2000]}, samples=1_000_000)
    with pytest.raises(bc.InvalidOption, match="weighs the likelihood against a prior"):
        check(prior=None)
    with pytest.raises(bc.InvalidOption, match="at least 100"):
        check(samples=10)
    monkeypatch.setitem(sys.modules, "arviz_stats", None)
    with pytest.raises(bc.InvalidOption, match="pip install arviz-stats"):
        check()

"""SWA, SWAG and their mixture against scripted iterates and hand-computed averages."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.posteriors.averaging import swag
from bensemble_core.training import descent as training
from bensemble_core.types import Snapshot

LINEAR = nn.Linear(3, 1, bias=False)


def rows(n: int = 40, d: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=g, dtype=torch.float64)
    return x, x @ torch.randn(d, generator=g, dtype=torch.float64) + 0.3 * torch.randn(n, generator=g).double()


def scripted(monkeypatch: pytest.MonkeyPatch, n: int, seed: int = 3) -> Tensor:
    """Make a training walk through n given weights of a linear layer, one an epoch: [n, M, 1, 3]."""
    g = torch.Generator().manual_seed(seed)
    mixing = torch.tensor([[2.0, 0.0, 0.0], [1.5, 1.0, 0.0], [-1.0, 0.5, 0.3]], dtype=torch.float64)
    walk = torch.randn(n, 2, 1, 3, generator=g, dtype=torch.float64) @ mixing.T + 5

    def move(run: Any, gradient: list[Tensor], lr: float) -> None:
        run.theta["weight"] = walk[run.step, : len(run.seeds)].clone()

    monkeypatch.setattr(training._State, "_move", move)
    return walk


def covariance(weights: Tensor) -> Tensor:
    """Sample covariance of [n, 3]."""
    return torch.cov(weights.T)


def analytic(fitted: bc.Fitted, member: int = 0) -> Tensor:
    """Covariance of a draw by the state: scale (½ Σ_diag + ½ D Dᵀ/(rank − 1))."""
    posterior: Any = fitted.posterior
    diagonal = fitted.state["swag/variance/weight"][member, 0].diag()
    deviations = fitted.state["swag/deviation/weight"][member, :, 0]  # [rank, 3]
    found: Tensor = posterior.scale * (diagonal / 2 + deviations.T @ deviations / (2 * (posterior.rank - 1)))
    return found


def fit(method: str = "swag", **options: Any) -> bc.Fitted:
    options = {"likelihood": bc.Gaussian(noise=0.3), "standardise": False, "batch_size": 1000} | options
    return bc.fit(method, LINEAR, rows(), **options)


def test_mean_diagonal_and_off_diagonals_are_those_of_the_iterates(monkeypatch: pytest.MonkeyPatch) -> None:
    walk = scripted(monkeypatch, 24)[12:, 0, 0]  # burn_in is one half
    fitted = fit(epochs=24, rank=12)
    torch.testing.assert_close(fitted.state["weight"][0, 0], walk.mean(0), rtol=0, atol=1e-13)
    variance = walk.var(0, correction=0)
    torch.testing.assert_close(fitted.state["swag/variance/weight"][0, 0], variance, rtol=1e-12, atol=0)
    found, sample = analytic(fitted), covariance(walk)
    off = ~torch.eye(3, dtype=torch.bool)
    torch.testing.assert_close(found[off], sample[off] / 2, rtol=1e-12, atol=0)
    torch.testing.assert_close(found.diag(), variance / 2 + sample.diag() / 2, rtol=1e-12, atol=0)


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_draws_have_the_mean_and_covariance_of_the_formula(monkeypatch: pytest.MonkeyPatch, scale: float) -> None:
    scripted(monkeypatch, 16)
    fitted = fit(epochs=16, rank=5, scale=scale)
    draws = fitted.sample(20_000).stacked["weight"][:, 0]
    exact = analytic(fitted)
    root = torch.linalg.cholesky(exact)
    white = torch.linalg.solve_triangular(root, (draws - fitted.state["weight"][0, 0]).T, upper=False).T
    assert float(white.mean(0).abs().max()) < 4 / 20_000**0.5
    assert float((covariance(white) - torch.eye(3)).abs().max()) < 4 * (2 / 20_000) ** 0.5
    assert fitted.sample(7).n_members == 7


def test_only_the_last_deviations_are_kept_and_all_iterates_make_the_diagonal(monkeypatch: pytest.MonkeyPatch) -> None:
    walk = scripted(monkeypatch, 20)[10:, 0, 0]
    fitted = fit(epochs=20, rank=4)
    kept = fitted.state["swag/deviation/weight"][0, :, 0]
    expected = walk[-4:] - walk.mean(0)
    torch.testing.assert_close(kept.T @ kept, expected.T @ expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(fitted.state["swag/variance/weight"][0, 0], walk.var(0, correction=0))


def test_running_deviations_are_from_the_mean_so_far_as_in_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    walk = scripted(monkeypatch, 12)[6:, 0, 0]
    fitted = fit(epochs=12, rank=6, centre="running")
    expected = torch.stack([walk[i] - walk[: i + 1].mean(0) for i in range(6)])
    torch.testing.assert_close(fitted.state["swag/deviation/weight"][0, :, 0], expected, rtol=1e-12, atol=1e-13)


def test_rank_zero_is_the_diagonal_gaussian_with_the_whole_variance(monkeypatch: pytest.MonkeyPatch) -> None:
    walk = scripted(monkeypatch, 12)[6:, 0, 0]
    draws = fit(epochs=12, rank=0).sample(20_000).stacked["weight"][:, 0]
    variance = walk.var(0, correction=0)
    torch.testing.assert_close(draws.var(0), variance, rtol=4 * (2 / 20_000) ** 0.5, atol=0)
    correlation = torch.corrcoef(draws.T) - torch.eye(3)
    assert float(correlation.abs().max()) < 4 / 20_000**0.5


def test_cycles_and_burn_in_say_which_iterates_count(monkeypatch: pytest.MonkeyPatch) -> None:
    walk = scripted(monkeypatch, 11)[:, 0, 0]
    state = fit("swa", epochs=11, burn_in=0.25, cycle=3).state  # 3 of burn-in, 2 that fill no cycle, then 8 and 11
    torch.testing.assert_close(state["weight"][0, 0], walk[[7, 10]].mean(0))
    assert set(state) == {"weight"}


def test_moments_in_single_precision_do_not_cancel() -> None:
    g = torch.Generator().manual_seed(0)
    walk = (100 + 1e-3 * torch.randn(40, generator=g, dtype=torch.float64)).float()
    kept: dict[str, Tensor] = {}
    watch = swag.collector(bc.SWAG(epochs=40), 2, "mean")
    for epoch in range(1, 41):
        watch(epoch, {"w": walk[epoch - 1].reshape(1, 1)}, {}, kept)
    exact = walk[20:].double().var(correction=0)  # about 1e-6, below the rounding of a single-precision 100² = 1e4
    torch.testing.assert_close(kept["squares/w"][0, 0].double() / 20, exact, rtol=0.02, atol=0)


def test_a_mixture_spreads_its_draws_evenly_over_its_members(monkeypatch: pytest.MonkeyPatch) -> None:
    walk = scripted(monkeypatch, 12)[6:, :, 0]  # [6, 2, 3]
    walk[:, 1] += 1000
    fitted = fit("multi_swag", epochs=12, rank=6, members=2)
    torch.testing.assert_close(fitted.state["weight"][:, 0], walk.mean(0))
    draws = fitted.sample(9001).stacked["weight"][:, 0]
    second = draws[:, 0] > 500
    assert int(second.sum()) in (4500, 4501)
    for m, group in enumerate((draws[~second], draws[second])):
        exact = analytic(fitted, m)
        root = torch.linalg.cholesky(exact)
        white = torch.linalg.solve_triangular(root, (group - walk.mean(0)[m]).T, upper=False).T
        assert float(white.mean(0).abs().max()) < 4 / 4500**0.5
        assert float((covariance(white) - torch.eye(3)).abs().max()) < 4 * (2 / 4500) ** 0.5
    alone = [bool(fitted.sample(1, seed=s).stacked["weight"][0, 0, 0] > 500) for s in range(60)]
    assert 15 < sum(alone) < 45  # either member may give the odd draw


def test_members_of_a_mixture_are_runs_of_their_own() -> None:
    x, y = rows()
    options: dict[str, Any] = {"likelihood": "gaussian", "epochs": 8, "rank": 3, "batch_size": 16}
    model = {"name": "mlp", "hidden": [5]}
    both = bc.fit("multi_swag", model, (x, y), members=2, **options).state
    three = bc.fit("multi_swag", model, (x, y), members=3, **options).state
    for name in both:
        torch.testing.assert_close(both[name], three[name][:2], rtol=1e-9, atol=1e-9)
    assert (both["linear1.weight"][0] - both["linear1.weight"][1]).abs().max() > 0.1


def test_the_rate_is_the_papers_in_every_step() -> None:
    """Izmailov et al. 2018: t = (mod(i − 1, c) + 1)/c, from α₁ to α₂."""
    options = bc.SWAG(epochs=12, batch_size=10, lr=0.1, swa_lr=0.04, swa_lr_min=0.02, cycle=2, burn_in=0.5)
    factor = swag.rate_schedule(options, 25)  # 3 steps an epoch, cycles of 6 steps
    rates = [0.1 * factor(step / 36) for step in range(36)]
    cyclic = [(1 - t) * 0.04 + t * 0.02 for t in ((i % 6 + 1) / 6 for i in range(18))]
    assert rates[18:] == pytest.approx(cyclic, abs=1e-15)
    assert rates[0] == pytest.approx(0.1)
    assert all(a > b for a, b in itertools.pairwise(rates[:18]))
    level = swag.rate_schedule(bc.SWAG(epochs=12, lr=0.1, swa_lr=0.04, schedule="constant"), 25)
    assert [0.1 * level(e / 12) for e in (0, 5, 6, 11)] == pytest.approx([0.1, 0.1, 0.04, 0.04])


def test_the_average_of_a_quadratic_is_nearer_the_optimum_than_its_iterates() -> None:
    x, y = rows()
    options: dict[str, Any] = {"optimiser": "sgd", "momentum": 0.0, "lr": 0.02, "schedule": "constant"}
    state = fit(rank=20, batch_size=4, epochs=120, **options).state
    optimum = torch.linalg.solve(x.T @ x / 0.09 + torch.eye(3), x.T @ y / 0.09)
    spread = state["swag/variance/weight"][0, 0].sqrt()
    assert float(spread.min()) > 1e-3
    assert float(((state["weight"][0, 0] - optimum).abs() / spread).max()) < 0.5


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 1))


def test_every_draw_has_batch_norm_statistics_of_its_own_on_the_kept_rows() -> None:
    x, y = rows(50)
    fitted = bc.fit("swag", normed(), (x, y), likelihood="gaussian", epochs=10, rank=4, norm_rows=30, batch_size=16)
    kept = fitted.state["swag/rows"]
    assert kept.shape == (30, 3)
    assert fitted.problem.scaling is not None
    standardised = fitted.problem.scaling(x)
    assert all(bool((row == standardised).all(1).any()) for row in kept)
    ensemble = fitted.sample(4)
    for m in range(4):
        h = kept @ ensemble.stacked["0.weight"][m].T + ensemble.stacked["0.bias"][m]
        torch.testing.assert_close(ensemble.stacked["1.running_mean"][m], h.mean(0))
        torch.testing.assert_close(ensemble.stacked["1.running_var"][m], h.var(0))
    assert len({float(v) for v in ensemble.stacked["1.running_mean"][:, 0]}) == 4


@pytest.mark.parametrize("method", ["swa", "swag", "multi_swag"])
def test_the_average_itself_has_statistics_on_all_rows(method: str) -> None:
    x, y = rows(50)
    extra: dict[str, Any] = {"swa": {}, "swag": {"rank": 3}, "multi_swag": {"rank": 3, "members": 2}}[method]
    fitted = bc.fit(method, normed(), (x, y), likelihood="gaussian", epochs=8, batch_size=16, **extra)
    assert fitted.problem.scaling is not None
    for m in range(len(fitted.state["0.weight"])):
        h = fitted.problem.scaling(x) @ fitted.state["0.weight"][m].T + fitted.state["0.bias"][m]
        torch.testing.assert_close(fitted.state["1.running_mean"][m], h.mean(0))
        torch.testing.assert_close(fitted.state["1.running_var"][m], h.var(0))


def test_networks_without_batch_norm_keep_no_rows_and_convolutions_work() -> None:
    x, y = rows()
    assert "swag/rows" not in fit(epochs=8, rank=2).state
    images = x.float().repeat(1, 12).reshape(40, 1, 6, 6)
    model = {"name": "residual", "width": 2, "blocks": 1}
    options: dict[str, Any] = {"likelihood": "categorical", "epochs": 4, "rank": 2}
    ensemble = bc.fit("swag", model, (images, (y > 0).long()), **options).sample(3)
    assert bool(ensemble.predict(images).logits.isfinite().all())
    assert len({float(v) for v in ensemble.stacked["norm.running_var"][:, 0]}) == 3


@pytest.mark.parametrize("method", ["swa", "swag", "multi_swag"])
@pytest.mark.parametrize("stop", [2, 9, 14])
def test_a_run_interrupted_while_collecting_ends_in_the_same_bits(
    method: str, stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_QUIET_SECONDS", 0.0)
    x, y = rows()
    options: dict[str, Any] = {"likelihood": "gaussian", "epochs": 8, "batch_size": 20, "cycle": 1}
    options |= {"swa": {}, "swag": {"rank": 3}, "multi_swag": {"rank": 3, "members": 2}}[method]
    whole = bc.fit(method, normed(), (x, y), seed=1, **options)
    snapshots: dict[int, dict[str, Tensor]] = {}

    def interrupt(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        snapshots[done] = snapshot()
        if done >= stop:
            raise bc.Cancelled("enough")

    with pytest.raises(bc.Cancelled):
        bc.fit(method, whole.problem.model.skeleton(), (x, y), seed=1, report=interrupt, **options)
    stored = bc.load_tensors(bc.save_tensors(snapshots[stop]))
    resumed = bc.fit(method, whole.problem.model.skeleton(), (x, y), seed=1, resume=stored, **options)
    assert set(whole.state) == set(resumed.state)
    assert all(torch.equal(whole.state[k], resumed.state[k]) for k in whole.state)


def test_a_file_keeps_the_draws(tmp_path: Path) -> None:
    x, y = rows()
    net = normed()
    fitted = bc.fit("multi_swag", net, (x, y), likelihood="gaussian", epochs=8, rank=3, members=2)
    fitted.save(tmp_path / "f")
    expected = fitted.sample(5, seed=3).predict(x).means
    assert torch.equal(bc.load(tmp_path / "f", model=net).sample(5, seed=3).predict(x).means, expected)


def test_weights_handed_in_are_the_answer_without_epochs_and_a_warm_start_goes_on_from_the_mean() -> None:
    state = fit(epochs=0).state
    assert torch.equal(state["weight"][0], LINEAR.weight.detach().double())
    draws = fit(epochs=0).sample(3).stacked["weight"]
    assert torch.equal(draws, LINEAR.weight.detach().double().expand(3, 1, 3))
    first = fit(epochs=10, rank=2)
    again = first.update(rows(10, seed=5), epochs=0)
    assert torch.equal(again.state["weight"], first.state["weight"])
    further = bc.fit("map", LINEAR, rows(), likelihood=bc.Gaussian(noise=0.3), warm=first, epochs=0)
    assert torch.equal(further.state["weight"], first.state["weight"])


@pytest.mark.parametrize("likelihood", [bc.Gaussian(), bc.HeteroscedasticGaussian()])
def test_draws_of_regressions_include_the_learnt_noise(likelihood: Any) -> None:
    x, y = rows()
    options: dict[str, Any] = {"likelihood": likelihood, "epochs": 40, "rank": 10, "batch_size": 10}
    fitted = bc.fit("swag", {"name": "mlp", "hidden": [8]}, (x, 100 + 20 * y), **options)
    pred = fitted.sample(30).predict(x)
    assert float((pred.means.mean(0) - 100 - 20 * y).square().mean().sqrt()) < 0.5 * float(20 * y.std())
    assert float(pred.epistemic_variance().min()) > 0
    if isinstance(likelihood, bc.Gaussian):
        assert pred.variances[:, 0].unique().numel() == 30


@pytest.mark.parametrize("method", ["swag", "multi_swag"])
def test_draws_disagree_more_off_the_data(method: str) -> None:
    x, y = rows(60, 1)
    fitted = bc.fit(method, {"name": "mlp", "hidden": [20]}, (x, y), likelihood=bc.Gaussian(noise=0.3), epochs=60)
    ensemble = fitted.sample(40)
    on, off = (ensemble.predict(v * torch.ones(1, 1).double()).epistemic_variance() for v in (0.0, 8.0))
    assert float(off) > 4 * float(on)


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("swag", {"epochs": 30}, r"rank 20 and 15 .* at least 40 epochs"),
        ("multi_swag", {"epochs": 30, "cycle": 4, "rank": 4}, r"rank 4 and 3 .* at least 32 epochs"),
        ("swag", {"rank": 1}, "rank is 0 .* or at least 2"),
        ("swa", {"epochs": 3, "cycle": 4}, "rank 0 and 0"),
        ("swa", {"patience": 3}, "drop patience"),
        ("swag", {"swa_lr": 0.01, "swa_lr_min": 0.1}, "falls within a cycle"),
        ("swag", {"burn_in": 1.0}, "burn_in is at least 0 and below 1"),
    ],
)
def test_what_cannot_give_a_covariance_is_refused_before_any_work(
    method: str, options: dict[str, Any], words: str
) -> None:
    def called(*args: Any) -> None:
        raise AssertionError("work was begun")

    with pytest.raises(bc.InvalidOption, match=words):
        fit(method, report=called, **options)

"""The default posterior: its regressions beside scikit-learn, its weights and temperature, and what it chooses."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes, load_digits
from sklearn.linear_model import BayesianRidge, LogisticRegression
from torch import Tensor

import bensemble_core as bc
from bensemble_core.posteriors.auto.folds import crowding, stacking_weights, stratified
from bensemble_core.posteriors.auto.kept import FOLDS, HELD_OUT, HELD_OUT_MEANS, HELD_OUT_VARIANCES, LOG_WEIGHTS
from bensemble_core.posteriors.auto.kernel_softmax import BIAS_VARIANCE, Features, fit_path
from bensemble_core.posteriors.auto.numbers import _counts
from bensemble_core.posteriors.function_space.gp import GaussianProcess


def blobs(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    return torch.randn(n, 5, generator=g, dtype=torch.float64) + 1.2 * y[:, None], y


def digits() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    return x[order], y[order]


def loss(features: Features, y: Tensor, weights: Tensor, w: Tensor, b: Tensor, variance: float) -> float:
    log_p = (features.rows @ w + b).log_softmax(-1).gather(1, y[:, None])[:, 0]
    pulls = 0.5 * w.square().sum() / variance + 0.5 * b.square().sum() / BIAS_VARIANCE
    return float(-(weights * log_p).sum() + pulls)


def test_a_kernel_regression_is_the_map_that_scikit_learn_finds() -> None:
    x, y = blobs(60)
    features = Features.linear(x)
    weights = torch.rand(60, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.5
    # its intercept has no prior, so ours is made a feature with one
    design = torch.cat([features.rows * 2.0**0.5, torch.full((60, 1), BIAS_VARIANCE**0.5, dtype=torch.float64)], 1)
    peer = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10, max_iter=10_000)
    peer.fit(design, y, sample_weight=weights)
    w, b = torch.from_numpy(peer.coef_[:, :-1].T) * 2.0**0.5, torch.from_numpy(peer.coef_[:, -1]) * BIAS_VARIANCE**0.5
    least = loss(features, y, weights, w, b, 2.0)
    *_, fits = fit_path(features, y, weights[None], 3, [0.1, 2.0])
    assert loss(features, y, weights, fits.weights[0], fits.bias[0], 2.0) == pytest.approx(least, abs=1e-4)
    assert torch.allclose(fits.logits(features.rows)[0], features.rows @ w + b, atol=0.02)


def test_features_have_the_kernel_as_inner_products() -> None:
    x, _ = blobs(20)
    assert torch.allclose(Features.linear(x).rows @ Features.linear(x).rows.mT, x @ x.mT / 5)
    wide = x.repeat(1, 8)  # more inputs than rows
    found = Features.linear(wide)
    assert torch.allclose(found.rows @ found.rows.mT, wide @ wide.mT / 40, atol=1e-6)
    assert torch.allclose(wide @ found.back, found.rows)
    near = Features.rbf(x, x, 3.0)
    assert torch.allclose(near.rows @ near.rows.mT, (-torch.cdist(x, x).square() / 6).exp(), atol=1e-6)


def test_a_subset_is_fitted_as_if_its_other_rows_were_not_there() -> None:
    x, y = blobs(40)
    features = Features.rbf(x, x, 5.0)
    mask = (torch.arange(40) % 4 != 0).double()
    *_, both = fit_path(features, y, torch.stack([torch.ones_like(mask), mask]), 3, [8.0])
    *_, alone = fit_path(
        Features(rows=features.rows[mask > 0], back=features.back), y[mask > 0], mask[None, mask > 0], 3, [8.0]
    )
    assert torch.allclose(both.logits(features.rows)[1], alone.logits(features.rows)[0], atol=0.02)


def test_folds_spread_every_class_evenly() -> None:
    y = torch.tensor([0] * 11 + [1] * 5 + [2] * 4)
    folds = stratified(y, 5, seed=0)
    assert folds.bincount().tolist() == [4] * 5
    assert folds[y == 1].sort().values.tolist() == [0, 1, 2, 3, 4]
    assert int(folds[y == 0].bincount(minlength=5).min()) == 2


def test_a_row_weighs_as_the_root_of_the_pool_it_stands_for() -> None:
    x = torch.tensor([[0.0], [10.0]], dtype=torch.float64)
    pool = torch.tensor([[0.1], [0.2], [-1.0], [9.0]], dtype=torch.float64)
    expected = np.sqrt([3.5, 1.5])
    assert np.allclose(crowding(x, pool), expected / expected.mean())
    assert crowding(x, None).tolist() == [1, 1]


def test_stacking_weights_are_the_maximum_under_their_dirichlet() -> None:
    g = torch.Generator().manual_seed(0)
    log_p = torch.randn(2, 50, generator=g, dtype=torch.float64)
    v = torch.rand(50, generator=g, dtype=torch.float64)
    found = float(stacking_weights(log_p, v)[0])
    grid = torch.linspace(1e-4, 1 - 1e-4, 9999, dtype=torch.float64)
    mixed = (grid[:, None] * log_p[0].exp() + (1 - grid[:, None]) * log_p[1].exp()).log()
    objective = (v * mixed).sum(1) + 0.25 * (grid.log() + (1 - grid).log())
    assert found == pytest.approx(float(grid[objective.argmax()]), abs=2e-3)


def test_a_row_left_out_of_a_process_is_predicted_as_without_it() -> None:
    x, y = blobs(30)
    target = x[:, 0].sin() + 0.1 * y
    fitted = bc.fit(GaussianProcess(linear=True, starts=1), None, (x, target), likelihood="gaussian")
    means, variances = fitted.posterior.left_out(fitted.problem, fitted.state)  # type: ignore[attr-defined]
    keep = torch.arange(30) != 7
    fewer = {**fitted.state, "gp/x": fitted.state["gp/x"][keep], "gp/y": fitted.state["gp/y"][keep]}
    alone = fitted.posterior.analytic(fitted.problem, fewer, x[7:8])  # type: ignore[attr-defined]
    scale, shift = fitted.problem.likelihood.scale[0], fitted.problem.likelihood.mean[0]  # type: ignore[attr-defined]
    assert float(means[7, 0]) * scale + shift == pytest.approx(float(alone.means[0, 0]), abs=1e-6)
    assert float(variances[7, 0]) * scale**2 == pytest.approx(float(alone.variances[0, 0]), rel=1e-6)


def test_with_a_hundred_digits_it_beats_a_deep_ensemble_and_is_calibrated() -> None:
    x, y = digits()
    common: dict[str, Any] = {"likelihood": bc.Categorical(n_classes=10)}
    ours = bc.fit("auto", None, (x[:100], y[:100]), unlabelled=x[:1000], **common).sample(20, at_most=True)
    other = bc.fit("deep_ensemble", None, (x[:100], y[:100]), **common).sample(20, at_most=True)
    rows, labels = x[1000:], torch.from_numpy(y[1000:])
    found, there = (bc.metrics.evaluate(e.predict(rows), labels) for e in (ours, other))
    assert found["accuracy"] > max(0.88, there["accuracy"] - 0.01)
    assert found["nll"] < 1.05 * there["nll"]
    assert found["ece"] < 0.06


def test_forty_patients_are_predicted_nearly_as_well_as_by_bayesian_ridge() -> None:
    """Ten inputs of which no few matter alone: a lengthscale for each fits noise, and the linear process holds it."""
    x, y = load_diabetes(return_X_y=True)
    errors, ridge = [], []
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(x))
        some, others = order[:40], order[100:]
        fitted = bc.fit("auto", None, (x[some], y[some]), likelihood="gaussian", unlabelled=x[order[:300]])
        by_ridge = BayesianRidge().fit(x[some] / x.std(0), y[some]).predict(x[others] / x.std(0))
        predicted = fitted.sample(20).predict(x[others]).mean().numpy()
        for found, of in ((predicted, errors), (by_ridge, ridge)):
            of.append(np.sqrt(np.square(found - y[others]).mean()))
    assert np.mean(errors) < 1.02 * np.mean(ridge)
    assert np.mean(errors) < 60  # the mean has 76, networks had 78


def test_a_few_members_of_numbers_have_the_mean_of_the_processes_and_many_their_variance() -> None:
    x, y = load_diabetes(return_X_y=True)
    fitted = bc.fit("auto", None, (x[:60, :3], y[:60]), likelihood="gaussian")
    parts = [
        bc.fit(GaussianProcess(starts=2, **options), None, (x[:60, :3], y[:60]), likelihood="gaussian")
        for options in ({"linear": True}, {"linear": True, "ard": False}, {"kernel": "linear"})
    ]
    rows = x[100:110, :3]
    told = fitted.diagnostics.values
    shares = torch.tensor([told[f"{name}_share"] for name in ("ard", "iso", "lin")], dtype=torch.float64)
    exact = [part.predict(rows) for part in parts]
    means, variances = torch.cat([p.means for p in exact]), torch.cat([p.variances for p in exact])
    shares /= shares.sum()
    mean = shares @ means
    for n in (4, 5, 20):
        assert torch.allclose(fitted.sample(n).predict(rows).mean(), mean, rtol=1e-3)  # the search
    centre = mean + told["stretch"] * (means - mean)
    within = shares @ (told["stretch"] ** 2 * variances + (centre - mean).square())
    broad = told["broad_share"]
    wide = (2 * told["stretch"]) ** 2 * (np.square(y[:60] - y[:60].mean()).sum() + np.var(y[:60])) / 60
    many = fitted.sample(4000, seed=1).predict(rows)
    assert torch.allclose(many.variance(), (1 - broad) * within + broad * wide, rtol=0.1)


def test_members_are_shared_out_two_to_a_family_and_the_rest_by_weight() -> None:
    assert [_counts([0.7, 0.2, 0.1], n) for n in (1, 2, 3, 6, 19)] == [
        [1, 0, 0],
        [1, 1, 0],
        [1, 1, 1],
        [2] * 3,
        [13, 4, 2],
    ]
    assert _counts([1.0, 0.0, 0.0], 20) == [16, 2, 2]
    assert _counts([0.4, 0.6], 9) == [4, 5]


def test_a_state_of_two_processes_is_still_read(tmp_path: Path) -> None:
    """As earlier versions wrote it, without the linear process."""
    x, y = load_diabetes(return_X_y=True)
    fitted = bc.fit("auto", None, (x[:40], y[:40]), likelihood="gaussian")
    state = {name: tensor for name, tensor in fitted.state.items() if not name.startswith(("lin/", "diagnostics/lin"))}
    old = replace(fitted, state={**state, LOG_WEIGHTS: torch.tensor([0.5, 0.4, 0.1], dtype=torch.float64).log()})
    old.save(tmp_path / "old")
    again = bc.load(tmp_path / "old").sample(20)
    assert "linear" not in again.notes[0]
    assert bool(again.predict(x[40:]).mean().isfinite().all())


def test_values_that_no_label_showed_are_not_impossible() -> None:
    """Labels of one level, then a target 30 of their sds away: a broad member keeps its log-probability bounded."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(40, 2, generator=g, dtype=torch.float64)
    y = x[:, 0] + 0.1 * torch.randn(40, generator=g, dtype=torch.float64)
    fitted = bc.fit("auto", None, (x, y), likelihood="gaussian")
    predicted = fitted.sample(20).predict(x[:1])
    far = y[:1] + 10 * y.std()
    assert float(predicted.log_prob(far)) > -25
    assert float(predicted.log_prob(y[:1])) > -1
    known = bc.fit("auto", None, (x, y), likelihood=bc.Gaussian(noise=0.1))
    assert "broad_share" not in known.diagnostics.values
    assert float(known.sample(20).predict(x[:1]).log_prob(far)) < -1000


def test_held_out_predictions_are_those_of_the_member_that_lacked_the_row() -> None:
    x, y = digits()
    fitted = bc.fit("auto", None, (x[:50], y[:50]), likelihood=bc.Categorical(n_classes=10))
    members = fitted.sample(10, at_most=True)
    predicted = members.predict(x[:50]).log_probs.double()  # [10, N, C], calibrated
    weights = members.log_weights
    assert weights is not None
    for row in range(0, 50, 7):
        own = torch.tensor([int(fitted.state[FOLDS][row]), 5 + int(fitted.state[FOLDS][row])])
        mixed = torch.logsumexp(weights[own, None] + math.log(5) + predicted[own, row], 0)
        assert torch.allclose(mixed, fitted.state[HELD_OUT][row].double(), atol=1e-4)


@pytest.mark.parametrize("family", ["categorical", "gaussian"])
def test_networks_are_stopped_by_their_own_folds_and_calibrated_on_them(family: str) -> None:
    x, y = blobs(53)
    labels = y if family == "categorical" else x[:, 0] + y
    fitted = bc.fit("auto", {"name": "mlp", "hidden": [8]}, (x, labels), likelihood=family, epochs=5)
    folds = fitted.state[FOLDS]
    assert folds[folds >= 0].bincount().tolist() == [10] * 5
    assert int((folds < 0).sum()) == 3
    members = fitted.sample(5)
    assert members.calibration is not None
    row = int((folds == 2).nonzero()[0])
    one = members.predict(x)
    if family == "categorical":
        assert torch.allclose(one.log_probs[2, row].double(), fitted.state[HELD_OUT][row], atol=1e-5)
    else:
        scale = fitted.problem.likelihood.scale[0]  # type: ignore[attr-defined]
        variance = float(fitted.state[HELD_OUT_VARIANCES][row, 0]) * scale**2
        assert variance == pytest.approx(float(one.variances[2, row]), rel=1e-4)
        assert bool(fitted.state[HELD_OUT_MEANS][folds >= 0].isfinite().all())


@pytest.mark.parametrize(
    ("asked", "way"),
    [
        ({}, "kernel regression"),
        ({"model": {"name": "mlp", "hidden": [4]}}, "networks"),
        ({"family": "networks"}, "networks"),
        ({"prior": bc.StudentT()}, "networks"),
        ({"input_shape": (1, 8, 8)}, "networks"),
        ({"augment": lambda rows, rng: rows}, "networks"),
    ],
)
def test_what_a_caller_names_decides_which_way_is_taken(asked: dict[str, Any], way: str) -> None:
    x, y = digits()
    given = {"model": None, **asked}
    options = {} if way != "networks" else {"epochs": 1}
    fitted = bc.fit(
        "auto",
        given.pop("model"),
        (x[:20].astype("float32"), y[:20]),
        likelihood=bc.Categorical(n_classes=10),
        **given,
        **options,
    )
    (note, *_) = fitted.sample(5).notes
    assert way in note


@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_handful_of_labels_is_enough_to_begin(n: int, tmp_path: Path) -> None:
    x, y = digits()
    for labels, likelihood in ((y, bc.Categorical(n_classes=10)), (x[:, 20] + x[:, 30], "gaussian")):
        fitted = bc.fit("auto", None, (x[:n], labels[:n]), likelihood=likelihood, unlabelled=x[:50])
        fitted.save(tmp_path / "fitted")
        again = bc.load(tmp_path / "fitted")
        ours, theirs = (f.sample(8, at_most=True).predict(x[:100]) for f in (fitted, again))
        assert torch.equal(ours.mean(), theirs.mean())
        assert bool(ours.mean().isfinite().all())


def test_labels_of_one_class_leave_the_others_possible() -> None:
    x, y = digits()
    zeros = x[y == 0][:10]
    fitted = bc.fit("auto", None, (zeros, np.zeros(10, int)), likelihood=bc.Categorical(n_classes=10))
    assert float(fitted.sample(5).predict(x[y == 4]).mean()[:, 0].mean()) < 0.9


def test_many_rows_have_some_centres_and_predict_nearly_as_well_as_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = digits()
    common: dict[str, Any] = {"likelihood": bc.Categorical(n_classes=10)}
    exact = bc.fit("auto", None, (x[:200], y[:200]), **common).sample(10)
    monkeypatch.setattr("bensemble_core.posteriors.auto.classes.MOST_CENTRES", 100)
    fewer = bc.fit("auto", None, (x[:200], y[:200]), **common).sample(10)
    assert fewer.shared["centres"].shape == (1, 100, 64)
    labels = torch.from_numpy(y[1000:])
    nll = [bc.metrics.evaluate(e.predict(x[1000:]), labels)["nll"] for e in (exact, fewer)]
    assert nll[1] < 1.25 * nll[0]


def test_fewer_members_are_resampled_with_weights() -> None:
    x, y = digits()
    fitted = bc.fit("auto", None, (x[:50], y[:50]), likelihood=bc.Categorical(n_classes=10))
    few = fitted.sample(4, seed=3)
    assert few.n_members == 4
    assert few.log_weights is not None
    assert float(few.log_weights.exp().sum()) == pytest.approx(1)

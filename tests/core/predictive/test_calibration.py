"""Calibration against temperatures that are known because the labels come in exactly the right shares."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import optimize, special
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive, calibration, metrics

SHARES = [[7, 2, 1], [1, 8, 1], [3, 3, 4], [2, 1, 7], [5, 4, 1]]  # of ten rows each


def exact(temperature: float, members: list[Tensor] | None = None) -> tuple[CategoricalPredictive, Tensor]:
    """Logits `temperature` times too large, over rows whose labels have exactly the probabilities of the members."""
    mean = torch.tensor(SHARES, dtype=torch.float64) / 10
    probs = [mean] if members is None else members
    labels = torch.cat([torch.arange(3).repeat_interleave(torch.tensor(s)) for s in SHARES])
    logits = torch.stack([p.log().repeat_interleave(10, 0) for p in probs]) * temperature
    return CategoricalPredictive(logits=logits + 3.0), labels


def around_mean() -> list[Tensor]:
    """Three unlike members whose average is exactly the shares."""
    mean = torch.tensor(SHARES, dtype=torch.float64) / 10
    tilt = 0.09 * torch.tensor([[1.0, -1.0, 0.0], [-0.5, 1.0, -0.5]], dtype=torch.float64)
    return [mean + tilt[0], mean + tilt[1], mean - tilt.sum(0)]


@pytest.mark.parametrize("temperature", [0.1, 0.5, 1.0, 8.0, 60.0])
def test_the_true_temperature_comes_back(temperature: float) -> None:
    found = calibration.learn(*exact(temperature)).temperature
    assert found == pytest.approx(temperature, rel=1e-6)


@pytest.mark.parametrize("temperature", [0.1, 8.0])
def test_members_are_scaled_so_that_their_mixture_fits(temperature: float) -> None:
    predictive, y = exact(temperature, around_mean())
    learnt = calibration.learn(predictive, y)
    assert learnt.temperature == pytest.approx(temperature, rel=1e-5)
    torch.testing.assert_close(learnt(predictive).mean()[::10], torch.tensor(SHARES).double() / 10, rtol=0, atol=1e-6)


def test_weights_of_members_count() -> None:
    mean = torch.tensor(SHARES, dtype=torch.float64) / 10
    tilt = 0.09 * torch.tensor([1.0, -1.0, 0.0], dtype=torch.float64)
    predictive, y = exact(8.0, [mean + 3 * tilt / 3, mean - tilt / 3])  # weights 1 to 3
    weighted = CategoricalPredictive(logits=predictive.logits, log_weights=torch.tensor([1.0, 3.0]).log())
    assert calibration.learn(weighted, y).temperature == pytest.approx(8.0, rel=1e-5)
    assert abs(calibration.learn(predictive, y).temperature - 8.0) > 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("true", [0.1, 8.0])
def test_on_random_labels_the_temperature_is_the_one_that_scipy_finds(true: float, dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(0)
    honest = 2 * torch.randn(1, 4000, 5, generator=g, dtype=torch.float64)
    y = torch.distributions.Categorical(logits=honest[0]).probs.multinomial(1, generator=g)[:, 0]
    logits = (honest * true).to(dtype)

    def loss(log_t: float) -> float:
        scaled = logits[0].double().numpy() / math.exp(log_t)
        return float(-special.log_softmax(scaled, -1)[np.arange(4000), y.numpy()].mean())

    oracle = optimize.minimize_scalar(loss, bounds=(math.log(true) - 2, math.log(true) + 2), options={"xatol": 1e-10})
    learnt = calibration.learn(CategoricalPredictive(logits=logits), y).temperature
    assert learnt == pytest.approx(math.exp(oracle.x), rel=1e-5)
    assert learnt == pytest.approx(true, rel=0.05)


def test_vector_scaling_undoes_a_factor_and_a_shift_of_each_class() -> None:
    g = torch.Generator().manual_seed(1)
    shares = torch.randint(1, 12, (40, 3), generator=g)
    labels = torch.cat([torch.arange(3).repeat_interleave(s) for s in shares])
    honest = (shares / shares.sum(1, keepdim=True)).double().log().repeat_interleave(shares.sum(1), 0)
    honest = honest - honest.mean(-1, keepdim=True)
    factor, shift = torch.tensor([2.0, 0.5, 8.0]).double(), torch.tensor([0.4, -1.0, 0.6]).double()
    learnt = calibration.learn(CategoricalPredictive(logits=((honest - shift) / factor)[None]), labels, kind="vector")
    torch.testing.assert_close(learnt.scale, factor, rtol=1e-5, atol=0)
    assert learnt.shift is not None
    torch.testing.assert_close(learnt.shift, shift, rtol=0, atol=1e-5)
    with pytest.raises(bc.InvalidOption, match="no single temperature"):
        _ = learnt.temperature


def test_vector_scaling_fits_no_worse_than_a_temperature() -> None:
    predictive, y = exact(8.0, around_mean())
    skewed = CategoricalPredictive(logits=predictive.logits * torch.tensor([1.0, 2.0, 0.5]).double())
    losses = [metrics.nll(calibration.learn(skewed, y, kind=kind)(skewed), y) for kind in ("vector", "temperature")]
    assert losses[0] < losses[1] - 0.01 < metrics.nll(skewed, y)


def test_labels_that_bound_no_temperature_are_refused() -> None:
    predictive, y = exact(1.0)
    right = CategoricalPredictive(logits=10 * nn.functional.one_hot(y, 3)[None].double())
    with pytest.raises(bc.InvalidData, match="every row is right"):
        calibration.learn(right, y)
    with pytest.raises(bc.InvalidData, match="no better than chance on these labels"):
        calibration.learn(CategoricalPredictive(logits=-predictive.logits), y)
    with pytest.raises(bc.InvalidData, match="class 2 does not occur"):
        calibration.learn(predictive.take(y < 2), y[y < 2], kind="vector")
    with pytest.raises(bc.InvalidData, match="no rows to calibrate"):
        calibration.learn(predictive.take(torch.arange(0)), y[:0])
    with pytest.raises(bc.InvalidOption, match="temperature, vector"):
        calibration.learn(predictive, y, kind="platt")  # type: ignore[arg-type]


def gaussian(n_members: int, *outputs: int) -> tuple[GaussianPredictive, Tensor]:
    g = torch.Generator().manual_seed(2)
    means = torch.randn(n_members, 50, *outputs, generator=g, dtype=torch.float64)
    variances = torch.rand(n_members, 50, *outputs, generator=g, dtype=torch.float64) + 0.1
    return GaussianPredictive(means=means, variances=variances), 5 * torch.randn(
        50, *outputs, generator=g, dtype=torch.float64
    )


def test_one_gaussian_is_stretched_by_its_closed_form() -> None:
    predictive, y = gaussian(1)
    expected = ((y - predictive.means[0]).square() / predictive.variances[0]).mean()
    learnt = calibration.learn(predictive, y)
    assert learnt.temperature == pytest.approx(float(expected), rel=1e-12)
    torch.testing.assert_close(learnt(predictive).variances, expected * predictive.variances)
    assert torch.equal(learnt(predictive).means, predictive.means)


def test_each_output_has_a_factor_of_its_own_with_vector() -> None:
    predictive, y = gaussian(1, 2)
    expected = ((y - predictive.means[0]).square() / predictive.variances[0]).mean(0).sqrt()
    torch.testing.assert_close(calibration.learn(predictive, y, kind="vector").scale, expected)
    assert calibration.learn(predictive, y).temperature == pytest.approx(float(expected.square().mean()))


def test_a_gaussian_mixture_is_stretched_to_its_least_loss_and_keeps_its_mean_and_information() -> None:
    predictive, y = gaussian(4)
    learnt = calibration.learn(predictive, y)

    def loss(log_scale: float) -> float:
        stretched = calibration.Calibration(family="gaussian", scale=torch.tensor(math.exp(log_scale)).double())
        return metrics.nll(stretched(predictive), y)

    oracle = optimize.minimize_scalar(loss, bounds=(-1, 4), options={"xatol": 1e-10})
    after = learnt(predictive)
    assert float(learnt.scale) == pytest.approx(math.exp(oracle.x), rel=1e-5)
    torch.testing.assert_close(after.mean(), predictive.mean())
    torch.testing.assert_close(after.mutual_information(), predictive.mutual_information())
    assert isinstance(after, GaussianPredictive)
    torch.testing.assert_close(after.variance(), learnt.temperature * predictive.variance())


def trained(likelihood: str) -> tuple[bc.Ensemble, Tensor, Tensor]:
    g = torch.Generator().manual_seed(3)
    x = torch.randn(400, 3, generator=g)
    f = x[:, 0] + torch.randn(400, generator=g)
    y = (f > 0).long() if likelihood == "categorical" else f
    fitted = bc.fit(
        "deep_ensemble",
        {"name": "mlp", "hidden": [32]},
        (x[:60], y[:60]),
        likelihood=likelihood,
        prior=None,
        epochs=80,
        members=3,
    )
    ensemble = fitted.sample(3)
    sure = {k: 2 * v if k.startswith("linear2") else v for k, v in ensemble.stacked.items()}  # the last layer
    return replace(ensemble, stacked=sure) if likelihood == "categorical" else ensemble, x[60:], y[60:]


@pytest.mark.parametrize(
    ("likelihood", "kind"), [("categorical", "temperature"), ("categorical", "vector"), ("gaussian", "temperature")]
)
def test_a_calibrated_ensemble_is_less_sure_better_and_keeps_every_bit_in_its_file(
    likelihood: str, kind: calibration.Kind, tmp_path: Path
) -> None:
    ensemble, x, y = trained(likelihood)
    calibrated = bc.calibrate(ensemble, x[:170], y[:170], kind=kind)
    held, truth = x[170:], y[170:]
    assert metrics.nll(calibrated.predict(held), truth) < metrics.nll(ensemble.predict(held), truth) - 0.05
    assert calibrated.n_members == ensemble.n_members
    calibrated.save(tmp_path / "e")
    loaded = bc.load(tmp_path / "e")
    before, after = calibrated.predict(held), loaded.predict(held)
    values = ("logits",) if likelihood == "categorical" else ("means", "variances")
    assert all(torch.equal(getattr(before, v), getattr(after, v)) for v in values)
    assert torch.equal(bc.score(calibrated, held, "bald"), bc.score(loaded, held, "bald"))
    again = bc.calibrate(
        calibrated, x[:170].numpy(), y[:170, None].numpy(), kind=kind
    )  # from the raw members, not on top
    assert again.calibration is not None
    assert calibrated.calibration is not None
    assert torch.equal(again.calibration.scale, calibrated.calibration.scale)
    same = [p.to("cpu").predict(held).mean() for p in (calibrated, loaded)]
    assert torch.equal(same[0], same[1])


def test_a_file_without_calibration_has_none(tmp_path: Path) -> None:
    ensemble, _, _ = trained("categorical")
    ensemble.save(tmp_path / "e")
    assert bc.load(tmp_path / "e").calibration is None


def test_a_few_rows_hardly_move_a_scale_and_many_give_the_one_without_a_prior() -> None:
    g = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(1, 4000, 3, generator=g, dtype=torch.float64)
    y = torch.multinomial(logits[0].softmax(-1), 1, generator=g)[:, 0]
    many = CategoricalPredictive(logits=2 * logits)
    assert calibration.learn_from_few([(many, y)]).temperature == pytest.approx(
        calibration.learn(many, y).temperature, rel=0.02
    )
    two = CategoricalPredictive(logits=2 * logits[:, :2])
    assert abs(math.log(calibration.learn_from_few([(two, y[:2])]).temperature)) < 0.3
    none = CategoricalPredictive(logits=logits[:, :0])
    assert calibration.learn_from_few([(none, y[:0])]).temperature == pytest.approx(1, abs=1e-3)


def test_a_scale_from_few_rows_is_the_maximum_under_its_prior() -> None:
    g = torch.Generator().manual_seed(1)
    y, v = torch.randn(30, 1, generator=g, dtype=torch.float64), torch.rand(30, generator=g, dtype=torch.float64)
    parts = [GaussianPredictive(means=torch.zeros(1, n), variances=torch.full((1, n), 0.25)) for n in (10, 20)]
    found = calibration.learn_from_few([(parts[0], y[:10]), (parts[1], y[10:])], row_weights=[v[:10], v[10:]]).scale
    log_s = torch.linspace(-1, 2, 30001, dtype=torch.float64)
    squares = (v * (y[:, 0] / 0.5) ** 2).sum()
    objective = -v.sum() * log_s - 0.5 * squares * (-2 * log_s).exp() - 0.5 * (log_s / 0.3) ** 2
    assert math.log(float(found)) == pytest.approx(float(log_s[objective.argmax()]), abs=1e-3)


def test_few_rows_make_no_forecast_surer() -> None:
    """However clearly they speak for it: members that lack a fold are less sure than those of all rows."""
    g = torch.Generator().manual_seed(0)
    y = torch.randn(4000, generator=g, dtype=torch.float64)
    wide = GaussianPredictive(means=torch.zeros(1, 4000).double(), variances=torch.full((1, 4000), 4.0).double())
    assert float(calibration.learn_from_few([(wide, y)]).scale) == pytest.approx(1, abs=1e-3)
    logits = 2 * torch.randn(1, 4000, 3, generator=g, dtype=torch.float64)
    classes = torch.multinomial(logits[0].softmax(-1), 1, generator=g)[:, 0]
    soft = CategoricalPredictive(logits=0.5 * logits)
    assert calibration.learn_from_few([(soft, classes)]).temperature == pytest.approx(1, abs=1e-3)
    assert calibration.learn(soft, classes).temperature == pytest.approx(0.5, rel=0.1)


def test_a_gain_within_its_standard_error_changes_nothing() -> None:
    """Squares that sum to a little more than their number, from one row far out or from all rows alike."""
    flat = GaussianPredictive(means=torch.zeros(1, 20).double(), variances=torch.ones(1, 20).double())
    one_far = torch.full((20,), 0.3, dtype=torch.float64)
    one_far[0] = 6.0
    alike = torch.full((20,), float(one_far.square().mean().sqrt()), dtype=torch.float64)
    assert float(calibration.learn_from_few([(flat, one_far)]).scale) == 1
    assert float(calibration.learn_from_few([(flat, alike)]).scale) > 1.15

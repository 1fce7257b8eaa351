"""Bayes' rule on the members: new rows change weights, and nothing else."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.ensemble import Ensemble
from bensemble_core.ensemble.members import Plan
from bensemble_core.predictive.mixtures import effective_size
from bensemble_core.randomness import generator


def lines(slopes: list[float], noise: float = 0.5, **options: Any) -> Ensemble:
    """Members y = slope · x."""
    nets = [nn.Linear(1, 1, bias=False, dtype=torch.float64) for _ in slopes]
    for net, slope in zip(nets, slopes, strict=True):
        nn.init.constant_(net.weight, slope)
    return Ensemble.from_modules(nets, likelihood=bc.Gaussian(noise=noise), **options)


def weights(ensemble: Ensemble) -> Tensor:
    assert ensemble.log_weights is not None
    return ensemble.log_weights.exp()


def rows(n: int = 12, d: int = 4) -> Tensor:
    return torch.randn(n, d, generator=generator(7))


def fitted(likelihood: Any, y: Tensor) -> Ensemble:
    x = rows(len(y)).to(y.dtype if y.is_floating_point() else torch.float32)
    options: dict[str, Any] = {"epochs": 8, "members": 4}
    return bc.fit("deep_ensemble", {"name": "mlp", "hidden": [6]}, (x, y), likelihood=likelihood, **options).sample(4)


def test_two_members_are_weighted_by_the_likelihood_of_the_rows() -> None:
    x, y = torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 1.5])
    found = bc.reweight(lines([1.0, 0.5]), (x, y))
    squares = [0.0**2 + 0.5**2, 0.5**2 + 0.5**2]
    odds = math.exp((squares[1] - squares[0]) / (2 * 0.5**2))
    torch.testing.assert_close(weights(found), torch.tensor([odds, 1.0], dtype=torch.float64) / (1 + odds))
    assert float(weights(found).sum()) == pytest.approx(1, abs=1e-12)


def test_weights_multiply_with_those_there_were() -> None:
    prior = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    x, y = torch.tensor([[1.0]]), torch.tensor([0.2])
    even, other = (bc.reweight(lines([1.0, 0.5, 0.0], log_weights=w), (x, y)) for w in (None, 3 + prior.log()))
    expected = weights(even) * prior
    torch.testing.assert_close(weights(other), expected / expected.sum())


@pytest.mark.parametrize("kind", ["categorical", "gaussian", "heteroscedastic_gaussian"])
def test_rows_one_after_another_count_as_rows_at_once(kind: str) -> None:
    x = rows()
    y = x[:, :3].argmax(1) if kind == "categorical" else 1e3 + 40 * x[:, 0] - 9 * x[:, 1].abs()
    ensemble = fitted(kind, y)
    at_once = bc.reweight(ensemble, (x, y))
    one_by_one = ensemble
    for i in range(len(x)):
        one_by_one = bc.reweight(one_by_one, (x[i : i + 1], y[i : i + 1]))
    assert not torch.allclose(weights(at_once), torch.full((4,), 0.25, dtype=torch.float64), atol=1e-3)
    torch.testing.assert_close(one_by_one.log_weights, at_once.log_weights, rtol=0, atol=1e-4)  # float32 networks
    assert one_by_one.notes == at_once.notes
    small = replace(ensemble, stored_plan=Plan(mode="loop", rows=5))
    torch.testing.assert_close(bc.reweight(small, (x, y)).log_weights, at_once.log_weights, rtol=0, atol=1e-4)


@pytest.mark.parametrize("targets", [1, 2])
@pytest.mark.parametrize("kind", ["gaussian", "heteroscedastic_gaussian"])
def test_numbers_are_weighted_in_their_own_units_with_each_members_noise(kind: str, targets: int) -> None:
    x = rows().double()
    y = 1e3 + 40 * x[:, :targets] - 9 * x[:, 1:2].abs()
    y = y[:, 0] if targets == 1 else y
    ensemble = fitted(kind, y)
    predictive = ensemble.predict(x)
    assert isinstance(predictive, bc.GaussianPredictive)
    each = torch.distributions.Normal(predictive.means, predictive.variances.sqrt()).log_prob(y)
    expected = each.flatten(1).sum(1).softmax(0)
    torch.testing.assert_close(weights(bc.reweight(ensemble, (x, y))), expected, rtol=1e-6, atol=1e-9)


def test_prior_draws_reweighted_have_the_mean_of_the_posterior() -> None:
    n, tau, noise = 20_000, 1.0, 1.0
    x = torch.tensor([[1.0, 2.0], [2.0, 1.0], [1.0, -1.0], [0.0, 1.0]], dtype=torch.float64)
    y = torch.tensor([1.0, 2.0, 0.0, 1.0], dtype=torch.float64)
    module = nn.Linear(2, 1, bias=False, dtype=torch.float64)
    one = Ensemble.from_modules([module], likelihood=bc.Gaussian(noise=noise))
    drawn = tau * torch.randn(n, 1, 2, generator=generator(0), dtype=torch.float64)
    ensemble = bc.reweight(replace(one, stacked={"weight": drawn}), (x, y))
    w = weights(ensemble)
    size = effective_size(ensemble.log_weights, n)
    precision = x.T @ x / noise**2 + torch.eye(2, dtype=torch.float64) / tau**2
    sd = torch.linalg.inv(precision).diagonal().sqrt()
    mean = (w[:, None] * drawn[:, 0]).sum(0)
    assert 100 < size < n / 4
    assert bool(((mean - torch.tensor([0.531915, 0.425532])).abs() < 5 * sd / size**0.5).all())
    (note,) = ensemble.notes
    assert note.startswith(f"after reweighting, 20000 members count as {size:.1f}")
    assert "train again on all rows" in note


def test_a_note_comes_and_goes_with_the_weights() -> None:
    ensemble = lines([float(i) for i in range(8)])
    few = bc.reweight(ensemble, (torch.ones(4, 1), torch.zeros(4)))
    assert len(few.notes) == 1
    assert len(bc.reweight(few, (torch.ones(1, 1), torch.zeros(1))).notes) == 1
    back = replace(few, log_weights=None)
    assert bc.reweight(back, (torch.zeros(1, 1), torch.zeros(1))).notes == ()


def test_it_ranks_scores_and_is_kept_in_a_file(tmp_path: Path) -> None:
    x = rows(40)
    ensemble = fitted("categorical", x[:12, :3].argmax(1))
    found = bc.reweight(ensemble, (x[:5], torch.zeros(5, dtype=torch.int64)))
    found.save(tmp_path / "e")
    loaded = bc.load(tmp_path / "e")
    assert torch.equal(loaded.log_weights, found.log_weights)
    assert loaded.notes == found.notes
    ranking, plain = (bc.rank(e, x, k=3, acquisition="bald") for e in (found, ensemble))
    assert torch.equal(torch.as_tensor(ranking.rows), torch.as_tensor(bc.rank(loaded, x, k=3, acquisition="bald").rows))
    scores = [torch.as_tensor(bc.score(e, x, acquisition="bald")) for e in (found, loaded, ensemble)]
    assert torch.equal(scores[0], scores[1])
    assert not torch.allclose(scores[0], scores[2])
    assert len(ranking.rows) == len(plain.rows) == 3


def test_a_calibration_has_no_say_in_the_weights_and_is_noted() -> None:
    x = rows(40)
    y = x[:, 0] + 0.3 * x[:, 1]
    ensemble = fitted("gaussian", y)
    calibrated = bc.calibrate(ensemble, x, y + 0.5)
    found = bc.reweight(calibrated, (x, y))
    assert torch.equal(weights(found), weights(bc.reweight(ensemble, (x, y))))
    assert found.calibration is calibrated.calibration
    assert any("calibrate again" in note for note in found.notes)


def test_arrays_lists_data_and_no_rows_will_do() -> None:
    ensemble, x, y = lines([1.0, 0.5]), [[1.0], [2.0]], [1, 2]
    expected = weights(bc.reweight(ensemble, (x, y)))
    assert torch.equal(weights(bc.reweight(ensemble, (np.array(x), np.array(y, dtype=np.uint8)))), expected)
    assert torch.equal(weights(bc.reweight(ensemble, bc.Data(x=torch.tensor(x), y=torch.tensor(y)))), expected)
    same = bc.reweight(ensemble, (torch.zeros(0, 1), torch.zeros(0)))
    torch.testing.assert_close(weights(same), torch.tensor([0.5, 0.5], dtype=torch.float64))


def test_what_is_handed_in_stays_as_it_was() -> None:
    ensemble = lines([1.0, 0.5], log_weights=torch.zeros(2))
    bc.reweight(ensemble, (torch.ones(2, 1), torch.ones(2)))
    assert ensemble.log_weights is not None
    assert ensemble.log_weights.tolist() == [0, 0]
    assert ensemble.notes == ()


def test_labels_that_are_none_are_refused() -> None:
    x = rows(12)
    classes, numbers = fitted("categorical", x[:, :3].argmax(1)), fitted("gaussian", x[:, 0])
    wrong: list[tuple[Ensemble, Any, str]] = [
        (classes, (x, torch.full((12,), 3)), "classes run from 0 to 2, row 0 has 3"),
        (classes, (x, x[:, 0]), "whole class index"),
        (classes, (x, torch.zeros(11, dtype=torch.int64)), "as many labels as rows, got 11 and 12"),
        (classes, (x, ["a"] * 12), "class indices"),
        (classes, x, r"\(x, y\), got Tensor"),
        (classes, (x[:, :3], torch.zeros(12, dtype=torch.int64)), "rows of shape"),
        (classes, (x * math.nan, torch.zeros(12, dtype=torch.int64)), "row 0 is not a number"),
        (numbers, (x, torch.full((12,), math.inf)), "targets have to be finite, row 0"),
        (numbers, (x, x[:, :2]), "1 target"),
    ]
    for ensemble, data, said in wrong:
        with pytest.raises(bc.InvalidData, match=said):
            bc.reweight(ensemble, data)

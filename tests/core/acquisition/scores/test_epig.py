"""EPIG: the known value, a brute-force sum, the bounds that information keeps, and the Gaussian closed form."""

import math
from fractions import Fraction
from operator import mul

import pytest
import torch
from torch import Tensor

from bensemble_core import acquisition as acq
from bensemble_core.acquisition import Epig, Rows
from bensemble_core.acquisition.scores import targeted
from bensemble_core.errors import InvalidData, InvalidOption
from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive, Predictive
from bensemble_core.ranking import rank, score
from tests.core.ranking.test_scoring import LinearEnsemble, inputs


def log_probs(*members: list[float]) -> Tensor:
    return torch.tensor(members, dtype=torch.float64)[:, None, :].log()


def drawn(*shape: int, seed: int = 0, scale: float = 2.0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(*shape, generator=rng, dtype=torch.float64)).log_softmax(-1)


def by_hand(p: Tensor, q: Tensor, weights: Tensor) -> Tensor:
    """Σ_y Σ_y* p(y, y*) log p(y, y*) / p(y)p(y*), averaged over target rows: [M, N, C], [M, R, C] -> [N]."""
    joint = torch.einsum("m,mnc,mrd->nrcd", weights, p, q)
    apart = joint.sum(-1, keepdim=True) * joint.sum(-2, keepdim=True)
    return (joint * (joint / apart).log()).sum((-2, -1)).mean(1)


def test_two_members_and_one_target_give_the_known_value() -> None:
    value = acq.epig(log_probs([0.9, 0.1], [0.2, 0.8]), log_probs([0.6, 0.4], [0.3, 0.7]))
    assert value.item() == pytest.approx(0.0227523568, abs=1e-10)


@pytest.mark.parametrize("cells", [1, 50, 1 << 20])
def test_epig_is_the_sum_over_joint_outcomes_however_it_is_cut_into_blocks(
    cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targeted, "_CELLS", cells)
    p, q, weights = drawn(4, 7, 3), drawn(4, 5, 3, seed=1), torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    torch.testing.assert_close(
        acq.epig(p, q, weights.log() + 3), by_hand(p.exp(), q.exp(), weights), rtol=1e-10, atol=1e-12
    )


def test_a_label_tells_no_more_about_another_label_than_about_the_member() -> None:
    p, q = drawn(6, 40, 4), drawn(6, 9, 4, seed=1)
    assert (acq.epig(p, q) <= acq.bald(p) + 1e-12).all()
    assert (acq.epig(p, q) <= acq.bald(q).mean() + 1e-12).all()
    assert (acq.epig(p, q) >= 0).all()


def test_certain_members_tell_all_of_a_target_that_they_contradict_each_other_about() -> None:
    certain, agreed = log_probs([1.0, 0.0], [0.0, 1.0]), log_probs([0.3, 0.7], [0.3, 0.7])
    assert acq.epig(certain, certain).item() == pytest.approx(math.log(2), abs=1e-12)
    assert acq.epig(certain, agreed).item() == pytest.approx(0, abs=1e-12)
    assert acq.epig(certain, torch.cat([certain, agreed], 1)).item() == pytest.approx(math.log(2) / 2, abs=1e-12)


def test_rows_and_targets_may_differ_in_their_classes() -> None:
    assert acq.epig(drawn(3, 2, 5), drawn(3, 4, 2)).shape == (2,)


def test_a_zero_probability_gives_no_nan_in_value_or_gradient() -> None:
    leaf = log_probs([1.0, 0.0, 0.0], [0.0, 0.5, 0.5]).requires_grad_()
    target = log_probs([1.0, 0.0], [0.2, 0.8]).requires_grad_()
    value = acq.epig(leaf, target)
    value.sum().backward()  # type: ignore[no-untyped-call]
    assert torch.isfinite(value).all()
    for given in (leaf, target):
        assert given.grad is not None
        assert torch.isfinite(given.grad).all()


def test_gradients_are_those_of_finite_differences() -> None:
    logits = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64, requires_grad=True)
    target = drawn(3, 3, 2)
    assert torch.autograd.gradcheck(lambda z: acq.epig(z.log_softmax(-1), target), (logits,))


def gaussian(n_rows: int, *outputs: int, seed: int = 0, log_weights: Tensor | None = None) -> GaussianPredictive:
    rng = torch.Generator().manual_seed(seed)
    means = torch.randn(8, n_rows, *outputs, generator=rng, dtype=torch.float64)
    noise = torch.rand(8, n_rows, *outputs, generator=rng, dtype=torch.float64) + 0.5
    return GaussianPredictive(means=means, variances=noise, log_weights=log_weights)


def test_gaussian_epig_is_the_information_of_the_correlation() -> None:
    log_weights = torch.tensor([0.1, 0.2, 0.1, 0.1, 0.1, 0.1, 0.2, 0.1], dtype=torch.float64).log()
    pred, target = gaussian(5, log_weights=log_weights), gaussian(3, seed=1, log_weights=log_weights)
    weights = log_weights.exp()
    expected = torch.zeros(5).double()
    for row in range(5):
        for other in range(3):
            a, b = pred.means[:, row], target.means[:, other]
            covariance = (weights * (a - weights @ a) * (b - weights @ b)).sum()
            squared = covariance.square() / (pred.variance()[row] * target.variance()[other])
            expected[row] -= 0.5 * torch.log(1 - squared) / 3
    torch.testing.assert_close(acq.gaussian_epig(pred, target), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("n_outputs", "n_targets"), [(3, 3), (3, 2), (2, 1), (1, 3)])
def test_gaussian_epig_of_several_outputs_is_a_difference_of_log_determinants(n_outputs: int, n_targets: int) -> None:
    pred, target = gaussian(4, n_outputs), gaussian(2, n_targets, seed=1)
    expected = torch.zeros(4).double()
    for row in range(4):
        for other in range(2):
            stacked = torch.cat([pred.means[:, row], target.means[:, other]], 1)  # [M, T + T*]
            noise = torch.cat([pred.aleatoric_variance()[row], target.aleatoric_variance()[other]])
            together = torch.cov(stacked.T, correction=0) + torch.diag(noise)
            parts = together[:n_outputs, :n_outputs].logdet() + together[n_outputs:, n_outputs:].logdet()
            expected[row] += 0.5 * (parts - together.logdet()) / 2
    torch.testing.assert_close(acq.gaussian_epig(pred, target), expected, rtol=1e-9, atol=1e-12)


def exact_information(rows: Tensor, targets: Tensor, variance: float) -> float:
    """½ log det Σ det Σ*/det of both together, Σ = Cov_m + variance, in rational numbers: [M, T], [M, T*]."""

    def determinant(columns: list[list[Fraction]]) -> Fraction:
        centred = [[value - sum(column) / len(column) for value in column] for column in columns]
        size, found = len(columns), Fraction(1)
        matrix = [[sum(map(mul, a, b)) / len(a) for b in centred] for a in centred]
        for i in range(size):
            matrix[i][i] += Fraction(variance)
        for i in range(size):  # no pivot is 0: the noise makes it positive definite
            found *= matrix[i][i]
            for j in range(i + 1, size):
                share = matrix[j][i] / matrix[i][i]
                matrix[j] = [below - share * above for below, above in zip(matrix[j], matrix[i], strict=True)]
        return found

    a, b = ([[Fraction(float(v)) for v in column] for column in given.T] for given in (rows, targets))
    ratio = determinant(a) * determinant(b) / determinant(a + b)
    return 0.5 * (math.log(ratio.numerator) - math.log(ratio.denominator))


@pytest.mark.parametrize("variance", [1.0, 1e-6, 1e-14, 1e-20])
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_gaussian_epig_is_exact_however_far_the_noise_is_below_the_spread(n_outputs: int, variance: float) -> None:
    means = torch.randn(4, 3, n_outputs, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    means[:, 2] = 1e3 * means[:, 1]  # tells all about the one before
    pred, target = (
        GaussianPredictive(means=some, variances=torch.full_like(some, variance)) for some in (means, means[:, 1:2])
    )
    found = acq.gaussian_epig(pred, target)
    for row in range(3):
        assert found[row].item() == pytest.approx(exact_information(means[:, row], means[:, 1], variance), rel=1e-7)


@pytest.mark.parametrize("variance", [1e-8, 1e-20])
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_gaussian_epig_of_rows_that_tell_all_has_a_gradient(n_outputs: int, variance: float) -> None:
    means = torch.randn(5, 3, n_outputs, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise = torch.full_like(means, variance)
    target = GaussianPredictive(means=means[:, :1] * 2, variances=noise[:, :1])

    def score(given: Tensor) -> Tensor:
        return acq.gaussian_epig(GaussianPredictive(means=given, variances=noise), target)

    given = means.clone().requires_grad_()
    score(given).sum().backward()
    assert given.grad is not None
    assert bool(given.grad.isfinite().all())
    if variance == 1e-8:  # the next row's slope, far from where it tells all
        step = torch.zeros_like(means)
        step[2, 1, 0] = 1e-6
        slope = (score(means + step) - score(means - step)).sum() / 2e-6
        assert given.grad[2, 1, 0].item() == pytest.approx(slope.item(), rel=1e-4)


def test_rows_without_noise_tell_what_noisy_targets_leave_to_tell() -> None:
    means, targets = drawn(5, 4), drawn(5, 3, seed=1)
    pred = GaussianPredictive(means=means, variances=torch.zeros_like(means))
    target = GaussianPredictive(means=targets, variances=torch.ones_like(targets))
    for one, other in ((pred, target), (target, pred)):
        squared = torch.corrcoef(torch.cat([one.means.T, other.means.T]))[: one.n_rows, one.n_rows :].square()
        shares = one.epistemic_variance()[:, None] / one.variance()[:, None]
        shares = shares * other.epistemic_variance() / other.variance()
        expected = -0.5 * torch.log1p(-squared * shares).mean(1)
        torch.testing.assert_close(acq.gaussian_epig(one, other), expected, rtol=1e-9, atol=0)


def test_gaussian_epig_may_be_mapped_over() -> None:
    target = GaussianPredictive(means=drawn(5, 3, seed=1), variances=torch.ones(5, 3).double())

    def score(means: Tensor) -> Tensor:
        return acq.gaussian_epig(GaussianPredictive(means=means, variances=torch.ones(5, 4).double()), target)

    several = drawn(2, 5, 4)
    torch.testing.assert_close(torch.vmap(score)(several), torch.stack([score(each) for each in several]))


def test_linear_gaussian_members_reach_the_exact_value() -> None:
    """y = θx + ε, θ and ε standard normal: ρ² = x²x*²/((1 + x²)(1 + x*²))."""
    theta = torch.special.ndtri((torch.arange(20_000).double() + 0.5) / 20_000)
    x, other = torch.tensor([0.5, 1.0, 2.0]).double(), torch.tensor([1.5]).double()
    pred, target = (
        GaussianPredictive(means=theta[:, None] * at, variances=torch.ones(20_000, len(at)).double())
        for at in (x, other)
    )
    squared = x**2 * other**2 / ((1 + x**2) * (1 + other**2))
    torch.testing.assert_close(acq.gaussian_epig(pred, target), -0.5 * torch.log(1 - squared), rtol=1e-3, atol=0)


@pytest.mark.parametrize("family", ["categorical", "gaussian"])
def test_a_pool_is_scored_against_target_rows_or_their_predictive(family: str) -> None:
    ensemble, x, target = LinearEnsemble(family=family), inputs(1500), inputs(30, seed=9)
    scores = score(ensemble, x, "epig", target=target)
    (whole,), (aim,) = ensemble.iter_predict(x, 1500), ensemble.iter_predict(target, 30)
    if isinstance(whole, CategoricalPredictive) and isinstance(aim, CategoricalPredictive):
        expected = acq.epig(whole.log_probs, aim.log_probs)
    else:
        assert isinstance(whole, GaussianPredictive)
        assert isinstance(aim, GaussianPredictive)
        expected = acq.gaussian_epig(whole, aim)
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(score(ensemble, x, "epig", target=aim), scores, rtol=1e-4, atol=1e-6)
    assert torch.equal(score(ensemble, x, "epig", target=target.numpy()), scores)
    ranking = rank(ensemble, x, acquisition="epig", target=target, k=5)
    assert ranking.rows.tolist() == scores.argsort(descending=True, stable=True)[:5].tolist()


def test_a_target_set_is_asked_for_and_not_taken_where_it_has_no_use() -> None:
    with pytest.raises(InvalidOption, match="epig needs a target set; pass target="):
        score(LinearEnsemble(), inputs(3), "epig")
    with pytest.raises(InvalidOption, match="bald knows no target set"):
        score(LinearEnsemble(), inputs(3), "bald", target=inputs(2))
    with pytest.raises(InvalidData, match="has no rows"):
        score(LinearEnsemble(), inputs(3), "epig", target=inputs(0))
    with pytest.raises(InvalidData, match="same members"):
        acq.epig(drawn(3, 2, 4), drawn(2, 2, 4))
    with pytest.raises(InvalidData, match="one ensemble"):
        targeted.score_epig(
            gaussian(2), acq.Epig(), Rows(seed=0, first=0, count=2, target=CategoricalPredictive(logits=drawn(8, 2, 3)))
        )


@pytest.mark.parametrize("family", ["categorical", "gaussian"])
def test_a_tick_that_raises_stops_a_long_score_within_a_chunk(family: str) -> None:
    class Enough(Exception):
        pass

    calls = 0

    def tick() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Enough

    if family == "categorical":
        predictive: Predictive = CategoricalPredictive(logits=drawn(3, 1024, 20))
    else:
        predictive = GaussianPredictive(means=drawn(3, 1024), variances=torch.ones(3, 1024).double())
    rows = Rows(seed=0, first=0, count=1024, target=predictive, tick=tick)
    with pytest.raises(Enough):
        targeted.score_epig(predictive, Epig(), rows)
    assert calls == 3


def test_classes_that_are_impossible_for_rows_and_targets_do_no_harm() -> None:
    p, q = log_probs([1.0, 0.0, 0.0], [0.0, 0.0, 1.0]), log_probs([1.0, 0.0], [1.0, 0.0])
    assert acq.epig(p, q).tolist() == [0.0]
    assert acq.epig(p, p).item() == pytest.approx(math.log(2), abs=1e-12)

"""Predictives against closed forms, quadrature by scipy, and the definitions themselves."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from torch import Tensor

from bensemble_core.errors import InvalidData
from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive, mixtures


def of_probs(*members: list[float], log_weights: Tensor | None = None) -> CategoricalPredictive:
    """One row; each argument is a member's class probabilities."""
    probs = torch.tensor(members, dtype=torch.float64)[:, None, :]
    return CategoricalPredictive(logits=probs.log(), log_weights=log_weights)


def gaussian(n_members: int, n_rows: int, *outputs: int, seed: int = 0, weighted: bool = False) -> GaussianPredictive:
    rng = np.random.default_rng(seed)
    shape = (n_members, n_rows, *outputs)
    return GaussianPredictive(
        means=torch.tensor(rng.normal(size=shape) * 2),
        variances=torch.tensor(np.exp(rng.normal(size=shape))),
        log_weights=torch.tensor(rng.normal(size=n_members)) if weighted else None,
    )


def density(pred: GaussianPredictive, row: int, y: float) -> float:
    weights = np.full(pred.n_members, 1 / pred.n_members)
    if pred.log_weights is not None:
        weights = np.exp(pred.log_weights.numpy())
        weights /= weights.sum()
    members = stats.norm.pdf(y, pred.means[:, row].numpy(), pred.variances[:, row].sqrt().numpy())
    return float(weights @ members)


def integral(f, pred: GaussianPredictive, row: int) -> float:  # type: ignore[no-untyped-def]
    centres, sds = pred.means[:, row].numpy(), pred.variances[:, row].sqrt().numpy()
    low, high = (centres - 12 * sds).min(), (centres + 12 * sds).max()
    points = np.sort(np.concatenate([centres - 3 * sds, centres, centres + 3 * sds]))
    return float(integrate.quad(f, low, high, points=points, limit=2000, epsabs=1e-12, epsrel=1e-12)[0])


def test_total_uncertainty_is_aleatoric_plus_epistemic_for_classes() -> None:
    pred = of_probs([0.9, 0.1], [0.2, 0.8])
    torch.testing.assert_close(pred.mean(), torch.tensor([[0.55, 0.45]], dtype=torch.float64))
    assert pred.mutual_information().item() == pytest.approx(0.2753961152, abs=1e-10)
    assert pred.entropy().item() == pytest.approx(stats.entropy([0.55, 0.45]))
    assert pred.expected_entropy().item() == pytest.approx((stats.entropy([0.9, 0.1]) + stats.entropy([0.2, 0.8])) / 2)


def test_class_weights_enter_every_quantity() -> None:
    pred = of_probs([0.9, 0.1], [0.2, 0.8], log_weights=torch.tensor([1.0, 3.0]).log())
    torch.testing.assert_close(pred.mean(), torch.tensor([[0.375, 0.625]], dtype=torch.float64), rtol=1e-6, atol=0)
    assert pred.mutual_information().item() == pytest.approx(0.2049906772, abs=1e-7)
    torch.testing.assert_close(pred.votes(), torch.tensor([[0.25, 0.75]], dtype=torch.float64), rtol=1e-6, atol=0)


def test_the_variance_of_a_class_probability_is_between_members_and_by_their_weights() -> None:
    equal = of_probs([0.9, 0.1], [0.2, 0.8])
    double = torch.float64
    torch.testing.assert_close(equal.probability_variance(), torch.tensor([[0.1225, 0.1225]], dtype=double))
    assert float(equal.probability_variance().sum()) == pytest.approx(0.245)
    weighted = of_probs([0.9, 0.1], [0.2, 0.8], log_weights=torch.tensor([1.0, 3.0]).log())
    expected = torch.full((1, 2), 0.25 * 0.75 * 0.7**2, dtype=double)
    torch.testing.assert_close(weighted.probability_variance(), expected, rtol=1e-6, atol=0)
    assert not of_probs([0.9, 0.1]).probability_variance().any()
    assert not of_probs([1.0, 0.0], [1.0, 0.0]).probability_variance().any()


def test_the_variance_of_class_probabilities_is_the_same_in_chunks_and_sums_to_the_epistemic_part() -> None:
    logits = torch.randn(5, 40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole = CategoricalPredictive(logits=logits)
    probs = logits.softmax(-1).numpy()
    np.testing.assert_allclose(whole.probability_variance().numpy(), probs.var(0), rtol=1e-10)
    chunks = [whole.take(rows).probability_variance() for rows in torch.arange(40).split(7)]
    torch.testing.assert_close(torch.cat(chunks), whole.probability_variance())
    torch.testing.assert_close(whole.probability_variance().sum(-1), whole.decompose("variance").epistemic)


def test_log_prob_of_classes_is_the_log_of_the_mean_probability() -> None:
    logits = torch.randn(4, 6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    pred, y = CategoricalPredictive(logits=logits), torch.tensor([0, 1, 2, 2, 1, 0])
    expected = logits.softmax(-1).mean(0)[torch.arange(6), y].log()
    torch.testing.assert_close(pred.log_prob(y), expected)


@pytest.mark.parametrize("n_classes", [1, 2, 10, 32, 33, 200])
def test_log_probs_are_the_log_of_softmax(n_classes: int) -> None:
    logits = torch.randn(3, 9, n_classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 50
    found = CategoricalPredictive(logits=logits).log_probs
    torch.testing.assert_close(found, logits.log_softmax(-1), rtol=1e-13, atol=1e-13)
    assert found.is_contiguous()


def test_log_prob_stays_finite_where_probabilities_underflow() -> None:
    pred = CategoricalPredictive(logits=torch.tensor([[[0.0, -1e4]], [[0.0, -2e4]]]))
    assert pred.log_prob(torch.tensor([1])).item() == pytest.approx(-1e4 - math.log(2), rel=1e-6)


def test_joined_chunks_equal_the_whole() -> None:
    logits = torch.randn(3, 7, 4, generator=torch.Generator().manual_seed(1))
    parts = [CategoricalPredictive(logits=logits[:, :3]), CategoricalPredictive(logits=logits[:, 3:])]
    assert torch.equal(CategoricalPredictive.cat(parts).logits, logits)
    pred = gaussian(3, 7, 2)
    halves = [pred.take(torch.arange(4)), pred.take(torch.arange(4, 7))]
    assert torch.equal(GaussianPredictive.cat(halves).means, pred.means)
    assert torch.equal(GaussianPredictive.cat(halves).variances, pred.variances)


@pytest.mark.parametrize(
    "bad", [torch.tensor([0, 3]), torch.tensor([-1, 0]), torch.tensor([0]), torch.tensor([0.0, 1])]
)
def test_labels_that_are_no_classes_are_refused(bad: Tensor) -> None:
    with pytest.raises(InvalidData):
        CategoricalPredictive(logits=torch.zeros(2, 2, 3)).log_prob(bad)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidData, match="members, rows, classes"):
        CategoricalPredictive(logits=torch.zeros(2, 3))
    with pytest.raises(InvalidData, match="one shape"):
        GaussianPredictive(means=torch.zeros(2, 3), variances=torch.ones(2, 1))
    with pytest.raises(InvalidData, match="log-weights"):
        GaussianPredictive(means=torch.zeros(2, 3), variances=torch.ones(2, 3), log_weights=torch.zeros(3))
    with pytest.raises(InvalidData, match="targets"):
        gaussian(2, 4).log_prob(torch.zeros(2, 2))


@pytest.mark.parametrize("weighted", [False, True])
def test_variance_of_the_mixture_is_its_second_central_moment(weighted: bool) -> None:
    pred = gaussian(4, 3, weighted=weighted)
    for row in range(3):
        mean = integral(lambda y, row=row: y * density(pred, row, y), pred, row)
        second = integral(lambda y, row=row: y * y * density(pred, row, y), pred, row)
        assert pred.mean()[row].item() == pytest.approx(mean, abs=1e-8)
        assert pred.variance()[row].item() == pytest.approx(second - mean**2, abs=1e-7)


@pytest.mark.parametrize("weighted", [False, True])
def test_mixture_entropy_equals_adaptive_quadrature(weighted: bool) -> None:
    pred = gaussian(5, 6, weighted=weighted)
    for row in range(6):

        def surprise(y: float, row: int = row) -> float:
            q = density(pred, row, y)
            return -q * math.log(q) if q > 0 else 0.0

        assert pred.entropy(method="mixture")[row].item() == pytest.approx(integral(surprise, pred, row), abs=1e-8)


@pytest.mark.parametrize("ratio", [1.0, 10.0, 1e4])
def test_far_members_reach_the_ln_m_limit_exactly(ratio: float) -> None:
    means = torch.tensor([[0.0], [100.0], [-100.0]], dtype=torch.float64)
    variances = torch.tensor([[1.0], [ratio**-2], [1.0]], dtype=torch.float64)
    information = GaussianPredictive(means=means, variances=variances).mutual_information(method="mixture")
    assert information.item() == pytest.approx(math.log(3), abs=1e-8)


def test_one_gaussian_has_its_closed_form_entropy_and_no_information() -> None:
    pred = GaussianPredictive(means=torch.zeros(4, 2).double(), variances=torch.full((4, 2), 2.5).double())
    closed = stats.norm(scale=math.sqrt(2.5)).entropy()
    for method in ("moment_match", "mixture"):
        torch.testing.assert_close(
            pred.entropy(method=method), torch.full((2,), closed, dtype=torch.float64), rtol=0, atol=1e-8
        )
        torch.testing.assert_close(pred.mutual_information(method=method), torch.zeros(2).double(), rtol=0, atol=1e-8)


@pytest.mark.parametrize("centre", [0.0, 1.0, -3.3, 1e6])
@pytest.mark.parametrize("variance", [1e-300, 1e-30, 1e-12, 1.0])
def test_mixture_entropy_is_exact_however_small_the_noise_beside_the_means(centre: float, variance: float) -> None:
    closed = 0.5 * (1 + math.log(2 * math.pi) + math.log(variance))
    far = centre + 1e3 * max(1.0, math.sqrt(variance))
    for means, gained in (
        ([centre, centre], 0.0),
        ([centre, far], math.log(2)),
        ([far, centre, centre], math.log(3) - 2 / 3 * math.log(2)),
    ):
        values = torch.tensor(means, dtype=torch.float64)[:, None]
        pred = GaussianPredictive(means=values, variances=torch.full_like(values, variance))
        assert pred.entropy(method="mixture").item() == pytest.approx(closed + gained, abs=1e-8)
        assert pred.mutual_information(method="mixture").item() == pytest.approx(gained, abs=1e-8)


def test_mixture_entropy_follows_its_units_beside_a_member_far_away() -> None:
    near = gaussian(4, 20)
    shrunk = [near.means * 1e-12, near.variances * 1e-24]
    one = torch.full((1, 20), 1e-24).double()
    pred = GaussianPredictive(means=torch.cat([one * 0 + 5, shrunk[0]]), variances=torch.cat([one, shrunk[1]]))
    alone = 0.5 * math.log(2 * math.pi * math.e * 1e-24)
    choice = math.log(5) - 0.8 * math.log(4)
    expected = 0.8 * (near.entropy(method="mixture") + math.log(1e-12)) + 0.2 * alone + choice
    torch.testing.assert_close(pred.entropy(method="mixture"), expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_small_spread_keeps_its_digits_beside_a_large_mean(weighted: bool) -> None:
    rng = torch.Generator().manual_seed(0)
    means = (1000 + 1e-3 * torch.randn(10, 500, generator=rng, dtype=torch.float64)).float()
    weights = torch.rand(10, generator=rng).double() if weighted else torch.ones(10).double()
    if weighted:
        means[0] += 1e6  # has next to no say, and must not take the others' digits
        weights[0] = 1e-30
    weights /= weights.sum()
    centred = means.double() - (weights[:, None] * means.double()).sum(0)
    exact = (weights[:, None] * centred.square()).sum(0)
    pred = GaussianPredictive(
        means=means, variances=torch.full_like(means, 1e-4), log_weights=weights.log().float() if weighted else None
    )
    torch.testing.assert_close(pred.epistemic_variance().double(), exact, rtol=2e-5, atol=0)
    torch.testing.assert_close(pred.mutual_information().double(), 0.5 * torch.log1p(exact / 1e-4), rtol=2e-5, atol=0)
    outputs = GaussianPredictive(
        means=means[..., None].expand(-1, -1, 2),
        variances=torch.full((10, 500, 2), 1e-4),
        log_weights=pred.log_weights,
    )
    torch.testing.assert_close(
        outputs.mutual_information().double(), 0.5 * torch.log1p(2 * exact / 1e-4), rtol=2e-4, atol=1e-6
    )


def test_mixture_entropy_does_not_depend_on_its_memory_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    pred = gaussian(3, 50)
    whole = pred.entropy(method="mixture")
    monkeypatch.setattr(mixtures, "_BLOCK", 9000)
    torch.testing.assert_close(pred.entropy(method="mixture"), whole, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(("n_members", "n_outputs"), [(3, 5), (6, 2), (4, 4)])
def test_moment_matched_information_of_several_outputs_is_the_log_determinant(n_members: int, n_outputs: int) -> None:
    pred = gaussian(n_members, 4, n_outputs, weighted=True)
    assert pred.log_weights is not None
    weights = pred.log_weights.softmax(0).numpy()
    for row in range(4):
        means = pred.means[:, row].numpy()
        covariance = np.cov(means.T, aweights=weights, ddof=0)
        noise = np.diag(weights @ pred.variances[:, row].numpy())
        expected = 0.5 * (np.linalg.slogdet(covariance + noise)[1] - np.linalg.slogdet(noise)[1])
        assert pred.mutual_information()[row].item() == pytest.approx(expected, rel=1e-10)
        total = 0.5 * np.linalg.slogdet(2 * np.pi * np.e * (covariance + noise))[1]
        assert pred.entropy()[row].item() == pytest.approx(total, rel=1e-10)


def test_one_output_in_a_column_equals_one_output() -> None:
    flat = gaussian(4, 5)
    column = GaussianPredictive(means=flat.means[..., None], variances=flat.variances[..., None])
    y = torch.linspace(-1, 1, 5).double()
    for method in ("moment_match", "mixture"):
        assert torch.equal(flat.mutual_information(method=method), column.mutual_information(method=method))
    assert torch.equal(flat.log_prob(y), column.log_prob(y[:, None]))
    assert torch.equal(flat.log_prob(y), flat.log_prob(y[:, None]))


def test_mixture_entropy_of_several_outputs_is_refused() -> None:
    with pytest.raises(InvalidData, match='one output, this predictive has 2; take the estimate "moment_match"'):
        gaussian(3, 4, 2).mutual_information(method="mixture")


def test_log_prob_of_several_outputs_couples_them_through_the_member() -> None:
    pred = gaussian(3, 2, 2)
    y = torch.tensor([[0.1, -0.4], [1.0, 2.0]]).double()
    members = stats.norm.pdf(y.numpy(), pred.means.numpy(), pred.variances.sqrt().numpy()).prod(-1)
    np.testing.assert_allclose(pred.log_prob(y).numpy(), np.log(members.mean(0)), rtol=1e-12)


def test_log_prob_is_finite_far_in_the_tails() -> None:
    pred = GaussianPredictive(means=torch.zeros(2, 1), variances=torch.ones(2, 1))
    assert pred.log_prob(torch.tensor([1e3])).item() == pytest.approx(-5e5 - 0.5 * math.log(2 * math.pi), rel=1e-6)


@settings(deadline=None, max_examples=40)
@given(st.floats(0.001, 0.999), st.integers(0, 1000), st.booleans())
def test_quantile_inverts_the_distribution_function(q: float, seed: int, weighted: bool) -> None:
    pred = gaussian(4, 5, seed=seed, weighted=weighted)
    torch.testing.assert_close(pred.cdf(pred.quantile(q)), torch.full((5,), q, dtype=torch.float64), rtol=0, atol=1e-9)


def test_quantiles_of_equal_members_are_those_of_the_normal() -> None:
    pred = GaussianPredictive(means=torch.ones(3, 2, 2).double(), variances=torch.full((3, 2, 2), 4.0).double())
    found = pred.quantile([0.05, 0.5, 0.9])
    assert found.shape == (3, 2, 2)
    np.testing.assert_allclose(found[:, 0, 0].numpy(), stats.norm(1, 2).ppf([0.05, 0.5, 0.9]), atol=1e-9)
    with pytest.raises(InvalidData, match="between 0 and 1"):
        pred.quantile(1.0)

"""Members that cannot or do not disagree: information is exactly 0, and the ranking says that it tells nothing."""

from dataclasses import fields

import pytest
import torch
from torch import Tensor

from bensemble_core.acquisition import ACQUISITIONS, Rows, bald, epig, resolve_acquisition
from bensemble_core.acquisition.fused import kernels
from bensemble_core.predictive import GaussianPredictive
from bensemble_core.ranking import rank, score
from tests.core.ranking.test_scoring import LinearEnsemble, inputs

ALL_ON_ONE = torch.tensor([0.0, -500.0, -500.0, -500.0, -500.0])


def alone() -> LinearEnsemble:
    return LinearEnsemble(n_members=1, n_outputs=10)


def one_heavy() -> LinearEnsemble:
    ensemble = LinearEnsemble(n_members=5, n_outputs=10)
    ensemble.log_weights = ALL_ON_ONE
    return ensemble


def identical() -> LinearEnsemble:
    ensemble = LinearEnsemble(n_members=5, n_outputs=10)
    ensemble.weights = ensemble.weights[:1].repeat(5, 1, 1)
    return ensemble


@pytest.mark.parametrize("switch", ["on", "off"])
@pytest.mark.parametrize("make", [alone, one_heavy, identical])
@pytest.mark.parametrize("acquisition", ["bald", "eig", "epig", "mean_std", "variation_ratio"])
def test_members_that_agree_score_exactly_zero(
    make: type[LinearEnsemble], acquisition: str, switch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(kernels.SWITCH, switch)
    target = inputs(20, seed=2) if acquisition == "epig" else None
    assert not score(make(), 3 * inputs(300), acquisition, target=target).any()


def test_rows_that_members_agree_about_score_zero_beside_others() -> None:
    logits = torch.randn(4, 50, 6, generator=torch.Generator().manual_seed(0))
    logits[:, 20:] = logits[:1, 20:]
    log_probs = logits.log_softmax(-1)
    for values in (bald.__wrapped__(log_probs), epig(log_probs, log_probs)):  # type: ignore[attr-defined]
        assert (values[:20] > 0).all()
        assert not values[20:].any()


def test_epig_of_single_precision_is_as_exact_as_of_double() -> None:
    logits = torch.randn(4, 50, 10, generator=torch.Generator().manual_seed(0))
    one = epig(logits.log_softmax(-1), logits.log_softmax(-1)[:, :9])
    other = epig(logits.double().log_softmax(-1), logits.double().log_softmax(-1)[:, :9])
    torch.testing.assert_close(one.double(), other, rtol=1e-6, atol=1e-9)


def notes(ensemble: LinearEnsemble, acquisition: object, target: Tensor | None = None) -> str:
    return " ".join(rank(ensemble, 3 * inputs(50), acquisition=acquisition, k=5, target=target).notes)


@pytest.mark.parametrize("acquisition", ["bald", "epig", "mean_std"])
def test_a_ranking_says_why_it_tells_nothing(acquisition: str) -> None:
    target = inputs(20, seed=2) if acquisition == "epig" else None
    assert f"one member cannot disagree with itself: {acquisition} is 0" in notes(alone(), acquisition, target)
    assert "all weight is on one member" in notes(one_heavy(), acquisition, target)
    assert "the members do not disagree about any row" in notes(identical(), acquisition, target)
    assert "arbitrary" in notes(identical(), acquisition, target)


def test_scores_that_need_no_disagreement_say_nothing_about_it() -> None:
    for acquisition in ("entropy", "margin", {"name": "predictive_variance", "part": "total"}):
        for ensemble in (alone(), one_heavy(), identical()):
            assert notes(ensemble, acquisition) == ""
    assert "do not disagree" in notes(identical(), {"name": "predictive_variance", "part": "epistemic"})


def test_a_batch_of_members_with_all_weight_on_one_says_so() -> None:
    ranking = rank(one_heavy(), inputs(50), selection="batchbald", k=5)
    assert sum("one member" in note for note in ranking.notes) == len(ranking.notes) == 2
    assert ranking.values.tolist() == pytest.approx([0.0] * 5, abs=1e-12)


@pytest.mark.parametrize("n_members", [1, 7])
@pytest.mark.parametrize(
    "acquisition",
    [
        {"name": "bald", "estimate": "mixture"},
        "bald",
        "epig",
        "mean_std",
        {"name": "predictive_variance", "part": "epistemic"},
    ],
)
def test_regression_members_that_agree_score_exactly_zero(n_members: int, acquisition: object) -> None:
    means = 10 * torch.randn(1, 30, generator=torch.Generator().manual_seed(0)).repeat(n_members, 1)
    predictive = GaussianPredictive(means=means, variances=torch.full_like(means, 0.3))
    options = resolve_acquisition(acquisition)
    rows = Rows(seed=0, first=0, count=30, target=predictive)
    assert not ACQUISITIONS[options.name].score(predictive, options, rows).any()


@pytest.mark.parametrize("name", ["bald", "eig"])
def test_disagreement_about_the_noise_alone_is_seen_by_the_mixture_and_not_by_the_moment_match(name: str) -> None:
    """Noise sds 1 and 10 about one mean; what is said of `estimate` says so."""
    means = torch.zeros(2, 1, dtype=torch.float64)
    predictive = GaussianPredictive(means=means, variances=torch.tensor([[1.0], [100.0]], dtype=torch.float64))
    rows, found = Rows(seed=0, first=0, count=1), {}
    for estimate in ("moment_match", "mixture"):
        options = resolve_acquisition({"name": name, "estimate": estimate})
        found[estimate] = float(ACQUISITIONS[name].score(predictive, options, rows))
    assert found["moment_match"] == 0
    assert found["mixture"] == pytest.approx(0.4333, abs=1e-4)
    described = next(f for f in fields(ACQUISITIONS[name].options) if f.name == "estimate").metadata["description"]
    assert "only about the noise it is 0" in described

"""Likelihoods and priors against torch.distributions."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Normal

import bensemble_core as bc
from bensemble_core import io
from bensemble_core.likelihoods import LOG_NOISE, likelihood_from_json, likelihood_named
from bensemble_core.priors import prior_from_json

G = torch.Generator().manual_seed(0)
OUTPUTS = torch.randn(2, 7, 4, generator=G, dtype=torch.float64)
TARGETS = torch.randn(7, 2, generator=G, dtype=torch.float64) * torch.tensor([3.0, 40.0]) + 5


def bound(likelihood: Any, y: Tensor = TARGETS, standardise: bool = True) -> Any:
    return likelihood.bind(y, n_outputs=None, standardise=standardise)


def test_categorical_log_prob_is_that_of_the_softmax() -> None:
    y = torch.tensor([0, 1, 2, 3, 0, 1, 2])
    likelihood = bound(bc.Categorical(), y)
    assert likelihood.n_outputs == 4
    expected = Categorical(logits=OUTPUTS).log_prob(y)
    torch.testing.assert_close(likelihood.log_prob(OUTPUTS, y.expand(2, 7), {}), expected)


@pytest.mark.parametrize("standardise", [True, False])
@pytest.mark.parametrize("kind", [bc.Gaussian(noise=2.0), bc.Gaussian(), bc.HeteroscedasticGaussian()])
def test_predictive_and_log_prob_are_one_density_in_two_units(kind: Any, standardise: bool) -> None:
    likelihood = bound(kind, standardise=standardise)
    outputs = OUTPUTS[..., : likelihood.n_outputs]
    extra = {k: v.expand(2, 2) - 0.3 for k, v in likelihood.start(dtype=torch.float64).items()}
    pred = likelihood.predictive(outputs, extra, None)
    density = Normal(pred.means, pred.variances.sqrt()).log_prob(TARGETS).sum(-1)  # [M, N], in units of y
    inside = likelihood.log_prob(outputs, likelihood.encode(TARGETS, dtype=torch.float64), extra)
    jacobian = sum(torch.tensor(s).log() for s in likelihood.scale)
    torch.testing.assert_close(inside - jacobian, density)


def test_fixed_noise_is_in_the_units_of_y() -> None:
    likelihood = bound(bc.Gaussian(noise=2.0, learn_noise=False))
    assert likelihood.start(dtype=torch.float64) == {}
    variances = likelihood.predictive(OUTPUTS[..., :2], {}, None).variances
    torch.testing.assert_close(variances, torch.full_like(variances, 4.0))


def test_learnt_noise_starts_at_the_spread_of_y_or_at_the_noise_given() -> None:
    free, given = bound(bc.Gaussian(), standardise=False), bound(bc.Gaussian(noise=2.0, learn_noise=True))
    spread = TARGETS.std(0, correction=0)
    torch.testing.assert_close(free.start(dtype=torch.float64)[LOG_NOISE].exp(), spread)
    torch.testing.assert_close(given.start(dtype=torch.float64)[LOG_NOISE].exp(), 2.0 / spread)


def test_likelihoods_and_priors_survive_json() -> None:
    named = bc.Categorical(classes=("cat", "dog"))
    for kind in (
        bc.Categorical(n_classes=3),
        named,
        bound(bc.Gaussian(noise=0.1)),
        bound(bc.HeteroscedasticGaussian()),
    ):
        assert likelihood_from_json(kind.to_json()) == kind
    assert prior_from_json(bc.Normal(scale=0.3).to_json()) == bc.Normal(scale=0.3)
    assert prior_from_json(None) is None


def test_the_normal_prior_is_a_density_over_all_parameters() -> None:
    theta = {"a": torch.randn(3, 2, 4, generator=G), "b": torch.randn(3, 5, generator=G)}
    density = Normal(0.0, 0.7)
    expected = density.log_prob(theta["a"]).sum((1, 2)) + density.log_prob(theta["b"]).sum(1)
    torch.testing.assert_close(bc.Normal(scale=0.7).log_prob(theta), expected)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(bc.InvalidOption, match="at least 2"):
        bc.Categorical(n_classes=1)
    for classes in ("ab", ["a"], ["a", "a"], [0, 1], 3):
        with pytest.raises(bc.InvalidOption, match="classes are"):
            bc.Categorical(classes=classes)  # type: ignore[arg-type]
    with pytest.raises(bc.InvalidOption, match="2 classes are named and n_classes=3"):
        bc.Categorical(classes=("a", "b"), n_classes=3)
    with pytest.raises(bc.InvalidOption, match="above 0"):
        bc.Gaussian(noise=0.0)
    with pytest.raises(bc.InvalidOption, match="needs the noise"):
        bc.Gaussian(learn_noise=False)
    with pytest.raises(bc.InvalidOption, match="above 0"):
        bc.Normal(scale=-1.0)
    with pytest.raises(bc.InvalidOption, match="unknown likelihood"):
        likelihood_named("poisson")
    with pytest.raises(bc.InvalidData, match="row 1"):
        bound(bc.Gaussian(), torch.tensor([1.0, torch.inf]))


def test_a_module_tells_the_number_of_classes_and_must_have_enough_outputs() -> None:
    x, y = torch.randn(8, 3, generator=G), torch.tensor([0, 1] * 4)
    fitted = bc.fit("map", torch.nn.Linear(3, 5), (x, y), likelihood="categorical", epochs=1)
    assert fitted.problem.likelihood.n_outputs == 5
    with pytest.raises(bc.InvalidModel, match="needs 2 network outputs, Linear has 1"):
        bc.fit("map", torch.nn.Linear(3, 1), (x, x[:, 0]), likelihood=bc.HeteroscedasticGaussian())
    with pytest.raises(bc.InvalidModel, match="one per class"):
        bc.fit("map", torch.nn.Linear(3, 1), (x, y), likelihood="categorical")


def classified(y: list[int], likelihood: Any = "categorical", **options: Any) -> bc.Fitted:
    x = torch.randn(len(y), 3, generator=torch.Generator().manual_seed(0))
    model = options.pop("model", {"name": "mlp", "hidden": [4]})
    return bc.fit("map", model, (x, torch.tensor(y)), likelihood=likelihood, epochs=1, **options)


def test_labels_that_start_at_one_are_refused_unless_the_number_of_classes_is_told() -> None:
    with pytest.raises(bc.InvalidData, match=r"run from 1 to 3, .*subtract 1, or pass .*Categorical\(n_classes=4\)"):
        classified([1, 2, 3, 3])
    with pytest.raises(bc.InvalidData, match="run from 1 to 1"):
        classified([1, 1])
    with pytest.raises(bc.InvalidData, match="row 2 has 3; subtract 1 from all labels"):
        classified([1, 2, 3], model=torch.nn.Linear(3, 3))
    told = classified([1, 2, 3], bc.Categorical(n_classes=4))
    assert told.sample(1).predict(torch.zeros(1, 3)).log_probs.shape[-1] == 4
    assert classified([1, 2, 3], model=torch.nn.Linear(3, 4)).problem.likelihood.n_outputs == 4


@pytest.mark.parametrize("y", [[0, 5, 10], [10, 20, 30], [2, 3, 4], [0, 255]])
def test_labels_that_are_codes_are_refused_unless_the_number_of_classes_is_told(y: list[int]) -> None:
    with pytest.raises(bc.InvalidData, match=rf"would become {y[-1] + 1} classes: number them 0, 1, … with numpy"):
        classified(y)
    assert classified(y, bc.Categorical(n_classes=y[-1] + 1)).problem.likelihood.n_outputs == y[-1] + 1


@pytest.mark.parametrize(("y", "n_classes"), [([0, 1, 3], 4), ([0, 0], 2), ([0, 3], 4), ([False, True], 2)])
def test_a_class_that_nobody_has_labelled_yet_is_usual(y: list[int], n_classes: int) -> None:
    assert classified(y).problem.likelihood.n_outputs == n_classes
    assert classified([True, True]).problem.likelihood.n_outputs == 2


def test_class_names_are_kept_in_files_and_from_fit_to_fit() -> None:
    fitted = classified([0, 1, 1], bc.Categorical(classes=["cat", "dog", "eel"]))
    ensemble = fitted.sample(1)
    assert ensemble.classes == ("cat", "dog", "eel")
    assert ensemble.predict(torch.zeros(1, 3)).log_probs.shape[-1] == 3
    header, tensors = ensemble.to_tensors()
    assert bc.load(io.to_bytes(header, tensors)).classes == ("cat", "dog", "eel")
    assert classified([0, 1], warm=fitted).problem.likelihood.classes == ("cat", "dog", "eel")
    nameless = classified([0, 1, 2])
    assert nameless.sample(1).classes is None
    assert classified([0, 1], bc.Categorical(classes=["a", "b", "c"]), warm=nameless).sample(1).classes == (
        "a",
        "b",
        "c",
    )
    with pytest.raises(bc.InvalidOption, match="name them alike and in the same order"):
        classified([0, 1], bc.Categorical(classes=["dog", "cat", "eel"]), warm=fitted)
    for wrong in (["cat"], ["cat", "dog"], "cat", [1, 2, 3]):
        header["problem"]["likelihood"]["classes"] = wrong
        with pytest.raises(bc.InvalidFile):
            bc.load(io.to_bytes(header, tensors))


def test_labels_that_are_no_whole_numbers_are_refused_by_our_own_error() -> None:
    x = torch.zeros(4, 2)
    for y in (torch.full((4,), float("nan")), torch.tensor([0.0, 1.0, 1.0, 0.0]), torch.zeros(4, 2)):
        with pytest.raises(bc.InvalidData, match="expected one whole class index a row"):
            bc.fit("map", {"name": "mlp", "hidden": [4]}, (x, y), likelihood="categorical")


@pytest.mark.parametrize("method", ["auto", "map"])
def test_targets_that_single_precision_cannot_tell_apart_are_refused(method: str) -> None:
    """Unix times that differ by seconds: predictions would all be multiples of 128."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(40, 2, generator=g)
    y = 1.7e9 + 10 * x[:, 0].double()
    with pytest.raises(bc.InvalidData, match="subtract a constant"):
        bc.fit(method, None, (x, y), likelihood="gaussian")
    fine = bc.fit(method, None, (x, y - 1.7e9), likelihood="gaussian")
    assert fine.problem.dtype == torch.float32
    whole = bc.fit(method, None, (x.double(), y), likelihood="gaussian")
    assert whole.sample(1).predict(x.double()).means.dtype == torch.float64

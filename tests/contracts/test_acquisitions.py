"""What every acquisition and every selection promises; a new entry is tested by being in its registry."""

from dataclasses import FrozenInstanceError, fields
from typing import Annotated, Any, Union

import pytest
import torch
from pydantic import Field, TypeAdapter, ValidationError
from torch import Tensor

from bensemble_core.acquisition import (
    ACQUISITIONS,
    SELECTIONS,
    Bald,
    Candidates,
    Context,
    Power,
    PredictiveVariance,
    Rows,
    resolve_acquisition,
    resolve_selection,
)
from bensemble_core.errors import InvalidOption
from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive, Predictive

M, N, C = 6, 11, 4
REGISTRIES = [(ACQUISITIONS, resolve_acquisition), (SELECTIONS, resolve_selection)]
PAIRS = [(name, family) for name, entry in ACQUISITIONS.items() for family in entry.families]


def predictive(family: str, log_weights: Tensor | None = None) -> Predictive:
    values = torch.randn(2, M, N, C, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    if family == "categorical":
        return CategoricalPredictive(logits=values[0], log_weights=log_weights)
    return GaussianPredictive(means=values[0, ..., 0], variances=values[1, ..., 0].exp(), log_weights=log_weights)


def scores(name: str, pred: Predictive) -> Tensor:
    entry = ACQUISITIONS[name]
    given = pred if "ensemble" in entry.needs else None
    return entry.score(given, entry.options(), Rows(seed=0, first=0, count=pred.n_rows))


@pytest.mark.parametrize(("name", "family"), PAIRS)
def test_every_acquisition_gives_a_finite_number_a_row(name: str, family: str) -> None:
    values = scores(name, predictive(family))
    assert values.shape == (N,)
    assert values.is_floating_point()
    assert torch.isfinite(values).all()
    assert values.unique().numel() > 1


@pytest.mark.parametrize(("name", "family"), PAIRS)
def test_the_order_of_members_does_not_matter(name: str, family: str) -> None:
    pred, order = predictive(family), torch.tensor([3, 0, 5, 1, 4, 2])
    if isinstance(pred, CategoricalPredictive):
        shuffled: Predictive = CategoricalPredictive(logits=pred.logits[order])
    else:
        shuffled = GaussianPredictive(means=pred.means[order], variances=pred.variances[order])
    torch.testing.assert_close(scores(name, shuffled), scores(name, pred), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "family"), [pair for pair in PAIRS if ACQUISITIONS[pair[0]].needs])
def test_a_row_is_scored_by_its_own_prediction_alone(name: str, family: str) -> None:
    pred, some = predictive(family), torch.tensor([7, 2, 2, 10])
    torch.testing.assert_close(scores(name, pred.take(some)), scores(name, pred)[some], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "family"), PAIRS)
def test_equal_weights_are_the_same_as_none(name: str, family: str) -> None:
    weighted = scores(name, predictive(family, torch.full((M,), 2.0)))
    torch.testing.assert_close(weighted, scores(name, predictive(family)), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("registry", "resolve"), REGISTRIES)
def test_a_name_a_dict_and_an_object_are_the_same_options(registry: Any, resolve: Any) -> None:
    for name, entry in registry.items():
        assert resolve(name) == resolve({"name": name}) == resolve(entry.options()) == entry.options()
        assert entry.options().name == name


@pytest.mark.parametrize(("registry", "resolve"), REGISTRIES)
def test_an_unknown_name_lists_the_known_ones(registry: Any, resolve: Any) -> None:
    for wrong in ("bold", {"name": "bold"}, {"k": 3}, 7, None, {"name": ["bald"]}):
        with pytest.raises(InvalidOption, match=", ".join(registry)):
            resolve(wrong)


@pytest.mark.parametrize(("registry", "resolve"), REGISTRIES)
def test_an_unknown_option_is_refused_by_every_entry(registry: Any, resolve: Any) -> None:
    for name in registry:
        with pytest.raises(InvalidOption, match="has no option 'temperature'"):
            resolve({"name": name, "temperature": 1.0})


@pytest.mark.parametrize("beta", [-0.1, 1e9, float("nan"), float("inf"), "1", True, None])
def test_options_out_of_bounds_or_of_the_wrong_type_are_refused(beta: object) -> None:
    with pytest.raises(InvalidOption, match="power: beta"):
        resolve_selection({"name": "power", "beta": beta})
    with pytest.raises(InvalidOption, match="power: beta"):
        resolve_selection(Power(beta=beta))  # type: ignore[arg-type]


def test_a_choice_that_is_not_offered_is_refused() -> None:
    with pytest.raises(InvalidOption, match="'total', 'epistemic'"):
        resolve_acquisition({"name": "predictive_variance", "part": "aleatoric"})
    assert resolve_acquisition({"name": "predictive_variance", "part": "epistemic"}) == PredictiveVariance(
        part="epistemic"
    )


@pytest.mark.parametrize(("registry", "resolve"), REGISTRIES)
def test_a_web_schema_follows_from_the_options(registry: Any, resolve: Any) -> None:
    kinds = tuple(entry.options for entry in registry.values())
    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[Union[kinds], Field(discriminator="name")])  # noqa: UP007
    schema = adapter.json_schema()
    assert set(schema["discriminator"]["mapping"]) == set(registry)
    for name, entry in registry.items():
        assert adapter.validate_python({"name": name}) == entry.options()
        assert "__pydantic_config__" not in {f.name for f in fields(entry.options)}
        with pytest.raises(ValidationError):
            adapter.validate_python({"name": name, "temperature": 1.0})


def test_bounds_and_descriptions_reach_the_web_schema() -> None:
    beta = TypeAdapter(Power).json_schema()["properties"]["beta"]
    assert (beta["minimum"], beta["maximum"], beta["default"]) == (0.0, 1000.0, 1.0)
    assert "description" in beta
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValidationError):
            TypeAdapter(Power).validate_python({"name": "power", "beta": wrong})
    assert TypeAdapter(Bald).json_schema()["properties"]["estimate"]["enum"] == ["moment_match", "mixture"]


def test_options_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Power().beta = 2.0  # type: ignore[misc]


@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.parametrize("k", [0, 1, 7, 20])
def test_every_selection_picks_k_different_candidates_and_repeats_itself(name: str, k: int) -> None:
    rows = torch.arange(100, 160, 3)
    values = torch.rand(20, generator=torch.Generator().manual_seed(0))
    select = resolve_selection(name)
    some = Candidates(rows=rows, scores=values)
    picked = select(some, k, Context(seed=3))
    assert picked.dtype == torch.int64
    assert len(set(picked.tolist())) == k
    assert set(picked.tolist()) <= set(rows.tolist())
    assert torch.equal(picked, select(some, k, Context(seed=3)))


@pytest.mark.parametrize("name", SELECTIONS)
def test_no_selection_invents_rows(name: str) -> None:
    with pytest.raises(InvalidOption, match="there are 2"):
        resolve_selection(name)(Candidates(rows=torch.arange(2), scores=torch.ones(2)), 3, Context())

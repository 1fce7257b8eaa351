"""What every acquisition and every selection promises; a new entry is tested by being in its registry."""

import math
from dataclasses import FrozenInstanceError, fields, replace
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
    Picks,
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
FAMILIES = {"categorical": "categorical", "gaussian": "gaussian", "several outputs": "gaussian"}
PAIRS = [(n, f) for n, entry in ACQUISITIONS.items() for f, family in FAMILIES.items() if family in entry.families]
TRIPLES = [(a, f, s) for a, f in PAIRS for s, entry in SELECTIONS.items() if FAMILIES[f] in entry.families]
ORDER = torch.tensor([3, 0, 5, 1, 4, 2])


def predictive(family: str, log_weights: Tensor | None = None, *, n_rows: int = N, seed: int = 0) -> Predictive:
    values = torch.randn(2, M, n_rows, C, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    if family == "categorical":
        return CategoricalPredictive(logits=values[0], log_weights=log_weights)
    if family == "several outputs":
        return GaussianPredictive(means=values[0], variances=values[1].exp(), log_weights=log_weights)
    return GaussianPredictive(means=values[0, ..., 0], variances=values[1, ..., 0].exp(), log_weights=log_weights)


def of_members(pred: Predictive, members: Tensor) -> Predictive:
    weights = None if pred.log_weights is None else pred.log_weights[members]
    if isinstance(pred, CategoricalPredictive):
        return CategoricalPredictive(logits=pred.logits[members], log_weights=weights)
    return GaussianPredictive(means=pred.means[members], variances=pred.variances[members], log_weights=weights)


def scores(name: str, pred: Predictive, target: Predictive | None = None) -> Tensor:
    """With a target of five other rows, where it needs one."""
    entry = ACQUISITIONS[name]
    if "ensemble" not in entry.needs:
        return entry.score(None, entry.options(), Rows(seed=0, first=0, count=pred.n_rows))
    if "target" in entry.needs and target is None:
        target = pred.take(torch.tensor([1, 0, 4, 2, 3]) % pred.n_rows)
    return entry.score(pred, entry.options(), Rows(seed=0, first=0, count=pred.n_rows, target=target))


@pytest.mark.parametrize(("name", "family"), PAIRS)
def test_every_acquisition_gives_a_finite_number_a_row(name: str, family: str) -> None:
    values = scores(name, predictive(family))
    assert values.shape == (N,)
    assert values.is_floating_point()
    assert torch.isfinite(values).all()
    assert values.unique().numel() > 1


@pytest.mark.parametrize(("name", "family"), PAIRS)
def test_the_order_of_members_does_not_matter(name: str, family: str) -> None:
    pred = predictive(family)
    torch.testing.assert_close(scores(name, of_members(pred, ORDER)), scores(name, pred), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "family"), [pair for pair in PAIRS if ACQUISITIONS[pair[0]].needs])
def test_a_row_is_scored_by_its_own_prediction_alone(name: str, family: str) -> None:
    pred, some, target = predictive(family), torch.tensor([7, 2, 2, 10]), predictive(family, seed=1)
    whole = scores(name, pred, target)
    torch.testing.assert_close(scores(name, pred.take(some), target), whole[some], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "family"), PAIRS)
def test_equal_weights_are_the_same_as_none(name: str, family: str) -> None:
    weighted = scores(name, predictive(family, torch.full((M,), 2.0)))
    torch.testing.assert_close(weighted, scores(name, predictive(family)), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("name", "family"), [pair for pair in PAIRS if ACQUISITIONS[pair[0]].needs])
def test_whole_weights_equal_repeated_members(name: str, family: str) -> None:
    counts = torch.tensor([2, 0, 1, 3, 1, 1])
    repeated = of_members(predictive(family), torch.repeat_interleave(torch.arange(M), counts))
    weighted = scores(name, predictive(family, counts.double().log()))
    torch.testing.assert_close(weighted, scores(name, repeated), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("name", "family"), PAIRS)
def test_every_score_but_a_density_s_entropy_is_at_least_zero_and_below_its_ceiling(name: str, family: str) -> None:
    values, entry = scores(name, predictive(family)), ACQUISITIONS[name]
    if not (name == "entropy" and family != "categorical"):
        assert (values >= 0).all()
    ceiling = entry.ceiling and entry.ceiling(entry.options(), FAMILIES[family], None, M)
    if ceiling is not None:
        assert ceiling == pytest.approx(math.log(M))
        assert (values <= ceiling + 1e-12).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize(("name", "family"), [(n, f) for n, f in PAIRS if "ensemble" in ACQUISITIONS[n].needs])
def test_a_row_that_a_member_cannot_predict_has_no_score_and_its_neighbours_have_theirs(
    name: str, family: str, bad: float, dtype: torch.dtype
) -> None:
    pred = predictive(family)
    parts = {field.name: getattr(pred, field.name) for field in fields(pred)}
    parts = {part: values if values is None else values.to(dtype) for part, values in parts.items()}
    sound = type(pred)(**parts)
    first = next(iter(parts))
    parts[first] = parts[first].clone()
    parts[first][2, 7].view(-1)[0] = bad
    target = sound.take(torch.tensor([1, 0, 4, 2, 3]))
    found, expected = scores(name, type(pred)(**parts), target), scores(name, sound, target)
    assert found.isfinite().logical_not().nonzero().flatten().tolist() == [7]
    assert torch.equal(found[torch.arange(N) != 7], expected[torch.arange(N) != 7])


@pytest.mark.parametrize(("name", "family"), PAIRS)
def test_identical_rows_score_alike(name: str, family: str) -> None:
    if ACQUISITIONS[name].needs:
        values = scores(name, predictive(family).take(torch.tensor([4] * 7)))
        torch.testing.assert_close(values, values[:1].expand(7), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "family"), PAIRS)
def test_one_member_tells_nothing_where_members_have_to_disagree(name: str, family: str) -> None:
    values = scores(name, of_members(predictive(family), torch.tensor([0])))
    assert torch.isfinite(values).all()
    if name in ("bald", "eig", "epig", "mean_std", "variation_ratio"):
        torch.testing.assert_close(values, torch.zeros_like(values), rtol=0, atol=1e-12)


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


def candidates(acquisition: str, family: str, pred: Predictive | None = None, *, n_rows: int = N) -> Candidates:
    """Every third pool row from 100 on, scored by the acquisition, with all that any selection needs."""
    pred = predictive(family, n_rows=n_rows) if pred is None else pred
    values = scores(acquisition, pred)
    features = torch.randn(pred.n_rows, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    rows = torch.arange(100, 100 + 3 * pred.n_rows, 3)
    return Candidates(rows=rows, scores=values - values.min(), predictive=pred, features=features)


def same(one: Picks, other: Picks) -> bool:
    return torch.equal(one.rows, other.rows) and torch.equal(one.values, other.values) and one.notes == other.notes


@pytest.mark.parametrize(("acquisition", "family", "name"), TRIPLES)
def test_every_selection_picks_k_different_candidates_and_repeats_itself(
    acquisition: str, family: str, name: str
) -> None:
    select, some = resolve_selection(name), candidates(acquisition, family)
    for k in (0, 1, 4, N):
        picks = select(some, k, Context(seed=3))
        assert picks.rows.dtype == torch.int64
        assert len(set(picks.rows.tolist())) == len(picks.rows) == k
        assert set(picks.rows.tolist()) <= set(some.rows.tolist())
        assert picks.values.dtype == torch.float64
        assert picks.values.shape == (k,)
        assert torch.isfinite(picks.values).all()
        assert (picks.values >= 0).all()
        assert same(picks, select(some, k, Context(seed=3)))


@pytest.mark.parametrize(
    ("acquisition", "family", "name"),
    [triple for triple in TRIPLES if triple[2] not in ("typiclust", "cluster_margin")],  # as many clusters as picks
)
def test_more_picks_begin_with_fewer(acquisition: str, family: str, name: str) -> None:
    select, some = resolve_selection(name), candidates(acquisition, family)
    few, all_of_them = (select(some, k, Context(seed=3)) for k in (3, N))
    assert all_of_them.rows[:3].tolist() == few.rows.tolist()


@pytest.mark.parametrize(("acquisition", "family", "name"), TRIPLES)
def test_a_pool_of_one_row_has_one_answer(acquisition: str, family: str, name: str) -> None:
    picks = resolve_selection(name)(candidates(acquisition, family, n_rows=1), 1, Context())
    assert picks.rows.tolist() == [100]
    assert torch.isfinite(picks.values).all()


@pytest.mark.parametrize(("acquisition", "family", "name"), TRIPLES)
def test_picks_do_not_depend_on_the_order_of_members(acquisition: str, family: str, name: str) -> None:
    some = candidates(acquisition, family)
    assert some.predictive is not None
    shuffled = replace(some, predictive=of_members(some.predictive, ORDER))
    one, other = (resolve_selection(name)(c, 6, Context(seed=1)) for c in (some, shuffled))
    assert one.rows.tolist() == other.rows.tolist()
    torch.testing.assert_close(one.values, other.values, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("family", "name"), sorted({(f, s) for _, f, s in TRIPLES}))
def test_identical_rows_are_told_apart_by_seed_and_row_alone(family: str, name: str, seed: int) -> None:
    one = candidates("entropy", family)
    alike = torch.zeros(9, dtype=torch.int64)
    assert one.predictive is not None
    assert one.features is not None
    assert one.scores is not None
    copies = Candidates(
        rows=one.rows[:9],
        scores=one.scores[alike],
        predictive=one.predictive.take(alike),
        features=one.features[alike],
    )
    select = resolve_selection(name)
    picks = select(copies, 9, Context(seed=seed))
    assert sorted(picks.rows.tolist()) == copies.rows.tolist()
    assert picks.rows.tolist() != select(copies, 9, Context(seed=seed + 10)).rows.tolist()
    fewer = replace(copies, rows=copies.rows + 1000)
    assert picks.rows.tolist() != (select(fewer, 9, Context(seed=seed)).rows - 1000).tolist()


@pytest.mark.parametrize("name", SELECTIONS)
def test_no_selection_invents_rows(name: str) -> None:
    some = candidates("entropy", "categorical", n_rows=2)
    with pytest.raises(InvalidOption, match="there are 2"):
        resolve_selection(name)(some, 3, Context())


@pytest.mark.parametrize("name", SELECTIONS)
def test_a_selection_does_with_what_it_says_it_needs(name: str) -> None:
    entry, some = SELECTIONS[name], candidates("bald", "categorical")
    kept = {need: getattr(some, need) for need in entry.needs}
    assert len(resolve_selection(name)(Candidates(rows=some.rows, **kept), 3, Context()).rows) == 3
    for need in set(entry.needs) - ({"scores"} if entry.short_list else set()):  # there scores make the short list
        with pytest.raises(InvalidOption, match="needs"):
            resolve_selection(name)(Candidates(rows=some.rows, **{**kept, need: None}), 3, Context())

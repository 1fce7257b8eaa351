"""What saves work changes no answer: each shortcut beside the plain computation, and any order of questions."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special

from bensemble_core.design import Experiment
from bensemble_core.design.belief.belief import PointBelief, normalised
from bensemble_core.design.belief.memory import Memory
from bensemble_core.design.belief.points import Frame, Points, home, moved
from bensemble_core.design.information import shelf, tables
from bensemble_core.design.information.eig import estimate, gains, weight_columns
from bensemble_core.design.spec.model import Model
from bensemble_core.errors import InvalidData
from tests.core.design.specs import DIGIT_SPAN, changed

LISTED: dict[str, Any] = {
    "parameters": {
        "t": {"dist": "grid", "values": np.linspace(-2, 2, 101).tolist()},
        "s": {"dist": "grid", "values": [0.5, 1]},
    },
    "designs": {"x": {"type": "list", "values": np.linspace(-2.5, 2.5, 41).tolist()}},
    "outcome": {"y": {"family": "bernoulli", "prob": "0.02 + 0.96 * sigmoid(s * (x - t))"}},
}
CLASSES = changed(LISTED, outcome={"y": {"family": "categorical", "logits": ["0", "s * (x - t)", "x * t"]}})
COUNTS = changed(LISTED, outcome={"y": {"family": "binomial", "n": 5, "logit": "s * (x - t)"}})
RATES = changed(LISTED, outcome={"y": {"family": "poisson", "log_rate": "0.3 * (x - t)"}})
CURVE: dict[str, Any] = {
    "parameters": {name: {"dist": "lognormal", "loc": 0, "scale": 0.4} for name in ("top", "half")},
    "designs": {"x": {"type": "list", "values": [0.2, 0.5, 1, 2, 5]}},
    "outcome": {"y": {"family": "normal", "mean": "top * x / (half + x)", "sd": 0.2}},
}
SPECS = {
    "digit span": DIGIT_SPAN,
    "yes or no": LISTED,
    "classes": CLASSES,
    "counts": COUNTS,
    "unbounded counts": RATES,
    "a nuisance": {**LISTED, "targets": ["t"]},
    "classes and a nuisance": {**CLASSES, "targets": ["t"]},
    "a utility": {**COUNTS, "utility": "y * x"},
    "a curve": CURVE,
}


def belief_of(experiment: Experiment) -> PointBelief:
    belief = experiment.posterior()
    assert isinstance(belief, PointBelief)
    return belief


def plain(experiment: Experiment, belief: PointBelief) -> tuple[Any, Any]:
    """EIG and utility from the whole table as it was built, with nothing left out."""
    model = experiment.spec.model
    parts = [
        gains(tables.build(model, belief.points, rows), weight_columns(belief), belief.points)
        for rows in model.space.all().split(3)  # type: ignore[no-untyped-call]
    ]
    return tuple(np.concatenate([getattr(part, name)[:, 0] for part in parts]) for name in ("eig", "utility"))  # type: ignore[return-value]


def compared(experiment: Experiment) -> None:
    belief, model = belief_of(experiment), experiment.spec.model
    eig, utility = plain(experiment, belief)
    found = estimate(model, belief, model.space.all(), Memory())
    np.testing.assert_allclose(found.eig, eig, rtol=0, atol=1e-12)
    assert found.se.max() < 1e-2
    if found.utility is not None:
        np.testing.assert_allclose(found.utility, utility, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SPECS)
def test_a_table_without_its_last_outcome_tells_the_same(name: str) -> None:
    compared(Experiment.from_spec(SPECS[name]))


@pytest.mark.parametrize("name", SPECS)
def test_a_table_made_in_slices_of_points_with_weight_tells_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = Experiment.from_spec(SPECS[name])
    model = experiment.spec.model
    design = model.space.decode(model.space.all()[1].tolist())
    history = [(design, {"y": 1})] * 12
    monkeypatch.setattr(shelf, "CHUNK", 20)
    monkeypatch.setattr(tables, "CHUNK", 2000)
    belief = experiment.posterior(history)
    assert isinstance(belief, PointBelief)
    eig, utility = plain(experiment, belief)
    rows = model.space.all().clone()
    made = list(shelf.blocks(model, belief.points, rows, Memory()))
    assert all(isinstance(block, tables.Stream) for block in made)
    found = estimate(model, belief, rows, Memory())
    np.testing.assert_allclose(found.eig, np.maximum(eig, 0), rtol=0, atol=1e-12)
    if found.utility is not None:
        np.testing.assert_allclose(found.utility, utility, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SPECS)
def test_proposals_do_not_depend_on_what_was_asked_before(name: str) -> None:
    """One experiment asked about two growing histories by turns, and backwards, beside a new one for each question."""
    experiment = Experiment.from_spec(SPECS[name])
    designs = experiment.designs()
    assert designs is not None
    one = [(designs[(7 * i) % len(designs)], {"y": i % 2}) for i in range(7)]
    other = [*one[:3], *((designs[(5 * i) % len(designs)], {"y": 1}) for i in range(4))]
    questions = [some[:n] for n in range(8) for some in (one, other)] + [one[:2], other, one[:5], one[3:]]
    for asked in questions:
        assert experiment.propose(asked) == Experiment.from_spec(SPECS[name]).propose(asked)


def test_points_left_out_have_no_weight_to_speak_of() -> None:
    z = torch.linspace(-12, 12, 2001, dtype=torch.float64)
    weights = torch.stack([(-0.5 * z * z).softmax(0), (-0.5 * (z - 1) ** 2).softmax(0)], 1)
    weights[1000] = 0
    kept = tables._weighty(weights)
    left = torch.ones(2001, dtype=torch.bool)
    left[kept] = False
    assert float(weights[left].sum(0).max()) <= tables.DROPPED
    assert 1200 < len(kept) < 1600
    assert bool((weights[kept].amax(1) > 0).all())
    assert torch.equal(tables._weighty(torch.full((5, 1), 0.2, dtype=torch.float64)), torch.arange(5))


@pytest.mark.parametrize("size", [None, 1, 25])
@pytest.mark.parametrize("n_groups", [3, 40, 900])
def test_sums_by_group_are_those_of_the_points_one_by_one(n_groups: int, size: int | None) -> None:
    rng = torch.Generator().manual_seed(n_groups)
    if size is None:  # of any size, some empty
        groups = torch.randint(n_groups, (2000,), generator=rng).sort().values
    else:
        groups = torch.arange(n_groups).repeat_interleave(size)
    rows = torch.rand(7, len(groups), generator=rng, dtype=torch.float64)
    columns = torch.rand(len(groups), 3, generator=rng, dtype=torch.float64)
    found = tables.grouped(rows, columns, groups, n_groups)
    expected = torch.zeros(7, n_groups, 3, dtype=torch.float64).index_add(1, groups, rows[..., None] * columns)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("is_sorted", [True, False])
def test_a_table_averages_groups_whatever_the_order_of_its_points(is_sorted: bool) -> None:
    model = Experiment.from_spec(DIGIT_SPAN).spec.model
    rng = torch.Generator().manual_seed(0)
    groups = torch.randint(40, (2000,), generator=rng)
    groups = groups.sort().values if is_sorted else groups
    column = torch.zeros(2000, dtype=torch.float64)
    points = Points(
        key="points",
        values={"theta": 7 + 2 * torch.randn(2000, generator=rng, dtype=torch.float64)},
        log_prior=column - math.log(2000),
        log_density=column,
        scores=column[:, None],
        groups=groups,
        n_groups=40,
    )
    assert (points.group_order is None) == is_sorted
    weights = torch.rand(2000, 2, generator=rng, dtype=torch.float64)
    table = tables.build(model, points, model.space.all())
    expected = torch.zeros(len(table.rows), 40, 2, dtype=torch.float64)
    expected.index_add_(1, groups, table.rows[..., None] * weights)
    torch.testing.assert_close(table.by_group(weights), expected, rtol=1e-12, atol=1e-12)
    streamed = tables.stream(model, points, model.space.all()).by_group(weights)
    torch.testing.assert_close(streamed, expected, rtol=1e-12, atol=1e-12)


def test_observations_are_known_by_their_content() -> None:
    model = Experiment.from_spec(DIGIT_SPAN).spec.model
    observations: list[Any] = [({"xi": 5}, {"y": 1}), ({"xi": 7.0}, {"y": False})]
    assert model.events(observations) == (((5.0,), (1.0,)), ((7.0,), (0.0,)))
    observations[0][0]["xi"] = 6
    assert model.events(observations) == (((6.0,), (1.0,)), ((7.0,), (0.0,)))
    for seen in (0.0, -0.0):
        assert math.copysign(1, model.event(({"xi": seen}, {"y": 1}))[0][0]) == 1


def test_one_more_observation_costs_its_own_likelihood_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = Experiment.from_spec(DIGIT_SPAN)
    history: list[Any] = [({"xi": 5 + i % 4}, {"y": i % 2}) for i in range(20)]
    experiment.posterior(history)
    seen: list[Any] = []
    whole = Model.log_likelihood

    def noted(model: Model, theta: Any, event: Any) -> Any:
        seen.append(event)
        return whole(model, theta, event)

    monkeypatch.setattr(Model, "log_likelihood", noted)
    experiment.posterior([*history, ({"xi": 4}, {"y": 1})])
    assert set(seen) == {((4.0,), (1.0,))}
    seen.clear()
    experiment.posterior(history)
    assert not seen


def test_what_is_refused_is_refused_whatever_was_seen_before() -> None:
    experiment = Experiment.from_spec(DIGIT_SPAN)
    experiment.posterior([({"xi": 1}, {"y": 1})])
    with pytest.raises(InvalidData, match="expected a finite number, got True"):
        experiment.posterior([({"xi": True}, {"y": 1})])
    assert (
        experiment.posterior([({"xi": np.float64(0)}, {"y": True})]).mean
        == experiment.posterior([({"xi": 0}, {"y": 1})]).mean
    )
    with pytest.raises(InvalidData, match="expected a finite number"):
        experiment.posterior([({"xi": np.int64(0)}, {"y": True})])
    for wrong in ([0], {"a", "b"}, {}):
        with pytest.raises(InvalidData, match="expected a finite number"):
            experiment.posterior([({"xi": wrong}, {"y": True})])
    for odd in ({1: 2}, [1], "xi", {"xi": 0, "self": 1}):
        with pytest.raises(InvalidData, match="a design has exactly the names xi"):
            experiment.posterior([({"xi": 1}, {"y": 1}), (odd, {"y": 1})])  # type: ignore[list-item]
    with pytest.raises(InvalidData, match="an observation is a pair"):
        experiment.posterior([5])  # type: ignore[list-item]


def test_weights_are_normalised_also_far_from_zero() -> None:
    log_joint = np.array([-5000.0, -5001.0, -math.inf, -5800.0])
    weights, total = normalised(log_joint)
    np.testing.assert_allclose(weights, special.softmax(log_joint), rtol=1e-14)
    assert total == pytest.approx(special.logsumexp(log_joint), abs=1e-12)
    assert normalised(np.full(3, -math.inf))[1] == -math.inf


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_frame_is_moved_by_the_cholesky_factor_of_the_covariance(k: int) -> None:
    rng = np.random.default_rng(k)
    for _ in range(20):
        root = rng.standard_normal((k, k)) * 0.2
        covariance, mean = root @ root.T, rng.standard_normal(k)
        frame = moved(home(k), mean, covariance)
        lower = np.linalg.cholesky(covariance + (0.5 * home(k).spacing[0]) ** 2 * np.eye(k))
        factor = np.array(frame.factor)
        scale = factor.diagonal() / lower.diagonal()
        assert (scale >= 1 - 1e-9).all()
        assert (scale < math.sqrt(2) + 1e-9).all()
        assert (np.abs(np.array(frame.centre) - mean) <= factor.diagonal() / 4 + 1e-12).all()
        slopes = factor / factor.diagonal() - lower / lower.diagonal()
        assert (np.abs(np.tril(slopes, -1)) <= 1 / 8 * (factor.diagonal()[:, None] / factor.diagonal()) + 1e-12).all()
        assert isinstance(frame, Frame)

"""What saves work changes no answer: each shortcut beside the plain computation, and any order of questions."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special

from bensemble_core.design import Experiment
from bensemble_core.design.belief.belief import PointBelief, normalised
from bensemble_core.design.belief.follow import WIDER, _around, weighed
from bensemble_core.design.belief.memory import Memory
from bensemble_core.design.belief.points import Frame, grid, home
from bensemble_core.design.information import tables
from bensemble_core.design.information.eig import estimate
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
    """EIG and utility by sums over all outcomes, or a fine mesh of them, one design at a time."""
    model, w = experiment.spec.model, belief.mass
    (variable,) = model.outcomes
    is_discrete = variable.family.is_discrete
    y = np.arange(200.0) if is_discrete else np.linspace(-4, 12, 20_001)
    step = 1.0 if is_discrete else y[1] - y[0]
    outcomes = torch.from_numpy(y)[:, None]
    found: list[tuple[float, float]] = []
    for row in model.space.all():
        (arguments,) = model.arguments(belief.points.values, row)
        if variable.n_classes:
            outcomes = torch.arange(variable.n_classes, dtype=torch.float64)[:, None]
        p = variable.family.log_prob(arguments, outcomes).exp().expand(len(outcomes), belief.points.n)
        eig = float(special.entr(p.numpy() @ w).sum()) * step
        if belief.points.groups is None:
            eig -= float(special.entr(p.numpy()).sum(0) @ w) * step
        else:
            for group in range(belief.points.n_groups):
                inside = (belief.points.groups == group).numpy()
                if (total := float(w[inside].sum())) > 0:
                    eig -= total * float(special.entr(p.numpy()[:, inside] @ w[inside] / total).sum()) * step
        utility = 0.0
        if model.utility is not None:
            values = {**model.values(belief.points.values, row), variable.name: outcomes}
            utility = float((p * model.utility(values)).sum(0).numpy() @ w)
        found.append((eig, utility))
    return tuple(np.array(found).T)


def compared(experiment: Experiment) -> None:
    belief, model = belief_of(experiment), experiment.spec.model
    eig, utility = plain(experiment, belief)
    found = estimate(model, belief, model.space.all(), Memory())
    np.testing.assert_allclose(found.eig, eig, rtol=0, atol=1e-10 + 4 * found.se.max())
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
    monkeypatch.setattr(tables, "CHUNK", 200)
    belief = experiment.posterior(history)
    assert isinstance(belief, PointBelief)
    eig, utility = plain(experiment, belief)
    rows = model.space.all().clone()
    made = list(tables.tables(model, belief.points, rows, Memory(), belief.weights[:, None]))
    assert any(len(list(table.pieces())) > 1 for table in made)
    found = estimate(model, belief, rows, Memory())
    np.testing.assert_allclose(found.eig, np.maximum(eig, 0), rtol=0, atol=1e-8)
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
    found = tables._by_group(rows, columns, groups, n_groups)
    expected = torch.zeros(7, n_groups, 3, dtype=torch.float64).index_add(1, groups, rows[..., None] * columns)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)


def test_points_that_agree_in_their_targets_lie_together() -> None:
    """Also where lists hold targets and nuisances."""
    spec = {
        "parameters": {
            "both": {"dist": "samples", "names": ["b", "c"], "values": [[1, 2], [3, 4], [1, 5], [3, 6]]},
            "more": {"dist": "samples", "names": ["d", "e"], "values": [[0, 2], [1, 4], [0, 5]]},
            "a": {"dist": "normal", "loc": 0, "scale": 1},
        },
        "designs": {"x": {"type": "list", "values": [0]}},
        "outcome": {"y": {"family": "bernoulli", "logit": "a + b * c - d * e - x"}},
        "targets": ["b", "d"],
    }
    prior = Experiment.from_spec(spec).spec.model.prior
    points = grid(prior, home(1, 5, is_grid=True))
    assert points.groups is not None
    assert points.n == 5 * 4 * 3
    assert points.n_groups == 4
    assert bool((points.groups.diff() >= 0).all())
    for group in range(4):
        inside = points.groups == group
        assert int(inside.sum()) == 5 * 2 * (2 if points.values["d"][inside][0] == 0 else 1)
        for name in ("b", "d"):
            assert len(points.values[name][inside].unique()) == 1  # type: ignore[no-untyped-call]


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
    plain = experiment.posterior([({"xi": 0}, {"y": 1})]).mean
    for zero in (np.float64(0), np.int64(0)):
        assert experiment.posterior([({"xi": zero}, {"y": True})]).mean == plain
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
def test_a_frame_has_the_moments_of_a_belief(k: int) -> None:
    """Its scales are those of the Cholesky factor, a little wider, and all but a trace lies within."""
    rng = np.random.default_rng(k)
    names = "abc"[:k]
    for turn in range(5):
        slopes = rng.standard_normal(k)
        spec = {
            "parameters": {name: {"dist": "normal", "loc": 0, "scale": 1} for name in names},
            "designs": {"x": {"type": "list", "values": [1]}},
            "outcome": {
                "y": {
                    "family": "student_t",
                    "df": 9,
                    "mean": " + ".join(f"{slope:.3f} * {name} * x" for slope, name in zip(slopes, names, strict=True)),
                    "sd": 0.5,
                }
            },
        }
        model = Experiment.from_spec(spec).spec.model
        n = {1: 257, 2: 65, 3: 25}[k]
        points = grid(model.prior, home(k, n, is_grid=True))
        belief = weighed(model, points, [model.event(({"x": 1}, {"y": 0.3 * turn}))], Memory())
        assert points.frame is not None
        frame = _around(belief, points.frame)
        covariance = np.cov(points.score_array.T, aweights=belief.mass, ddof=0).reshape(k, k)
        mean = belief.mass @ points.score_array
        step = 0.5 * points.frame.spacing * np.array(points.frame.factor)
        lower = np.linalg.cholesky(covariance + step @ step.T)
        factor = np.array(frame.factor)
        scale = factor.diagonal() / lower.diagonal()
        assert (scale >= WIDER - 1e-9).all()
        assert (scale < 3 * WIDER).all()
        assert (np.abs(np.array(frame.centre) - mean) <= factor.diagonal() / 4 + 1e-12).all()
        assert isinstance(frame, Frame)

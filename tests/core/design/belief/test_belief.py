"""Beliefs beside adaptive quadrature and closed forms: on grids that move, by particles, and conjugate."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from bensemble_core.design import Experiment, read_spec, summary
from bensemble_core.design.belief.infer import points_belief
from bensemble_core.design.belief.memory import Memory
from bensemble_core.errors import InvalidData, InvalidOption, InvalidSpec, NotFinite
from tests.core.design.specs import DIGIT_SPAN, LINEAR, changed

PRIORS: dict[str, tuple[dict[str, Any], Any]] = {
    "normal": ({"dist": "normal", "loc": 0.5, "scale": 1}, stats.norm(0.5, 1)),
    "uniform": ({"dist": "uniform", "low": -1, "high": 2}, stats.uniform(-1, 3)),
    "gamma": ({"dist": "gamma", "shape": 2, "rate": 2}, stats.gamma(2, scale=0.5)),
    "beta": ({"dist": "beta", "a": 1.5, "b": 3}, stats.beta(1.5, 3)),
    "student_t": ({"dist": "student_t", "loc": 0, "scale": 1}, stats.t(3)),
    "truncnormal": ({"dist": "truncnormal", "loc": 0, "scale": 1, "low": 0}, stats.truncnorm(0, np.inf)),
}


@pytest.mark.parametrize("dist", PRIORS)
def test_posteriors_under_every_kind_of_prior_equal_adaptive_quadrature(dist: str) -> None:
    stated, oracle = PRIORS[dist]
    spec = changed(DIGIT_SPAN, parameters={"theta": stated}, let={"z": "2 * theta - xi"})
    history = [({"xi": xi}, {"y": y}) for xi, y in [(1, 1), (1, 0), (2, 1), (3, 0)]]
    belief = Experiment.from_spec(spec).posterior(history)

    def joint(theta: float) -> float:
        p = 1.0
        for design, outcome in history:
            q = 1 / (1 + math.exp(-(2 * theta - design["xi"])))
            p *= q if outcome["y"] else 1 - q
        return p * float(oracle.pdf(theta))

    low, high = (float(oracle.ppf(1e-13)), float(oracle.isf(1e-13))) if dist != "student_t" else (-300.0, 300.0)
    cuts = np.unique([low, *np.linspace(max(low, -8), min(high, 8), 9), high])
    moments = [
        sum(
            integrate.quad(lambda t, k=k: t**k * joint(t), a, b, epsabs=1e-13, limit=300)[0]
            for a, b in itertools.pairwise(cuts)
        )
        for k in range(3)
    ]
    mean = moments[1] / moments[0]
    assert belief.log_evidence == pytest.approx(math.log(moments[0]), abs=1e-7)
    assert belief.mean["theta"] == pytest.approx(mean, abs=1e-6)
    assert belief.sd["theta"] == pytest.approx(math.sqrt(moments[2] / moments[0] - mean**2), abs=1e-6)
    half = belief.quantile(0.5, "theta")
    below = sum(
        integrate.quad(joint, a, min(b, half), epsabs=1e-13, limit=300)[0]
        for a, b in itertools.pairwise(cuts)
        if a < half
    )
    assert below / moments[0] == pytest.approx(0.5, abs=1e-5)


def test_the_order_of_observations_does_not_matter_and_leaving_one_out_takes_it_back() -> None:
    experiment = Experiment.from_spec(DIGIT_SPAN)
    history: list[Any] = [({"xi": 5 + i % 5}, {"y": int(i % 3 > 0)}) for i in range(12)]
    one, other = experiment.posterior(history), experiment.posterior(history[::-1])
    assert one.mean["theta"] == pytest.approx(other.mean["theta"], abs=1e-12)
    assert one.log_evidence == pytest.approx(other.log_evidence, abs=1e-11)
    fresh = Experiment.from_spec(DIGIT_SPAN)
    assert experiment.posterior(history[:-1]).mean == fresh.posterior(history[:-1]).mean


@pytest.mark.parametrize("n", [3, 30, 300, 3000])
def test_the_grid_follows_a_shrinking_posterior(n: int) -> None:
    """Hidden linear-Gaussian data: the closed form is the oracle, however narrow the posterior."""
    hidden = changed(LINEAR, outcome={"y": {"family": "normal", "mean": "w * x + 0 * exp(w)", "sd": 1}})
    rng = np.random.default_rng(0)
    history = [({"x": x}, {"y": float(0.7 * x + rng.standard_normal())}) for x in rng.choice([0.5, 1, 2], n)]
    exact, found = Experiment.from_spec(LINEAR).posterior(history), Experiment.from_spec(hidden).posterior(history)
    assert (exact.method, found.method) == ("gaussian", "grid")
    assert found.mean["w"] == pytest.approx(exact.mean["w"], abs=1e-9)
    assert found.sd["w"] == pytest.approx(exact.sd["w"], rel=1e-7)
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=1e-6)
    assert found.entropy == pytest.approx(exact.entropy, abs=1e-7)
    for q in (0.025, 0.5, 0.9):
        assert found.quantile(q)["w"] == pytest.approx(exact.quantile(q)["w"], abs=1e-3 * exact.sd["w"])
    assert found.edge_mass < 1e-9
    assert found.error < 1e-6


def test_a_correlated_posterior_in_three_dimensions_is_resolved() -> None:
    spec = {
        "parameters": {name: {"dist": "normal", "loc": 0, "scale": 1} for name in "abc"},
        "designs": {"x": {"type": "float", "low": -1, "high": 1}},
        "outcome": {"y": {"family": "normal", "mean": "a + b * x + c * x * x", "sd": 0.1}},
    }
    hidden = {**spec, "outcome": {"y": {"family": "normal", "mean": "a + b * x + c * x * x + 0 * exp(a)", "sd": 0.1}}}
    rng = np.random.default_rng(1)
    history = [({"x": float(x)}, {"y": float(0.3 - x + 0.1 * rng.standard_normal())}) for x in rng.uniform(0.5, 1, 25)]
    exact, found = Experiment.from_spec(spec).posterior(history), Experiment.from_spec(hidden).posterior(history)
    np.testing.assert_allclose(found.covariance().numpy(), exact.covariance().numpy(), rtol=0.03, atol=1e-3)
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=5 * found.error)
    assert found.error < 0.01
    for name in "abc":
        assert found.mean[name] == pytest.approx(exact.mean[name], abs=0.01 * exact.sd[name])
        assert found.quantile(0.9, name) == pytest.approx(exact.quantile(0.9, name), abs=0.02 * exact.sd[name] + 1e-3)


def five_parameters(mean: str) -> dict[str, Any]:
    return {
        "parameters": {name: {"dist": "normal", "loc": 0, "scale": 1} for name in "abcde"},
        "designs": {"x": {"type": "float", "low": -1, "high": 1}, "v": {"type": "float", "low": -1, "high": 1}},
        "outcome": {"y": {"family": "normal", "mean": mean, "sd": 0.5}},
    }


def test_particles_reach_the_closed_form_and_do_not_care_for_order() -> None:
    mean = "a + b * x + c * v + d * x * v + e * x * x"
    exact = Experiment.from_spec(five_parameters(mean))
    found = Experiment.from_spec(five_parameters(mean + " + 0 * exp(a)"))
    rng = np.random.default_rng(2)
    history = [
        ({"x": float(x), "v": float(v)}, {"y": float(1 - x + 0.5 * v + 0.5 * rng.standard_normal())})
        for x, v in rng.uniform(-1, 1, (30, 2))
    ]
    one, other = exact.posterior(history), found.posterior(history)
    assert other.method == "particles"
    for name in "abcde":
        assert other.mean[name] == pytest.approx(one.mean[name], abs=0.08 * one.sd[name])
        assert other.sd[name] == pytest.approx(one.sd[name], rel=0.06)
    assert other.log_evidence == pytest.approx(one.log_evidence, abs=6 * other.error + 0.05)
    assert other.error < 0.1
    again = Experiment.from_spec(five_parameters(mean + " + 0 * exp(a)")).posterior(history[::-1])
    assert again.mean == pytest.approx(other.mean, rel=1e-9)  # sums of another order
    assert again.log_evidence == pytest.approx(other.log_evidence, rel=1e-12)


def test_the_conjugate_update_equals_the_textbook() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.uniform(-1, 1, 20), rng.standard_normal(20)
    spec = {
        "parameters": {
            "w": {
                "dist": "multivariate_normal",
                "names": ["a", "b"],
                "mean": [1, -1],
                "covariance": [[2, 0.5], [0.5, 1]],
            }
        },
        "designs": {"x": {"type": "float", "low": -1, "high": 1}},
        "outcome": {"y": {"family": "normal", "mean": "a + b * x", "sd": "0.5 + x * x"}},
    }
    belief = Experiment.from_spec(spec).posterior(
        [({"x": float(u)}, {"y": float(v)}) for u, v in zip(x, y, strict=True)]
    )
    prior, m = np.array([[2, 0.5], [0.5, 1]]), np.array([1, -1])
    design, noise = np.stack([np.ones(20), x], 1), np.diag((0.5 + x * x) ** 2)
    precision = np.linalg.inv(prior) + design.T @ np.linalg.inv(noise) @ design
    mean = np.linalg.solve(precision, np.linalg.inv(prior) @ m + design.T @ np.linalg.inv(noise) @ y)
    np.testing.assert_allclose([belief.mean["a"], belief.mean["b"]], mean, rtol=1e-10)
    np.testing.assert_allclose(belief.covariance().numpy(), np.linalg.inv(precision), rtol=1e-10)
    expected = stats.multivariate_normal(design @ m, noise + design @ prior @ design.T).logpdf(y)
    assert belief.log_evidence == pytest.approx(float(expected), abs=1e-9)
    assert belief.entropy == pytest.approx(
        float(stats.multivariate_normal(mean, np.linalg.inv(precision)).entropy()), abs=1e-9
    )


def test_listed_points_are_updated_by_bayes() -> None:
    spec = changed(
        DIGIT_SPAN, parameters={"theta": {"dist": "samples", "values": [4, 6, 9], "weights": [0.5, 0.3, 0.2]}}
    )
    belief = Experiment.from_spec(spec).posterior([({"xi": 5}, {"y": 1})])
    weights = np.array([0.5, 0.3, 0.2]) / (1 + np.exp(-(np.array([4, 6, 9]) - 5)))
    assert belief.log_evidence == pytest.approx(math.log(weights.sum()), abs=1e-12)
    values, masses = belief.marginal("theta")
    assert values == [4, 6, 9]
    assert masses == pytest.approx((weights / weights.sum()).tolist(), abs=1e-12)
    assert belief.mean["theta"] == pytest.approx(float(weights @ [4, 6, 9] / weights.sum()), abs=1e-12)
    assert belief.quantile(0.5)["theta"] == 6


def test_intervals_densities_and_draws_of_a_normal_belief() -> None:
    for spec in (DIGIT_SPAN, changed(DIGIT_SPAN, outcome={"y": {"family": "normal", "mean": "theta", "sd": 1}})):
        belief = Experiment.from_spec(spec).posterior()
        low, high = belief.hdi(0.9)["theta"]
        assert (low, high) == pytest.approx((7 - 2 * 1.6449, 7 + 2 * 1.6449), abs=0.03)
        at, density = belief.marginal("theta")
        np.testing.assert_allclose(density, stats.norm(7, 2).pdf(at), atol=3e-3)
        draws = belief.samples(20_000, seed=1)["theta"]
        assert float(draws.mean()) == pytest.approx(7, abs=0.06)
        assert float(draws.std()) == pytest.approx(2, abs=0.05)
        told = summary(belief)["theta"]
        assert told["quantiles"]["0.975"] == pytest.approx(7 + 2 * 1.959964, abs=1e-4)


def test_wrong_questions_to_a_belief_are_refused() -> None:
    for spec in (DIGIT_SPAN, LINEAR):
        belief = Experiment.from_spec(spec).posterior()
        with pytest.raises(InvalidOption, match="between 0 and 1"):
            belief.quantile(1.5)
        with pytest.raises(InvalidOption, match="there is no parameter 'phi'"):
            belief.quantile(0.5, "phi")


def test_an_impossible_outcome_is_refused_and_so_are_contradictions() -> None:
    spec = changed(DIGIT_SPAN, outcome={"y": {"family": "bernoulli", "prob": "where(xi > 7, 0, 0.5)"}})
    with pytest.raises(InvalidData, match="no chance"):
        Experiment.from_spec(spec).posterior([({"xi": 9}, {"y": 1})])
    steps = changed(
        DIGIT_SPAN,
        parameters={"theta": {"dist": "grid", "values": [1, 2, 3]}},
        outcome={"y": {"family": "bernoulli", "prob": "where(theta > xi, 1, 0)"}},
    )
    with pytest.raises(InvalidData, match="together no chance"):
        Experiment.from_spec(steps).posterior([({"xi": 1}, {"y": 0}), ({"xi": 2}, {"y": 1})])


def test_a_model_undefined_on_a_sliver_of_the_prior_is_used_without_it() -> None:
    """sqrt(θ) with θ ~ N(7, 1): 7 sd away the model is not defined, on 1e-12 of the prior."""
    spec = changed(
        DIGIT_SPAN, parameters={"theta": {"dist": "normal", "loc": 7, "scale": 1}}, let={"z": "sqrt(theta) - xi"}
    )
    experiment = Experiment.from_spec(spec)
    theta = np.linspace(1e-9, 20, 200_001)
    w = stats.norm(7, 1).pdf(theta)
    p = 1 / (1 + np.exp(-(np.sqrt(theta) - 3)))
    assert experiment.posterior([({"xi": 3}, {"y": 1})]).mean["theta"] == pytest.approx(
        float((w * p * theta).sum() / (w * p).sum()), abs=1e-7
    )
    assert experiment.eig([{"xi": 3}])[0].eig > 0
    rough = changed(
        DIGIT_SPAN, parameters={"theta": {"dist": "normal", "loc": 7, "scale": 1.6}}, let={"z": "sqrt(theta) - xi"}
    )
    with pytest.raises(InvalidSpec, match="of the prior; take a prior that ends where the model does"):
        Experiment.from_spec(rough)
    with pytest.raises(NotFinite, match=r"the model is not defined at theta = .* for the design \{'xi': 3\}"):
        Experiment(spec=read_spec(rough)).posterior([({"xi": 3}, {"y": 1})])


def test_memory_is_bounded_and_changes_no_answer() -> None:
    roomy, tight = Experiment.from_spec(DIGIT_SPAN), Experiment.from_spec(DIGIT_SPAN)
    tight = Experiment(spec=tight.spec, memory=Memory(limit=2000))
    history: list[Any] = []
    for i in range(6):
        assert roomy.propose(history) == tight.propose(history)
        history.append(({"xi": 4 + i}, {"y": i % 2}))
    assert tight.memory._size <= 2000


def test_points_of_a_linear_gaussian_model_agree_with_its_closed_form() -> None:
    model = Experiment.from_spec(LINEAR).spec.model
    belief = points_belief(model, [model.event(({"x": 2}, {"y": 1.0}))], Memory())
    assert belief.mean["w"] == pytest.approx(0.4, abs=1e-10)
    assert torch.is_tensor(belief.weights)


def test_a_memory_that_forgets_histories_gives_the_same_posterior() -> None:
    seen = [({"xi": xi}, {"y": y}) for xi, y in [(5, 1), (7, 1), (9, 0), (6, 1), (8, 0)]]
    forgetful = Experiment(spec=Experiment.from_spec(DIGIT_SPAN).spec, memory=Memory(limit=400))
    for n in (1, 5, 3, 5, 2, 4):
        fresh = Experiment.from_spec(DIGIT_SPAN).posterior(seen[:n])
        assert forgetful.posterior(seen[:n]).mean == fresh.mean


@pytest.mark.parametrize(("xs", "sd"), [((3.0, 7.0), 0.02), ((3.0, 7.0, 20.0), 0.02), ((1.0, 3.0, 5.0), 1e-3)])
def test_a_posterior_of_many_narrow_peaks_is_seen_whole(xs: tuple[float, ...], sd: float) -> None:
    """Beside a sum over two million points, a hundredth of a peak apart."""
    spec: dict[str, Any] = {
        "parameters": {"th": {"dist": "normal", "loc": 0.1, "scale": 1}},
        "designs": {"x": {"type": "list", "values": list(xs)}},
        "outcome": {"y": {"family": "normal", "mean": "sin(th*x)", "sd": sd}},
    }
    rng = np.random.default_rng(0)
    mesh = np.linspace(-8.4, 8.6, 2_000_001)
    for truth in (0.1 + rng.standard_normal(4)).tolist():
        ys = [math.sin(truth * x) + sd * float(rng.standard_normal()) for x in xs]
        log_joint = stats.norm.logpdf(mesh, 0.1, 1) + math.log(mesh[1] - mesh[0])
        for x, y in zip(xs, ys, strict=True):
            log_joint += stats.norm.logpdf(y, np.sin(mesh * x), sd)
        evidence = float(special.logsumexp(log_joint))
        weights = np.exp(log_joint - evidence)
        mean = float(weights @ mesh)
        spread = math.sqrt(weights @ (mesh - mean) ** 2)
        belief = Experiment.from_spec(spec).posterior([({"x": x}, {"y": y}) for x, y in zip(xs, ys, strict=True)])
        assert belief.log_evidence == pytest.approx(evidence, abs=1e-5)
        assert belief.mean["th"] == pytest.approx(mean, abs=1e-2 * spread)
        assert belief.sd["th"] == pytest.approx(spread, rel=0.1)  # a peak with 10⁻⁷ of the mass lies a thousand sds off


def test_peaks_that_had_to_be_passed_by_count_as_an_error() -> None:
    experiment = Experiment.from_spec(
        {
            "parameters": {"th": {"dist": "normal", "loc": 0.1, "scale": 1}},
            "designs": {"x": {"type": "list", "values": [3.0, 70.0]}},
            "outcome": {"y": {"family": "normal", "mean": "sin(th*x)", "sd": 1e-7}},
        }
    )
    observations = [({"x": 3.0}, {"y": 0.5}), ({"x": 70.0}, {"y": -0.2})]
    assert experiment.posterior(observations).error > 0.1
    assert any("finer detail" in warning for warning in experiment.guards(observations).warnings)


def test_particles_that_do_not_cross_between_peaks_say_how_far_their_evidence_may_be_off() -> None:
    """Beside importance sampling from the prior; single steps of the tempering would claim 0.025."""
    rng = np.random.default_rng(1)
    xs = [0.2, 0.5, 0.9, 1.2, 1.6, 2.0]
    ys = [1 + 0.64 * x + math.sin(1.2 * x) + 0.03 + 0.2 * float(rng.standard_normal()) for x in xs]
    a, b, c, d = rng.standard_normal((4, 1_000_000))
    log_likelihood = np.zeros(len(a))
    for x, y in zip(xs, ys, strict=True):
        log_likelihood += stats.norm.logpdf(y, a * a + x * b * b + np.sin(3 * c * x) + 0.3 * d, 0.2)
    weights = np.exp(log_likelihood - log_likelihood.max())
    exact = float(log_likelihood.max() + math.log(weights.mean()))
    noise = float(weights.std() / weights.mean() / math.sqrt(len(weights)))
    off = []
    for seed in range(6):
        belief = Experiment.from_spec(
            {
                "parameters": {name: {"dist": "normal", "loc": 0, "scale": 1} for name in "abcd"},
                "designs": {"x": {"type": "float", "low": 0, "high": 2}},
                "outcome": {"y": {"family": "normal", "mean": "a*a + x*b*b + sin(3*c*x) + 0.3*d", "sd": 0.2}},
                "select": {"seed": seed},
            }
        ).posterior([({"x": x}, {"y": y}) for x, y in zip(xs, ys, strict=True)])
        off.append((belief.log_evidence - exact) / math.hypot(belief.error, noise))
    assert max(map(abs, off)) < 3.5
    assert math.sqrt(np.square(off).mean()) < 2

"""Whole experiments on simulated participants, before anyone is recruited: truths × rounds × policies.

Each truth is a draw of the prior (or given); a policy proposes, the model answers for the truth, the belief is updated.
What comes out are curves over rounds: the posterior sd, the error, and how often the interval holds the truth.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

from bensemble_core.design.belief.points import Array
from bensemble_core.design.experiment import Experiment
from bensemble_core.design.search.search import N_TRIES, allowed
from bensemble_core.design.spec.model import Observation, readable
from bensemble_core.design.spec.spaces import sobol
from bensemble_core.errors import InvalidOption
from bensemble_core.randomness import derive
from bensemble_core.types import Progress

Keep: TypeAlias = Callable[[Callable[[], dict[str, Any]]], None]  # given what tells how far it is, to be asked or not
MAX_TRUTHS = 10_000
MAX_ROUNDS = 1000
LARGEST_TRUTH = 1e100  # whose square is a number still
LEVEL = 0.95  # of the interval whose coverage is counted


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How designs are chosen.

    adaptive: the experiment's own proposals. random: any design, uniformly. fixed: `designs` in turn. staircase: on the
    ordered design variable `variable`, one step easier after a failure and one step harder after `down` successes in a
    row (Levitt 1971); the outcome is a success where its first variable is not 0, and `harder` says which way leads up.
    """

    name: Literal["adaptive", "random", "fixed", "staircase"] = "adaptive"
    designs: tuple[Mapping[str, Any], ...] = ()
    variable: str = ""
    start: float | None = None
    step: float = 1.0
    down: int = 1
    harder: Literal["up", "down"] = "up"


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One policy: averages over truths, a number for each round from 0 (the prior) on."""

    policy: str
    sd: dict[str, list[float]]  # mean posterior sd
    rmse: dict[str, list[float]]  # of the posterior mean
    coverage: dict[str, list[float]]  # share of truths inside the central 95 % interval
    information: list[float]  # mean of log p(θ_true | y) − log p(θ_true): what has been learnt about the truth, in nats
    n_truths: int


def simulate(
    experiment: Experiment,
    *,
    rounds: int,
    policies: Sequence[Policy] = (Policy(), Policy(name="random")),
    truths: Sequence[Mapping[str, float]] | int = 20,
    seed: int = 0,
    report: Progress | None = None,
    keep: Keep | None = None,
    resume: Mapping[str, Any] | None = None,
) -> list[Curve]:
    """Run every policy on every truth; the same truths and the same luck for all policies.

    `keep` is called after every truth; what it gets tells, as JSON, how far the simulation is. Handed back as `resume`
    with the same request, it goes on from there and ends with the same curves to the last bit.
    """
    if not 1 <= rounds <= MAX_ROUNDS:
        raise InvalidOption(f"rounds is 1 to {MAX_ROUNDS}, got {rounds}")
    chosen = _truths(experiment, truths, seed)
    for policy in policies:
        _check(experiment, policy)
    names = experiment.spec.model.prior.names
    nothing = np.zeros((4, len(names), rounds + 1))
    curves = [Curve(**stated) for stated in resume["curves"]] if resume else []
    sums, n = (np.array(resume["sums"]), resume["n"]) if resume else (nothing, 0)  # of the next policy's first n truths

    def standing() -> dict[str, Any]:
        return {"curves": [asdict(curve) for curve in curves], "sums": sums.tolist(), "n": n}

    for policy in policies[len(curves) :]:
        while n < len(chosen):
            sums = sums + _run(experiment, policy, chosen[n], rounds, derive(seed, n))
            n += 1
            if report is not None:
                done, total = len(curves) * len(chosen) + n, len(chosen) * len(policies)
                report(done, total, f"{policy.name}: {n} of {len(chosen)} truths")
            if keep is not None:
                keep(standing)
        curves.append(_curve(policy, names, sums / n, n))
        sums, n = nothing, 0
    return curves


def _curve(policy: Policy, names: Sequence[str], means: Array, n_truths: int) -> Curve:
    """From means over truths of what `_run` gives."""
    means[1] = np.sqrt(means[1])
    sd, rmse, coverage = (dict(zip(names, rows.tolist(), strict=True)) for rows in means[:3])
    information = means[3, 0].tolist()
    return Curve(policy=policy.name, sd=sd, rmse=rmse, coverage=coverage, information=information, n_truths=n_truths)


def _truths(experiment: Experiment, truths: Sequence[Mapping[str, float]] | int, seed: int) -> list[dict[str, float]]:
    prior = experiment.spec.model.prior
    if isinstance(truths, int):
        if not 1 <= truths <= MAX_TRUTHS:
            raise InvalidOption(f"truths is 1 to {MAX_TRUTHS} draws, or a list, got {truths}")
        values, _ = prior.at(*prior.draw(sobol(truths, prior.n_scores + len(prior.listed), derive(seed, 1))))
        return [{name: float(column[i]) for name, column in values.items()} for i in range(truths)]
    for truth in truths:
        check_truth(experiment, truth)
    if not 1 <= len(truths) <= MAX_TRUTHS:
        raise InvalidOption(f"expected 1 to {MAX_TRUTHS} truths, got {len(truths)}")
    return [dict(truth) for truth in truths]


def check_truth(experiment: Experiment, truth: Mapping[str, float]) -> None:
    """Raise unless the model can answer for this truth wherever it may be asked."""
    model = experiment.spec.model
    names = model.prior.names
    if set(truth) != set(names):
        came = ", ".join(sorted(truth)) or "none"
        raise InvalidOption(f"a truth has exactly the parameters {', '.join(names)}, got {came}")
    for name, value in truth.items():
        if not abs(value) <= LARGEST_TRUTH:
            raise InvalidOption(f"a truth is within ±{LARGEST_TRUTH:g}, got {name} = {value:g}")
    if model.space.numbered:
        return
    corners = model.space.corners()
    rows = corners[model.space.admits(corners)]
    theta = {name: torch.full((len(rows),), float(value), dtype=torch.float64) for name, value in truth.items()}
    for pointer, wrong, expected in model.faults(theta, rows):
        if wrong.any():
            at = model.space.decode(rows[int(wrong.nonzero()[0])].tolist())
            raise InvalidOption(
                f"the model cannot answer for the truth {readable(truth)} at {readable(at)}: {pointer} is not "
                f"{expected}; choose a truth that the prior allows"
            )


def _check(experiment: Experiment, policy: Policy) -> None:
    if policy.name == "fixed" and not policy.designs:
        raise InvalidOption("a fixed policy needs designs=(…)")
    names = experiment.spec.model.space.names
    if policy.name == "staircase" and (policy.variable not in names or len(names) > 1):
        raise InvalidOption(f"a staircase needs variable=… and a single design variable; there is {', '.join(names)}")


def _run(experiment: Experiment, policy: Policy, truth: Mapping[str, float], rounds: int, seed: int) -> Array:
    """Posterior sd, squared error, whether the interval holds the truth, and information about it, for each of the P
    parameters after each round: [4, P, 1 + rounds]."""
    observations: list[Observation] = []
    found = []
    for turn in range(rounds + 1):
        belief = experiment.posterior(observations)
        low, high = belief.quantile((1 - LEVEL) / 2), belief.quantile((1 + LEVEL) / 2)
        information = experiment.log_likelihood(truth, observations) - belief.log_evidence
        found.append(
            [
                [belief.sd[name], (belief.mean[name] - x) ** 2, low[name] <= x <= high[name], information]
                for name, x in ((name, truth[name]) for name in belief.names)
            ]
        )
        if turn < rounds:
            design = _next(experiment, policy, observations, derive(seed, 2, turn))
            observations.append((design, experiment.draw(truth, design, derive(seed, 3, turn))))
    return np.array(found, dtype=np.float64).transpose(2, 1, 0)


def _next(experiment: Experiment, policy: Policy, observations: Sequence[Observation], seed: int) -> Mapping[str, Any]:
    space = experiment.spec.model.space
    if policy.name == "adaptive":
        found = experiment.propose(observations)
        if not found:
            raise InvalidOption("no design is left that is allowed and affordable; simulate fewer rounds")
        return found[0].design
    if policy.name == "fixed":
        return policy.designs[len(observations) % len(policy.designs)]
    if policy.name == "staircase":
        return {policy.variable: _step(experiment, policy, observations)}
    if space.is_listed:
        rows = space.all()
        return space.decode(rows[int(seed % len(rows))].tolist())
    rows = allowed(space, 1, seed, {})
    if not len(rows):
        raise InvalidOption(f"{N_TRIES:,} random designs all broke the constraints; list the designs instead")
    return space.decode(rows[0].tolist())


def _step(experiment: Experiment, policy: Policy, observations: Sequence[Observation]) -> float:
    """Replay the staircase over what has happened, within the bounds of the variable."""
    (variable,) = experiment.spec.model.space.variables
    ends = variable.values or (variable.low, variable.high)
    low, high = min(ends), max(ends)
    middle = (low + high) / 2
    level = policy.start if policy.start is not None else float(variable.decode(round(middle)))
    harder = policy.step if policy.harder == "up" else -policy.step
    in_a_row = 0
    first = experiment.spec.model.outcomes[0]
    for _, outcome in observations:
        if first.encode(outcome[first.name]) > 0:
            in_a_row += 1
            if in_a_row == policy.down:
                level, in_a_row = level + harder, 0
        else:
            level, in_a_row = level - harder, 0
        level = min(max(level, low), high)
    found: float = variable.decode(level)
    return found

"""Whole experiments on simulated participants, before anyone is recruited: truths × rounds × policies.

Each truth is a draw of the prior (or given); a policy proposes, the model answers for the truth, the belief is updated.
What comes out are curves over rounds: the posterior sd, the error, and how often the interval holds the truth.
"""

import copy
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

import torch

from bensemble_core.design.experiment import Experiment
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


@dataclass(kw_only=True)
class _Sums:
    """Over truths, of one policy."""

    sd: dict[str, list[float]] = field(default_factory=dict)
    square: dict[str, list[float]] = field(default_factory=dict)
    inside: dict[str, list[float]] = field(default_factory=dict)
    information: list[float] = field(default_factory=list)
    n: int = 0

    @classmethod
    def empty(cls, names: Sequence[str], rounds: int) -> "_Sums":
        columns = [{name: [0.0] * (rounds + 1) for name in names} for _ in range(3)]
        return cls(sd=columns[0], square=columns[1], inside=columns[2], information=[0.0] * (rounds + 1))

    def curve(self, policy: str) -> Curve:
        n = self.n
        return Curve(
            policy=policy,
            sd={name: [x / n for x in row] for name, row in self.sd.items()},
            rmse={name: [math.sqrt(x / n) for x in row] for name, row in self.square.items()},
            coverage={name: [x / n for x in row] for name, row in self.inside.items()},
            information=[x / n for x in self.information],
            n_truths=n,
        )


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
    curves = [Curve(**stated) for stated in resume["curves"]] if resume else []
    under_way = _Sums(**copy.deepcopy(resume["sums"])) if resume else None
    total = len(chosen) * len(policies)
    for policy in policies[len(curves) :]:
        sums = under_way or _Sums.empty(names, rounds)
        under_way = None
        for number in range(sums.n, len(chosen)):
            _run(experiment, policy, chosen[number], rounds, derive(seed, number), sums)
            sums.n += 1
            if report is not None:
                done = len(curves) * len(chosen) + sums.n
                report(done, total, f"{policy.name}: {sums.n} of {len(chosen)} truths")
            if keep is not None:
                keep(functools.partial(_standing, curves, sums))
        curves.append(sums.curve(policy.name))
    return curves


def _standing(curves: Sequence[Curve], sums: _Sums) -> dict[str, Any]:
    return {"curves": [asdict(curve) for curve in curves], "sums": asdict(sums)}


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
    if not len(rows):
        return
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


def _run(
    experiment: Experiment, policy: Policy, truth: Mapping[str, float], rounds: int, seed: int, sums: _Sums
) -> None:
    observations: list[Observation] = []
    _record(experiment, truth, observations, 0, sums)
    for turn in range(rounds):
        design = _next(experiment, policy, observations, derive(seed, 2, turn))
        outcome = experiment.draw(truth, design, derive(seed, 3, turn))
        observations.append((design, outcome))
        _record(experiment, truth, observations, turn + 1, sums)


def _record(
    experiment: Experiment, truth: Mapping[str, float], observations: Sequence[Observation], turn: int, sums: _Sums
) -> None:
    belief = experiment.posterior(observations)
    low, high = belief.quantile((1 - LEVEL) / 2), belief.quantile((1 + LEVEL) / 2)
    for name in belief.names:
        sums.sd[name][turn] += belief.sd[name]
        sums.square[name][turn] += (belief.mean[name] - truth[name]) ** 2
        sums.inside[name][turn] += low[name] <= truth[name] <= high[name]
    sums.information[turn] += experiment.log_likelihood(truth, observations) - belief.log_evidence


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
    for turn in range(1000):
        u = torch.rand(
            1, len(space.names), generator=torch.Generator().manual_seed(derive(seed, turn)), dtype=torch.float64
        )
        row = space.from_unit(u)
        if bool(space.admits(row)[0]):
            return space.decode(row[0].tolist())
    raise InvalidOption("1,000 random designs all broke the constraints; list the designs instead")


def _step(experiment: Experiment, policy: Policy, observations: Sequence[Observation]) -> float:
    """Replay the staircase over what has happened, within the bounds of the variable."""
    (variable,) = experiment.spec.model.space.variables
    low, high = (
        (variable.low, variable.high) if variable.kind != "values" else (min(variable.values), max(variable.values))
    )
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

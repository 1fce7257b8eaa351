"""Are proposals right, and do stated errors cover? `python benchmarks/design_honest.py [--models 300] [--kinds …]`.

Random models whose expected information gain is known by other means (design_truth.py): linear ones posed as lognormal
outcomes, noise from 1 to 1e-4 of the prior's scale; curves (exponential decay, Michaelis–Menten, tanh); logistic and
Poisson ones; and hostile ones (a fast sine, a very steep tanh, a square). With and without nuisances, after none to
three outcomes, from a list or a space of designs, one to three at once.

Of each: values at five designs, each asked alone, and the proposal's own. *Beyond* is off by more than 4 stated
errors and 1e-4, which the reference itself may be off by; *sure and wrong* by more than .01 at a stated error under
.001; *regret* is what the proposal gains less than the best design, too large over .02 nats and over 2 stated errors. A
refusal is counted apart.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from design_truth import Counted, Curve, Floats, linear_gain, log_bernoulli, log_poisson

from bensemble_core.design import Experiment, TooMuchWork
from bensemble_core.errors import BensembleError

KINDS = ("linear", "curve", "discrete", "hostile")
SHARES = {"linear": 0.55, "curve": 0.2, "discrete": 0.15, "hostile": 0.1}
FLOOR = 1e-4  # nats
LOW, HIGH = -2.0, 2.0
Observed = list[tuple[float, float]]
Gain = Callable[[Sequence[float]], float]  # of the outcomes of all these designs together


@dataclass(frozen=True, kw_only=True)
class Case:
    name: str
    kind: str
    spec: dict[str, Any]
    observed: Observed
    gain: Gain
    designs: tuple[float, ...]  # that can be chosen, or a fine grid of those
    asked: tuple[float, ...]
    count: int


@dataclass
class Found:
    kind: str
    name: str
    errors: list[tuple[float, float | None]] = field(default_factory=list)  # stated − true, stated error
    regret: float | None = None
    regret_se: float = 0.0
    refusal: str | None = None
    seconds: float = 0.0


def linear(rng: np.random.Generator, i: int) -> Case:
    k = 1 + i % 3
    noise = float(10 ** rng.uniform(-4, 0))
    count = 1 + (i // 3) % 3
    n_observed = int(rng.integers(0, 4))
    powers = [0, 1, 2] if k == 3 else [0, 1] if k == 2 else [1]
    targets = [powers.index(1)] if k > 1 and rng.random() < 0.4 else list(range(k))
    names = ["a", "b", "c"] if k == 3 else ["a", "b"] if k == 2 else ["b"]
    scales = np.exp(rng.uniform(-0.7, 0.7, k))
    theta = scales * rng.standard_normal(k)

    def features(designs: Sequence[float]) -> Floats:
        return np.array([[x**power for power in powers] for x in designs], dtype=float).reshape(-1, k)

    designs, space = _designs(rng)
    before = [float(x) for x in rng.choice(designs, n_observed)] if n_observed else []
    said = features(before) @ theta + noise * rng.standard_normal(n_observed)
    terms = {0: "{}", 1: "{} * x", 2: "{} * x ** 2"}
    mean = " + ".join(terms[power].format(name) for power, name in zip(powers, names, strict=True))
    spec = {
        "parameters": {
            name: {"dist": "normal", "loc": 0, "scale": float(s)} for name, s in zip(names, scales, strict=True)
        },
        "designs": space,
        "outcome": {"y": {"family": "lognormal", "mean": mean, "sd": noise}},
        "targets": [names[t] for t in targets],
    }
    return Case(
        name=f"{mean}, sd {noise:.2g}, {n_observed} before, targets {spec['targets']}, count {count}",
        kind="linear",
        spec=spec,
        observed=[(x, math.exp(y)) for x, y in zip(before, said, strict=True)],
        gain=lambda chosen: linear_gain(features(chosen), features(before), scales, noise, targets),
        designs=designs,
        asked=_asked(rng, designs),
        count=count,
    )


CURVES: dict[str, tuple[str, Callable[[Floats, float], Floats]]] = {
    # what the spec says of a, b ~ N(0, 1), and the same in numpy; x in [0, 2]
    "decay": (
        "exp(0.5 * a) * exp(0 - exp(0.5 * b) * x)",
        lambda t, x: np.exp(0.5 * t[..., 0] - np.exp(0.5 * t[..., 1]) * x),
    ),
    "michaelis_menten": (
        "exp(0.5 * a) * x / (exp(0.5 * b) + x)",
        lambda t, x: np.exp(0.5 * t[..., 0]) * x / (np.exp(0.5 * t[..., 1]) + x),
    ),
    "tanh": ("a * tanh(x - 0.5 * b)", lambda t, x: t[..., 0] * np.tanh(x - 0.5 * t[..., 1])),
}
HOSTILE: dict[str, tuple[str, Callable[[Floats, float], Floats]]] = {
    "sine": ("sin(4 * a * x)", lambda t, x: np.sin(4 * t[..., 0] * x)),
    "steep": ("tanh(30 * (a - x))", lambda t, x: np.tanh(30 * (t[..., 0] - x))),
    "square": ("a ** 2 * x + 0.1 * a", lambda t, x: t[..., 0] ** 2 * x + 0.1 * t[..., 0]),
}


def curve(rng: np.random.Generator, i: int, *, hostile: bool = False) -> Case:
    among = HOSTILE if hostile else CURVES
    name = list(among)[i % len(among)]
    text, f = among[name]
    k = 1 if hostile else 2
    noise = float(10 ** rng.uniform(-2.3, -0.5))
    has_target = not hostile and noise > 0.03 and rng.random() < 0.3
    count = 2 if not hostile and noise > 0.05 and rng.random() < 0.3 else 1
    n_observed = int(rng.integers(0, 3))
    designs, space = _designs(rng, low=0.05 if not hostile else LOW)
    truth = Curve(n_parameters=k, f=f, noise=noise)
    theta = rng.standard_normal(k)
    before = [float(x) for x in rng.choice(designs, n_observed)] if n_observed else []
    observed = [(x, float(f(theta, x) + noise * rng.standard_normal())) for x in before]
    points = truth.points(observed, target=1 if has_target else 0)
    names = ["a", "b"][:k]
    spec = {
        "parameters": {name: {"dist": "normal", "loc": 0, "scale": 1} for name in names},
        "designs": space,
        "outcome": {"y": {"family": "normal", "mean": text, "sd": noise}},
        "targets": ["b"] if has_target else names,
    }
    return Case(
        name=f"{name}, sd {noise:.2g}, {n_observed} before, targets {spec['targets']}, count {count}",
        kind="hostile" if hostile else "curve",
        spec=spec,
        observed=observed,
        gain=lambda chosen: truth.gain(chosen, points, target=1 if has_target else None),
        designs=designs[:: max(1, len(designs) // 40)],
        asked=_asked(rng, designs),
        count=count,
    )


def discrete(rng: np.random.Generator, i: int) -> Case:
    is_logistic = i % 2 == 0
    steep = float(np.exp(rng.uniform(0, 1.5)))
    rate = float(np.exp(rng.uniform(0, 4)))
    most = int(rate * math.exp(0.5 * 9) + 60)
    designs, space = _designs(rng)
    has_target = rng.random() < 0.3
    if is_logistic:
        outcome: dict[str, Any] = {"family": "bernoulli", "logit": f"{steep} * (x - a) * exp(0.4 * b)"}
        truth = Counted(
            n_parameters=2, log_p=lambda t, x: log_bernoulli(steep * (x - t[..., 0]) * np.exp(0.4 * t[..., 1]))
        )
    else:
        outcome = {"family": "poisson", "log_rate": f"{math.log(rate)} + 0.5 * a * x"}
        truth = Counted(n_parameters=1, log_p=lambda t, x: log_poisson(math.log(rate) + 0.5 * t[..., 0] * x, most))
    k = truth.n_parameters
    theta = rng.standard_normal(k)
    n_observed = int(rng.integers(0, 4))
    before = [float(x) for x in rng.choice(designs, n_observed)] if n_observed else []
    observed = []
    for x in before:
        p = np.exp(truth.log_p(theta, x))
        observed.append((x, int(rng.choice(len(p), p=p / p.sum()))))
    points = truth.points(observed)
    names = ["a", "b"][:k]
    count = 1 + int(rng.random() < 0.3) if is_logistic else 1
    target = 0 if has_target and k == 2 else None
    spec = {
        "parameters": {name: {"dist": "normal", "loc": 0, "scale": 1} for name in names},
        "designs": space,
        "outcome": {"y": outcome},
        "targets": ["a"] if target == 0 else names,
    }
    return Case(
        name=f"{outcome}, {n_observed} before, targets {spec['targets']}, count {count}",
        kind="discrete",
        spec=spec,
        observed=[(x, float(y)) for x, y in observed],
        gain=lambda chosen: truth.gain(chosen, points, target=target),
        designs=designs[:: max(1, len(designs) // 40)],
        asked=_asked(rng, designs),
        count=count,
    )


def _designs(rng: np.random.Generator, low: float = LOW) -> tuple[tuple[float, ...], dict[str, Any]]:
    """A list of twenty, or a space, of which a fine grid stands for all."""
    if rng.random() < 0.5:
        values = tuple(round(float(v), 4) for v in np.linspace(low, HIGH, 20))
        return values, {"x": {"type": "list", "values": list(values)}}
    return tuple(float(v) for v in np.linspace(low, HIGH, 161)), {"x": {"type": "float", "low": low, "high": HIGH}}


def _asked(rng: np.random.Generator, designs: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(x) for x in rng.choice(designs, 5, replace=False))


def cases(n: int, kinds: Sequence[str]) -> Iterator[Case]:
    makers: dict[str, Callable[[np.random.Generator, int], Case]] = {
        "linear": linear,
        "curve": curve,
        "discrete": discrete,
        "hostile": lambda rng, i: curve(rng, i, hostile=True),
    }
    for kind in kinds:
        for i in range(round(n * SHARES[kind])):
            yield makers[kind](np.random.default_rng([KINDS.index(kind), i]), i)


def judge(case: Case) -> Found:
    found = Found(kind=case.kind, name=case.name)
    start = time.process_time()
    observations = [({"x": x}, {"y": int(y) if case.kind == "discrete" else y}) for x, y in case.observed]
    try:
        experiment = Experiment.from_spec(case.spec)
        for x in case.asked:
            told = experiment.eig([{"x": x}], observations)[0]
            found.errors.append((float(told.eig) - case.gain([x]), told.se))
        proposals = experiment.propose(observations, count=case.count)
    except (BensembleError, TooMuchWork) as error:
        found.refusal = str(error)
        found.seconds = time.process_time() - start
        return found
    found.seconds = time.process_time() - start
    chosen: list[float] = []
    for proposal in proposals:
        before = case.gain(chosen) if chosen else 0.0
        x = float(proposal.design["x"])
        true = case.gain([*chosen, x]) - before
        found.errors.append((float(proposal.eig) - true, proposal.se))
        best = max(case.gain([*chosen, other]) - before for other in case.designs)
        lost = best - true
        if found.regret is None or lost > found.regret:
            found.regret, found.regret_se = lost, proposal.se or 0.0
        chosen.append(x)
    return found


def table(found: Sequence[Found]) -> str:
    lines = [
        "| models | of which refused | values | beyond 4 se | sure and wrong | no error stated | worst | median | "
        "regret too large | worst regret | s a model |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        of_kind = [each for each in found if each.kind == kind]
        if not of_kind:
            continue
        pairs = [pair for each in of_kind for pair in each.errors]
        off = np.array([abs(error) for error, _ in pairs])
        se = np.array([math.nan if error is None else error for _, error in pairs], dtype=float)
        beyond = np.sum(off > 4 * np.nan_to_num(se, nan=math.inf) + FLOOR)
        sure = np.sum((off > 0.01) & (se < 0.001))
        regrets = [(each.regret, each.regret_se) for each in of_kind if each.regret is not None]
        large = sum(lost > max(0.02, 2 * error) for lost, error in regrets)
        lines.append(
            f"| {len(of_kind)} {kind} | {sum(each.refusal is not None for each in of_kind)} | {len(pairs)} | "
            f"{beyond} ({100 * beyond / max(len(pairs), 1):.1f} %) | {sure} | {int(np.isnan(se).sum())} | "
            f"{off.max():.3g} | {np.median(off):.2g} | {large} of {len(regrets)} | "
            f"{max((lost for lost, _ in regrets), default=math.nan):.3g} | "
            f"{np.mean([each.seconds for each in of_kind]):.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=300)
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--worst", type=int, default=10, help="name so many of the values that are furthest off")
    parser.add_argument("--output", type=Path, help="all that was found, as JSON lines")
    options = parser.parse_args()
    found = []
    for case in cases(options.models, options.kinds):
        found.append(judge(case))
        if options.output is not None:
            with options.output.open("a") as file:
                file.write(json.dumps(vars(found[-1])) + "\n")
        print(f"\r{len(found)} models, {sum(each.seconds for each in found):.0f} s", end="", flush=True)
    print("\n\n" + table(found) + "\n")
    named = sorted(
        ((abs(error), error, se, each.name) for each in found for error, se in each.errors),
        key=lambda row: -row[0] / (4 * row[2] + FLOOR if row[2] is not None else math.inf),
    )
    for _, error, se, name in named[: options.worst]:
        print(f"off by {error:+.4f} at a stated error of {se}: {name}")
    for each in sorted(found, key=lambda each: -(each.regret or 0.0))[: options.worst]:
        print(f"regret {each.regret} at {each.regret_se}: {each.name}")
    for each in found:
        if each.refusal is not None:
            print(f"refused: {each.name}: {each.refusal}")


if __name__ == "__main__":
    main()

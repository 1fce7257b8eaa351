"""When to stop, and why."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from bensemble_core.design.spec.spec import Rule


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where an experiment stands."""

    sd: Mapping[str, float]
    n_trials: int
    spent: float
    max_eig: float | None  # None if it was not asked for, or no design is left
    is_exhausted: bool = False  # no design is affordable or allowed any more


@dataclass(frozen=True, kw_only=True)
class Stop:
    """`reasons` are those rules that hold, also where they do not suffice to stop."""

    stop: bool
    reasons: tuple[str, ...] = ()


def needs_eig(rule: Rule | None) -> bool:
    """Whether any rule looks at the best EIG, which costs an estimate of every design."""
    return rule is not None and (rule.kind == "max_eig_below" or any(needs_eig(inner) for inner in rule.rules))


def judge(rule: Rule | None, standing: Standing) -> Stop:
    """Apply the rules; an experiment without a design left stops whatever they say."""
    reasons: list[str] = []
    stops = rule is not None and _holds(rule, standing, reasons)
    if standing.is_exhausted:
        reasons.append("no design is left that is allowed and affordable")
    return Stop(stop=stops or standing.is_exhausted, reasons=tuple(reasons))


def _holds(rule: Rule, standing: Standing, reasons: list[str]) -> bool:
    if rule.kind in ("any", "all"):
        held = [_holds(inner, standing, reasons) for inner in rule.rules]  # all of them, for their reasons
        return any(held) if rule.kind == "any" else all(held)
    if rule.kind == "sd":
        sd = standing.sd[rule.parameter]
        met, reason = sd <= rule.limit, f"sd of {rule.parameter} is {sd:.4g}, at most {rule.limit:g}"
    elif rule.kind == "max_eig_below":
        eig = math.inf if standing.max_eig is None else standing.max_eig
        met, reason = eig < rule.limit, f"the best design promises {eig:.4g} nats, below {rule.limit:g}"
    elif rule.kind == "max_trials":
        met, reason = standing.n_trials >= rule.limit, f"{standing.n_trials} trials of at most {rule.limit:g}"
    else:
        met, reason = standing.spent >= rule.limit, f"{standing.spent:g} spent of a budget of {rule.limit:g}"
    if met:
        reasons.append(reason)
    return met

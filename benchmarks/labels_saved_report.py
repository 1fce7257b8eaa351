"""Tables and verdicts of `benchmarks/labels_saved.py`, from what was measured.

The area is the mean accuracy (of numbers: minus the RMSE in sds of the target) over all rounds. Labels saved are those
to 95 % of the way from no label to the whole pool, beside those of random rows, on curves that are means over seeds:
a single seed's curve is noisy, and its first touch of the goal early.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from few_labels import insert
from labels_saved_picture import draw
from scipy.stats import rankdata

SHARE = 0.95
BOOTSTRAPS = 400
ENOUGH = 3  # seeds, to say who is ahead on a set or that a goal is reached
AT = (20, 60, 100, 200, 300)
BELOW, AIM = 0.01, 0.25  # by how much no set may lie below random rows, and the median of labels saved
Curve = list[dict[str, Any]]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """What was measured on one set."""

    name: str
    kind: str  # classes or numbers
    half: str  # choosing or reported
    curves: dict[str, dict[int, Curve]]  # by strategy and seed
    picks: dict[str, dict[int, list[float]]]  # accuracies of one common model on the strategies' rows
    limits: list[dict[str, float]]  # of the whole pool and of no label, a seed each

    @property
    def goal(self) -> float:
        none, whole = (float(np.mean([limit[name] for limit in self.limits])) for name in ("none", "whole"))
        return none + SHARE * (whole - none)

    def n(self) -> list[int]:
        return [point["n"] for point in next(iter(self.curves["random"].values()))]

    def seeds(self, *names: str) -> list[int]:
        """Those that all of these strategies have."""
        return sorted(set.intersection(*(set(self.curves.get(name, {})) for name in names)))

    def values(self, name: str, seeds: Iterable[int], what: str = "value") -> Floats:
        """[seeds, rounds]"""
        rows = [[point[what] for point in self.curves[name][seed]] for seed in seeds]
        return np.array(rows).reshape(-1, len(self.n()))

    def gains(self, name: str) -> Floats:
        """[seeds], the area beyond random rows of the same seed."""
        seeds = self.seeds(name, "random")
        areas: Floats = (self.values(name, seeds) - self.values("random", seeds)).mean(1)
        return areas

    def gains_of_picks(self, name: str) -> Floats:
        """[seeds], the same of the common model on the rows that were chosen."""
        seeds = [seed for seed in self.seeds(name, "random") if seed in self.picks.get(name, {})]
        return np.array([np.mean(self.picks[name][s]) - np.mean(self.picks["random"][s]) for s in seeds])

    def reached(self, values: Floats) -> float:
        """Labels at the goal, between rounds by a straight line; inf where the last round is below it."""
        mean, n = values.mean(0), self.n()
        if mean[0] >= self.goal:
            return float(n[0])
        for k in range(1, len(n)):
            if mean[k] >= self.goal:
                return float(n[k - 1] + (n[k] - n[k - 1]) * (self.goal - mean[k - 1]) / (mean[k] - mean[k - 1]))
        return math.inf

    def saved(self, name: str) -> "Saved":
        seeds = self.seeds(name, "random")
        own, random = self.values(name, seeds), self.values("random", seeds)
        rng = np.random.default_rng(0)
        draws = [rng.integers(len(seeds), size=len(seeds)) for _ in range(BOOTSTRAPS)]
        again = [self.share(self.reached(own[d]), self.reached(random[d])) for d in draws]
        known = [share for share in again if not math.isnan(share)]
        return Saved(
            own=self.reached(own),
            random=self.reached(random),
            share=self.share(self.reached(own), self.reached(random)),
            se=float(np.std(known)) if len(known) > BOOTSTRAPS // 2 and len(seeds) > 2 else math.nan,
        )

    @cached_property
    def is_reached(self) -> bool:
        """Whether any strategy arrives at the goal, on three seeds or more where there are as many."""
        enough = min(ENOUGH, len(self.curves["random"]))
        known = [self.values(name, self.seeds(name)) for name in self.curves if len(self.seeds(name)) >= enough]
        return any(self.reached(values) < math.inf for values in known)

    def share(self, own: float, random: float) -> float:
        """Where one does not arrive it counts as arriving at the end: no more is known to be saved, or lost."""
        if not self.is_reached:
            return math.nan
        last = float(self.n()[-1])
        return 1 - min(own, last) / min(random, last)


@dataclass(frozen=True, kw_only=True)
class Saved:
    own: float
    random: float
    share: float  # nan where no strategy arrives
    se: float


def write_report(found: Sequence[Found], order: Sequence[str], peers: Sequence[str], page: Path, plot: Path) -> str:
    parts = []
    for kind in ("classes", "numbers"):
        own = [f for f in found if f.kind == kind and f.seeds("default", "random")]
        names = [name for name in order if any(name in f.curves for f in own)]
        if own:
            parts += [f"### {kind.capitalize()}", verdicts(own, names, peers), by_set(own, peers)]
            parts += [by_strategy(own, names), by_round(own, names)]
    text = "\n\n".join(parts)
    insert(page, "labels_saved", text)
    classes = [f for f in found if f.kind == "classes" and "default" in f.curves]
    draw(classes or list(found), best_peer(classes, peers), title(classes or found, peers), plot)
    return text


def ranks(found: Sequence[Found], names: Sequence[str]) -> tuple[dict[str, float], int]:
    """Mean rank of the area, 1 the best, over sets and seeds that have all of these; and how many those are."""
    rows = []
    for f in found:
        for seed in f.seeds(*names):
            rows.append(rankdata([-f.values(name, [seed]).mean() for name in names]))
    means = np.mean(rows, axis=0) if rows else np.full(len(names), math.nan)
    return dict(zip(names, means.tolist(), strict=True)), len(rows)


def everywhere(found: Sequence[Found], names: Iterable[str]) -> list[str]:
    """The strategies that were measured on all sets and on as many seeds as the default."""
    return [name for name in names if all(f.seeds(name, "default") == f.seeds("default") for f in found)]


def often(found: Sequence[Found], names: Iterable[str]) -> list[str]:
    """The strategies that were measured on six sets at least: ranks need cells that have all of them."""
    return [name for name in names if sum(name in f.curves for f in found) >= min(6, len(found))]


def best_peer(found: Sequence[Found], peers: Sequence[str]) -> str | None:
    """Of those that were measured on all sets, by mean area."""
    own = everywhere(found, [name for name in peers if not name.endswith("random")])
    return max(own, key=lambda name: np.mean([f.gains(name).mean() for f in found]), default=None)


def title(found: Sequence[Found], peers: Sequence[str]) -> str:
    """The picture's takeaway, from the figures."""
    saved = [share for f in found if not math.isnan(share := f.saved("default").share)]
    median = float(np.median(saved)) if saved else 0.0
    text = (
        f"{abs(median):.0%} {'fewer' if median >= 0 else 'more'} labels than random rows (median of {len(saved)} sets)"
    )
    ahead = [nearest[1].mean() > 0 for f in found if (nearest := nearest_peer(f, peers)) is not None]
    return f"{text}; ahead of every peer on {sum(ahead)} of {len(ahead)}" if ahead else text


def nearest_peer(found: Found, peers: Sequence[str]) -> tuple[str, Floats] | None:
    """The peer that comes nearest to the default on this set, or is farthest ahead; areas beyond its, [seeds].

    Of those with three seeds or more, where the default has as many: one seed says nothing of an order.
    """
    beyond, enough = {}, min(ENOUGH, len(found.seeds("default")))
    for name in peers:
        seeds = found.seeds("default", name)
        if len(seeds) >= enough and not name.endswith("random"):
            beyond[name] = (found.values("default", seeds) - found.values(name, seeds)).mean(1)
    return min(beyond.items(), key=lambda item: item[1].mean(), default=None)


def verdicts(found: Sequence[Found], names: Sequence[str], peers: Sequence[str]) -> str:
    """What must hold, and whether it does."""
    gains = {f.name: f.gains("default") for f in found}
    unit = "accuracy" if found[0].kind == "classes" else "sd of the target"
    low = {name: g.mean() for name, g in gains.items() if g.mean() < -BELOW}
    sure = [name for name in low if gains[name].mean() + 2 * _se(gains[name]) < 0]
    said = ", ".join(f"{name} {value:+.4f} ± {_se(gains[name]):.4f}" for name, value in low.items())
    lines = [
        f"- No set below random rows by more than {BELOW} ({unit}): {_holds(not low)}"
        + (f" ({said}; by more than two standard errors: {', '.join(sure) or 'none'})" if low else "")
        + f". Worst: {min(gains, key=lambda name: gains[name].mean())} {min(g.mean() for g in gains.values()):+.4f}."
    ]
    above = sum(g.mean() > 0 for g in gains.values())
    if found[0].kind == "numbers":
        lines.append(
            f"- Above random rows on two thirds of the sets: {_holds(3 * above >= 2 * len(found))}, "
            f"{above} of {len(found)}."
        )
        return "\n".join(lines)
    for half, own in (("both halves", found), *((f"{half} half", part) for half, part in _halves(found))):
        saved = {f.name: f.saved("default").share for f in own}
        known = [share for share in saved.values() if not math.isnan(share)]
        apart = [name for name, share in saved.items() if math.isnan(share)]
        median = float(np.median(known)) if known else math.nan
        lines.append(
            f"- Median of labels saved, {half}: {median:.0%} of {len(known)} sets, at least {AIM:.0%}: "
            + _holds(median >= AIM)
            + (f" ({', '.join(apart)} apart: no strategy arrives by {own[0].n()[-1]})." if apart else ".")
        )
    for which, rivalry in (
        ("all sets", everywhere(found, names)),
        ("cells that have every strategy", often(found, names)),
    ):
        by_name, n = ranks(found, rivalry)
        rivals = {name: rank for name, rank in by_name.items() if name in peers}
        if n and rivals:
            first = min(rivals, key=lambda name: rivals[name])
            better = by_name["default"] < rivals[first]
            lines.append(
                f"- Mean rank better than every peer's, {which} ({n} cells, {len(rivalry)} strategies): "
                f"{_holds(better)}, {by_name['default']:.2f} beside {rivals[first]:.2f} of `{first}`."
            )
    return "\n".join(lines)


def by_set(found: Sequence[Found], peers: Sequence[str]) -> str:
    lines = [
        "| set | half | seeds | goal | labels: random | default | saved | gain in area: default | margin | "
        "default beyond the best peer |",
        "|---" * 10 + "|",
    ]
    for f in found:
        s = f.saved("default")
        nearest = nearest_peer(f, peers)
        margin = f.gains("margin") if "margin" in f.curves else np.array([])
        cells = [
            *(f.name, f.half, str(len(f.gains("default"))), f"{abs(f.goal):.3f}"),
            *(_labels(s.random), _labels(s.own), _percent(s)),
            *(_gain(f.gains("default")), _gain(margin)),
            f"{_gain(nearest[1])} `{nearest[0]}`" if nearest is not None else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def by_strategy(found: Sequence[Found], names: Sequence[str]) -> str:
    common = everywhere(found, names)
    rank_all, n_all = ranks(found, common)
    rank_some, n_some = ranks(found, often(found, names))
    lines = [
        "| strategy | sets × seeds | gain in area | worst set | choosing half | reported half | median saved | "
        f"rank, all sets ({n_all}) | rank, every strategy ({n_some}) | NLL | ECE | gain of its picks |",
        "|---" * 12 + "|",
    ]
    for name in sorted(names, key=lambda name: (rank_all.get(name, 99), rank_some.get(name, 99))):
        own = [f for f in found if len(f.gains(name))]
        gains = np.array([f.gains(name).mean() for f in own])
        n_seeds = sorted({len(f.gains(name)) for f in own})
        saved = [share for f in own if not math.isnan(share := f.saved(name).share)]
        worst = min(own, key=lambda f: f.gains(name).mean())
        half = {h: np.array([f.gains(name).mean() for f in part]) for h, part in _halves(own)}
        picked = [f.gains_of_picks(name).mean() for f in own if len(f.gains_of_picks(name))]
        cells = [
            f"**{name}**" if name == "default" else name,
            f"{len(own)} × {'–'.join(map(str, dict.fromkeys([n_seeds[0], n_seeds[-1]])))}",
            _gain(gains),
            "" if name == "random" else f"{worst.name} {_number(gains.min())}",
            *(_number(half[h].mean()) if h in half else "" for h in ("choosing", "reported")),
            f"{np.median(saved):.0%} of {len(saved)}" if saved and name != "random" else "",
            *(f"{r[name]:.2f}" if name in r and not math.isnan(r[name]) else "" for r in (rank_all, rank_some)),
            _mean_of(own, name, "nll"),
            _mean_of(own, name, "ece"),
            _number(float(np.mean(picked))) if picked else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def by_round(found: Sequence[Found], names: Sequence[str]) -> str:
    """Means over the sets and seeds that every strategy of the table has."""
    kept = everywhere(found, names)
    at = [n for n in AT if n in found[0].n()]
    first = "accuracy" if found[0].kind == "classes" else "RMSE"
    whats = [(first, "value"), ("NLL", "nll"), *([("ECE", "ece")] if found[0].kind == "classes" else [])]
    heads = [f"{title} at {', '.join(map(str, at))}" for title, _ in whats]
    lines = ["| strategy | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for name in kept:
        cells = []
        for _, what in whats:
            means = np.mean([f.values(name, f.seeds(name), what).mean(0) for f in found], axis=0)
            cells.append(
                " ".join(_short(abs(m) if what == "value" else m) for m in means[[found[0].n().index(n) for n in at]])
            )
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _halves(found: Sequence[Found]) -> list[tuple[str, list[Found]]]:
    parts = [(half, [f for f in found if f.half == half]) for half in ("choosing", "reported")]
    return [(half, part) for half, part in parts if part]


def _mean_of(found: Sequence[Found], name: str, what: str) -> str:
    if any(what not in point for f in found for curve in f.curves[name].values() for point in curve):
        return ""
    return _short(float(np.mean([f.values(name, f.seeds(name), what).mean() for f in found])))


def _se(values: Floats) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def _number(value: float) -> str:
    return f"{value:+.4f}".replace("-", "−").replace("0.", ".", 1)


def _gain(values: Floats) -> str:
    if not len(values):
        return ""
    if not values.any():
        return "0"
    return _number(float(values.mean())) + (f" ± {_se(values):.4f}".replace("0.", ".", 1) if len(values) > 1 else "")


def _short(value: float) -> str:
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.2f}"


def _labels(n: float) -> str:
    return "> 300" if math.isinf(n) else f"{n:.0f}"


def _percent(saved: Saved) -> str:
    if math.isnan(saved.share):
        return "–"
    if math.isinf(saved.random) and math.isinf(saved.own):
        return "0%"
    bound = "≥ " if math.isinf(saved.random) else "≤ " if math.isinf(saved.own) else ""
    return f"{bound}{saved.share:.0%}".replace("-", "−") + ("" if math.isnan(saved.se) else f" ± {saved.se:.0%}")


def _holds(yes: bool) -> str:
    return "holds" if yes else "**fails**"

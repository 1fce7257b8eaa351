"""Time per (update + next design) and error of EIG beside adopy and Pyro: `python benchmarks/design.py [--quick]`.

Each peer is installed into an environment of its own under build/bench and runs as a process of its own; one that
cannot be installed is named and left out. Ours answers from the whole list of observations each time.
"""

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from design_tasks import (
    GUESS,
    LAPSE,
    N_ROUNDS,
    SLOPES,
    SPAN_DESIGNS,
    SPAN_LOC,
    SPAN_SCALE,
    STIMULI,
    THRESHOLDS,
    answer,
    psychometric_p,
    span_p,
)

from bensemble_core.design import Experiment

ROOT = Path(__file__).resolve().parents[1]
PEERS = {"adopy": "design_adopy", "Pyro nmc_eig": "design_pyro"}

SPAN: dict[str, Any] = {
    "parameters": {"theta": {"dist": "normal", "loc": SPAN_LOC, "scale": SPAN_SCALE}},
    "designs": {"xi": {"type": "integer", "low": SPAN_DESIGNS[0], "high": SPAN_DESIGNS[-1]}},
    "outcome": {"y": {"family": "bernoulli", "logit": "theta - xi"}},
}
PSYCHOMETRIC: dict[str, Any] = {
    "parameters": {
        "threshold": {"dist": "grid", "values": THRESHOLDS},
        "slope": {"dist": "grid", "values": SLOPES},
    },
    "designs": {"x": {"type": "list", "values": STIMULI}},
    "outcome": {
        "y": {"family": "bernoulli", "prob": f"{GUESS} + {1 - GUESS - LAPSE} * sigmoid(slope * (x - threshold))"}
    },
}
TASKS: dict[str, tuple[dict[str, Any], str, Callable[[float], float]]] = {
    "digit span": (SPAN, "xi", span_p),
    "psychometric": (PSYCHOMETRIC, "x", psychometric_p),
}


def exact(task: str) -> Any:
    """EIG of every design by plain sums in numpy, on a grid of its own for the digit span."""
    if task == "digit span":
        z = np.linspace(-9, 9, 4001)
        w = np.exp(-0.5 * z * z)
        p = 1 / (1 + np.exp(-(SPAN_LOC + SPAN_SCALE * z - np.array(SPAN_DESIGNS)[:, None])))
    else:
        t, s = (grid.ravel() for grid in np.meshgrid(THRESHOLDS, SLOPES))
        w = np.ones(len(t))
        p = GUESS + (1 - GUESS - LAPSE) / (1 + np.exp(-s * (np.array(STIMULI)[:, None] - t)))
    w = w / w.sum()
    entropy = -(p * np.log(p) + (1 - p) * np.log1p(-p))
    mean = p @ w
    return -(mean * np.log(mean) + (1 - mean) * np.log1p(-mean)) - entropy @ w


def ours(task: str) -> dict[str, Any]:
    spec, name, p = TASKS[task]
    experiment = Experiment.from_spec(spec)
    eig = [estimate.eig for estimate in experiment.eig()]
    observations: list[Any] = []
    design, times = experiment.propose(observations)[0].design, []
    for turn in range(N_ROUNDS):
        outcome = {"y": answer(p(design[name]), turn)}
        started = time.perf_counter()
        observations.append((design, outcome))
        design = experiment.propose(observations)[0].design
        times.append(time.perf_counter() - started)
    return {"seconds": statistics.median(times[5:]), "eig": eig}


def peer(script: str) -> dict[str, Any] | str:
    """What the peer measured, or why it could not."""
    folder = ROOT / "build" / "bench" / script
    python = folder / "bin" / "python"
    requirements = ROOT / "benchmarks" / f"{script}.requirements.txt"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements]
    installed = subprocess.run(install, capture_output=True, text=True, check=False)
    if installed.returncode:
        return f"could not be installed: {installed.stderr.strip().splitlines()[-1:]}"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [python, ROOT / "benchmarks" / f"{script}.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        return f"failed: {done.stderr.strip().splitlines()[-1:]}"
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def large_step() -> tuple[float, float]:
    """Seconds of the first step, which makes the table, and of the next ones: 1,000 designs × 10⁴ particles."""
    rng = np.random.default_rng(0)
    values = np.stack([rng.normal(0, 1, 10_000), np.exp(rng.normal(0, 0.5, 10_000))], 1)
    experiment = Experiment.from_spec(
        {
            "parameters": {"p": {"dist": "samples", "names": ["t", "s"], "values": values.tolist()}},
            "designs": {"x": {"type": "list", "values": np.linspace(-3, 3, 1000).tolist()}},
            "outcome": {"y": {"family": "bernoulli", "logit": "s * (t - x)"}},
        }
    )
    observations: list[Any] = []
    times = []
    for turn in range(12):
        started = time.perf_counter()
        design = experiment.propose(observations)[0].design
        times.append(time.perf_counter() - started)
        observations.append((design, {"y": turn % 2}))
    return times[0], statistics.median(times[2:])


def greedy_total(n_rounds: int = 10) -> float:
    """Expected total EIG of greedy rounds: over all histories, those with the same trials in any order together."""
    experiment = Experiment.from_spec(SPAN)
    total = 0.0
    frontier: dict[tuple[tuple[int, int], ...], float] = {(): 1.0}
    for _ in range(n_rounds):
        following: dict[tuple[tuple[int, int], ...], float] = {}
        for history, chance in frontier.items():
            observations: list[Any] = [({"xi": xi}, {"y": y}) for xi, y in history]
            pick = experiment.propose(observations)[0]
            total += chance * pick.eig
            before = experiment.posterior(observations).log_evidence
            for y in (0, 1):
                after = experiment.posterior([*observations, (pick.design, {"y": y})]).log_evidence
                key = tuple(sorted([*history, (pick.design["xi"], y)]))
                following[key] = following.get(key, 0.0) + chance * math.exp(after - before)
        frontier = following
    return total


def random_total(n_rounds: int = 10, n: int = 20_000) -> tuple[float, float]:
    """Mean of log p(y | θ) − log p(y) over simulated truths and uniformly random designs, and its standard error."""
    rng = np.random.default_rng(0)
    z = np.linspace(-8, 8, 161)
    log_w = -0.5 * z * z
    log_w -= np.log(np.exp(log_w).sum())
    theta = rng.normal(SPAN_LOC, SPAN_SCALE, n)
    xi = rng.choice(SPAN_DESIGNS, (n_rounds, n))
    y = rng.random((n_rounds, n)) < 1 / (1 + np.exp(-(theta - xi)))
    sign = np.where(y, 1, -1)
    known = -np.logaddexp(0, -sign * (theta - xi)).sum(0)
    marginal = np.broadcast_to(log_w, (n, 161)).copy()
    for row, s in zip(xi, sign, strict=True):
        marginal -= np.logaddexp(0, -s[:, None] * (SPAN_LOC + SPAN_SCALE * z - row[:, None]))
    gained = known - np.log(np.exp(marginal).sum(1))
    return float(gained.mean()), float(gained.std() / math.sqrt(n))


def line(task: str, who: str, found: dict[str, Any], reference: float) -> str:
    error = float(np.abs(np.array(found["eig"]) - exact(task)).max())
    ratio = f"{found['seconds'] / reference:8.1f}×" if who != "ours" else ""
    return f"{task:14} {who:14} {found['seconds'] * 1e3:10.3f} ms {error:12.1e} {ratio}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="leave out the peers and the ten greedy rounds")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'task':14} {'who':14} {'update + next':>13} {'error of EIG':>12} {'beside ours':>12}")
    found = {} if arguments.quick else {who: peer(script) for who, script in PEERS.items()}
    for task in TASKS:
        mine = ours(task)
        print(line(task, "ours", mine, mine["seconds"]))
        for who, measured in found.items():
            if isinstance(measured, str):
                print(f"{task:14} {who:14} {measured}")
            else:
                print(line(task, who, measured[task], mine["seconds"]), flush=True)
    first, step = large_step()
    print(f"\n1,000 designs × 10,000 particles: first step {first * 1e3:.0f} ms, then {step * 1e3:.1f} ms")
    if not arguments.quick:
        mean, se = random_total()
        print(f"ten rounds of digit span: greedy {greedy_total():.10f} nats, random {mean:.3f} ± {se:.3f}")
    print(
        f"{N_ROUNDS} rounds, medians; Pyro: the choice alone, without an update; {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f}; Python {platform.python_version()}, torch {torch.__version__}"
    )


if __name__ == "__main__":
    main()

"""Effective draws a processor second of `hmc`, beside blackjax's HMC and NUTS: `python benchmarks/samplers.py`.

Two posteriors (`samplers_task.py`): a logistic regression with 20 weights, and a network with 50 hidden tanh units, 500
rows each; prior, likelihood, chains, steps of warm-up and draws are the same for all, in float32 and on one thread.
Ours is the method with its default options. blackjax runs in an environment of its own, build/bench/samplers_blackjax,
with window adaptation; its HMC has the number of leapfrog steps that was best for it of 4, 8, 16 (logistic) and 32, 64,
128 (network); compilation is not counted. By turns, each with a seed of its own: a figure is the median of the turns.

Bulk effective sample sizes are by arviz-stats for everybody, of the log joint and of outputs at 32 rows (the least and
the median), computed here from the draws. `draws/s` leaves the warm-up out, `all in` counts it, with the MAP training
that ours starts from.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from arviz_stats.base import array_stats
from beside import ROOT, NoPeer, running_peer
from samplers_task import TASKS, Task
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.posteriors.sampling.hmc import Hamiltonian

REQUIREMENTS = str(ROOT / "benchmarks" / "samplers_blackjax.requirements.txt")
STEPS = {"logistic": (500, 500), "network": (300, 200)}  # warm-up and draws of each chain
PEERS: dict[str, dict[str, dict[str, Any]]] = {
    "logistic": {"blackjax hmc": {"method": "hmc", "steps": 4}, "blackjax nuts": {"method": "nuts"}},
    "network": {"blackjax hmc": {"method": "hmc", "steps": 128}, "blackjax nuts": {"method": "nuts"}},
}
SERIES = ("log joint", "outputs, least", "outputs, median")


class Logit(nn.Module):
    """x·w as the second of two logits, the first 0."""

    def __init__(self, n_inputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(n_inputs, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        logit = self.linear(x)
        return torch.cat([torch.zeros_like(logit), logit], -1)


def ours(task: Task, chains: int, seed: int) -> dict[str, Any]:
    """`bc.fit` as a user calls it; the clock is read where the warm-up ends and where the last step ends."""
    warmup, samples = STEPS[task.name]
    x, y = torch.from_numpy(task.x), torch.from_numpy(task.y)
    posed: dict[str, Any] = {"model": Logit(x.shape[1]), "data": (x, y.long()), "likelihood": "categorical"}
    if task.name == "network":
        model = {"name": "mlp", "hidden": [50], "activation": "tanh"}
        posed = {"model": model, "data": (x, y), "likelihood": bc.Gaussian(noise=task.noise)}
    marks: dict[str, float] = {}
    step = Hamiltonian.step

    def clocked(self: Hamiltonian, target: Any, carry: Any, at: Any) -> Any:
        if at.number == at.warmup:
            marks["between"] = time.process_time()
        after = step(self, target, carry, at)
        marks["ended"] = time.process_time()
        return after

    Hamiltonian.step = clocked  # type: ignore[method-assign]
    try:
        begun = time.process_time()
        fitted = bc.fit("hmc", **posed, standardise=False, chains=chains, warmup=warmup, samples=samples, seed=seed)
    finally:
        Hamiltonian.step = step  # type: ignore[method-assign]
    draws = torch.cat([fitted.state[k].flatten(1) for k in fitted.state if "/" not in k], 1)
    return {
        "draws": draws.reshape(chains, samples, -1).numpy(),
        "warmup": marks["between"] - begun,
        "sampling": marks["ended"] - marks["between"],
        "compiling": 0.0,
        "acceptance": fitted.diagnostics.values["acceptance"],
    }


def effective(task: Task, draws: Any) -> tuple[dict[str, float], float]:
    """Bulk effective sample sizes of draws [C, S, P], and the largest R-hat of the outputs."""
    n_chains, n_samples, size = draws.shape
    flat = draws.reshape(-1, size).astype(np.float64)
    log_joint = np.concatenate([task.log_joint(part) for part in np.array_split(flat, -(-len(flat) // 500))])
    outputs = task.outputs(flat, task.probes()).T.reshape(-1, n_chains, n_samples)

    def bulk(series: Any) -> Any:
        return array_stats.ess(series, chain_axis=-2, draw_axis=-1, method="bulk")

    of_outputs = bulk(outputs)
    found = (float(bulk(log_joint.reshape(n_chains, n_samples))), float(of_outputs.min()), float(np.median(of_outputs)))
    rhat = float(array_stats.rhat(outputs, chain_axis=-2, draw_axis=-1).max())
    return dict(zip(SERIES, found, strict=True)), rhat


def compare(task: Task, chains: int, n_turns: int, ask: Callable[..., dict[str, Any]] | None) -> list[str]:
    """Rows of the table: medians over the turns."""
    contenders: dict[str, Callable[[int], dict[str, Any]]] = {"ours": lambda seed: ours(task, chains, seed)}
    if ask is not None:
        warmup, samples = STEPS[task.name]
        fixed = {"task": task.name, "chains": chains, "warmup": warmup, "samples": samples}
        for name, options in PEERS[task.name].items():
            contenders[name] = lambda seed, options=options: ask(seed=seed, **fixed, **options)  # type: ignore[misc]
    turns: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    for seed in range(1, n_turns + 1):
        for name, run in contenders.items():
            measured = run(seed)
            sizes, rhat = effective(task, measured["draws"])
            both = measured["warmup"] + measured["sampling"]
            rates = {what: ess / measured["sampling"] for what, ess in sizes.items()}
            rates |= {what + ", all in": ess / both for what, ess in sizes.items()}
            seconds = {k: float(measured[k]) for k in ("warmup", "sampling", "compiling", "acceptance")}
            turns[name].append({**rates, **seconds, "rhat": rhat})
    medians = {
        name: {k: statistics.median(turn[k] for turn in found) for k in found[0]} for name, found in turns.items()
    }
    lines = []
    for name, at in medians.items():
        cells = [f"{at[what]:.0f}" for what in SERIES] + [f"{at[what + ', all in']:.0f}" for what in SERIES]
        more = f"{at['warmup']:.2f} | {at['sampling']:.2f} | {at['compiling']:.1f} | {at['acceptance']:.2f}"
        lines.append(f"| {task.name}, {chains} | {name} | {' | '.join(cells)} | {more} | {at['rhat']:.2f} |")
    peers = [at for name, at in medians.items() if name != "ours"]
    if peers:
        whats = [*SERIES, *(what + ", all in" for what in SERIES)]
        ratios = [medians["ours"][what] / max(at[what] for at in peers) for what in whats]
        cells = [f"{ratio:.2f}" for ratio in ratios]
        lines.append(f"| {task.name}, {chains} | **ours / the better one** | {' | '.join(cells)} | | | | | |")
    return lines


HEAD = [
    "| task, chains | | log joint /s | outputs, least /s | median /s | log joint, all in | least, all in | "
    "median, all in | warm-up s | sampling s | compiling s | acceptance | R-hat |",
    "|" + "---|" * 13,
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one turn, 4 chains")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--chains", nargs="*", type=int, default=[4, 32])
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--no-nuts", action="store_true", help="a turn of it takes ten minutes with 32 networks")
    parser.add_argument("--steps", nargs=2, type=int, help="of the warm-up, and draws of each chain")
    options = parser.parse_args()
    if options.quick:
        options.turns, options.chains = 1, [4]
    if options.steps:
        STEPS.update(dict.fromkeys(TASKS, tuple(options.steps)))
    if options.no_nuts:
        for peers in PEERS.values():
            del peers["blackjax nuts"]
    torch.set_num_threads(1)
    ours(TASKS["logistic"](), 4, 0)  # what torch loads on first use
    print("\n".join(HEAD), flush=True)
    settings = [(TASKS[name](), chains) for name in options.tasks for chains in options.chains]
    if options.no_peers:
        for task, chains in settings:
            print("\n".join(compare(task, chains, options.turns, None)), flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "draws.npz")
        try:
            with running_peer("samplers_blackjax.py", "samplers_blackjax", "-r", REQUIREMENTS) as peer:

                def ask(**question: Any) -> dict[str, Any]:
                    peer.ask(out=out, **question)
                    with np.load(out) as file:
                        return dict(file)

                for task, chains in settings:
                    print("\n".join(compare(task, chains, options.turns, ask)), flush=True)
        except NoPeer as reason:
            print(f"blackjax: {reason}")


if __name__ == "__main__":
    main()

"""Posterior methods beside their peers, as ratios: `python benchmarks/posteriors.py [--part a,b,c] [--quick]`.

(a) Kronecker-factored Laplace of a trained 784-256-256-10 network from 10,000 rows: ours, and laplace-torch with each
    of its back-ends. (b) The covariance of its linearised outputs over all layers for 200 rows: ours needs no Jacobian,
    laplace-torch forms them. (c) Ten networks on digits: see `benchmarks/training.py --peers`, which this calls.

(a) and (b) run in this process on one thread, same network, same rows, by turns, so that a busy machine slows all of
them; a time is the median of the turns, a ratio the median of the turns' ratios, both of processor seconds.
"""

import argparse
import copy
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bensemble_core as bc

WIDTHS, N_ROWS, N_POOL = (784, 256, 256, 10), 10_000, 200
OURS = "bensemble"
Contenders = dict[str, Callable[[], object]]
Times = dict[str, list[tuple[float, float]]]  # processor and wall seconds of each turn


@dataclass(frozen=True, kw_only=True)
class Plan:
    n_turns: int  # of (a) and (b)
    epochs: int  # of (c)
    n_trainings: int


FULL = Plan(n_turns=3, epochs=100, n_trainings=1)
QUICK = Plan(n_turns=1, epochs=10, n_trainings=1)


def network() -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    """A network fitted for an epoch to rows of a random teacher, its rows and labels, and a pool."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(N_ROWS, WIDTHS[0], generator=g)
    y = (x @ torch.randn(WIDTHS[0], WIDTHS[-1], generator=g)).argmax(1)
    spec = {"name": "mlp", "hidden": list(WIDTHS[1:-1])}
    fitted = bc.fit("map", spec, (x, y), likelihood="categorical", epochs=1, lr=1e-3, batch_size=256, standardise=False)
    net = fitted.problem.model.skeleton()
    net.load_state_dict({k: v[0] for k, v in fitted.state.items()})
    return net.eval(), x, y, torch.randn(N_POOL, WIDTHS[0], generator=g)


def back_ends() -> dict[str, type]:
    """Of laplace-torch, its default first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it imports what torch has deprecated
        from laplace.curvature import AsdlGGN, BackPackGGN, CurvlinopsGGN
    return {"curvlinops": CurvlinopsGGN, "asdl": AsdlGGN, "backpack": BackPackGGN}


def peer_fit(net: nn.Module, x: Tensor, y: Tensor, backend: type, batch_size: int = 1000) -> Any:
    """laplace-torch's own posterior over all weights (its default is the last layer).

    Of batches of 250, 1,000 and 10,000 rows, 1,000 is its fastest or within 1 % of it (curvlinops, asdl).
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from laplace import Laplace

        own = copy.deepcopy(net)  # back-ends leave hooks behind that others trip over
        peer = Laplace(own, "classification", subset_of_weights="all", hessian_structure="kron", backend=backend)
        peer.fit(DataLoader(TensorDataset(x, y), batch_size=batch_size))
    return peer


def measured(contenders: Contenders, n_turns: int) -> Times:
    """Each once to load what it needs, then by turns."""
    for run in contenders.values():
        run()
    times: Times = {name: [] for name in contenders}
    for _ in range(n_turns):
        for name, run in contenders.items():
            start = time.process_time(), time.perf_counter()
            run()
            times[name].append((time.process_time() - start[0], time.perf_counter() - start[1]))
    return times


def show(part: str, times: Times) -> None:
    print(f"{part:<34}{'CPU s':>9}{'wall s':>9}{'times ours':>12}")
    for name, turns in times.items():
        ratio = statistics.median(a[0] / b[0] for a, b in zip(turns, times[OURS], strict=True))
        cpu, wall = (statistics.median(t[i] for t in turns) for i in (0, 1))
        print(f"    {name:<30}{cpu:>9.3f}{wall:>9.3f}{ratio:>12.1f}", flush=True)


def part_a(plan: Plan) -> None:
    """Kronecker factors of 10,000 rows, eigendecomposed."""
    net, x, y, _ = network()
    contenders: Contenders = {OURS: lambda: bc.fit("laplace", net, (x, y), likelihood="categorical", epochs=0)}
    for name, backend in back_ends().items():
        contenders[f"laplace-torch, {name}"] = lambda b=backend: peer_fit(net, x, y, b)
    show(f"(a) fit of {N_ROWS:,} rows", measured(contenders, plan.n_turns))


def part_b(plan: Plan) -> None:
    """Covariance of the linearised outputs, [200, 10, 10]."""
    net, x, y, pool = network()
    fitted = bc.fit("laplace", net, (x, y), likelihood="categorical", epochs=0)
    peer = peer_fit(net, x, y, back_ends()["asdl"])

    def theirs() -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parts = [peer._glm_predictive_distribution(rows)[1].detach() for rows in pool.split(20)]
        return torch.cat(parts)

    start = time.process_time(), time.perf_counter()
    exact = theirs()  # once: it takes half a minute
    slow = time.process_time() - start[0], time.perf_counter() - start[1]
    quick = measured({OURS: lambda: fitted.function_variance(pool, joint=True)}, 5 * plan.n_turns)[OURS]
    show(f"(b) linearised, {N_POOL} rows", {OURS: quick, "laplace-torch, asdl": [slow] * len(quick)})
    ours = fitted.function_variance(pool, joint=True)
    apart = ((ours - exact).abs().amax((1, 2)) / exact.abs().amax((1, 2))).max()
    print(f"    largest difference of a row's covariance, relative to its largest entry: {float(apart):.1e}")


def part_c(plan: Plan) -> None:
    """Training, each contender in a process of its own."""
    script = Path(__file__).resolve().with_name("training.py")
    print("(c) training", flush=True)
    sizes = ["--epochs", str(plan.epochs), "--turns", str(plan.n_trainings)]
    subprocess.run([sys.executable, str(script), "--peers", *sizes], check=True)


PARTS: dict[str, Callable[[Plan], None]] = {"a": part_a, "b": part_b, "c": part_c}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default=",".join(PARTS), help=f"which of {', '.join(PARTS)}; default all")
    parser.add_argument("--quick", action="store_true", help="one turn, and 10 epochs in (c): a look, not a figure")
    given = parser.parse_args()
    unknown = set(given.part.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"there are parts {', '.join(PARTS)}, not {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    for part in given.part.split(","):
        PARTS[part](QUICK if given.quick else FULL)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10:.0f} MB", flush=True)


if __name__ == "__main__":
    main()

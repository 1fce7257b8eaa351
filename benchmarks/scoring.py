"""How fast members run beside the bare products and a peer: `python benchmarks/scoring.py [--quick] [--compile]`.

A perceptron 784-512-512-10 and a small convolutional network on 32×32 images, ten members each, by turns; a ratio is
the median of the turns' ratios. The perceptron's members are ten networks, or one network under ten dropout masks,
which is what baal predicts with. `--compile` adds torch.compile to the second, which takes a minute to get ready.
"""

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from beside import Line, NoPeer, as_table, by_turns, running_peer
from torch import Tensor
from torch.func import functional_call

import bensemble_core as bc

N_MEMBERS = 10
BLOCK = 64  # images
# baal's batch size and loader processes: as they are by default; without processes, and larger, for rows in memory
BAAL = ((32, 4, 3.5), (32, 0, None), (512, 0, None))


def clock(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def ensemble(model: dict[str, object], x: Tensor, method: str = "deep_ensemble", **options: Any) -> bc.Ensemble:
    few = (x[:20], torch.arange(20) % 10)
    options = options or {"members": N_MEMBERS}
    return bc.fit(method, model, few, likelihood="categorical", epochs=1, **options).sample(N_MEMBERS)


def line(what: str, mine: list[float], other: list[float], aim: float | None, *, faster: bool = False) -> Line:
    """Times faster than the other, or times as long."""
    ratios = [b / a if faster else a / b for a, b in zip(mine, other, strict=True)]
    ours, theirs = (f"{statistics.median(values):.2f} s" for values in (mine, other))
    return Line(what=what, ours=ours, reference=theirs, ratios=ratios, aim=aim, less_is_better=not faster)


def measure_perceptron(n_rows: int, n_turns: int) -> list[Line]:
    x = torch.randn(n_rows, 784, generator=torch.Generator().manual_seed(0))
    model: dict[str, object] = {"name": "mlp", "hidden": [512, 512]}
    members = ensemble(model, x)
    masks = ensemble(model, x, "mc_dropout", rate=0.5)
    weights = [(members.stacked[f"{n}.weight"], members.stacked[f"{n}.bias"]) for n in _linear(members)]

    def bare() -> None:
        for m in range(N_MEMBERS):
            h = x
            for i, (weight, bias) in enumerate(weights):
                h = torch.addmm(bias[m], h, weight[m].T)
                if i < len(weights) - 1:
                    h.relu_()

    ours, dropped = (partial(clock, partial(bc.score, some, x, "bald")) for some in (members, masks))
    with torch.no_grad():
        mine, products = by_turns(n_turns, ours, partial(clock, bare))
    what = f"784-512-512-10, {n_rows:,} rows"
    lines = [line(f"{what}: ten networks, and the bare products", mine, products, 1.2)]
    try:
        with running_peer("peers.py", "baal", "baal==2.1.0") as peer:
            for batch, workers, aim in BAAL:
                ask = partial(peer.ask, what="predict", shape=(N_MEMBERS, n_rows, batch), workers=workers)
                networks, mine, theirs = by_turns(n_turns, ours, dropped, ask)
                name = f"baal, batches of {batch}, {workers or 'no'} loaders"
                lines.append(line(f"{what}: ten networks, and {name}", networks, theirs, aim, faster=True))
                lines.append(line(f"{what}: ten masks, and {name}", mine, theirs, aim, faster=True))
    except NoPeer as problem:
        print(f"baal was not measured: {problem}")
    return lines


def _linear(members: bc.Ensemble) -> list[str]:
    return [name.removesuffix(".weight") for name in members.stacked if name.endswith(".weight")]


def measure_images(n_rows: int, n_turns: int, *, compile_it: bool) -> list[Line]:
    x = torch.randn(n_rows, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    members = ensemble({"name": "conv", "channels": [32, 64], "hidden": 128}, x)
    net = members.problem.model.skeleton()
    each = [{name: tensor[m].contiguous() for name, tensor in members.stacked.items()} for m in range(N_MEMBERS)]

    def forward(tensors: dict[str, Tensor], rows: Tensor) -> Tensor:
        outputs: Tensor = functional_call(net, tensors, (rows,))
        return outputs

    def by_hand(run: Callable[[dict[str, Tensor], Tensor], Tensor]) -> None:
        for block in x.split(BLOCK):
            rows = block.contiguous(memory_format=torch.channels_last)
            for tensors in each:
                run(tensors, rows)

    ways = {"channels last by hand": (members, forward)}
    if compile_it:
        ways["compiled by hand"] = (members.compile(), torch.compile(forward))
    lines = []
    with torch.no_grad():
        for name, (ours, run) in ways.items():
            by_hand(run)
            mine, theirs = by_turns(
                n_turns,
                partial(clock, partial(bc.score, ours, x, "bald")),
                partial(clock, partial(by_hand, run)),
            )
            what = "BALD, compiled" if ours.plan.compiled else "BALD"
            lines.append(line(f"convolutions, {n_rows:,} images: {what}, and {name}", mine, theirs, 1.2))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, fewer turns")
    parser.add_argument("--compile", action="store_true", help="torch.compile, too; needs a C++ compiler")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="ours, and the peer's")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    os.environ["OMP_NUM_THREADS"] = str(given.threads)
    n_turns, less = (3, 10) if given.quick else (5, 1)
    lines = measure_perceptron(20_000 // less, n_turns)
    lines += measure_images(10_240 // less, n_turns, compile_it=given.compile)
    print(as_table(lines, ours="ours"))
    print(
        f"{N_MEMBERS} members, {n_turns} turns; {given.threads} threads, load {os.getloadavg()[0]:.1f}; "
        f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}"
    )


if __name__ == "__main__":
    main()

"""Training ten 64-128-128-10 networks on scikit-learn's digits: `python benchmarks/training.py [--peers] [--quick]`.

100 epochs, batches of 64, Adam. Each contender runs in a process of its own on one thread, so that its peak memory is
its own, and by turns with the others, so that a busy machine slows all of them; a ratio is the median of the turns'
ratios. This is part (c) of `benchmarks/posteriors.py`.

`--peers` adds torchensemble, skorch and torch-uncertainty, each in an environment of its own, build/bench/training_…,
which the first run makes from the requirements beside its file (or `make bench-training_skorch` and so on). One that
cannot be installed or does not run is named with the reason, and the others go on.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

import torch
from digits_task import BATCH, LR, N_NETWORKS, WIDTHS, Contender, Measured, Rows, network, race
from torch import Tensor, nn

import bensemble_core as bc

HERE = Path(__file__).resolve()
PEERS = ("torchensemble", "skorch", "torch_uncertainty")  # training_….py each


def by_loop(rows: Rows, x: Tensor, epochs: int) -> Tensor:
    """What most people write: a DataLoader and an optimiser, one network after another."""
    from torch.utils.data import DataLoader, TensorDataset

    probabilities = []
    for seed in range(N_NETWORKS):
        torch.manual_seed(seed)
        net = network()
        optimiser = torch.optim.Adam(net.parameters(), lr=LR)
        loader = DataLoader(TensorDataset(*rows), batch_size=BATCH, shuffle=True)
        for _ in range(epochs):
            for xb, yb in loader:
                optimiser.zero_grad()
                nn.functional.cross_entropy(net(xb), yb).backward()
                optimiser.step()
        with torch.no_grad():
            probabilities.append(net(x).softmax(-1))
    return torch.stack(probabilities).mean(0)


def by_vmap(rows: Rows, x: Tensor, epochs: int) -> Tensor:
    """What an expert writes with torch alone: networks stacked, vmap over them, one fused Adam."""
    from torch.func import functional_call, stack_module_state

    torch.manual_seed(0)
    nets = [network() for _ in range(N_NETWORKS)]
    skeleton = network().to("meta")
    params, _ = stack_module_state(nets)
    params = {k: v.detach().requires_grad_() for k, v in params.items()}
    optimiser = torch.optim.Adam(params.values(), lr=LR, fused=True)
    run = torch.vmap(lambda p, x: functional_call(skeleton, p, (x,)))
    xs, ys = rows
    for _ in range(epochs):
        order = torch.stack([torch.randperm(len(ys)) for _ in nets])
        for at in range(0, len(ys), BATCH):
            chosen = order[:, at : at + BATCH]
            optimiser.zero_grad()
            outputs = run(params, xs[chosen])
            loss = nn.functional.cross_entropy(outputs.flatten(0, 1), ys[chosen].flatten()) * N_NETWORKS
            loss.backward()
            optimiser.step()
    with torch.no_grad():
        return run(params, x.expand(N_NETWORKS, *x.shape)).softmax(-1).mean(0)


def by_ours(rows: Rows, x: Tensor, epochs: int) -> Tensor:
    """`deep_ensemble` as a user calls it, with the optimiser of the others."""
    fitted = bc.fit(
        "deep_ensemble",
        {"name": "mlp", "hidden": list(WIDTHS[1:-1])},
        rows,
        likelihood="categorical",
        members=N_NETWORKS,
        epochs=epochs,
        batch_size=BATCH,
        lr=LR,
        schedule="constant",
        standardise=False,
    )
    return fitted.sample(N_NETWORKS).predict(x).mean()


CONTENDERS: dict[str, Contender] = {"loop": by_loop, "vmap": by_vmap, "ours": by_ours}


class Unfit(Exception):
    """A peer that cannot take part here, and why."""


def environment_of(peer: str) -> Path:
    """The Python of a peer's own environment, made if need be."""
    folder = HERE.parents[1] / "build" / "bench" / f"training_{peer}"
    python, stamp = folder / "bin" / "python", folder / ".installed"
    if stamp.exists():
        return python
    print(f"installing {peer} into {folder.relative_to(HERE.parents[1])}", file=sys.stderr, flush=True)
    requirements = HERE.with_name(f"training_{peer}.requirements.txt")
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", "-r", str(requirements)],
    ):
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise Unfit(f"could not be installed: {_last_line(done.stderr)}")
    stamp.touch()
    return python


def measure(contender: str, epochs: int) -> Measured:
    """One contender in a process of its own."""
    if contender in PEERS:
        command = [str(environment_of(contender)), str(HERE.with_name(f"training_{contender}.py"))]
    else:
        command = [sys.executable, str(HERE), "--child", contender]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, "--epochs", str(epochs)], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise Unfit(f"does not run: {_last_line(done.stderr)}")
    measured: Measured = json.loads(done.stdout.splitlines()[-1])
    return measured


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")


def compare(names: list[str], epochs: int, n_turns: int) -> tuple[dict[str, Measured], dict[str, str]]:
    """Medians of each contender with how many times as fast as the loop it is, by the clock and by processor time.

    And of each peer that did not run, why.
    """
    turns: dict[str, list[Measured]] = {name: [] for name in names}
    unfit: dict[str, str] = {}
    for _ in range(n_turns):
        for name in [n for n in names if n not in unfit]:
            try:
                turns[name].append(measure(name, epochs))
            except Unfit as reason:
                if name not in PEERS:
                    raise
                unfit[name] = str(reason)
    table = {}
    for name, found in turns.items():
        if name in unfit:
            continue
        table[name] = {key: statistics.median(m[key] for m in found) for key in found[0]}
        for key, of in (("speed", "seconds"), ("cpu_speed", "cpu_seconds")):
            table[name][key] = statistics.median(a[of] / b[of] for a, b in zip(turns["loop"], found, strict=True))
    return table, unfit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="10 epochs, 3 turns")
    parser.add_argument("--peers", action="store_true", help=f"beside {', '.join(PEERS)}")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    parser.add_argument("--child", choices=sorted(CONTENDERS), help="run this one here")
    given = parser.parse_args()
    if given.child:
        race(CONTENDERS[given.child], given.epochs)
        return
    epochs, n_turns = (10, 3) if given.quick else (given.epochs, given.turns)
    table, unfit = compare([*CONTENDERS, *(PEERS if given.peers else ())], epochs, n_turns)
    if given.json:
        print(json.dumps({**table, "unfit": unfit}))
        return
    print(f"torch {torch.__version__}, Python {platform.python_version()}, one thread")
    print(f"ten {'-'.join(map(str, WIDTHS))} networks on digits, {epochs} epochs, batches of {BATCH}")
    print(f"{'':18} {'seconds':>8} {'speed':>7} {'CPU s':>8} {'speed':>7} {'peak MB':>8} {'accuracy':>9} {'NLL':>7}")
    for name, row in table.items():
        print(
            f"{name:18} {row['seconds']:8.2f} {row['speed']:6.1f}× {row['cpu_seconds']:8.2f} {row['cpu_speed']:6.1f}× "
            f"{row['peak_mb']:8.0f} {row['accuracy']:9.4f} {row['nll']:7.4f}"
        )
    for name, reason in unfit.items():
        print(f"{name:18} {reason}")


if __name__ == "__main__":
    main()

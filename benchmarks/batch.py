"""Choosing a batch beside batchbald_redux and scikit-activeml: `python benchmarks/batch.py [--quick]`.

BatchBALD with 100 members and 10 classes, every contender on the same predictions, in a process of its own and on one
thread, so that its peak memory is its own: what the process needed beyond its inputs. BADGE and k-centre beside
scikit-activeml, which lives in build/bench/batch_peer (made on the first run, or by `make bench-batch_peer`).
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peak import with_peak
from torch import Tensor

from bensemble_core.acquisition import Badge, BatchBald, Candidates, Context, KCenter
from bensemble_core.acquisition.selections.clustering import Points
from bensemble_core.predictive import CategoricalPredictive

HERE = Path(__file__).resolve()
PEER = HERE.parents[1] / "build" / "bench" / "batch_peer"
N_MEMBERS, N_CLASSES, N_FEATURES, N_LABELLED = 100, 10, 128, 50
OUTCOMES = 10_000  # joint outcomes that both enumerate, and beyond which both draw as many


@dataclass(frozen=True, kw_only=True)
class Measured:
    seconds: float  # of processor time, which other work on the machine changes little
    peak_mb: float
    rows: list[int]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """(rows, picks) that both sides run, and that ours runs alone, because the peer would take too long."""

    both: tuple[tuple[int, int], ...]
    alone: tuple[tuple[int, int], ...]
    diverse: tuple[tuple[int, int], ...]
    n_turns: int


FULL = Plan(
    both=((1000, 5), (5000, 5), (20_000, 5), (1000, 10), (5000, 10), (20_000, 10)),
    alone=(),
    diverse=((5000, 100), (20_000, 100)),
    n_turns=3,
)
MODERATE = Plan(
    both=((1000, 5), (5000, 5), (1000, 10)),
    alone=((20_000, 5), (5000, 10)),
    diverse=((5000, 100), (20_000, 100)),
    n_turns=1,
)
QUICK = Plan(both=((500, 4),), alone=((2000, 5),), diverse=((2000, 20),), n_turns=1)


def predictions(folder: Path, n_rows: int) -> Path:
    """Members' log-probabilities as [M, N, C] and [N, M, C]: rows differ in their doubt and in how members disagree."""
    path = folder / f"members-{n_rows}.npy"
    if not path.exists():
        rng = np.random.default_rng(0)
        logits = rng.standard_normal((N_MEMBERS, n_rows, N_CLASSES)) * rng.uniform(0, 2, (1, n_rows, 1))
        logits += 2 * rng.standard_normal((1, n_rows, N_CLASSES))
        log_probs = torch.from_numpy(logits).log_softmax(-1).numpy()
        np.save(path, log_probs)
        np.save(path.with_suffix(".rows.npy"), np.ascontiguousarray(log_probs.swapaxes(0, 1)))
    return path


def embeddings(folder: Path, n_rows: int) -> Path:
    path = folder / f"features-{n_rows}.npz"
    if not path.exists():
        rng = np.random.default_rng(1)
        features = rng.standard_normal((n_rows, N_FEATURES))
        probs = torch.from_numpy(2 * rng.standard_normal((n_rows, N_CLASSES))).softmax(-1).numpy()
        np.savez(path, features=features, probs=probs, labelled=rng.standard_normal((N_LABELLED, N_FEATURES)))
    return path


def load_ours(path: Path) -> Candidates:
    logits = torch.from_numpy(np.load(path))
    return Candidates(rows=torch.arange(logits.shape[1]), predictive=CategoricalPredictive(logits=logits))


def by_ours(some: Candidates, k: int) -> tuple[list[int], list[float]]:
    picks = BatchBald(outcomes=OUTCOMES)(some, k, Context())
    return picks.rows.tolist(), picks.values.tolist()


def load_redux(path: Path) -> Tensor:
    return torch.from_numpy(np.load(path.with_suffix(".rows.npy")))


def by_redux(log_probs: Tensor, k: int) -> tuple[list[int], list[float]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from batchbald_redux.batchbald import get_batchbald_batch
    torch.manual_seed(0)  # it draws from the global generator
    batch = get_batchbald_batch(log_probs, k, OUTCOMES, dtype=torch.double)
    return batch.indices, np.diff(batch.scores, prepend=0.0).tolist()


def load_features(path: Path) -> Any:
    data = np.load(path)
    probs = torch.from_numpy(data["probs"])
    some = Candidates(
        rows=torch.arange(len(probs)),
        features=torch.from_numpy(data["features"]),
        predictive=CategoricalPredictive(logits=probs.log()[None]),
    )
    return some, Context(labelled_features=torch.from_numpy(data["labelled"]))


def by_badge(given: Any, k: int) -> tuple[list[int], list[float]]:
    picks = Badge()(given[0], k, given[1])
    return picks.rows.tolist(), picks.values.tolist()


def by_kcenter(given: Any, k: int) -> tuple[list[int], list[float]]:
    picks = KCenter()(given[0], k, given[1])
    return picks.rows.tolist(), picks.values.tolist()


CONTENDERS: dict[str, tuple[Callable[[Path], Any], Callable[[Any, int], tuple[list[int], list[float]]]]] = {
    "ours": (load_ours, by_ours),
    "redux": (load_redux, by_redux),
    "badge": (load_features, by_badge),
    "kcenter": (load_features, by_kcenter),
}


def run_child(contender: str, path: Path, warm_up: Path, k: int) -> None:
    """Time one contender here and print what was measured as JSON."""
    torch.set_num_threads(1)
    load, run = CONTENDERS[contender]
    run(load(warm_up), 2)  # first calls load libraries
    given = load(path)
    start = time.process_time()
    (rows, _), peak_mb = with_peak(lambda: run(given, k))
    print(json.dumps({"seconds": time.process_time() - start, "peak_mb": peak_mb, "rows": rows}))


def measure(command: list[str]) -> Measured:
    environment = {
        **os.environ,
        "PYTHONPATH": str(HERE.parents[1]),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def measure_ours(contender: str, path: Path, warm_up: Path, k: int) -> Measured:
    return measure([sys.executable, str(HERE), "--child", contender, str(path), str(warm_up), str(k)])


def measure_peer(what: str, path: Path, k: int) -> Measured:
    return measure([str(PEER / "bin" / "python"), str(HERE.parent / "batch_peer.py"), str(path), what, str(k)])


def peer_is_there() -> bool:
    """Its environment, made on the first run; False, with the reason on standard error, where it can't be."""
    if (PEER / "bin" / "python").exists():
        return True
    needed = str(HERE.parent / "batch_peer.requirements.txt")
    try:
        subprocess.run([sys.executable, "-m", "venv", str(PEER)], check=True)
        subprocess.run([str(PEER / "bin" / "pip"), "install", "--quiet", "-r", needed], check=True)
    except subprocess.CalledProcessError as error:
        print(f"scikit-activeml could not be installed ({error}); its lines are left out", file=sys.stderr)
        return False
    return True


def exact_picks(k: int) -> int:
    """How many picks both choose by enumeration: the b-th looks at C^(b−1) joint outcomes."""
    return sum(N_CLASSES**b <= OUTCOMES for b in range(k))


def compare_batchbald(folder: Path, plan: Plan) -> None:
    warm_up = predictions(folder, 20)
    print(f"BatchBALD, {N_MEMBERS} members, {N_CLASSES} classes, {OUTCOMES:,} outcomes")
    print(f"{'rows':>7} {'picks':>6} {'ours s':>8} {'MB':>6} {'redux s':>8} {'MB':>6} {'faster':>8}  same picks")
    for n_rows, k in plan.both:
        path = predictions(folder, n_rows)
        turns = [
            (measure_ours("ours", path, warm_up, k), measure_ours("redux", path, warm_up, k))
            for _ in range(plan.n_turns)
        ]
        ours, redux = turns[-1]
        n_exact = exact_picks(k)
        if ours.rows[:n_exact] != redux.rows[:n_exact]:
            raise RuntimeError(f"exact picks differ: {ours.rows[:n_exact]} and {redux.rows[:n_exact]}")
        same = sum(a == b for a, b in zip(ours.rows, redux.rows, strict=True))
        ratio = statistics.median(b.seconds / a.seconds for a, b in turns)
        print(
            f"{n_rows:7,} {k:6} {_median(a.seconds for a, _ in turns):8.2f} {ours.peak_mb:6.0f} "
            f"{_median(b.seconds for _, b in turns):8.2f} {redux.peak_mb:6.0f} {ratio:7.1f}×  "
            f"{n_exact} of {n_exact} exact, {same} of {k} in all",
            flush=True,
        )
    for n_rows, k in plan.alone:
        ours = measure_ours("ours", predictions(folder, n_rows), warm_up, k)
        print(f"{n_rows:7,} {k:6} {ours.seconds:8.2f} {ours.peak_mb:6.0f} {'':>8} {'':>6} {'':>8}  not run", flush=True)


def compare_diverse(folder: Path, plan: Plan) -> None:
    has_peer = peer_is_there()
    print(f"\nBADGE ({N_CLASSES} classes) and k-centre ({N_LABELLED} labelled), {N_FEATURES} features, float64")
    print(f"{'':8} {'rows':>7} {'picks':>6} {'ours s':>8} {'MB':>6} {'peer s':>8} {'MB':>6} {'faster':>8}")
    for n_rows, k in plan.diverse:
        path, warm_up = embeddings(folder, n_rows), embeddings(folder, 50)
        for what in ("badge", "kcenter"):
            turns = [
                (measure_ours(what, path, warm_up, k), measure_peer(what, path, k) if has_peer else None)
                for _ in range(plan.n_turns)
            ]
            ours, peer = turns[-1]
            line = f"{what:8} {n_rows:7,} {k:6} {_median(a.seconds for a, _ in turns):8.3f} {ours.peak_mb:6.0f} "
            if peer is not None:
                ratio = statistics.median(b.seconds / a.seconds for a, b in turns if b is not None)
                seconds = _median(b.seconds for _, b in turns if b is not None)
                line += f"{seconds:8.3f} {peer.peak_mb:6.0f} {ratio:7.1f}×  {_agreement(what, path, ours, peer)}"
            print(line, flush=True)


def _agreement(what: str, path: Path, ours: Measured, peer: Measured) -> str:
    """k-centre is deterministic: the same rows. BADGE draws: what the picks leave, the lower the better spread."""
    if what == "kcenter":
        return f"{sum(a == b for a, b in zip(ours.rows, peer.rows, strict=True))} of {len(ours.rows)} picks the same"
    some, _ = load_features(path)
    mean = some.predictive.mean()
    errors = mean - torch.nn.functional.one_hot(mean.argmax(1), N_CLASSES)
    points = Points(left=errors, right=some.features)
    lengths = points.squared_lengths()
    left = [
        float(torch.stack([points.squared_distances(row, lengths) for row in found.rows]).amin(0).sum())
        for found in (ours, peer)
    ]
    return f"squared distance left {left[0]:.4g} and {left[1]:.4g}"


def _median(values: Any) -> float:
    return statistics.median(list(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, under a minute")
    parser.add_argument("--full", action="store_true", help="every size three times by turns, several hours")
    parser.add_argument(
        "--size", nargs=2, type=int, metavar=("ROWS", "PICKS"), help="BatchBALD of this size beside its peer, once"
    )
    parser.add_argument("--only", choices=["batchbald", "diverse"])
    parser.add_argument("--child", nargs=4, metavar=("CONTENDER", "FILE", "WARM_UP", "K"), help="run this one here")
    given = parser.parse_args()
    if given.child:
        contender, path, warm_up, k = given.child
        run_child(contender, Path(path), Path(warm_up), int(k))
        return
    plan = QUICK if given.quick else FULL if given.full else MODERATE
    if given.size:
        plan = Plan(both=(tuple(given.size),), alone=(), diverse=(), n_turns=1)
    print(f"torch {torch.__version__}, Python {platform.python_version()}, one thread each")
    with tempfile.TemporaryDirectory() as folder:
        if given.only != "diverse":
            compare_batchbald(Path(folder), plan)
        if given.only != "batchbald" and plan.diverse:
            compare_diverse(Path(folder), plan)


if __name__ == "__main__":
    main()

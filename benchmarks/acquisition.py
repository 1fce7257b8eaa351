"""Scores of a pool beside peers and beside one read of the memory: `python benchmarks/acquisition.py [--quick]`.

Every figure is a ratio of wall times taken by turns, so that a busy machine slows both. Ours starts from logits, what a
network gives; so does baal in the lines that say so, and everywhere else peers are given probabilities or
log-probabilities that were made beforehand. Beside one read and plain formulas the fused pass gives six scores, BALD,
entropy and variation ratio among them; beside baal, scikit-activeml and batchbald_redux, who give the one that is
named: the first two, or entropy alone.
"""

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import torch
from beside import Line, NoPeer, Peer, as_table, by_turns, running_peer
from peers import draw_logits
from torch import Tensor

from bensemble_core import acquisition as acq
from bensemble_core.acquisition.fused import kernels

SHAPES = ((10, 1_000_000, 10), (100, 100_000, 10))
REQUIREMENTS = {"baal": ("baal==2.1.0",), "scikit_activeml": ("scikit-activeml==1.0.1",), "batchbald_redux": ()}
KINDS: dict[str, tuple[tuple[str, float | None], ...]] = {"baal": (("logits", 20.0), ("probabilities", None))}
WHATS = ("both", "bald", "entropy")  # both: BALD and entropy
FEWER_ROWS = {"batchbald_redux": 50}  # it takes a second for 2,000 rows of 10 members; ours is timed on as few


def clock(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def draw(shape: tuple[int, int, int]) -> Tensor:
    """As the peers have it, numpy's memory too, which lies on large pages where torch's may not."""
    return torch.from_numpy(draw_logits(*shape))


def plainly(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """BALD, entropy and variation ratio as one would write them from probabilities."""
    probs = torch.softmax(logits, -1)
    mean = probs.mean(0)
    entropy = -torch.xlogy(mean, mean).sum(-1)
    expected = -torch.xlogy(probs, probs).sum(-1).mean(0)
    votes = torch.nn.functional.one_hot(probs.argmax(-1), probs.shape[-1]).sum(0)
    return entropy - expected, entropy, 1 - votes.amax(-1) / probs.shape[0]


def errors() -> list[Line]:
    """Against float64, for ordinary and extreme logits."""
    lines = []
    plain = draw((10, 20_000, 10))
    signs = torch.where(plain > 0, 1e4, -1e4)
    cases = {
        "logits of N(0, 2²)": plain,
        "logits of ±1e4": signs,
        "N(0, 2²) ± 1e4": plain + signs,
        "half of p = 0": plain.masked_fill((plain < 0) & (plain < plain.amax(-1, keepdim=True)), -torch.inf),
        "50 classes, 100 members": draw((100, 2_000, 50)),
    }
    for name, logits in cases.items():
        found, exact = kernels.statistics(logits), logits.double().log_softmax(-1)
        assert found is not None
        worst = max(
            float((column.double() - formula(exact)).abs().max())
            for column, formula in zip(found, (acq.entropy, acq.bald, acq.variation_ratio), strict=False)
        )
        state = "no NaN" if bool(torch.isfinite(found).all()) else "NOT FINITE"
        least = float(found[1].min())
        lines.append(Line(what=f"largest error, {name}", ours=f"{worst:.1e}", reference=f"{state}, BALD >= {least:g}"))
    return lines


def measure(shape: tuple[int, int, int], peers: dict[str, Peer], n_turns: int) -> list[Line]:
    logits = draw(shape)
    size = f"[{', '.join(f'{n:,}' for n in shape)}]"

    def ours() -> float:
        return clock(lambda: kernels.statistics(logits, n_columns=kernels.width(["variation_ratio"])))

    def line(what: str, mine: list[float], other: list[float], aim: float | None = None) -> Line:
        ratios = [b / a for a, b in zip(mine, other, strict=True)]
        return Line(what=f"{size} {what}", ours=seconds(mine), reference=seconds(other), ratios=ratios, aim=aim)

    def reads(what: str, taken: list[float], aim: float | None) -> Line:
        ratios = [a / b for a, b in zip(taken, read, strict=True)]
        mine, theirs = seconds(taken), seconds(read)
        return Line(what=f"{size} {what}", ours=mine, reference=theirs, ratios=ratios, aim=aim, less_is_better=True)

    mine, every, read, plain = by_turns(
        n_turns,
        ours,
        lambda: clock(lambda: kernels.statistics(logits)),
        lambda: clock(logits.sum),
        lambda: clock(lambda: plainly(logits)),
    )
    lines = [
        reads("one read of the memory", mine, 6.0),
        reads("one read, the members' spread too", every, None),
        line("softmax and formulas, all three", mine, plain, 5.0),
    ]
    for name, peer in peers.items():
        fewer = (shape[0], shape[1] // FEWER_ROWS.get(name, 1), shape[2])
        some = logits[:, : fewer[1]].contiguous()
        rows = "" if some.shape == shape else f", {fewer[1]:,} rows"
        for kind, aim in KINDS.get(name, (("", None),)):
            for what in WHATS if name == "baal" else WHATS[1:]:
                ask = partial(peer.ask, what=what, shape=fewer, **({"kind": kind} if kind else {}))
                n_columns = kernels.width([what if what == "entropy" else "bald"])
                score = partial(kernels.statistics, some, n_columns=n_columns)
                mine, theirs = by_turns(n_turns, partial(clock, score), ask)
                lines.append(line(f"{what}, {name}{' from ' * bool(kind)}{kind}{rows}", mine, theirs, aim))
    return lines


def seconds(values: list[float]) -> str:
    return f"{1000 * statistics.median(values):.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, fewer turns")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="ours, and the peers'")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    os.environ["OMP_NUM_THREADS"] = str(given.threads)
    n_turns = 3 if given.quick else 9
    ready = kernels.warm_up()
    lines, missing = errors(), []
    with ExitStack() as stack:
        peers: dict[str, Peer] = {}
        for name, requirements in {} if given.no_peers else REQUIREMENTS.items():
            try:
                peers[name] = stack.enter_context(running_peer("peers.py", name, *requirements))
                peers[name].ask(what="bald", shape=(2, 10, 3))
            except NoPeer as problem:
                peers.pop(name, None)
                missing.append(f"{name} was not measured: {problem}")
        for m, n, c in SHAPES:
            lines += measure((m, n // 10 if given.quick else n, c), peers, n_turns)
    print(as_table(lines, ours="ours"))
    print(*missing, sep="\n")
    print(
        f"ratio: times faster than the reference (one read: times as long); {n_turns} turns; "
        f"ready after {ready:.1f} s; "
        f"{torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}; torch {torch.__version__}, "
        f"Python {platform.python_version()}, {platform.machine()}"
    )


if __name__ == "__main__":
    main()

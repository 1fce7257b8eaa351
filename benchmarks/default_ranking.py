"""What a ranking by the default costs beside BALD and `top_k`: `python benchmarks/default_ranking.py [--rows 1000000]`.

A pool of 64 inputs in memory, ten classes, k = 100. The default posterior (`auto`, kernel members of 300 and of 2,000
labels) with the default ranking (`margin` with `cluster_margin`), beside five networks 64-128-128-10 with `bald` and
`top_k`, which was the default before; by turns, processor seconds on one thread. The aim is at most twice as long.
"""

import argparse
import statistics
import time

import torch
from beside import Line, as_table

import bensemble_core as bc

D, C, K, AIM = 64, 10, 100, 2.0


def labelled(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(1)
    x = torch.randn(n, D, generator=g)
    return x, (x[:, :C] + 0.5 * torch.randn(n, C, generator=g)).argmax(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    pool = torch.randn(given.rows, D, generator=torch.Generator().manual_seed(0)).numpy()
    networks = bc.fit("deep_ensemble", {"name": "mlp"}, labelled(300), likelihood="categorical", epochs=5).sample(5)
    defaults = {
        n: bc.fit("auto", None, labelled(n), likelihood="categorical", unlabelled=pool[:4_000]).sample(20, at_most=True)
        for n in (300, 2_000)
    }

    def clock(ensemble: bc.Ensemble, **named: str) -> float:
        start = time.process_time()
        bc.rank(ensemble, pool, k=K, **named)
        return time.process_time() - start

    times: dict[str, list[float]] = {}
    for _ in range(given.turns):
        times.setdefault("bald", []).append(clock(networks, acquisition="bald", selection="top_k"))
        times.setdefault("networks", []).append(clock(networks))
        for n, ensemble in defaults.items():
            times.setdefault(f"auto {n}", []).append(clock(ensemble))
    lines = []
    for name in ("networks", *(f"auto {n}" for n in defaults)):
        ratios = [a / b for a, b in zip(times[name], times["bald"], strict=True)]
        ours, theirs = (f"{statistics.median(times[which]):.1f} s" for which in (name, "bald"))
        what = "the default ranking, " + ("five networks" if name == "networks" else f"{name} labels")
        lines.append(Line(what=what, ours=ours, reference=theirs, ratios=ratios, aim=AIM, less_is_better=True))
    print(as_table(lines, ours="default"))


if __name__ == "__main__":
    main()

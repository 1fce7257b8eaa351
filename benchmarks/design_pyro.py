"""pyro.contrib.oed.eig.nmc_eig on the two tasks of design.py: seconds for all designs, and its estimates, as JSON.

Pyro has no belief to update between rounds; only the choice of the next design is timed.
"""

import json
import statistics
import time
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from design_tasks import GUESS, LAPSE, SLOPES, SPAN_DESIGNS, SPAN_LOC, SPAN_SCALE, STIMULI, THRESHOLDS
from pyro.contrib.oed.eig import nmc_eig

N_OUTER, N_INNER, N_TURNS = 10_000, 100, 5


def span(design: Any) -> Any:
    with pyro.plate_stack("plate", design.shape[:-1]):
        theta = pyro.sample("theta", dist.Normal(SPAN_LOC, SPAN_SCALE))
        return pyro.sample("y", dist.Bernoulli(logits=theta - design.squeeze(-1)))


GRID = torch.cartesian_prod(torch.tensor(THRESHOLDS), torch.tensor(SLOPES))


def psychometric(design: Any) -> Any:
    with pyro.plate_stack("plate", design.shape[:-1]):
        index = pyro.sample("theta", dist.Categorical(torch.ones(len(GRID))))
        threshold, slope = GRID[index].unbind(-1)
        p = GUESS + (1 - GUESS - LAPSE) * torch.sigmoid(slope * (design.squeeze(-1) - threshold))
        return pyro.sample("y", dist.Bernoulli(p))


def measure(model: Any, designs: list[float], n_outer: int) -> dict[str, Any]:
    pyro.set_rng_seed(0)
    design = torch.tensor([float(x) for x in designs])[:, None]
    times, eig = [], None
    for _ in range(N_TURNS):
        started = time.perf_counter()
        eig = nmc_eig(model, design, "y", "theta", N=n_outer, M=N_INNER)
        times.append(time.perf_counter() - started)
    return {"seconds": statistics.median(times), "eig": eig.tolist()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(
        json.dumps(
            {
                "digit span": measure(span, [float(x) for x in SPAN_DESIGNS], N_OUTER),
                "psychometric": measure(psychometric, STIMULI, N_OUTER // 5),
            }
        )
    )

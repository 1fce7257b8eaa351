"""adopy on the two tasks of design.py: seconds per update + next design, and its mutual information, as JSON."""

import json
import statistics
import time
from typing import Any

import numpy as np
from adopy import Engine, Model, Task
from adopy.tasks.psi import ModelLogistic, Task2AFC
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


def span_engine() -> Any:
    def log_likelihood(choice: Any, xi: Any, theta: Any) -> Any:
        return -np.logaddexp(0, np.where(choice == 1, -1, 1) * (theta - xi))

    task = Task(name="digit span", designs=["xi"], responses=["choice"])
    model = Model(name="logistic", task=task, params=["theta"], func=log_likelihood)
    z = np.linspace(-8, 8, 161)
    engine = Engine(
        task=task,
        model=model,
        grid_design={"xi": SPAN_DESIGNS},
        grid_param={"theta": SPAN_LOC + SPAN_SCALE * z},
        grid_response={"choice": [0, 1]},
    )
    log_prior = -0.5 * z * z
    engine.log_prior = (log_prior - np.log(np.exp(log_prior).sum())).astype(np.float32)
    engine.reset()
    return engine


def psychometric_engine() -> Any:
    return Engine(
        task=Task2AFC(),
        model=ModelLogistic(),
        grid_design={"stimulus": STIMULI},
        grid_param={"threshold": THRESHOLDS, "slope": SLOPES, "guess_rate": [GUESS], "lapse_rate": [LAPSE]},
        grid_response={"choice": [0, 1]},
    )


def measure(engine: Any, name: str, p: Any) -> dict[str, Any]:
    eig = [float(x) for x in engine.mutual_info]
    design, times = engine.get_design(), []
    for turn in range(N_ROUNDS):
        response = {"choice": answer(p(design[name]), turn)}
        started = time.perf_counter()
        engine.update(design, response)
        design = engine.get_design()
        times.append(time.perf_counter() - started)
    return {"seconds": statistics.median(times[5:]), "eig": eig}


if __name__ == "__main__":
    print(
        json.dumps(
            {
                "digit span": measure(span_engine(), "xi", span_p),
                "psychometric": measure(psychometric_engine(), "stimulus", psychometric_p),
            }
        )
    )

"""blackjax's part of `benchmarks/samplers.py`: it answers questions on its standard input, in its own environment.

Chains are batched by vmap, as its documentation has it, window adaptation too: each chain has a step size and a
diagonal mass of its own. `one_by_one` runs them one after another instead (lax.map), since under vmap every chain of
NUTS waits for the one with the deepest tree. Programs are compiled before the clock starts.
"""

import os
import time
from functools import cache
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from beside import answer_questions
from samplers_task import TASKS


@cache
def programs(task: str, chains: int, method: str, warmup: int, samples: int, steps: int, one_by_one: bool) -> Any:
    """Warm-up and sampling, compiled, and the seconds that took."""
    posed = TASKS[task]()
    x, y = jnp.asarray(posed.x), jnp.asarray(posed.y)

    def log_density(theta: Any) -> Any:
        w = posed.split(theta)
        if task == "logistic":
            likelihood = jax.nn.log_sigmoid((2 * y - 1) * (x @ w["weight"][0])).sum()
        else:
            f = jnp.tanh(x @ w["w1"].T + w["b1"]) @ w["w2"][0] + w["b2"]
            likelihood = -0.5 * jnp.square(y - f).sum() / posed.noise**2
        return likelihood - 0.5 * jnp.square(theta).sum()

    algorithm = {"hmc": blackjax.hmc, "nuts": blackjax.nuts}[method]
    fixed = {"num_integration_steps": steps} if method == "hmc" else {}
    adaptation = blackjax.window_adaptation(algorithm, log_density, target_acceptance_rate=0.8, **fixed)

    def adapt(key: Any, start: Any) -> Any:
        found, _ = adaptation.run(key, start, warmup)
        tuned = {k: found.parameters[k] for k in ("step_size", "inverse_mass_matrix")}
        return found.state, tuned

    def draw(key: Any, state: Any, tuned: Any) -> Any:
        kernel = algorithm(log_density, **tuned, **fixed)

        def step(state: Any, key: Any) -> Any:
            state, info = kernel.step(key, state)
            return state, (state.position, info.acceptance_rate, info.num_integration_steps)

        return jax.lax.scan(step, state, jax.random.split(key, samples))[1]

    def over_chains(function: Any) -> Any:
        return (
            jax.jit(lambda *args: jax.lax.map(lambda own: function(*own), args))
            if one_by_one
            else jax.jit(jax.vmap(function))
        )

    started = time.process_time()
    keys = jax.random.split(jax.random.key(0), chains)
    starts = jnp.zeros((chains, posed.size))
    warm = over_chains(adapt).lower(keys, starts).compile()
    shapes = jax.eval_shape(over_chains(adapt), keys, starts)
    sample = over_chains(draw).lower(keys, *shapes).compile()
    return warm, sample, time.process_time() - started


def measure(
    out: str,
    seed: int,
    task: str,
    chains: int,
    method: str,
    warmup: int,
    samples: int,
    steps: int = 0,
    one_by_one: bool = False,
) -> float:
    """Writes draws [C, S, P] and processor seconds to `out`; answers with the seconds of sampling."""
    warm, sample, compiling = programs(task, chains, method, warmup, samples, steps, one_by_one)
    first, second, third = jax.random.split(jax.random.key(seed), 3)
    starts = jax.random.normal(first, (chains, TASKS[task]().size))  # of the prior
    keys = [jax.random.split(key, chains) for key in (second, third)]
    jax.block_until_ready((starts, keys))
    begun = time.process_time()
    state, tuned = jax.block_until_ready(warm(keys[0], starts))
    between = time.process_time()
    draws, acceptance, n_steps = jax.block_until_ready(sample(keys[1], state, tuned))
    ended = time.process_time()
    np.savez(
        out,
        draws=np.asarray(draws),
        warmup=between - begun,
        sampling=ended - between,
        compiling=compiling,
        acceptance=np.asarray(acceptance).mean(),
        steps=np.asarray(n_steps).mean(),
    )
    return ended - between


if __name__ == "__main__":
    answer_questions(measure)

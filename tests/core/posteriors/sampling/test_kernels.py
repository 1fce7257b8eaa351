"""Kernels by themselves on N(0, 1), where acceptance and variance are known in closed form."""

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from bensemble_core.posteriors.log_posterior import Batch
from bensemble_core.posteriors.sampling.chains import Carry, Step
from bensemble_core.posteriors.sampling.hmc import Hamiltonian, windows
from bensemble_core.posteriors.sampling.metropolis import Cooling, RandomWalk
from bensemble_core.posteriors.sampling.sghmc import Underdamped
from bensemble_core.posteriors.sampling.sgld import Langevin
from bensemble_core.posteriors.sampling.stochastic import Gradients

CHAINS = 20_000
FULL = Gradients(batch_size=1, n_rows=1, preconditioner="none")


@dataclass(frozen=True)
class Fast(Step):
    """The chance of thousands of chains from one generator; that of the library is tested below."""

    def normal(self, like: Tensor, *, later: int = 0) -> Tensor:
        rng = torch.Generator().manual_seed(10 * (self.number + later) + 1)
        return torch.randn(like.shape, generator=rng, dtype=like.dtype)

    def uniform(self, like: Tensor) -> Tensor:
        rng = torch.Generator().manual_seed(10 * self.number + 2)
        return torch.rand(len(like), generator=rng, dtype=like.dtype)

    def batch(self, n_rows: int, size: int, device: torch.device) -> Batch:
        rng = torch.Generator().manual_seed(10 * self.number + 3)
        return Batch(rows=torch.randint(n_rows, (CHAINS, size), generator=rng), seeds=self.seeds)


class StandardNormal:
    def __call__(self, theta: Tensor, batch: Batch | None = None) -> tuple[Tensor, Tensor]:
        return self.log_density(theta), -theta

    def log_density(self, theta: Tensor) -> Tensor:
        return -0.5 * theta.square().sum(-1)


class MeanOfNumbers:
    """N numbers with unit variance around 0, read in batches: the gradient of the mean's log-likelihood over N."""

    def __init__(self, n_rows: int) -> None:
        values = torch.randn(n_rows, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        self.values = (values - values.mean()) / values.std(correction=0)

    def __call__(self, theta: Tensor, batch: Batch | None = None) -> tuple[Tensor, Tensor]:
        assert batch is not None
        return theta[:, 0], self.values[batch.rows].mean(1, keepdim=True) - theta

    def log_density(self, theta: Tensor) -> Tensor:
        return -0.5 * theta.square().sum(-1)


class TwoWells:
    """Wells at −1 and 2, the second three nats deeper."""

    def __call__(self, theta: Tensor, batch: Batch | None = None) -> tuple[Tensor, Tensor]:
        raise AssertionError("no gradient is needed")

    def log_density(self, theta: Tensor) -> Tensor:
        x = theta[:, 0]
        return torch.logaddexp(-0.5 * ((x + 1) / 0.2) ** 2, 3 - 0.5 * ((x - 2) / 0.2) ** 2)


def walk(kernel: Any, n_steps: int, *, target: Any = None, burn_in: int = 0, start: Carry | None = None) -> list[Carry]:
    """States of independent chains that start in N(0, 1), after `burn_in` steps."""
    position = torch.randn(CHAINS, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    seeds: list[int] = []
    target = target or StandardNormal()
    carry = kernel.start(target, position, start or {}, Fast(-1, 0, n_steps, seeds))
    kept = []
    for number in range(burn_in + n_steps):
        carry = kernel.step(target, carry, Fast(number, 0, n_steps, seeds))
        if number >= burn_in:
            kept.append(carry)
    return kept


def variance(states: list[Carry]) -> float:
    return float(torch.stack([s["position"].square() for s in states]).mean())


def accepted(states: list[Carry]) -> float:
    return float(torch.stack([s["acceptance"] for s in states]).mean())


@pytest.mark.parametrize(("size", "n", "expected"), [(1.0, 1, 0.9208), (1.0, 2, 0.9208), (1.9, 1, 0.5488)])
def test_leapfrog_is_accepted_as_often_as_its_linear_map_says_and_keeps_the_variance(
    size: float, n: int, expected: float
) -> None:
    class OfLength(Hamiltonian):
        def n_steps(self, carry: Carry, step: Step) -> int:
            return n

    kernel = OfLength(trajectory=1, most_steps=99)
    states = walk(kernel, 20, start={"step_size": torch.tensor([size], dtype=torch.float64)})
    assert accepted(states) == pytest.approx(expected, abs=0.003)
    assert variance(states) == pytest.approx(1.0, abs=0.015)  # 1.33 without the correction at ε = 1, L = 2


def test_trajectories_are_jittered_and_bounded() -> None:
    kernel = Hamiltonian(trajectory=math.pi, most_steps=9)
    carry = {"step_size": torch.tensor([math.pi / 6])}
    lengths = {kernel.n_steps(carry, Step(i, 0, 100, [7, 8])) for i in range(100)}
    assert len(lengths) > 4
    assert min(lengths) >= 3
    assert max(lengths) <= 9
    assert kernel.n_steps(carry, Step(5, 0, 100, [7, 8])) == kernel.n_steps(carry, Step(5, 0, 100, [7, 9]))


def test_trajectories_that_the_bound_shortens_are_still_jittered() -> None:
    kernel = Hamiltonian(trajectory=math.pi, most_steps=9)
    lengths = [kernel.n_steps({"step_size": torch.tensor([1e-4])}, Step(i, 0, 100, [7, 8])) for i in range(100)]
    assert set(lengths) == set(range(4, 10))


def test_windows_of_the_warm_up_are_those_of_stan() -> None:
    assert windows(1000) == (75, [100, 150, 250, 450, 950])
    assert windows(100) == (15, [90])
    assert windows(10) == (0, [])


def test_a_random_walk_is_accepted_by_the_arc_tangent_and_repeats_what_is_rejected() -> None:
    kernel = RandomWalk()
    position = torch.randn(CHAINS, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target, seeds = StandardNormal(), list[int]()
    carry = kernel.start(target, position, {}, Fast(-1, 0, 40, seeds))
    carry["step_size"] = torch.tensor([2.4], dtype=torch.float64)
    states = []
    for number in range(40):
        before, carry = carry, kernel.step(target, carry, Fast(number, 0, 40, seeds))
        states.append(carry)
        stayed = carry["position"] == before["position"]
        assert 0.5 < float(stayed.double().mean()) < 0.62
    assert accepted(states) == pytest.approx(2 / math.pi * math.atan(2 / 2.4), abs=0.003)  # .4423
    assert variance(states) == pytest.approx(1.0, abs=0.015)  # 1.13 if accepted states alone were kept


@pytest.mark.parametrize("size", [0.5, 2.0])
def test_langevin_with_plain_noise_is_too_wide_by_the_formula_and_with_averaged_noise_exact(size: float) -> None:
    plain = walk(Langevin(lr=size, noise="plain", gradients=FULL), 20, burn_in=20)
    assert variance(plain) == pytest.approx(1 / (1 - size / 4), rel=0.015)
    averaged = walk(Langevin(lr=size, noise="averaged", gradients=FULL), 20, burn_in=20)
    assert variance(averaged) == pytest.approx(1.0, rel=0.015)


def test_gradient_noise_widens_langevin_by_the_formula() -> None:
    class Noisy(StandardNormal):
        def __init__(self) -> None:
            self.rng = torch.Generator().manual_seed(3)

        def __call__(self, theta: Tensor, batch: Batch | None = None) -> tuple[Tensor, Tensor]:
            noise = torch.randn(theta.shape, generator=self.rng, dtype=theta.dtype)
            return self.log_density(theta), -theta + math.sqrt(3.0) * noise

    states = walk(Langevin(lr=0.5, noise="plain", gradients=FULL), 20, burn_in=20, target=Noisy())
    assert variance(states) == pytest.approx((1 + 0.5 * 3 / 4) / (1 - 0.5 / 4), rel=0.015)


def test_without_noise_iterates_spread_by_the_noise_of_batches_drawn_with_replacement() -> None:
    rate, size = 0.2, 4  # θ' = θ + ½ lr (mean of the batch − θ)
    gradients = Gradients(batch_size=size, n_rows=40, preconditioner="none")
    kernel = Langevin(lr=2 * rate, noise="none", gradients=gradients)
    states = walk(kernel, 15, burn_in=25, target=MeanOfNumbers(40))
    assert variance(states) == pytest.approx(rate / (2 - rate) / size, rel=0.025)


@pytest.mark.parametrize(("size", "friction"), [(0.5, 0.1), (1.8, 0.1), (1.0, 0.9)])
def test_baoab_has_the_exact_variance_at_any_step_and_friction(size: float, friction: float) -> None:
    kernel = Underdamped(lr=size, friction=friction, scheme="baoab", gradients=FULL)
    assert variance(walk(kernel, 20, burn_in=60)) == pytest.approx(1.0, rel=0.02)


def test_the_scheme_of_chen_is_too_wide_by_the_formula() -> None:
    kernel = Underdamped(lr=0.25, friction=0.9, scheme="chen", gradients=FULL)
    expected = 1 / (1 - 0.25 / (2 * (2 - 0.9)))
    assert expected == pytest.approx(1.1282, abs=1e-4)
    assert variance(walk(kernel, 20, burn_in=60)) == pytest.approx(expected, rel=0.015)


def test_annealing_leaves_the_wrong_well() -> None:
    kernel, seeds, steps = Cooling(hottest=10, coldest=0.01), range(100), 600
    carry = kernel.start(TwoWells(), torch.full((100, 1), -1.0), {}, Step(-1, steps, steps + 1, seeds))
    for number in range(steps):
        step = Step(number, steps, steps + 1, seeds)
        carry = kernel.adapt(TwoWells(), kernel.step(TwoWells(), carry, step), step)
    ended = kernel.step(TwoWells(), carry, Step(steps, steps, steps + 1, seeds))["position"][:, 0]
    assert int(((ended - 2).abs() < 0.1).sum()) >= 95


def test_the_chance_of_a_chain_does_not_depend_on_the_others() -> None:
    like = torch.zeros(3, 5)
    together = Step(4, 0, 9, [11, 12, 13])
    alone = Step(4, 0, 9, [12])
    assert torch.equal(together.normal(like)[1], alone.normal(like[:1])[0])
    assert torch.equal(together.normal(like, later=1), Step(5, 0, 9, [11, 12, 13]).normal(like))
    assert torch.equal(together.uniform(like)[1], alone.uniform(like[:1])[0])
    ours, theirs = (step.batch(40, 6, torch.device("cpu")) for step in (together, alone))
    assert torch.equal(ours.rows[1], theirs.rows[0])
    assert ours.seeds[1] == theirs.seeds[0]

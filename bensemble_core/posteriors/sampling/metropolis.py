"""Random-walk Metropolis, and simulated annealing on the same walk."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from bensemble_core.errors import InvalidOption
from bensemble_core.models.spec import outline
from bensemble_core.posteriors.log_posterior import LogPosterior, Target
from bensemble_core.posteriors.sampling import diagnosing
from bensemble_core.posteriors.sampling.chains import Carry, Chains, Step
from bensemble_core.posteriors.sampling.hmc import windows
from bensemble_core.posteriors.sampling.sampler import Chained, Sampling
from bensemble_core.types import Aim, Data, Diagnostics, Problem, Tensors

LARGEST = 1_000  # weights; beyond, a random walk takes longer than anybody waits
_SCALE = 2.38  # over √P, the best step on a Gaussian of covariance 1 (Gelman, Roberts & Gilks 1996)
_ACCEPTED_ALONE, _ACCEPTED = 0.44, 0.234  # best acceptance with one weight, and with many
_FOLLOWS = 0.05  # a step's weight in the adaptation of annealing, which never ends
_GAIN = 0.6  # a step's weight in the adaptation falls with its number to this power


@dataclass(frozen=True, kw_only=True)
class Metropolis(Sampling):
    """Draws of the posterior by a random walk that needs no gradient (Metropolis et al. 1953; Haario et al. 2001).

        θ' = θ + s Σ^½ ξ,   accepted with probability min(1, p(θ' | D) / p(θ | D)); a rejection repeats the state.

    In the warm-up Σ goes to the covariance of the weights within chains, in windows as in `hmc`, and s to an acceptance
    of .44 with one weight and .234 with more; both are then held. Up to 1,000 weights: the steps that an independent
    draw takes grow with their number. Every step is a pass over all rows.
    """

    name: Literal["metropolis"] = "metropolis"
    thin: int = field(default=20, metadata={"ge": 1, "le": 1_000_000, "description": "steps a draw"})
    warmup: int = field(
        default=2000, metadata={"ge": 0, "le": 1_000_000, "description": "steps before the first draw, to adapt in"}
    )

    def kernel(self, data: Data | None = None) -> "RandomWalk":
        return RandomWalk()

    def check(self, problem: Problem) -> None:
        super().check(problem)
        refuse_large(self.name, problem, self._sampled(problem))


@dataclass(frozen=True, kw_only=True)
class Annealing(Chained):
    """One network at the peak of the posterior, found by a walk that cools down (Kirkpatrick et al. 1983): no spread.

    The random walk of `metropolis` on p(θ | D)^(1/T), with temperatures T that fall from `hottest` to `coldest` by the
    same factor each step, and steps whose size follows the temperature by their acceptance. While it is hot the walk
    climbs out of wells; the best state that any of the `chains` met is the answer. No gradient is needed, and the MAP
    of a smooth model is found to a few digits only: `map` finds it to all. Up to 1,000 weights.
    """

    name: Literal["annealing"] = "annealing"
    steps: int = field(default=5000, metadata={"ge": 1, "le": 10_000_000, "description": "of the walk"})
    map_epochs: int = field(
        default=0,
        metadata={"ge": 0, "le": 1_000_000, "description": "epochs of MAP training first, for chains to start from"},
    )
    hottest: float = field(default=10.0, metadata={"gt": 0, "le": 1e9, "description": "temperature at the start"})
    coldest: float = field(default=1e-3, metadata={"gt": 0, "le": 1e9, "description": "temperature at the end"})
    aims: ClassVar[Aim] = "none"

    def kernel(self, data: Data | None = None) -> "Cooling":
        return Cooling(hottest=self.hottest, coldest=self.coldest)

    def check(self, problem: Problem) -> None:
        super().check(problem)
        refuse_large(self.name, problem, self._sampled(problem))
        untrained = problem.model.given(dtype=problem.dtype) is None
        if self.subset == "last_layer" and not self.map_epochs and untrained:
            raise InvalidOption(
                'annealing: subset="last_layer" leaves the rest of the network as it is, which is untrained; pass '
                "map_epochs=100, or a module with weights"
            )
        if self.coldest > self.hottest:
            raise InvalidOption(
                f"annealing cools: coldest is at most hottest, got {self.coldest:g} and {self.hottest:g}"
            )

    def steps_kept(self, *, goes_on: bool = False) -> tuple[int, Sequence[int]]:
        return self.steps, [self.steps]

    @property
    def n_draws(self) -> int:
        return 1

    def kept(self, problem: Problem, network: Tensors, target: LogPosterior, chains: Chains) -> dict[str, Tensor]:
        """The best state of all chains: [1, ...]."""
        assert chains.log_joint is not None
        best = int(chains.log_joint[:, 0].argmax())
        own = {k: v if len(v) == 1 else v[best : best + 1] for k, v in network.items()}
        one = replace(chains, draws=chains.draws[best : best + 1])
        return super().kept(problem, own, target, one)

    def diagnose(self, problem: Problem, state: Tensors) -> Diagnostics:
        """A point promises no spread, so there is nothing to doubt."""
        return Diagnostics(values=diagnosing.from_state(state, steps="").values)


def refuse_large(method: str, problem: Problem, names: Sequence[str]) -> None:
    """Raise unless a random walk can be expected to get anywhere."""
    size = sum(p.numel() for name, p in outline(problem.model).named_parameters() if name in names)
    if size > LARGEST:
        raise InvalidOption(
            f"{method} is a random walk, for at most {LARGEST:,} weights, these are {size:,}; use "
            f"{'map' if method == 'annealing' else 'hmc or sgld'}, which follows the gradient, a smaller network, or "
            'subset="last_layer"'
        )


@dataclass(frozen=True, kw_only=True)
class RandomWalk:
    """The kernel of `metropolis`, on p(θ | D)^(1/temperature)."""

    flat: ClassVar[tuple[str, ...]] = ("position",)
    scalars: ClassVar[tuple[str, ...]] = ()
    measures: ClassVar[tuple[str, ...]] = ("acceptance", "divergences", "step_size")

    def temperature(self, step: Step) -> float:
        return 1.0

    def start(self, target: Target, position: Tensor, warm: Tensors, step: Step) -> Carry:
        n_chains, n_weights = position.shape
        log_joint = target.log_density(position)
        size = position.new_full((1,), _SCALE / math.sqrt(n_weights))
        return {
            "position": position,
            "log_joint": log_joint,
            "acceptance": log_joint.new_zeros(n_chains),
            "diverged": log_joint.new_zeros(n_chains),
            "step_size": size,
            "restarted": torch.zeros_like(size),
            "root": torch.eye(n_weights, dtype=position.dtype, device=position.device),
            **_empty(position),
        }

    def step(self, target: Target, carry: Carry, step: Step) -> Carry:
        position = carry["position"]
        proposal = position + carry["step_size"] * step.normal(position) @ carry["root"].mT
        log_joint = target.log_density(proposal)
        gain = (log_joint - carry["log_joint"]) / self.temperature(step)
        gain = torch.where(gain.isnan(), torch.full_like(gain, -math.inf), gain)
        is_taken = step.uniform(position).log() < gain
        return {
            **carry,
            "position": torch.where(is_taken[:, None], proposal, position),
            "log_joint": torch.where(is_taken, log_joint, carry["log_joint"]),
            "acceptance": gain.clamp(max=0).exp(),
        }

    def adapt(self, target: Target, carry: Carry, step: Step) -> Carry:
        """The step's size by its acceptance (Robbins & Monro 1951), its shape at the end of a window."""
        wanted = _ACCEPTED_ALONE if carry["position"].shape[1] == 1 else _ACCEPTED
        gain = (step.number + 1 - carry["restarted"]) ** -_GAIN
        size = carry["step_size"] * (gain * (carry["acceptance"].mean() - wanted)).exp()
        carry = {**carry, "step_size": size}
        first, ends = windows(step.warmup)
        if ends and first <= step.number < ends[-1]:
            carry = _seen(carry)
        if step.number + 1 in ends:
            n = float(carry["window_n"][0])
            covariance = carry["window_m2"] / max(1.0, n - len(carry["position"]))
            eye = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
            root = torch.linalg.cholesky((n * covariance + 5e-3 * eye) / (n + 5)).contiguous()  # as a file gives it
            scale = _SCALE / math.sqrt(len(covariance))
            carry = {**carry, "root": root, "step_size": torch.full_like(size, scale), **_empty(carry["position"])}
            carry["restarted"] = torch.full_like(size, step.number + 1)
        return carry


@dataclass(frozen=True, kw_only=True)
class Cooling(RandomWalk):
    """The kernel of `annealing`: the walk of a falling temperature, which remembers the best state of each chain."""

    hottest: float
    coldest: float

    def temperature(self, step: Step) -> float:
        share = min(1.0, max(0, step.number) / max(1, step.warmup - 1))
        return self.hottest * math.pow(self.coldest / self.hottest, share)

    def start(self, target: Target, position: Tensor, warm: Tensors, step: Step) -> Carry:
        carry = super().start(target, position, warm, step)
        return {**carry, "best": position, "best_log_joint": carry["log_joint"]}

    def step(self, target: Target, carry: Carry, step: Step) -> Carry:
        if not step.is_warmup:  # the one step that is kept
            return {**carry, "position": carry["best"], "log_joint": carry["best_log_joint"]}
        carry = super().step(target, carry, step)
        is_better = carry["log_joint"] > carry["best_log_joint"]
        return {
            **carry,
            "best": torch.where(is_better[:, None], carry["position"], carry["best"]),
            "best_log_joint": torch.where(is_better, carry["log_joint"], carry["best_log_joint"]),
        }

    def adapt(self, target: Target, carry: Carry, step: Step) -> Carry:
        """The step's size alone, by an acceptance that follows the temperature."""
        wanted = _ACCEPTED_ALONE if carry["position"].shape[1] == 1 else _ACCEPTED
        return {**carry, "step_size": carry["step_size"] * (_FOLLOWS * (carry["acceptance"].mean() - wanted)).exp()}


def _empty(position: Tensor) -> Carry:
    n_weights = position.shape[1]
    return {
        "window_n": position.new_zeros(1),
        "window_mean": torch.zeros_like(position),
        "window_m2": position.new_zeros(n_weights, n_weights),
    }


def _seen(carry: Carry) -> Carry:
    """Running means of each chain, and the sum of all chains' outer products around them."""
    n_chains = len(carry["position"])
    n = carry["window_n"] + n_chains  # states in all
    offset = carry["position"] - carry["window_mean"]
    mean = carry["window_mean"] + offset * n_chains / n
    return {
        **carry,
        "window_n": n,
        "window_mean": mean,
        "window_m2": carry["window_m2"] + offset.mT @ (carry["position"] - mean),
    }

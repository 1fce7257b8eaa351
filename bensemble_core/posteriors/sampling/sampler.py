"""What every sampler of weights has: its options, where chains start, what is kept of them, and how it is read."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from bensemble_core.ensemble import Ensemble
from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.errors import InvalidData, InvalidOption, InvalidSnapshot
from bensemble_core.io import above, below
from bensemble_core.models.spec import outline, trainable_names
from bensemble_core.options import STRICT
from bensemble_core.posteriors.head import find_head, gives_the_outputs, head_alone, head_names
from bensemble_core.posteriors.log_posterior import Layout, LogPosterior
from bensemble_core.posteriors.sampling import diagnosing
from bensemble_core.posteriors.sampling.chains import Chains, Kernel, Plan, run, start_of
from bensemble_core.posteriors.start import check_memory, check_trainable, member_shapes, start_members
from bensemble_core.randomness import derive, draw_seed, generator
from bensemble_core.training.descent import Descent, Run, descend
from bensemble_core.types import (
    Aim,
    Data,
    Diagnostics,
    Over,
    Problem,
    Report,
    Shapes,
    Snapshot,
    Tensors,
    silent,
)

LARGEST_DRAWS = 1 << 28  # numbers in all draws: a gigabyte in float32
_COPIES = 8  # of θ in a step: where it is, its gradient, momentum and moments
_CHAIN = "chain/"
_MAP_PHASE = "map_phase"
_JITTER, _PROBE, _TRUNK = 101, 102, 103  # branches of a seed
_NUDGE = 0.3  # sd by which tensors are moved apart that a module starts alike in every chain
_SPREAD = 0.1  # sd of where chains start around their MAP, as a share of a tensor's root mean square
_SHORTER = 4  # a chain that goes on from another needs so many times less warm-up


@dataclass(frozen=True, kw_only=True)
class Chained:
    """What every method that runs chains has: all of it but the kernel, and which steps are kept.

    A method adds its name and options, and gives a `Kernel`.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    aims: ClassVar[Aim] = "exact"
    batches: ClassVar[bool] = False
    over: ClassVar[Over] = "weights"
    resumes: ClassVar[bool] = True
    starts_from_weights: ClassVar[bool] = False

    chains: int = field(default=4, metadata={"ge": 1, "le": 10_000, "description": "chains, run at once"})
    subset: Literal["all", "last_layer"] = field(
        default="all",
        metadata={"description": "which weights are sampled; below the last layer the network then stays at its MAP"},
    )
    map_epochs: int = field(
        default=100,
        metadata={"ge": 0, "le": 1_000_000, "description": "epochs of MAP training first, for chains to start from"},
    )

    @property
    def name(self) -> str:
        raise NotImplementedError  # a method's own field

    def kernel(self, data: Data | None = None) -> Kernel:
        """How a step is made on these rows; without any, what its carry has."""
        raise NotImplementedError

    @property
    def advice(self) -> str:
        """What to do where chains have not arrived."""
        return "take more steps (warmup, thin)"

    @property
    def passes_a_step(self) -> float:
        """Passes over all rows that a step takes, at most."""
        return 1.0

    def steps_kept(self, *, goes_on: bool = False) -> tuple[int, Sequence[int]]:
        """Steps of the warm-up, and the steps after which a draw is kept; fewer where a run `goes_on` from another."""
        raise NotImplementedError

    @property
    def n_draws(self) -> int:
        """Kept of all chains."""
        return self.chains * len(self.steps_kept()[1])

    @property
    def n_passes(self) -> float:
        """Over all rows, without those of the MAP training."""
        return self.passes_a_step * (self.steps_kept()[1][-1] + 1)

    def check(self, problem: Problem) -> None:
        """Refuse a network with nothing to sample, no prior, or more draws than a memory holds."""
        check_trainable(self.name, problem)
        if problem.prior is None:
            raise InvalidOption(
                f"{self.name} samples likelihood × prior, and there is no prior; pass prior=Normal(scale=…), or use "
                "map for maximum likelihood"
            )
        names = self._sampled(problem)
        size = sum(p.numel() for name, p in outline(problem.model).named_parameters() if name in names)
        what = f"{_COPIES} copies of {self.chains:,} chains of {size:,} weights"
        check_memory(self.name, what, _COPIES * self.chains * size, "take fewer chains")
        if self.n_draws * size > LARGEST_DRAWS:
            raise InvalidOption(
                f"{self.name} keeps every draw: {self.n_draws:,} draws of {size:,} weights are more than "
                f'{LARGEST_DRAWS:,} numbers; take fewer samples with a larger thin, or subset="last_layer"'
            )

    def fit(
        self,
        problem: Problem,
        data: Data,
        *,
        rng: torch.Generator,
        warm: Tensors | None = None,
        resume: Tensors | None = None,
        report: Report = silent,
    ) -> dict[str, Tensor]:
        """State: draws of the sampled weights, [chains·samples, ...] chain after chain, under their names.

        Other tensors of the model, [1, ...] where chains agree in them; `chain/…`, where each chain ended and how it
        was tuned, from which `warm` goes on; `diagnostics/…`.
        """
        if not data.n_rows:
            raise InvalidData(f"{self.name} has nothing to learn from: the data has no rows; label some")
        base = draw_seed(rng)
        seeds = [derive(base, c) for c in range(self.chains)]
        resume = resume or None  # a snapshot of a run that had not begun is empty
        if resume is not None and _MAP_PHASE not in resume:
            network = self._started(problem, start_of(resume))
        else:
            network = self._start(problem, data, base, seeds, warm=warm, resume=resume, report=report)
        target, theta = self._target(problem, data, network)
        earlier = {} if warm is None else self._earlier(warm, target.layout, problem)
        position = earlier.pop("position", None)
        if position is None:
            position = _apart(target.layout.join(theta), target.layout, seeds)
        warmup, kept = self.steps_kept(goes_on=bool(earlier))
        plan = Plan(
            target=target,
            kernel=self.kernel(data),
            position=position,
            kept=kept,
            warmup=warmup,
            seeds=seeds,
            settings=self,
            warm=earlier,
            start=network,
        )
        own = None if resume is None or _MAP_PHASE in resume else resume
        chains = run(plan, resume=own, report=report)
        values = diagnosing.compare(chains, target, derive(base, _PROBE))
        return {
            **self.kept(problem, network, target, chains),
            **self._ends(problem, target, chains),
            **diagnosing.to_state(values, data.x.device),
        }

    def kept(self, problem: Problem, network: Tensors, target: LogPosterior, chains: Chains) -> dict[str, Tensor]:
        """What is kept of the chains: every draw, [n_draws, ...], and the tensors that are not sampled."""
        draws = self._renamed(problem, target.layout.split(chains.draws.flatten(0, 1)))
        fixed = {k: v for k, v in network.items() if k not in draws}
        alike = {k: v[:1] for k, v in fixed.items() if bool((v == v[:1]).all())}
        of_each = {k: v.repeat_interleave(chains.draws.shape[1], 0) for k, v in fixed.items() if k not in alike}
        return {k: v.contiguous() for k, v in draws.items()} | alike | of_each

    def sample(self, problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
        """min(n, n_draws) of the draws, evenly spread over all chains."""
        names, kept = self._sampled(problem), self.n_draws
        chosen = torch.arange(min(n, kept)) * kept // min(n, kept)
        own = {k: state[k] for k in member_shapes(problem, 1)}
        stacked = {k: v[chosen.to(v.device)] for k, v in own.items() if k in names or len(v) == kept > 1}
        return Ensemble(problem=problem, stacked=stacked, shared={k: v[0] for k, v in own.items() if k not in stacked})

    def expected(self, problem: Problem, state: Tensors) -> Shapes:
        names, kept = self._sampled(problem), self.n_draws
        shapes: Shapes = {}
        for name, (_, *shape) in member_shapes(problem, 1).items():
            of_each = name in names or (name in state and len(state[name]) == kept)
            shapes[name] = (kept if of_each else 1, *shape)
        layout = Layout({name: shapes[name][1:] for name in names})
        kernel = self.kernel()
        for key in kernel.flat:
            prefix = f"{_CHAIN}{key}/"
            alone = {n: 1 if prefix + n in state and len(state[prefix + n]) == 1 else self.chains for n in names}
            shapes |= layout.under(prefix, alone)
        shapes |= {_CHAIN + key: (1,) for key in kernel.scalars}
        return shapes | diagnosing.expected(state, kernel.measures)

    def cost(self, n_parameters: int) -> int:
        """Chains × parameters × passes over the rows, those of the MAP training among them."""
        return int(self.chains * n_parameters * (self.map_epochs + self.n_passes))

    def diagnose(self, problem: Problem, state: Tensors) -> Diagnostics:
        return diagnosing.from_state(state, steps=self.advice)

    def unfold(self, problem: Problem, state: Tensors) -> dict[str, Tensor]:
        """Where each chain ended, as plain networks: [chains, ...]."""
        ends = below(_CHAIN + "position/", state)
        rest = {k: state[k] for k in member_shapes(problem, 1) if k not in ends and k in state}
        first = {k: v[:: max(1, len(v) // self.chains)] for k, v in rest.items()}  # of each chain
        return {**ends, **{k: v.expand(self.chains, *v.shape[1:]) for k, v in first.items()}}

    def _sampled(self, problem: Problem) -> list[str]:
        """Names of what is sampled: weights, and the likelihood's own."""
        trained = trainable_names(outline(problem.model))
        if self.subset == "last_layer":
            trained = head_names(self.name, problem)
        return [*trained, *problem.likelihood.start(dtype=problem.dtype)]

    def _start(
        self,
        problem: Problem,
        data: Data,
        base: int,
        seeds: Sequence[int],
        *,
        warm: Tensors | None,
        resume: Tensors | None,
        report: Report,
    ) -> dict[str, Tensor]:
        """Networks to start from, trained here to a MAP: [C, ...], or [1, ...] where the head alone is sampled."""
        of_head = self.subset == "last_layer"
        own = None if warm is None else self._as_networks(warm, problem)
        start = [derive(base, _TRUNK)] if of_head else list(seeds)
        theta, fixed = start_members(problem, start, warm=own, from_weights=of_head, device=data.x.device)
        if of_head and not gives_the_outputs(
            problem, split_extra({k: v[0] for k, v in (theta | fixed).items()})[0], find_head(problem)
        ):
            raise InvalidOption(
                f'{self.name}: subset="last_layer" needs a network that ends with a linear layer; use subset="all"'
            )
        if not self.map_epochs or own is not None:
            return {**theta, **fixed}
        if not of_head:
            theta = {k: _nudged(v, k, seeds) for k, v in theta.items()}
        share = max(1, round(self.n_passes / self.map_epochs))

        def report_map(done: int, total: int, message: str, snapshot: Snapshot) -> None:
            def marked() -> dict[str, Tensor]:
                return {**snapshot(), _MAP_PHASE: torch.tensor(True)}

            report(done, total * (1 + share), f"MAP: {message}", marked)

        trained = descend(
            Run(
                problem=problem,
                data=data,
                theta=theta,
                fixed=fixed,
                options=Descent(epochs=self.map_epochs),
                seeds=start,
            ),
            resume=None if resume is None else {k: v for k, v in resume.items() if k != _MAP_PHASE},
            report=report_map,
        )
        return {**trained.theta, **trained.fixed}

    def _started(self, problem: Problem, network: Tensors) -> dict[str, Tensor]:
        """The networks of a snapshot, or a refusal where they are not of this method's chains."""
        n = 1 if self.subset == "last_layer" else self.chains
        if {k: tuple(v.shape) for k, v in network.items()} != member_shapes(problem, n):
            raise InvalidSnapshot(
                "this snapshot is of another network or of another number of chains; resume with the call that made "
                "it, or start afresh without resume"
            )
        return dict(network)

    def _target(self, problem: Problem, data: Data, network: Tensors) -> tuple[LogPosterior, dict[str, Tensor]]:
        """What is sampled, and where it starts under the target's own names."""
        names = self._sampled(problem)
        if self.subset == "all":
            theta = {k: network[k] for k in names}
            fixed = {k: v for k, v in network.items() if k not in names}
            return LogPosterior(problem, data, theta, fixed), theta
        head, rows, renamed = head_alone(problem, {k: v[0] for k, v in network.items()}, data)
        every = {new: network[old].expand(self.chains, *network[old].shape[1:]) for new, old in renamed.items()}
        theta = {new: v for new, v in every.items() if renamed[new] in names}
        fixed = {new: v for new, v in every.items() if new not in theta}
        return LogPosterior(head, rows, theta, fixed), theta

    def _renamed(self, problem: Problem, tensors: Tensors) -> dict[str, Tensor]:
        """Tensors under the target's names, under those of the whole network, in the order of `_sampled`."""
        return dict(zip(self._sampled(problem), tensors.values(), strict=True))

    def _ends(self, problem: Problem, target: LogPosterior, chains: Chains) -> dict[str, Tensor]:
        kernel, last = self.kernel(), chains.last
        state = {_CHAIN + key: last[key] for key in kernel.scalars}
        for key in kernel.flat:
            split = self._renamed(problem, target.layout.split(last[key]))
            state |= above(f"{_CHAIN}{key}/", {k: v.contiguous() for k, v in split.items()})
        return state

    def _earlier(self, warm: Tensors, layout: Layout, problem: Problem) -> dict[str, Tensor]:
        """Where another run of this method ended, as its kernel takes it; empty where it had other chains."""
        kernel, names = self.kernel(), self._sampled(problem)
        found: dict[str, Tensor] = {}
        for key in kernel.flat:
            named = below(f"{_CHAIN}{key}/", warm)
            if set(named) != set(names) or len(named[names[0]]) not in (1, self.chains):
                return {}
            renamed = dict(zip(layout.shapes, (named[n] for n in names), strict=True))
            if any(tuple(v.shape[1:]) != layout.shapes[k] for k, v in renamed.items()):
                return {}
            found[key] = layout.join(renamed)
        for key in kernel.scalars:
            if _CHAIN + key not in warm:
                return {}
            found[key] = warm[_CHAIN + key]
        return found if len(found["position"]) == self.chains else {}

    def _as_networks(self, warm: Tensors, problem: Problem) -> dict[str, Tensor]:
        """Any method's state as networks to start from."""
        return self.unfold(problem, warm) if below(_CHAIN, warm) else dict(warm)


@dataclass(frozen=True, kw_only=True)
class Sampling(Chained):
    """The options that every sampler has."""

    samples: int = field(default=500, metadata={"ge": 1, "le": 1_000_000, "description": "draws kept of each chain"})
    warmup: int = field(
        default=500, metadata={"ge": 0, "le": 1_000_000, "description": "steps before the first draw, to adapt in"}
    )
    thin: int = field(default=1, metadata={"ge": 1, "le": 1_000_000, "description": "steps a draw"})

    def steps_kept(self, *, goes_on: bool = False) -> tuple[int, Sequence[int]]:
        """After the warm-up every `thin`-th step is kept."""
        warmup = -(-self.warmup // _SHORTER) if goes_on else self.warmup
        return warmup, range(warmup + self.thin - 1, warmup + self.samples * self.thin, self.thin)


def _nudged(value: Tensor, name: str, seeds: Sequence[int]) -> Tensor:
    """A tensor that a module starts alike in every chain, moved apart."""
    if len(seeds) == 1 or not bool((value == value[:1]).all()):
        return value
    return value + _NUDGE * _noise(value, name, seeds)


def _apart(position: Tensor, layout: Layout, seeds: Sequence[int]) -> Tensor:
    """Chains around where they are: each tensor by a share of its root mean square."""
    parts = layout.split(position)
    sizes = [v.square().mean().sqrt().expand(1, v[0].numel()) for v in parts.values()]
    return position + _SPREAD * torch.cat(sizes, 1) * _noise(position, "", seeds)


def _noise(value: Tensor, name: str, seeds: Sequence[int]) -> Tensor:
    path = [int.from_bytes(name.encode()[-6:], "big")]
    draws = [torch.randn(value.shape[1:], generator=generator(s, _JITTER, *path), dtype=value.dtype) for s in seeds]
    return torch.stack(draws).to(value.device)

"""Averages along one training run: SWA, SWAG, and several SWAG runs as a mixture."""

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from bensemble_core.ensemble import Ensemble
from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.errors import InvalidOption
from bensemble_core.models.spec import outline, trainable_names
from bensemble_core.posteriors.averaging.batchnorm import has_batch_norm, renormalised
from bensemble_core.posteriors.networks import Networks
from bensemble_core.posteriors.start import check_trainable
from bensemble_core.randomness import permutation
from bensemble_core.training.descent import Run, Schedule, Trained, Watch, count_steps
from bensemble_core.types import Data, Problem, Shapes, Tensors

_VARIANCE, _DEVIATION, _ROWS = "swag/variance/", "swag/deviation/", "swag/rows"  # names in the state
_STATISTICS = 9  # branch of a seed


@dataclass(frozen=True, kw_only=True)
class Averaging(Networks):
    """The options of a run whose iterates are collected; SWA, SWAG and MultiSWAG inherit these.

    Until `burn_in` of the epochs have passed the rate goes from `lr` to `swa_lr` (`schedule="constant"`: stays at
    `lr`). From then on it is `swa_lr`, or with `swa_lr_min` falls in every cycle of c steps along
    (1 − t) swa_lr + t swa_lr_min, t = (mod(i − 1, c) + 1)/c (Izmailov et al. 2018), and the weights at the end
    of each cycle are collected. Epochs that fill no cycle are added to the burn-in.
    """

    burn_in: float = field(
        default=0.5, metadata={"ge": 0, "lt": 1, "description": "share of the epochs before weights are collected"}
    )
    swa_lr: float | None = field(
        default=None, metadata={"gt": 0, "le": 100, "description": "learning rate while collecting; lr if none"}
    )
    swa_lr_min: float | None = field(
        default=None,
        metadata={"gt": 0, "le": 100, "description": "where the rate ends in each cycle; level if none"},
    )
    cycle: int = field(
        default=1, metadata={"ge": 1, "le": 1_000_000, "description": "epochs between two collected sets of weights"}
    )
    norm_rows: int = field(
        default=512, metadata={"ge": 2, "le": 1_000_000, "description": "rows for batch norm statistics at a time"}
    )

    def run(self, problem: Problem, data: Data, *, seeds: list[int], warm: Tensors | None) -> Run:
        run = super().run(problem, data, seeds=seeds, warm=warm)
        return replace(run, schedule=rate_schedule(self, data.n_rows), watch=collector(self, 0, "mean"))

    def state(self, run: Run, trained: Trained) -> dict[str, Tensor]:
        """Every tensor of the model under its own name, what was trained averaged."""
        if not trained.kept:  # no epochs, or nothing to train
            return super().state(run, trained)
        state = {**{k: trained.kept[f"mean/{k}"] for k in trained.theta}, **trained.fixed}
        if has_batch_norm(run.problem):
            parts = run.data.x.tensor_split(max(1, run.data.n_rows // self.norm_rows))
            state |= renormalised(run.problem, state, {}, parts)
        return state


@dataclass(frozen=True, kw_only=True)
class SWA(Averaging):
    """The average of the weights along the end of one training run: one network (Izmailov et al. 2018).

    θ_SWA = (1/T) Σ θ_i over the weights θ_i at the ends of T cycles.
    The statistics of batch normalisation are computed anew for θ_SWA on all rows, `norm_rows` at a time. Departures:
    Adam unless `optimiser="sgd"`; a learnt log-noise is averaged like a weight. With `epochs=0` the weights handed in
    are the answer.
    """

    name: Literal["swa"] = "swa"

    def check(self, problem: Problem) -> None:
        check_averaging(self, 0)
        super().check(problem)


@dataclass(frozen=True, kw_only=True)
class SWAG(Averaging):
    """A Gaussian fitted to the weights along the end of one training run (Maddox et al. 2019).

        θ = θ_SWA + √scale ( Σ_diag^½ z₁ / √2 + D z₂ / √(2 (rank − 1)) ),   z₁ ~ N(0, I_P), z₂ ~ N(0, I_rank)

    Σ_diag = (1/T) Σ (θ_i − θ_SWA)² of all T collected weights, accumulated without cancellation (Welford); the columns
    of D are the deviations of the last `rank` of them. So Cov θ = scale (½ Σ_diag + ½ D Dᵀ/(rank − 1)): with
    rank = T the off-diagonals are ½ of the sample covariance. The paper measures deviations from the mean at the
    time, since θ_SWA is not known yet; `centre="mean"` keeps the iterates and takes θ_SWA itself, `"running"` is
    the paper's. `rank=0` is its SWAG-diagonal, N(θ_SWA, scale Σ_diag).

    Where the network has batch normalisation, the state keeps min(N, `norm_rows`) standardised training rows, drawn at
    random, and every draw has its statistics computed on them. Other departures: Adam unless `optimiser="sgd"`; a
    learnt log-noise counts as a weight. A module's own weights are the start; with `epochs=0` they are the mean, and
    there is no spread.
    """

    name: Literal["swag"] = "swag"
    rank: int = field(default=20, metadata={"ge": 0, "le": 1000, "description": "deviations kept; 0 is diagonal"})
    scale: float = field(
        default=1.0,
        metadata={"ge": 0, "le": 1e6, "search": ("log", 0.1, 10.0), "description": "factor on the covariance"},
    )
    centre: Literal["mean", "running"] = field(
        default="mean", metadata={"description": "deviations from the final average, or from the average so far"}
    )

    def check(self, problem: Problem) -> None:
        check_averaging(self, self.rank)
        check_trainable(self.name, problem)

    def run(self, problem: Problem, data: Data, *, seeds: list[int], warm: Tensors | None) -> Run:
        run = super().run(problem, data, seeds=seeds, warm=warm)
        return replace(run, watch=collector(self, self.rank, self.centre))

    def state(self, run: Run, trained: Trained) -> dict[str, Tensor]:
        """The mean under the model's own names [M, ...], `swag/variance/…` [M, ...], `swag/deviation/…`
        [M, rank, ...], M = 1 but for a mixture; and `swag/rows` [B, ...] for batch normalisation."""
        state, kept = super().state(run, trained), trained.kept
        if not kept:  # no epochs, or nothing to train
            return state | {_VARIANCE + k: torch.zeros_like(v) for k, v in trained.theta.items()}
        state |= {_VARIANCE + k: kept[f"squares/{k}"].clamp_min(0) / int(kept["count"]) for k in trained.theta}
        if self.rank:
            last = {k: kept[f"last/{k}"] for k in trained.theta}  # [M, rank, ...]
            centred = {k: v - state[k].unsqueeze(1) if self.centre == "mean" else v for k, v in last.items()}
            state |= {_DEVIATION + k: v for k, v in centred.items()}
        if has_batch_norm(run.problem):
            chosen = permutation(run.data.n_rows, run.seeds[0], _STATISTICS)[: self.norm_rows]
            state[_ROWS] = run.data.x[chosen.to(run.data.x.device)]
        return state

    def sample(self, problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
        """Exactly n draws, of a mixture spread evenly over its Gaussians."""
        return _draw(problem, state, n, self.scale, rng)

    def expected(self, problem: Problem, state: Tensors) -> Shapes:
        shapes = super().expected(problem, state)
        trained = {*trainable_names(outline(problem.model)), *split_extra(shapes)[1]}
        spread: Shapes = {_VARIANCE + k: shapes[k] for k in trained}
        if self.rank and self.epochs:
            spread |= {_DEVIATION + k: (self.n_networks, self.rank, *shapes[k][1:]) for k in trained}
        if has_batch_norm(problem) and self.epochs:
            rows = state[_ROWS].shape[0] if _ROWS in state and state[_ROWS].ndim else 1
            spread[_ROWS] = (rows, *problem.model.input_shape)
        return shapes | spread


@dataclass(frozen=True, kw_only=True)
class MultiSWAG(SWAG):
    """Several SWAG Gaussians from different starts, as an equal mixture (Wilson & Izmailov 2020).

    n draws are spread evenly: each Gaussian gives ⌊n/members⌋ or one more, and which give more is drawn. Options and
    departures are those of `swag`; the weights of a module handed in are not used.
    """

    name: Literal["multi_swag"] = "multi_swag"  # type: ignore[assignment]
    members: int = field(default=5, metadata={"ge": 1, "le": 1000, "description": "runs, each with its own Gaussian"})
    starts_from_weights: ClassVar[bool] = False

    @property
    def n_networks(self) -> int:
        return self.members


def _count_snapshots(options: Averaging) -> int:
    return (options.epochs - round(options.burn_in * options.epochs)) // options.cycle


def check_averaging(options: Averaging, rank: int) -> None:
    """Refuse what could not give an average or a covariance."""
    name = options.name
    if options.patience is not None:
        raise InvalidOption(f"{name} averages the run to its end, and stopping early would cut it; drop patience")
    if options.swa_lr_min is not None and options.swa_lr_min > _swa_lr(options):
        raise InvalidOption(
            f"{name}: the rate falls within a cycle, from swa_lr to swa_lr_min; got {_swa_lr(options):g} and "
            f"{options.swa_lr_min:g}"
        )
    if rank == 1:
        raise InvalidOption(f"{name}: one deviation gives no covariance; rank is 0 (diagonal) or at least 2")
    snapshots = _count_snapshots(options)
    if options.epochs and snapshots < max(rank, 1):
        raise InvalidOption(
            f"{name}: rank is at most the number of collected weights, got rank {rank} and {snapshots} (epochs "
            f"{options.epochs}, burn_in {options.burn_in:g}, cycle {options.cycle}); train for at least "
            f"{math.ceil(max(rank, 1) * options.cycle / (1 - options.burn_in))} epochs, or lower rank, burn_in or cycle"
        )


def _swa_lr(options: Averaging) -> float:
    return options.lr if options.swa_lr is None else options.swa_lr


def rate_schedule(options: Averaging, n_rows: int) -> Schedule:
    """Factor on `lr` at each step of burn-in and cycles."""
    per_epoch = count_steps(n_rows, options.batch_size)
    total, length = options.epochs * per_epoch, options.cycle * per_epoch
    start = total - _count_snapshots(options) * length
    high = _swa_lr(options) / options.lr
    low = high if options.swa_lr_min is None else options.swa_lr_min / options.lr

    def factor(done: float) -> float:
        step = round(done * total)
        if step < start:
            cosine = 0.5 * (1 + math.cos(math.pi * step / start))
            return 1.0 if options.schedule == "constant" else high + (1 - high) * cosine
        t = ((step - start) % length + 1) / length
        return (1 - t) * high + t * low

    return factor


def collector(options: Averaging, rank: int, centre: str) -> Watch:
    """Gathers `count`, and for each tensor its mean, its sum of squared deviations, and the last `rank` of it.

    The last `rank` are the iterates themselves, or with centre="running" their deviations from the mean so far; they
    lie in a ring, [M, rank, ...].
    """
    start = options.epochs - _count_snapshots(options) * options.cycle

    def watch(epoch: int, theta: Tensors, fixed: Tensors, kept: dict[str, Tensor]) -> None:
        if epoch <= start or (epoch - start) % options.cycle:
            return
        count = int(kept["count"]) + 1 if "count" in kept else 1
        kept["count"] = torch.tensor(count)
        for name, now in theta.items():
            if count == 1:
                kept[f"mean/{name}"], kept[f"squares/{name}"] = torch.zeros_like(now), torch.zeros_like(now)
                kept[f"last/{name}"] = now.new_zeros(now.shape[0], rank, *now.shape[1:])
            mean, before = kept[f"mean/{name}"], now - kept[f"mean/{name}"]
            mean.add_(before, alpha=1 / count)
            kept[f"squares/{name}"].addcmul_(before, now - mean)
            if rank:
                kept[f"last/{name}"][:, (count - 1) % rank] = now - mean if centre == "running" else now

    return watch


def _draw(problem: Problem, state: Tensors, n: int, scale: float, rng: torch.Generator) -> Ensemble:
    """n draws of the mixture of the state's Gaussians, which all have the same weight."""
    named = {k: v for k, v in state.items() if not k.startswith("swag/")}
    drawn = [k.removeprefix(_VARIANCE) for k in state if k.startswith(_VARIANCE)]
    some = next(iter(named.values()))
    n_members, device = some.shape[0], some.device
    order = torch.randperm(n_members, generator=rng)
    member = order[torch.arange(n) * n_members // n].sort().values.to(device)  # [n]
    ranks = {state[_DEVIATION + k].shape[1] for k in drawn if _DEVIATION + k in state}
    rank = ranks.pop() if ranks else 0
    z2 = torch.randn(n, rank, generator=rng, dtype=problem.dtype).to(device)
    members: dict[str, Tensor] = {}
    for name in sorted(drawn):  # a file does not keep the order of its tensors
        mean, variance = named[name], state[_VARIANCE + name]
        z1 = torch.randn(n, *mean.shape[1:], generator=rng, dtype=problem.dtype).to(device)
        noise = variance.sqrt()[member] * z1
        if rank:
            deviations = state[_DEVIATION + name]  # [members, rank, ...]
            spread = [torch.tensordot(z, deviations[m], 1) for z, m in zip(z2, member.tolist(), strict=True)]
            noise = noise / math.sqrt(2) + torch.stack(spread) / math.sqrt(2 * (rank - 1))
        members[name] = mean[member] + math.sqrt(scale) * noise
    rest = {k: v for k, v in named.items() if k not in members}
    shared = {k: v[0] for k, v in rest.items() if bool((v == v[:1]).all())}
    members |= {k: v[member] for k, v in rest.items() if k not in shared}
    if _ROWS in state:
        members |= renormalised(problem, members, shared, [state[_ROWS]])
        shared = {k: v for k, v in shared.items() if k not in members}
    return Ensemble(problem=problem, stacked=members, shared=shared)

"""Snapshot ensembles: members along one training run."""

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from bensemble_core.errors import InvalidOption
from bensemble_core.posteriors.networks import Networks
from bensemble_core.posteriors.start import member_shapes
from bensemble_core.training.descent import Run, Schedule, Trained, Watch, count_steps
from bensemble_core.types import Data, Problem, Shapes, Tensors


@dataclass(frozen=True, kw_only=True)
class SnapshotEnsemble(Networks):
    """Networks taken along one training run, one at the end of each cycle of the learning rate.

    There are `cycles` of them, and the last `members` are kept.

    `schedule="cosine"` (Huang et al. 2017, eq. 2): the rate starts every cycle of c steps at `lr` and falls as
    (lr/2)(cos(π mod(t − 1, c)/c) + 1). `schedule="constant"` (Jung et al. 2023): after half of the epochs at `lr` the
    rate stays at `high` · `lr`, ten times it, and the cycles only say when a member is taken; `burn_in` changes that
    half, and lets a cosine run begin with epochs at `lr` too.

    The trajectory goes on across rounds: a warm start (`Fitted.update`, `warm=`) opens with the last weights of the
    round before, and all members are of the new round. The optimiser starts afresh each round, not each cycle. Cycles
    are whole epochs, of lengths that differ by one at most. Departures: Adam unless `optimiser="sgd"`, and Jung et
    al.'s gradual change from low to high rate is a step. A module's own weights are the start.
    """

    name: Literal["snapshot_ensemble"] = "snapshot_ensemble"
    cycles: int = field(default=5, metadata={"ge": 1, "le": 1000, "description": "times that a member is taken"})
    members: int | None = field(
        default=None, metadata={"ge": 1, "le": 1000, "description": "how many of the last are kept; all if none"}
    )
    schedule: Literal["cosine", "constant"] = field(
        default="cosine", metadata={"description": "rate within a cycle: from lr to 0, or level at high times lr"}
    )
    high: float = field(default=10.0, metadata={"gt": 0, "le": 1000, "description": "times lr, where it is constant"})
    burn_in: float | None = field(
        default=None,
        metadata={"ge": 0, "lt": 1, "description": "share of the epochs at lr before the first cycle; 0 if cosine"},
    )

    def check(self, problem: Problem) -> None:
        if self.patience is not None:
            raise InvalidOption(
                "snapshot_ensemble takes members until the last epoch, and stopping early would lose some; "
                "drop patience, or lower epochs"
            )
        if self.members is not None and self.members > self.cycles:
            raise InvalidOption(
                f"snapshot_ensemble: a cycle gives one member, so members is at most cycles; got {self.members} and "
                f"{self.cycles}"
            )
        if self.epochs and self.epochs - _burn_in(self) < self.cycles:
            raise InvalidOption(
                f"snapshot_ensemble: a cycle is at least one epoch; {self.epochs} epochs less {_burn_in(self)} of "
                f"burn-in do not hold {self.cycles} cycles; raise epochs, or lower cycles or burn_in"
            )
        super().check(problem)

    def run(self, problem: Problem, data: Data, *, seeds: list[int], warm: Tensors | None) -> Run:
        last = None if warm is None else {k: v[-1:] for k, v in warm.items()}
        run = super().run(problem, data, seeds=seeds, warm=last)
        return replace(run, schedule=rate_schedule(self, data.n_rows), watch=_keeper(self))

    def state(self, run: Run, trained: Trained) -> dict[str, Tensor]:
        """Every tensor of the model under its own name, [members, ...], the last one last."""
        return trained.kept or super().state(run, trained)

    def expected(self, problem: Problem, state: Tensors) -> Shapes:
        return member_shapes(problem, (self.members or self.cycles) if self.epochs else 1)


def _burn_in(options: SnapshotEnsemble) -> int:
    """Epochs before the first cycle."""
    share = (0.5 if options.schedule == "constant" else 0.0) if options.burn_in is None else options.burn_in
    return round(share * options.epochs)


def cycle_ends(options: SnapshotEnsemble) -> list[int]:
    """The epochs after which a member is taken, the last of them the last of all."""
    start = _burn_in(options)
    return [start + (options.epochs - start) * (c + 1) // options.cycles for c in range(options.cycles)]


def rate_schedule(options: SnapshotEnsemble, n_rows: int) -> Schedule:
    """Factor on `lr` at each step."""
    per_epoch = count_steps(n_rows, options.batch_size)
    total, bounds = options.epochs * per_epoch, [_burn_in(options), *cycle_ends(options)]

    def factor(done: float) -> float:
        step = round(done * total)
        epoch = step // per_epoch
        if epoch < bounds[0]:
            return 1.0
        if options.schedule == "constant":
            return options.high
        opened, closes = next((a, b) for a, b in pairwise(bounds) if epoch < b)
        share = (step - opened * per_epoch) / ((closes - opened) * per_epoch)
        return 0.5 * (1 + math.cos(math.pi * share))

    return factor


def _keeper(options: SnapshotEnsemble) -> Watch:
    """Keeps every tensor of the run at the ends of the last `members` cycles, [members, ...]."""
    wanted = set(cycle_ends(options)[-(options.members or options.cycles) :])

    def watch(epoch: int, theta: Tensors, fixed: Tensors, kept: dict[str, Tensor]) -> None:
        if epoch in wanted:
            for name, now in {**theta, **fixed}.items():
                kept[name] = torch.cat([kept[name], now]) if name in kept else now.clone()

    return watch

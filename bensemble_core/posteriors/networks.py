"""Methods whose state is plain networks found by descent: all of a method but what makes it special."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from bensemble_core.ensemble import Ensemble
from bensemble_core.posteriors.start import check_trainable, member_shapes, split_shared, start_members, thinned
from bensemble_core.randomness import derive, draw_seed
from bensemble_core.training.descent import Descent, Run, Trained, descend
from bensemble_core.types import Aim, Data, Problem, Report, Shapes, Tensors, silent


@dataclass(frozen=True, kw_only=True)
class Networks(Descent):
    """`n_networks` networks, trained at once by `descend`, and kept as they end.

    A method adds its name and options, and overrides what it does otherwise: `run` (what the descent is given: where
    networks start, the objective, the learning rate), `state` (what is kept of its end), `sample`. One that keeps
    more than plain networks overrides `expected` too, and one that passes over the rows more often `cost`. A method
    whose members or iterates belong together refuses `patience` in `check`, which keeps each network at its own epoch.

    What a `Run` may vary, and who does: `theta`, where networks start (mc_dropout, batch_ensemble); `rows` and
    `targets` of each network (deep_ensemble); `objective`, what is minimised (deep_ensemble, batch_ensemble);
    `transform`, how the network is computed (mc_dropout); `schedule`, the learning rate, and `watch`, what is kept
    after an epoch (snapshot_ensemble, swag).
    """

    aims: ClassVar[Aim] = "none"
    resumes: ClassVar[bool] = True
    starts_from_weights: ClassVar[bool] = True

    @property
    def name(self) -> str:
        raise NotImplementedError  # a method's own field

    @property
    def n_networks(self) -> int:
        """How many are trained at once."""
        return 1

    def check(self, problem: Problem) -> None:
        """Refuse a network with nothing to train, unless its weights are taken as they are."""
        check_trainable(self.name, problem, as_they_are=self.epochs == 0 and self.starts_from_weights)

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
        """The state, as the class's docstring has it; by default every tensor of the model, [n_networks, ...]."""
        base = draw_seed(rng)
        seeds = [derive(base, m) for m in range(self.n_networks)]
        run = self.run(problem, data, seeds=seeds, warm=warm)
        return self.state(run, descend(run, resume=resume, report=report))

    def run(self, problem: Problem, data: Data, *, seeds: list[int], warm: Tensors | None) -> Run:
        """The whole input of the descent."""
        theta, fixed = start_members(
            problem, seeds, warm=warm, from_weights=self.starts_from_weights, device=data.x.device
        )
        return Run(problem=problem, data=data, theta=theta, fixed=fixed, options=self, seeds=seeds)

    def state(self, run: Run, trained: Trained) -> dict[str, Tensor]:
        """What is kept of the descent's end."""
        return {**trained.theta, **trained.fixed}

    def sample(self, problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
        """min(n, S) of the S networks kept, evenly thinned."""
        stacked, shared = split_shared(problem, thinned(state, n))
        return Ensemble(problem=problem, stacked=stacked, shared=shared)

    def expected(self, problem: Problem, state: Tensors) -> Shapes:
        """Of plain networks."""
        return member_shapes(problem, self.n_networks)

    def cost(self, n_parameters: int) -> int:
        """Networks × parameters × epochs."""
        return self.n_networks * n_parameters * self.epochs

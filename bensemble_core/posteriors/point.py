"""MAP: one set of weights."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from bensemble_core.ensemble import Ensemble
from bensemble_core.posteriors.start import check_trainable, member_shapes, start_members, thinned
from bensemble_core.randomness import derive, draw_seed
from bensemble_core.training.descent import Descent, Run, descend
from bensemble_core.types import Aim, Data, Problem, Report, Shapes, Tensors, silent


@dataclass(frozen=True, kw_only=True)
class MAP(Descent):
    """θ* = argmax Σ log p(y | x, θ) + log p(θ); with `prior=None` maximum likelihood.

    A module's own weights are the start, and with `epochs=0` they are the answer.
    """

    name: Literal["map"] = "map"
    aims: ClassVar[Aim] = "none"
    resumes: ClassVar[bool] = True
    starts_from_weights: ClassVar[bool] = True

    def check(self, problem: Problem) -> None:
        check_trainable(self.name, problem, as_they_are=self.epochs == 0)

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
        """State: every tensor of the model under its own name, [1, ...]."""
        seeds = [derive(draw_seed(rng), 0)]
        theta, fixed = start_members(problem, seeds, warm=warm, from_weights=True, device=data.x.device)
        trained = descend(
            Run(problem=problem, data=data, theta=theta, fixed=fixed, options=self, seeds=seeds),
            resume=resume,
            report=report,
        )
        return {**trained.theta, **trained.fixed}

    def sample(self, problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
        """One member, whatever n."""
        return Ensemble(problem=problem, stacked=thinned(state, n))

    def expected(self, problem: Problem, state: Tensors) -> Shapes:
        return member_shapes(problem, 1)

    def cost(self, n_parameters: int) -> int:
        return n_parameters * self.epochs

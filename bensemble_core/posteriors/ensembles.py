"""Ensembles of networks trained apart."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from bensemble_core.ensemble import Ensemble
from bensemble_core.errors import InvalidOption
from bensemble_core.posteriors.start import split_shared, start_members, thinned
from bensemble_core.randomness import derive, draw_seed, generator
from bensemble_core.training import Descent, descend
from bensemble_core.types import Aim, Data, Problem, Report, Tensors, silent

_BOOTSTRAP = 7  # branch of a member's seed


@dataclass(frozen=True, kw_only=True)
class DeepEnsemble(Descent):
    """`members` MAP estimates from different starts and batch orders (Lakshminarayanan et al. 2017).

    With `bootstrap` each sees N rows drawn with replacement. The weights of a module handed in are not used: each
    member is initialised afresh from its own seed. Member m is the same in an ensemble of any size.
    """

    name: Literal["deep_ensemble"] = "deep_ensemble"
    members: int = field(default=5, metadata={"ge": 1, "le": 1000, "description": "networks to train"})
    bootstrap: bool = field(default=False, metadata={"description": "each member sees its own resampled rows"})
    aims: ClassVar[Aim] = "none"
    resumes: ClassVar[bool] = True
    starts_from_weights: ClassVar[bool] = False

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
        """State: every tensor of the model under its own name, [members, ...]."""
        if self.bootstrap and self.patience is not None:
            raise InvalidOption(
                "deep_ensemble: bootstrap repeats rows, so a held-out row may also be trained on; drop patience"
            )
        base = draw_seed(rng)
        seeds = [derive(base, m) for m in range(self.members)]
        theta, fixed = start_members(problem, seeds, warm=warm, from_weights=False, device=data.x.device)
        trained = descend(
            problem,
            data,
            theta=theta,
            fixed=fixed,
            options=self,
            seeds=seeds,
            rows=_resampled(seeds, data) if self.bootstrap else None,
            resume=resume,
            report=report,
        )
        return {**trained.theta, **trained.fixed}

    def sample(self, problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
        """min(n, members) of the networks, evenly thinned."""
        stacked, shared = split_shared(problem, thinned(state, n))
        return Ensemble(problem=problem, stacked=stacked, shared=shared)

    def cost(self, n_parameters: int) -> int:
        return self.members * n_parameters * self.epochs


def _resampled(seeds: list[int], data: Data) -> Tensor:
    """[M, N] rows drawn with replacement."""
    n = data.n_rows
    drawn = [torch.randint(max(n, 1), (n,), generator=generator(s, _BOOTSTRAP)) for s in seeds]
    return torch.stack(drawn).to(data.x.device)

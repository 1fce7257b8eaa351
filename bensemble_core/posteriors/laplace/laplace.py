"""Laplace approximation."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from bensemble_core.ensemble import Ensemble
from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.errors import InvalidModel, InvalidOption
from bensemble_core.likelihoods import FLOOR, LOG_NOISE, Gaussian, HeteroscedasticGaussian
from bensemble_core.models.spec import outline, trainable_names
from bensemble_core.models.transforms import Linearised, join
from bensemble_core.posteriors.gaussian import in_units
from bensemble_core.posteriors.head import find_head, gives_the_outputs
from bensemble_core.posteriors.laplace.curvature import Block, Deltas, curvature, function_covariance
from bensemble_core.posteriors.laplace.evidence import best_on_held_out, log_evidence, maximise_evidence
from bensemble_core.posteriors.laplace.held_out import held_out_loss, hold_out
from bensemble_core.posteriors.laplace.network import Network, look_at
from bensemble_core.posteriors.laplace.state import EVIDENCE, PREFIX, ROWS, expected_state, from_state, to_state
from bensemble_core.posteriors.noise_belief import NoiseBelief
from bensemble_core.posteriors.start import check_linearises, member_shapes, start_members
from bensemble_core.priors import Normal
from bensemble_core.randomness import draw_seed
from bensemble_core.training.descent import Descent, Run, descend
from bensemble_core.training.objectives import Batch, Forward
from bensemble_core.types import Aim, Data, Problem, Report, Shapes, Snapshot, Tensors, silent

LARGEST_FULL = 5_000  # parameters; [P, P] in float64 is 200 MB


@dataclass(frozen=True, kw_only=True)
class Laplace(Descent):
    """A Gaussian at the peak of the posterior, as wide as the curvature there (MacKay 1992; Daxberger et al. 2021).

        q(θ) = N(θ*, (H + δ)⁻¹),   θ* the MAP, H the Gauss-Newton curvature of all N rows at it, δ the prior precision.

    (Blocks for each layer: Ritter et al. 2018.) A module's own weights are the start, and with `epochs=0`
    they are θ*. `structure`: "kron" has for every linear and convolution layer a block L ⊗ R + δ, L summed over rows
    and R their average, drawn by its symmetric root as U_L [(U_Lᵀ Z U_R) ⊘ √(l rᵀ + δ)] U_Rᵀ, with the bias a block of
    its own or (`bias="joint"`) a weight of the constant input 1, and a diagonal block for parameters of any other layer
    (norms, embeddings); `damping="factored"` takes (L/√N + √δ) ⊗ (√N R + √δ) for a weight's block, the matrix
    normal of Ritter et al., a larger precision and so a tighter posterior; a bias with a block of its own and diagonal
    blocks keep H + δ. "diag" is exact on the diagonal; "full" is all of H, up to 5,000 parameters.
    `subset="last_layer"`: only the last linear layer to run is uncertain, the rest is computed once.

    `predictive="linearised"`: a member is f(x, θ*) + J(x) (θ − θ*), the model whose posterior this is (Immer et al.
    2021); "sampled": f(x, θ) itself. `prior_precision="marglik"` and `noise="marglik"` choose δ (one for all, or one a
    parameter tensor with `per_layer`) and a common factor on the learnt noise variance at the largest log evidence with
    θ* held; "validation" trains without a share `validation` of the rows and takes the δ with the least NLL of their
    linearised predictive. H uses the Fisher information of the outputs, for heteroscedastic noise that of mean and raw
    variance. Noise itself is a point estimate.
    """

    name: Literal["laplace"] = "laplace"
    structure: Literal["kron", "diag", "full"] = field(
        default="kron", metadata={"description": "of the curvature: Kronecker factors, its diagonal, or all of it"}
    )
    subset: Literal["all", "last_layer"] = field(
        default="all", metadata={"description": "which parameters are uncertain"}
    )
    predictive: Literal["linearised", "sampled"] = field(
        default="linearised", metadata={"description": "members of the network's linearisation, or of itself"}
    )
    bias: Literal["own", "joint"] = field(
        default="own", metadata={"description": "of kron: a block of its own, or one with its layer's weight"}
    )
    damping: Literal["exact", "factored"] = field(
        default="exact",
        metadata={
            "description": "of a weight's block in kron, from N rows: L ⊗ R + δ, or (L/√N + √δ) ⊗ (√N R + √δ), which "
            "is larger; a bias's own block and diagonal ones are H + δ"
        },
    )
    prior_precision: Literal["given", "marglik", "validation"] = field(
        default="given", metadata={"description": "as the prior says, by log evidence, or by held-out rows"}
    )
    per_layer: bool = field(
        default=False, metadata={"description": "of marglik: a precision for every weight and bias tensor"}
    )
    noise: Literal["given", "marglik"] = field(
        default="given", metadata={"description": "of a Gaussian that learns it: as trained, or by log evidence"}
    )
    aims: ClassVar[Aim] = "exact"
    resumes: ClassVar[bool] = True
    starts_from_weights: ClassVar[bool] = True

    def check(self, problem: Problem) -> None:
        if problem.prior is not None and not isinstance(problem.prior, Normal):
            raise InvalidOption(
                f"laplace takes a Normal prior, got {type(problem.prior).__name__}; pass prior=Normal(…)"
            )
        if problem.prior is None and self.prior_precision == "given":
            raise InvalidOption(
                "laplace with prior=None has no prior precision, and without one the posterior may be infinitely wide; "
                'pass prior=Normal(scale=…), or prior_precision="marglik"'
            )
        if self.per_layer and self.prior_precision != "marglik":
            raise InvalidOption('laplace: per_layer chooses precisions by evidence; pass prior_precision="marglik"')
        if self.damping == "factored" and "marglik" in (self.prior_precision, self.noise):
            raise InvalidOption(
                'laplace: damping="factored" changes the posterior with δ in a way its evidence is not meant for; '
                'choose with damping="exact"'
            )
        likelihood = problem.likelihood
        if self.noise == "marglik" and not (isinstance(likelihood, Gaussian) and likelihood.learns):
            raise InvalidOption(
                'laplace: noise="marglik" needs a Gaussian likelihood that learns its noise; '
                'pass likelihood="gaussian" or Gaussian(noise=…, learn_noise=True)'
            )
        names = self.names(problem)
        size = sum(p.numel() for name, p in outline(problem.model).named_parameters() if name in names)
        if self.structure == "full" and size > LARGEST_FULL:
            raise InvalidOption(
                f'laplace: structure="full" is for at most {LARGEST_FULL:,} parameters, these are {size:,} '
                f'({8 * size**2 / 1e9:.1f} GB); use structure="kron", or subset="last_layer"'
            )
        if self.predictive == "linearised":
            check_linearises(self.name, problem, names, 'use predictive="sampled"')

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
        """State: the MAP under its own names [1, ...], and under `laplace/` prior precisions, factors and evidence."""
        seed = draw_seed(rng)
        own = None if warm is None else {k: v for k, v in warm.items() if not k.startswith(PREFIX)}
        theta, fixed = start_members(problem, [seed], warm=own, from_weights=True, device=data.x.device)
        names = self.names(problem)
        held_out = None
        if self.prior_precision == "validation":
            data, held_out = hold_out(data, self.validation, seed)
        progress = _Progress(report)
        trained = descend(
            Run(problem=problem, data=data, theta=theta, fixed=fixed, options=self, seeds=[seed]),
            resume=resume or None,
            report=progress,
        )
        members = {**trained.theta, **trained.fixed}
        tensors, extra = split_extra({k: v[0] for k, v in members.items()})
        network = look_at(problem, tensors, names)
        blocks, outputs = self._curvature(problem, network, extra, data, progress)
        start = torch.ones((), dtype=torch.float64, device=data.x.device)
        deltas = {n: start * _precision(problem) for n in names}
        if held_out is not None:
            deltas = best_on_held_out(deltas, held_out_loss(problem, network, blocks, extra, held_out, seed))
        if "marglik" in (self.prior_precision, self.noise):
            blocks, deltas, extra = self._maximise(problem, blocks, deltas, tensors, extra, outputs, data.y)
        log_lik = problem.likelihood.log_prob(outputs, data.y, extra).to(torch.float64).sum()
        evidence = log_evidence(blocks, deltas, tensors, log_lik) + in_units(problem, data.n_rows)
        members |= {k: v[None] for k, v in extra.items()}
        return {**members, **to_state(blocks, deltas, evidence, data.n_rows)}

    def update(
        self,
        problem: Problem,
        state: Tensors,
        data: Data,
        *,
        rng: torch.Generator,
        resume: Tensors | None = None,
        report: Report = silent,
    ) -> dict[str, Tensor]:
        """New rows with the old posterior as their prior: minimise −log p(D' | θ) + ½ (θ − θ*)ᵀ (H + δ) (θ − θ*).

        Then H grows by the curvature of the new rows at the new mean. Dense and diagonal curvatures add; of two
        Kronecker products (L₁ ⊗ R₁) + (L₂ ⊗ R₂) the sum is replaced by (L₁ + L₂) ⊗ (N₁R₁ + N₂R₂)/(N₁ + N₂), as if all
        rows had been seen in one pass. The prior precisions stay. Log evidences add: log p(D) + log p(D' | D).

        A learnt noise variance v is found with θ, the N earlier rows counting as −(N/2)(log v + v*/v), v* what they
        left (see noise_belief.py), and H is that under v: H v*/v. So a linear model ends where a fit to all rows
        would, but for the prior's pull at the old noise; with several targets H is scaled by their average v*/v.
        """
        seed = draw_seed(rng)
        members = {k: v for k, v in state.items() if not k.startswith(PREFIX)}
        theta, fixed = start_members(problem, [seed], warm=members, from_weights=True, device=data.x.device)
        names, blocks, deltas = from_state(problem, state, factored=self.damping == "factored")
        frozen = {k: v for k, v in theta.items() if k not in names and k != LOG_NOISE}  # a trunk has no posterior
        before = _OldPosterior(
            centre={n: theta[n].clone() for n in names},
            blocks=blocks,
            deltas=deltas,
            noise=NoiseBelief.of(problem, state, int(state[ROWS][0])),
        )
        progress = _Progress(report)
        trained = descend(
            Run(
                problem=problem,
                data=data,
                theta={k: v for k, v in theta.items() if k not in frozen},
                fixed={**fixed, **frozen},
                options=self,
                seeds=[seed],
                objective=before.objective,
            ),
            resume=resume or None,
            report=progress,
        )
        new = {**trained.theta, **trained.fixed}
        tensors, extra = split_extra({k: v[0] for k, v in new.items()})
        added, outputs = self._curvature(problem, look_at(problem, tensors, names), extra, data, progress)
        total = [old.plus(more) for old, more in zip(before.blocks_under(extra), added, strict=True)]
        gain = problem.likelihood.log_prob(outputs, data.y, extra).to(torch.float64).sum()
        gain = gain - before.loss({k: v.to(torch.float64) for k, v in new.items()}, extra)
        for old, now in zip(blocks, total, strict=True):
            gain = gain + 0.5 * (old.log_det(deltas) - now.log_det(deltas))
        evidence = state[EVIDENCE][0] + gain + in_units(problem, data.n_rows)
        return {**new, **to_state(total, deltas, evidence, int(state[ROWS][0]) + data.n_rows)}

    def sample(self, problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
        """n draws of θ; what has no posterior is shared, and so is θ* where members are linearised."""
        names, blocks, deltas = from_state(problem, state, factored=self.damping == "factored")
        mean = {k: v[0] for k, v in state.items() if not k.startswith(PREFIX)}
        stacked = {}
        for block in blocks:
            for name, offset in block.draw(deltas, n, rng).items():
                stacked[name] = (mean[name].to(torch.float64) + offset).to(mean[name].dtype)
        stacked = {name: stacked[name] for name in names}
        linearised = self.predictive == "linearised" and not self._head_is_last(problem, mean)
        shared = mean if linearised else {k: v for k, v in mean.items() if k not in stacked}
        return Ensemble(problem=problem, stacked=stacked, shared=shared, transform=Linearised() if linearised else None)

    def expected(self, problem: Problem, state: Tensors) -> Shapes:
        return member_shapes(problem, 1) | expected_state(problem, state, self.names(problem), self.structure)

    def cost(self, n_parameters: int) -> int:
        return n_parameters * (self.epochs + 1)

    def log_evidence(self, problem: Problem, state: Tensors) -> float:
        """Of the labels in their own units."""
        return float(state[EVIDENCE][0])

    def variances(self, problem: Problem, state: Tensors) -> dict[str, Tensor]:
        """Marginal posterior variance of every uncertain parameter, in its own shape and float64."""
        _, blocks, deltas = from_state(problem, state, factored=self.damping == "factored")
        return {k: v for block in blocks for k, v in block.variances(deltas).items()}

    def function_covariance(self, problem: Problem, state: Tensors, x: Tensor) -> Tensor:
        """Posterior covariance of the linearised outputs of standardised rows: logits [N, C, C] or means [N, T, T]."""
        names, blocks, deltas = from_state(problem, state, factored=self.damping == "factored")
        tensors, _ = split_extra({k: v[0] for k, v in state.items() if not k.startswith(PREFIX)})
        found = function_covariance(look_at(problem, tensors, names), blocks, deltas, x)
        if isinstance(problem.likelihood, (Gaussian, HeteroscedasticGaussian)):
            scale = found.new_tensor(problem.likelihood.scale)
            found = found[:, : len(scale), : len(scale)] * scale[:, None] * scale
        return found

    def names(self, problem: Problem) -> tuple[str, ...]:
        """The uncertain parameters."""
        trained = trainable_names(outline(problem.model))
        if self.subset == "all":
            names = tuple(trained)
        else:
            head = find_head(problem)
            names = tuple(n for n in trained if n in (join(head, "weight"), join(head, "bias")))
        if not names:
            raise InvalidModel("laplace: no parameter in question requires a gradient; unfreeze some")
        return names

    def _head_is_last(self, problem: Problem, tensors: Tensors) -> bool:
        """The outputs are linear in the parameters already: a linearisation would change nothing."""
        if self.subset == "all":
            return False
        return gives_the_outputs(problem, split_extra(tensors)[0], find_head(problem))

    def _curvature(
        self, problem: Problem, network: Network, extra: Tensors, data: Data, progress: "_Progress"
    ) -> tuple[list[Block], Tensor]:
        return curvature(
            network,
            problem.likelihood,
            extra,
            data.x,
            structure=self.structure,
            bias=self.bias,
            factored=self.damping == "factored",
            progress=progress.report_rows,
        )

    def _maximise(
        self,
        problem: Problem,
        blocks: list[Block],
        deltas: Deltas,
        tensors: Tensors,
        extra: dict[str, Tensor],
        outputs: Tensor,
        y: Tensor,
    ) -> tuple[list[Block], Deltas, dict[str, Tensor]]:
        errors, likelihood = None, problem.likelihood
        if self.noise == "marglik":
            assert isinstance(likelihood, Gaussian)
            variance = likelihood.variance(extra, outputs).to(torch.float64)  # [1, T]
            errors = ((y - outputs).to(torch.float64).square() / variance).sum()
        deltas, factor = maximise_evidence(
            blocks,
            deltas,
            tensors,
            per_layer=self.per_layer,
            choose_prior=self.prior_precision == "marglik",
            errors=errors,
            n_targets=y.numel(),
        )
        if errors is None:
            return blocks, deltas, extra
        assert isinstance(likelihood, Gaussian)
        floor = FLOOR * torch.tensor(likelihood.spread, dtype=torch.float64, device=variance.device).square()
        log_noise = 0.5 * (factor * variance[0] - floor).clamp(min=1e-12).log()
        extra = {**extra, LOG_NOISE: log_noise.to(outputs.dtype)}
        return [block.scaled(1 / factor) for block in blocks], deltas, extra


class _Progress:
    """The reports of a descent and of the pass over the rows after it, which repeats the descent's last snapshot."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.snapshot: Snapshot = dict

    def __call__(self, done: int, total: int, message: str, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.report(done, total, message, snapshot)

    def report_rows(self, done: int, total: int) -> None:
        self.report(done, total, f"curvature of {done} of {total} rows", self.snapshot)


def _precision(problem: Problem) -> float:
    return 1 / problem.prior.scale**2 if isinstance(problem.prior, Normal) else 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class _OldPosterior:
    """The posterior before an update, as a loss of θ and of the noise."""

    centre: Tensors  # θ* of the uncertain parameters, [1, ...]
    blocks: Sequence[Block]
    deltas: Deltas
    noise: NoiseBelief | None

    def objective(self, problem: Problem, forward: Forward, theta: Tensors, batch: Batch) -> Tensor:
        """−(1/B) Σ log p(y | x, θ) and 1/N of the loss."""
        weights, extra = split_extra(theta)
        loss = -problem.likelihood.log_prob(forward(weights, batch.x), batch.y, extra).mean(-1)
        return loss + self.loss(weights, extra) / batch.n_rows

    def loss(self, weights: Tensors, extra: Tensors) -> Tensor:
        """½ (θ − θ*)ᵀ (H + δ) (θ − θ*) with H under the noise in `extra`, and what that noise costs: []."""
        offset = {n: weights[n] - self.centre[n] for n in self.centre}
        blocks = self.blocks_under(extra)
        pull = 0.5 * torch.stack([block.quadratic(self.deltas, offset) for block in blocks]).sum()
        return pull if self.noise is None else pull - self.noise.log_prob(extra)

    def blocks_under(self, extra: Tensors) -> Sequence[Block]:
        """The curvature of the rows before, had their noise been the one in `extra`."""
        if self.noise is None:
            return self.blocks
        ratio = self.noise.ratio(extra)
        return [block.scaled(ratio) for block in self.blocks]

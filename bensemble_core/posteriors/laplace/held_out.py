"""The prior precision of a Laplace approximation judged by rows that were not trained on."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bensemble_core.linalg import symmetric_root
from bensemble_core.posteriors.laplace.curvature import Block, Deltas, function_covariance
from bensemble_core.posteriors.laplace.network import Network
from bensemble_core.randomness import count_held_out, generator, permutation
from bensemble_core.types import Data, Problem, Tensors

_HOLD_OUT, _OUTPUT_DRAWS = 21, 22  # branches of a seed
_N_DRAWS = 256  # of a held-out row's outputs


def hold_out(data: Data, share: float, seed: int) -> tuple[Data, Data]:
    """Rows to train on, and a share of them to choose the prior precision by."""
    held = count_held_out(data.n_rows, share, 'prior_precision="validation"')
    order = permutation(data.n_rows, seed, _HOLD_OUT).to(data.x.device)
    return data.take(order[held:].sort().values), data.take(order[:held])


def held_out_loss(
    problem: Problem, network: Network, blocks: Sequence[Block], extra: Tensors, held_out: Data, seed: int
) -> "HeldOutLoss":
    """The loss of the linearised predictive on rows that were held out, as a function of the precisions."""
    with torch.no_grad():
        outputs = network.outputs(held_out.x).to(torch.float64)
    z = torch.randn(_N_DRAWS, *outputs.shape, generator=generator(seed, _OUTPUT_DRAWS), dtype=torch.float64)
    wide = {k: v.double() for k, v in extra.items()}
    return HeldOutLoss(problem, network, blocks, wide, held_out, outputs, z.to(outputs))


@dataclass(frozen=True, eq=False)
class HeldOutLoss:
    """−log of the average of p(y | f) over the same draws f ~ N(f*, J (H + δ)⁻¹ Jᵀ) for every δ."""

    problem: Problem
    network: Network
    blocks: Sequence[Block]
    extra: Tensors
    data: Data
    outputs: Tensor  # [H, O]
    z: Tensor  # [S, H, O]

    def __call__(self, deltas: Deltas) -> float:
        root = symmetric_root(function_covariance(self.network, self.blocks, deltas, self.data.x))  # [H, O, O]
        draws = self.outputs + torch.einsum("hop,shp->sho", root, self.z)
        y = self.data.y if not self.data.y.is_floating_point() else self.data.y.to(torch.float64)
        y = y.expand(len(draws), *y.shape)
        log_prob = self.problem.likelihood.log_prob(draws, y, self.extra)  # [S, H]
        return float(-(torch.logsumexp(log_prob, 0)).mean())

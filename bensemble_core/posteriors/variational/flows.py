"""Masked RealNVP: invertible maps of a vector whose Jacobian determinant is known (Dinh et al. 2017).

A step leaves the entries under a mask m as they are, and moves the others by what those say (Louizos & Welling 2017,
equation 11):

    h = tanh(F(m ∘ z)),    μ = G(h),    σ = sigmoid(K(h)),
    z' = m ∘ z + (1 − m) ∘ (σ ∘ z + (1 − σ) ∘ μ),    log|∂z'/∂z| = Σ_i (1 − m_i) log σ_i.

Masks are alternately the even and the odd entries; the paper draws them anew each time. The offset of G is at z = 1,
μ = β + G(h(z)) − G(h(1)) with β from 1, so that at the start z = 1 stays where it is. K starts at 0, σ = ½: a step that
keeps nearly all of z would hardly be moved by what the other entries say.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, logsigmoid


class Flow(nn.Module):
    """Some steps on vectors of one length: [S, D] -> the images [S, D] and the log-determinants [S]."""

    def __init__(self, n_entries: int, *, steps: int, hidden: int) -> None:
        super().__init__()
        self.steps = nn.ModuleList(_Step(n_entries, hidden, odd=i % 2 == 1) for i in range(steps))

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        total = z.new_zeros(len(z))
        for step in self.steps:
            z, log_det = step(z)
            total = total + log_det
        return z, total

    def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """What `forward` maps to z, and the log-determinant of the way back."""
        total = z.new_zeros(len(z))
        for step in reversed(self.steps):
            assert isinstance(step, _Step)
            z, log_det = step.inverse(z)
            total = total + log_det
        return z, total


class _Step(nn.Module):
    def __init__(self, n_entries: int, hidden: int, *, odd: bool) -> None:
        super().__init__()
        self.odd = odd
        self.inner = nn.Linear(n_entries, hidden)
        self.target = nn.Linear(hidden, n_entries)
        self.gate = nn.Linear(hidden, n_entries)
        nn.init.ones_(self.target.bias)
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        moves, target, log_gate = self._parts(z)
        return z + moves * -torch.expm1(log_gate) * (target - z), (moves * log_gate).sum(-1)

    def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
        moves, target, log_gate = self._parts(z)  # of the entries that stay, which are the same on both sides
        return z + moves * torch.expm1(-log_gate) * (z - target), -(moves * log_gate).sum(-1)

    def _parts(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """1 for the entries that move [D], μ and log σ [S, D]."""
        moves = (torch.arange(z.shape[-1], device=z.device) % 2 == int(self.odd)).to(z)
        h = self.inner((1 - moves) * z).tanh()
        at_one = self.inner(1 - moves).tanh()
        target = linear(h - at_one, self.target.weight, self.target.bias)
        return moves, target, logsigmoid(self.gate(h))

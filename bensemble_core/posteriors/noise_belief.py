"""What earlier rows imply for a learnt noise, for an update that has the new rows alone."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bensemble_core.likelihoods import LOG_NOISE, Gaussian
from bensemble_core.types import Problem, Tensors


@dataclass(frozen=True, kw_only=True, eq=False)
class NoiseBelief:
    """The log-likelihood of a noise variance v under n rows whose squared residuals averaged to s:

        −(n/2) Σ_t (log v_t + s_t / v_t),

    largest at v = s, and as narrow as n rows make it. The noise that was learnt from the rows is taken as s, so that an
    update whose new rows hold no information leaves it as it was. As a function of 1/v it is a Gamma, the same belief
    that `pbp` keeps.
    """

    likelihood: Gaussian
    variance: Tensor  # s [1, 1, T], of the standardised targets, float64
    n_rows: int

    @classmethod
    def of(cls, problem: Problem, state: Tensors, n_rows: int) -> "NoiseBelief | None":
        """The belief after `n_rows` rows that left the noise in `state`; None where no noise is learnt."""
        likelihood = problem.likelihood
        if not isinstance(likelihood, Gaussian) or not likelihood.learns:
            return None
        wide = {LOG_NOISE: state[LOG_NOISE].detach().to(torch.float64)}  # [1, T]
        return cls(likelihood=likelihood, variance=likelihood.variance(wide, wide[LOG_NOISE]), n_rows=n_rows)

    def log_prob(self, extra: Tensors) -> Tensor:
        """Of the noise in `extra`, without the part that no noise changes: []."""
        ratio = self.ratios(extra)
        return 0.5 * self.n_rows * (ratio.log() - ratio + 1).sum()

    def ratio(self, extra: Tensors) -> Tensor:
        """By how much the curvature of the earlier rows grows under the noise in `extra`, averaged over targets: []."""
        return self.ratios(extra).mean()

    def ratios(self, extra: Tensors) -> Tensor:
        """s / v: [1, 1, T]."""
        log_noise = extra[LOG_NOISE]
        return self.variance.to(log_noise) / self.likelihood.variance(extra, log_noise)

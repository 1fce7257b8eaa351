"""What a fitted posterior says of itself: how far its draws can be trusted, and how well it explains the labels."""

import logging
from dataclasses import dataclass
from typing import Any

import bensemble_core as bc
from app.queue.context import storable
from bensemble_core.types import Bounds, Diagnoses, Evidence

BOUND_DRAWS = 10
PASSES_A_DRAW = 10  # of the training: a draw is a pass over the rows without gradients, a third of one with them

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SelfReport:
    """Ready for the database: a number that is not finite is None."""

    diagnostics: dict[str, Any] | None
    log_evidence: float | None
    bound: float | None


def self_report(fitted: "bc.Fitted") -> SelfReport:
    posterior = fitted.posterior
    diagnostics = None
    if isinstance(posterior, Diagnoses):
        told = fitted.diagnostics
        diagnostics = {
            "values": {name: float(value) for name, value in told.values.items()},
            "warnings": list(told.warnings),
        }
    return SelfReport(
        diagnostics=storable(diagnostics),
        log_evidence=storable(float(fitted.log_evidence)) if isinstance(posterior, Evidence) else None,
        bound=_bound(fitted) if isinstance(posterior, Bounds) else None,
    )


def bound_draws(n_passes: int) -> int:
    """So few that a bound takes some hundredths of a training's time, and as many for all but the shortest: a bound of
    renyi grows with the draws, and bounds are there to be compared."""
    return max(1, min(BOUND_DRAWS, n_passes // PASSES_A_DRAW))


def _bound(fitted: "bc.Fitted") -> float | None:
    """On all rows of the training: a bound on a part of them would bound something else."""
    try:
        return storable(float(fitted.bound(samples=bound_draws(fitted.posterior.cost(1)))))  # type: ignore[no-any-return]
    except bc.BensembleError as error:  # the training has ended well all the same
        logger.warning("a bound could not be computed", extra={"reason": str(error)})
        return None

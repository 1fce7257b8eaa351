"""Posteriors by name. Adding one is a file in its family's folder, a line here, and a row in the contract test.

From outside use the names below. `networks` (members trained by descent) and `gaussian` (a factorised Gaussian) are
what methods inherit, `start`, `head` and `noise_belief` what several families use; families do not use each other.
`importance` stands above them: it weighs draws of two by the log posterior that a third samples; and `auto`, the
default, which chooses.
"""

from collections.abc import Mapping
from typing import Any, Final

from bensemble_core import options
from bensemble_core.errors import InvalidOption
from bensemble_core.posteriors.auto.auto import Auto
from bensemble_core.posteriors.averaging.swag import SWA, SWAG, MultiSWAG
from bensemble_core.posteriors.dropout import MCDropout
from bensemble_core.posteriors.ensembles.batch_ensemble import BatchEnsemble
from bensemble_core.posteriors.ensembles.deep import DeepEnsemble
from bensemble_core.posteriors.ensembles.rank1 import Rank1BNN
from bensemble_core.posteriors.ensembles.snapshot import SnapshotEnsemble
from bensemble_core.posteriors.function_space.fbnn import FBNN
from bensemble_core.posteriors.function_space.gp import GaussianProcess
from bensemble_core.posteriors.function_space.neural_process import NeuralProcess
from bensemble_core.posteriors.function_space.vip import VIP
from bensemble_core.posteriors.implicit.hvi import HVI
from bensemble_core.posteriors.implicit.sivi import SIVI
from bensemble_core.posteriors.implicit.uivi import UIVI
from bensemble_core.posteriors.importance import Importance
from bensemble_core.posteriors.laplace.laplace import Laplace
from bensemble_core.posteriors.moment_matching.pbp import PBP
from bensemble_core.posteriors.point import MAP
from bensemble_core.posteriors.sampling.hmc import HMC
from bensemble_core.posteriors.sampling.metropolis import Annealing, Metropolis
from bensemble_core.posteriors.sampling.sghmc import SGHMC
from bensemble_core.posteriors.sampling.sgld import SGLD
from bensemble_core.posteriors.variational.bbvi import BBVI
from bensemble_core.posteriors.variational.mfvi import MFVI, prune
from bensemble_core.posteriors.variational.mnf import MNF
from bensemble_core.posteriors.variational.renyi import Renyi
from bensemble_core.posteriors.variational.ris import RIS
from bensemble_core.posteriors.variational.vogn import VOGN
from bensemble_core.types import Posterior

POSTERIORS: dict[str, type[Any]] = {
    "auto": Auto,
    "map": MAP,
    "deep_ensemble": DeepEnsemble,
    "snapshot_ensemble": SnapshotEnsemble,
    "mc_dropout": MCDropout,
    "swa": SWA,
    "swag": SWAG,
    "multi_swag": MultiSWAG,
    "laplace": Laplace,
    "importance": Importance,
    "mfvi": MFVI,
    "renyi": Renyi,
    "vogn": VOGN,
    "bbvi": BBVI,
    "hvi": HVI,
    "sivi": SIVI,
    "uivi": UIVI,
    "ris": RIS,
    "mnf": MNF,
    "pbp": PBP,
    "batch_ensemble": BatchEnsemble,
    "rank1_bnn": Rank1BNN,
    "hmc": HMC,
    "sgld": SGLD,
    "sghmc": SGHMC,
    "metropolis": Metropolis,
    "annealing": Annealing,
    "gp": GaussianProcess,
    "vip": VIP,
    "fbnn": FBNN,
    "neural_process": NeuralProcess,
}
DEFAULT_POSTERIOR: Final = "auto"  # of the service, where a request names none
options.document(*POSTERIORS.values())

__all__ = [
    "BBVI",
    "DEFAULT_POSTERIOR",
    "FBNN",
    "HMC",
    "HVI",
    "MAP",
    "MFVI",
    "MNF",
    "PBP",
    "POSTERIORS",
    "RIS",
    "SGHMC",
    "SGLD",
    "SIVI",
    "SWA",
    "SWAG",
    "UIVI",
    "VIP",
    "VOGN",
    "Annealing",
    "Auto",
    "BatchEnsemble",
    "DeepEnsemble",
    "GaussianProcess",
    "Importance",
    "Laplace",
    "MCDropout",
    "Metropolis",
    "MultiSWAG",
    "NeuralProcess",
    "Rank1BNN",
    "Renyi",
    "SnapshotEnsemble",
    "named_posterior",
    "prune",
]


def named_posterior(method: str | Posterior, given: Mapping[str, Any]) -> Posterior:
    """A method by its name and options, or an instance without any: checked."""
    if not isinstance(method, str):
        if isinstance(method, type) or not hasattr(method, "fit"):
            raise InvalidOption(f"expected a posterior's name ({', '.join(POSTERIORS)}) or an instance, got {method!r}")
        if given:
            raise InvalidOption(
                f"options go to the instance itself, {type(method).__name__}({', '.join(f'{k}=…' for k in given)}), "
                "or as keywords beside a name"
            )
        options.check(method)
        return method
    if method not in POSTERIORS:
        raise InvalidOption(f"unknown posterior {method!r}; there are {', '.join(POSTERIORS)}")
    made: Posterior = options.make(POSTERIORS[method], given)
    return made

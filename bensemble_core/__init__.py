"""Bensemble: Bayesian ensembles and active learning. `fit` a posterior, `sample` an ensemble, `rank` a pool.

Experimental design, with a stated likelihood instead of a network, is in `design`.
"""

from importlib.metadata import PackageNotFoundError, version

from bensemble_core import acquisition, design, plots
from bensemble_core.acquisition import ACQUISITIONS, SELECTIONS
from bensemble_core.distil import distil
from bensemble_core.ensemble import Ensemble, reweight
from bensemble_core.errors import (
    BensembleError,
    Cancelled,
    InvalidData,
    InvalidFile,
    InvalidModel,
    InvalidOption,
    InvalidSnapshot,
    InvalidSpec,
    NotFinite,
)
from bensemble_core.fitting import Fitted, check, fit, fit_splits, load
from bensemble_core.io import load_tensors, save_tensors
from bensemble_core.likelihoods import LIKELIHOODS, Categorical, Gaussian, HeteroscedasticGaussian
from bensemble_core.models import MODELS, ModelSpec, count_parameters
from bensemble_core.posteriors import (
    HMC,
    MAP,
    MFVI,
    PBP,
    POSTERIORS,
    SGHMC,
    SGLD,
    SWA,
    SWAG,
    Annealing,
    BatchEnsemble,
    DeepEnsemble,
    Importance,
    Laplace,
    MCDropout,
    Metropolis,
    MultiSWAG,
    NeuralProcess,
    Rank1BNN,
    Renyi,
    SnapshotEnsemble,
    prune,
)
from bensemble_core.predictive import (
    CategoricalPredictive,
    GaussianPredictive,
    Predictive,
    Uncertainty,
    calibration,
    metrics,
)
from bensemble_core.predictive.calibration import Calibration, calibrate
from bensemble_core.priors import Normal
from bensemble_core.ranking import Ranking, choose, conclude, rank, score, score_columns
from bensemble_core.tuning import Trial, Tuned, tune
from bensemble_core.types import Data, Diagnostics, Family, Posterior, Problem

try:
    __version__ = version("bensemble-service")  # pyproject.toml says which
except PackageNotFoundError:  # imported from a folder that was never installed
    __version__ = "0+unknown"

__all__ = [
    "ACQUISITIONS",
    "HMC",
    "LIKELIHOODS",
    "MAP",
    "MFVI",
    "MODELS",
    "PBP",
    "POSTERIORS",
    "SELECTIONS",
    "SGHMC",
    "SGLD",
    "SWA",
    "SWAG",
    "Annealing",
    "BatchEnsemble",
    "BensembleError",
    "Calibration",
    "Cancelled",
    "Categorical",
    "CategoricalPredictive",
    "Data",
    "DeepEnsemble",
    "Diagnostics",
    "Ensemble",
    "Family",
    "Fitted",
    "Gaussian",
    "GaussianPredictive",
    "HeteroscedasticGaussian",
    "Importance",
    "InvalidData",
    "InvalidFile",
    "InvalidModel",
    "InvalidOption",
    "InvalidSnapshot",
    "InvalidSpec",
    "Laplace",
    "MCDropout",
    "Metropolis",
    "ModelSpec",
    "MultiSWAG",
    "NeuralProcess",
    "Normal",
    "NotFinite",
    "Posterior",
    "Predictive",
    "Problem",
    "Rank1BNN",
    "Ranking",
    "Renyi",
    "SnapshotEnsemble",
    "Trial",
    "Tuned",
    "Uncertainty",
    "acquisition",
    "calibrate",
    "calibration",
    "check",
    "choose",
    "conclude",
    "count_parameters",
    "design",
    "distil",
    "fit",
    "fit_splits",
    "load",
    "load_tensors",
    "metrics",
    "plots",
    "prune",
    "rank",
    "reweight",
    "save_tensors",
    "score",
    "score_columns",
    "tune",
]

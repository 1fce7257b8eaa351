"""Bensemble: Bayesian ensembles and active learning. `fit` a posterior, `sample` an ensemble, `rank` a pool.

Experimental design, with a stated likelihood instead of a network, is in `design`.
"""

from importlib.metadata import PackageNotFoundError, version

from bensemble_core import acquisition, advice, design, plots
from bensemble_core.acquisition import ACQUISITIONS, SELECTIONS
from bensemble_core.backtesting.backtest import Backtest, backtest
from bensemble_core.backtesting.curves import BacktestRun
from bensemble_core.backtesting.strategies import Strategy
from bensemble_core.crossfit import Calibrated, fit_calibrated
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
    BBVI,
    DEFAULT_POSTERIOR,
    FBNN,
    HMC,
    HVI,
    MAP,
    MFVI,
    MNF,
    PBP,
    POSTERIORS,
    RIS,
    SGHMC,
    SGLD,
    SIVI,
    SWA,
    SWAG,
    UIVI,
    VIP,
    VOGN,
    Annealing,
    Auto,
    BatchEnsemble,
    DeepEnsemble,
    GaussianProcess,
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
from bensemble_core.predictive.lure import lure
from bensemble_core.priors import GP, DoubleExponential, FunctionSamples, Normal, StudentT
from bensemble_core.ranking import Ranking, choose, conclude, rank, score, score_columns
from bensemble_core.tuning import Trial, Tuned, tune
from bensemble_core.types import Data, Diagnostics, Family, Posterior, Problem

try:
    __version__ = version("bensemble-service")  # pyproject.toml says which
except PackageNotFoundError:  # imported from a folder that was never installed
    __version__ = "0+unknown"

__all__ = [
    "ACQUISITIONS",
    "BBVI",
    "DEFAULT_POSTERIOR",
    "FBNN",
    "GP",
    "HMC",
    "HVI",
    "LIKELIHOODS",
    "MAP",
    "MFVI",
    "MNF",
    "MODELS",
    "PBP",
    "POSTERIORS",
    "RIS",
    "SELECTIONS",
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
    "Backtest",
    "BacktestRun",
    "BatchEnsemble",
    "BensembleError",
    "Calibrated",
    "Calibration",
    "Cancelled",
    "Categorical",
    "CategoricalPredictive",
    "Data",
    "DeepEnsemble",
    "Diagnostics",
    "DoubleExponential",
    "Ensemble",
    "Family",
    "Fitted",
    "FunctionSamples",
    "Gaussian",
    "GaussianPredictive",
    "GaussianProcess",
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
    "Strategy",
    "StudentT",
    "Trial",
    "Tuned",
    "Uncertainty",
    "acquisition",
    "advice",
    "backtest",
    "calibrate",
    "calibration",
    "check",
    "choose",
    "conclude",
    "count_parameters",
    "design",
    "distil",
    "fit",
    "fit_calibrated",
    "fit_splits",
    "load",
    "load_tensors",
    "lure",
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

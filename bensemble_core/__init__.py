"""Bensemble: Bayesian ensembles and active learning. `fit` a posterior, `sample` an ensemble, `rank` a pool."""

from bensemble_core import acquisition, metrics
from bensemble_core.acquisition import ACQUISITIONS, SELECTIONS
from bensemble_core.ensemble import Ensemble
from bensemble_core.errors import (
    BensembleError,
    Cancelled,
    InvalidData,
    InvalidFile,
    InvalidModel,
    InvalidOption,
    NotFinite,
)
from bensemble_core.fitting import Fitted, fit, load
from bensemble_core.io import load_tensors, save_tensors
from bensemble_core.likelihoods import LIKELIHOODS, Categorical, Gaussian, HeteroscedasticGaussian
from bensemble_core.models import MODELS, ModelSpec, count_parameters
from bensemble_core.posteriors import MAP, POSTERIORS, DeepEnsemble, MCDropout
from bensemble_core.predictive import CategoricalPredictive, GaussianPredictive
from bensemble_core.priors import Normal
from bensemble_core.scoring import Ranking, conclude, rank, score
from bensemble_core.types import Data, Posterior, Problem

__all__ = [
    "ACQUISITIONS",
    "LIKELIHOODS",
    "MAP",
    "MODELS",
    "POSTERIORS",
    "SELECTIONS",
    "BensembleError",
    "Cancelled",
    "Categorical",
    "CategoricalPredictive",
    "Data",
    "DeepEnsemble",
    "Ensemble",
    "Fitted",
    "Gaussian",
    "GaussianPredictive",
    "HeteroscedasticGaussian",
    "InvalidData",
    "InvalidFile",
    "InvalidModel",
    "InvalidOption",
    "MCDropout",
    "ModelSpec",
    "Normal",
    "NotFinite",
    "Posterior",
    "Problem",
    "Ranking",
    "acquisition",
    "conclude",
    "count_parameters",
    "fit",
    "load",
    "load_tensors",
    "metrics",
    "rank",
    "save_tensors",
    "score",
]

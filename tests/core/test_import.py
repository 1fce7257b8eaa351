"""The library stands on torch, numpy, scipy and safetensors alone."""

import subprocess
import sys
from pathlib import Path

import bensemble_core as bc

ROOT = Path(bc.__file__).parents[1]


def test_importing_the_library_loads_no_web_database_or_plotting() -> None:
    code = (
        "import sys, bensemble_core; "
        "print([m for m in ('fastapi', 'starlette', 'pydantic', 'sqlalchemy', 'matplotlib', 'sklearn', 'app', "
        "'numba', 'optuna') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there_and_listed_once() -> None:
    assert len(set(bc.__all__)) == len(bc.__all__)
    assert all(hasattr(bc, name) for name in bc.__all__)
    contract = (
        "fit load score rank Ensemble Fitted Problem Data Categorical Gaussian HeteroscedasticGaussian Normal MAP "
    )
    contract += "DeepEnsemble MCDropout POSTERIORS ACQUISITIONS SELECTIONS MODELS acquisition metrics"
    assert set(contract.split()) <= set(bc.__all__)

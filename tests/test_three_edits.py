"""A new posterior is three edits: a file, a line in the registry, a row in the contract test. An acquisition is two:
its contract test walks through the registry.

Made in a copy of the tree, which then serves them over REST, names them in its tables, and exports them.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.app.upping import ROOT, service_up

POSTERIOR = '''"""A toy method."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from bensemble_core.posteriors.networks import Networks


@dataclass(frozen=True, kw_only=True)
class Pair(Networks):
    """A toy: networks from different starts, and nothing else."""

    name: Literal["pair"] = "pair"
    networks: int = field(default=2, metadata={"ge": 1, "le": 9, "description": "how many"})
    starts_from_weights: ClassVar[bool] = False

    @property
    def n_networks(self) -> int:
        return self.networks
'''
ACQUISITION = '''"""A toy score."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from bensemble_core.acquisition.entries import Rows
from bensemble_core.options import STRICT
from bensemble_core.predictive import Predictive


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """A toy: how far the mean of the members is from certain."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["doubt"] = "doubt"


def score_doubt(predictive: Predictive, options: Doubt, rows: Rows) -> Tensor:
    """1 − Σ_c p̄_c² -> [N]."""
    return 1 - predictive.mean().square().sum(-1)
'''


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, f"{path} has {text.count(old)} times {old!r}"
    path.write_text(text.replace(old, new))


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for name in ("app", "bensemble_core", "tests", "docs"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "ui"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, root / name)
    core, contracts = root / "bensemble_core", root / "tests" / "contracts"

    (core / "posteriors" / "ensembles" / "pair.py").write_text(POSTERIOR)
    registry = core / "posteriors" / "__init__.py"
    edit(registry, '    "map": MAP,\n', '    "map": MAP,\n    "pair": Pair,\n')
    edit(registry, "\nPOSTERIORS", "from bensemble_core.posteriors.ensembles.pair import Pair\n\nPOSTERIORS")
    edit(contracts / "test_posteriors.py", 'AT_THE_MAP = ("map", ', 'AT_THE_MAP = ("map", "pair", ')

    (core / "acquisition" / "scores" / "toy.py").write_text(ACQUISITION)
    registry = core / "acquisition" / "__init__.py"
    entry = '    "doubt": Entry(score=score_doubt, options=Doubt, families=("categorical",)),\n'
    edit(registry, '    "random": Entry(', entry + '    "random": Entry(')
    imported = "from bensemble_core.acquisition.scores.toy import Doubt, score_doubt\n"
    edit(registry, "\nACQUISITIONS", imported + "\nACQUISITIONS")
    return root


def run(copy: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    ran = subprocess.run(
        [sys.executable, *command], cwd=copy, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_both_keep_what_all_entries_keep(copy: Path) -> None:
    said = run(
        copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/contracts", "-k", "pair or doubt", "-m", "not soak"
    )
    n_passed = int(said.rsplit(" passed", 1)[0].split()[-1])
    assert n_passed > 30


def test_lists_follow(copy: Path) -> None:
    assert "wrote docs/methods.md" in run(copy, "docs/write_lists.py")
    table = (copy / "docs" / "methods.md").read_text()
    assert "| `pair` | A toy: networks from different starts, and nothing else |" in table
    assert "| `doubt` | A toy: how far the mean of the members is from certain |" in table
    names = "import bensemble_core as bc; print(bc.Pair(networks=3), bc.acquisition.Doubt(), 'Pair' in bc.__all__)"
    said = run(copy, "-c", names)
    assert "networks=3" in said
    assert "Doubt(name='doubt') True" in said


def test_the_copy_serves_both_over_rest(copy: Path, tmp_path: Path) -> None:
    rows = [[i / 20, (i * 7 % 20) / 20] for i in range(40)]
    labels = [("a" if x < y else "b") if i < 12 else None for i, (x, y) in enumerate(rows)]
    project = {
        "name": "toys",
        "task": {"kind": "classification", "classes": ["a", "b"]},
        "input": {"shape": [2]},
        "posterior": {"name": "pair", "networks": 3, "epochs": 5},
    }
    with service_up(tmp_path, PYTHONPATH=str(copy)) as up:
        headers = {"Authorization": f"Bearer {up.key}" if up.url else "", "Prefer": "wait=60"}
        with httpx.Client(base_url=f"{up.url}/v1", headers=headers, timeout=90) as client:

            def post(path: str, body: object) -> dict[str, dict[str, object]]:
                response = client.post(path, json=body)
                assert response.status_code < 300, response.text
                found: dict[str, dict[str, object]] = response.json()
                return found

            methods = client.get("/methods").json()
            assert methods["posteriors"]["pair"]["schema"]["properties"]["networks"]["maximum"] == 9
            assert "doubt" in methods["acquisitions"]
            made = post("/projects", project)["id"]
            pool = post(f"/projects/{made}/pools", {"name": "rows", "rows": rows, "labels": labels})["id"]
            trained = post(f"/projects/{made}/ensembles", {})
            assert trained["job"]["status"] == "succeeded", trained["job"]
            assert trained["ensemble"]["n_members"] == 3
            ranked = post(f"/pools/{pool}/rankings", {"acquisition": {"name": "doubt"}, "k": 4})["ranking"]
            assert ranked["acquisition"] == {"name": "doubt"}
            items = ranked["items"]
            assert isinstance(items, list)
            assert len(items) == 4
            assert all(0 <= item["score"] <= 0.5 for item in items)
            refused = client.post("/projects", json={**project, "posterior": {"name": "pair", "networks": 10}})
            assert refused.status_code == 422

"""The version is said in one place, pyproject.toml, and read from there everywhere."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import bensemble_core as bc
from app.main import create_app
from app.settings import Settings

ROOT = Path(__file__).parents[1]


def test_everybody_tells_the_version_of_pyproject() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    ran = subprocess.run([sys.executable, "-m", "app.cli", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout == f"bensemble {version}\n"
    assert bc.__version__ == version
    assert create_app(Settings()).openapi()["info"]["version"] == version
    assert re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == version

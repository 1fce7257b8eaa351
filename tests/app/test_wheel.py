"""What is installed elsewhere: the wheel has the page, if it was built, and nothing of what it was made of."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.app.working import ROOT


@pytest.mark.parametrize("is_built", [True, False])
def test_a_wheel_has_the_bundle_and_neither_its_sources_nor_its_packages(tmp_path: Path, is_built: bool) -> None:
    pytest.importorskip("setuptools", reason="without it pip would have to fetch it to build a wheel")
    clone = tmp_path / "clone"
    left_out = shutil.ignore_patterns("node_modules", "dist", "__pycache__")
    for name in ("app", "bensemble_core"):
        shutil.copytree(ROOT / name, clone / name, ignore=left_out)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, clone / name)
    package = clone / "app/ui/node_modules/react"
    package.mkdir(parents=True)
    (package / "index.js").write_text("")
    (package / "setup.py").write_text("")
    if is_built:
        (clone / "app/ui/dist/assets").mkdir(parents=True)
        (clone / "app/ui/dist/index.html").write_text("")
        (clone / "app/ui/dist/assets/index-a1B2c3D4.js").write_text("")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", "out", "."]
    ran = subprocess.run(command, cwd=clone, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    (wheel,) = (clone / "out").glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    assert "app/web/serving/page.py" in names
    page = {"app/ui/dist/index.html", "app/ui/dist/assets/index-a1B2c3D4.js"} if is_built else set()
    assert {name for name in names if name.startswith("app/ui/")} == page

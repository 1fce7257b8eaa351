"""The code of the pages in docs is run as it stands, block after block."""

import re
from pathlib import Path
from typing import Any

import pytest

import bensemble_core as bc

PAGE = (Path(bc.__file__).parents[1] / "docs" / "posteriors.md").read_text()
BLOCKS = re.findall(r"<!-- run: (\w+) -->\n```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_page_on_posteriors_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert [name for name, _ in BLOCKS] == ["fit", "tune", "augment", "honest"]
    names: dict[str, Any] = {}
    for _, code in BLOCKS:
        exec(code, names)
    assert "torch.Size([200]) torch.Size([200])" in capsys.readouterr().out
    assert bc.load("calibrated.safetensors").calibration is not None


def test_the_page_on_posteriors_names_every_method_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert rows == [name for name in bc.POSTERIORS if name in rows]
    assert set(rows) == set(bc.POSTERIORS)

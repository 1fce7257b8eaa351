"""The code of the pages in docs is run as it stands, block after block."""

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

import bensemble_core as bc

DOCS = Path(bc.__file__).parents[1] / "docs"
PAGE = (DOCS / "posteriors.md").read_text()


def blocks(page: str) -> list[tuple[str, str]]:
    """Names and code of the blocks that are to be run."""
    return re.findall(r"<!-- run: (\w+) -->\n```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


def test_the_page_on_posteriors_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks(PAGE)
    ran = [
        "fit",
        "data",
        "elsewhere",
        "reweight",
        "fbnn",
        "laplace",
        "importance",
        "chains",
        "tune",
        "augment",
        "honest",
    ]
    assert [name for name, _ in found] == ran
    names: dict[str, Any] = {}
    for _, code in found:
        exec(code, names)
    assert "torch.Size([200]) torch.Size([200])" in capsys.readouterr().out
    assert bc.load("calibrated.safetensors").calibration is not None


def test_the_page_on_posteriors_names_no_other_than_there_are_and_in_order() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert rows == [name for name in bc.POSTERIORS if name in rows]


def test_lists_are_those_of_the_registries() -> None:
    """`make lists` writes them."""
    spec = spec_from_file_location("write_lists", DOCS / "write_lists.py")
    assert spec is not None
    assert spec.loader is not None
    lists = module_from_spec(spec)
    spec.loader.exec_module(lists)
    pages = {path.name: path.read_text() for path in DOCS.glob("*.md")}
    assert sorted(name for page in pages.values() for _, name, _ in lists.BLOCK.findall(page)) == sorted(lists.TABLES)
    for name, page in pages.items():
        assert lists.with_tables(page) == page, f"a table of {name} is old; run: make lists"
    for registry in (bc.MODELS, bc.POSTERIORS, bc.ACQUISITIONS, bc.SELECTIONS):
        assert all(f"| `{name}` | " in pages["methods.md"] for name in registry)
    for name, wanted in lists.exports().items():
        source = (DOCS.parent / name).read_text()
        assert lists.missing(source, wanted) == [], f"{name} does not export all; run: make lists"


def test_the_page_on_design_runs(capsys: pytest.CaptureFixture[str]) -> None:
    found = blocks((DOCS / "design.md").read_text())
    assert [name for name, _ in found] == ["loop", "refused", "simulate"]
    names: dict[str, Any] = {}
    for _, code in found:
        exec(code, names)
    assert names["belief"].sd["theta"] <= 0.6
    said = capsys.readouterr().out
    assert "sd of theta is 0." in said
    assert "/outcome/y/prob | expected a probability within [0, 1]; not so at theta = " in said
    assert "adaptive   sd 0." in said


def test_the_page_on_design_names_every_prior_and_family() -> None:
    page = (DOCS / "design.md").read_text()
    from bensemble_core.design.spec.expressions import FUNCTIONS
    from bensemble_core.design.spec.outcomes import FAMILIES
    from bensemble_core.design.spec.parameters import DISTS

    assert all(f"`{name}`" in page for name in (*DISTS, *FAMILIES))
    assert all(re.search(rf"\b{name}\b", page) for name in FUNCTIONS)

"""Files: bit-exact, whole or not at all, and honest about what they are."""

import copy
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core import io
from tests.contracts.test_posteriors import REGRESSION, known, small, with_tasks


def data() -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(30, 4, generator=g)
    return x, x[:, 0] * 2 + 1


OPTIONS: dict[str, Any] = {"snapshot_ensemble": {"cycles": 2}, "swag": {"rank": 0}, "multi_swag": {"rank": 0}}


LIKELIHOODS: list[Any] = ["categorical", bc.Gaussian(), bc.HeteroscedasticGaussian()]
PAIRS = [(m, p) for m in bc.POSTERIORS for p in LIKELIHOODS if m not in REGRESSION or p == bc.Gaussian()]


@pytest.mark.parametrize(("method", "likelihood"), PAIRS)
def test_fitted_and_ensemble_predict_the_same_bits_after_a_file_a_copy_and_a_pickle(
    method: str, likelihood: Any, tmp_path: Path
) -> None:
    x, y = data()
    y = (y > 1).long() if likelihood == "categorical" else y
    options = OPTIONS.get(method, {}) | known(method, {"epochs": 2}) or small(method)
    rows = with_tasks(method, x, y)
    fitted = bc.fit(method, {"name": "mlp", "hidden": [6]}, rows, likelihood=likelihood, seed=4, **options)
    fitted.save(tmp_path / "f.safetensors")
    again = bc.load(tmp_path / "f.safetensors")
    assert again.posterior == fitted.posterior
    assert again.problem.likelihood == fitted.problem.likelihood
    ensemble = fitted.sample(4, seed=2)
    ensemble.save(tmp_path / "e.safetensors")
    expected = bits(ensemble.predict(x))
    assert torch.equal(bits(again.sample(4, seed=2).predict(x)), expected)
    assert torch.equal(bits(bc.load(tmp_path / "e.safetensors").predict(x)), expected)
    assert torch.equal(bits(bc.load((tmp_path / "e.safetensors").read_bytes()).predict(x)), expected)
    for same in (copy.copy, copy.deepcopy, pickled):
        assert torch.equal(bits(same(ensemble).predict(x)), expected)
        assert torch.equal(bits(same(fitted).sample(4, seed=2).predict(x)), expected)
        assert torch.equal(bits(same(ensemble.predict(x))), expected)


def pickled(thing: Any) -> Any:
    """As another process gets it; the library itself reads no pickle."""
    return pickle.loads(pickle.dumps(thing))  # noqa: S301


def bits(pred: Any) -> Tensor:
    return pred.logits if pred.family == "categorical" else torch.stack([pred.means, pred.variances])


def test_a_module_is_handed_in_again(tmp_path: Path) -> None:
    make = lambda n: nn.Sequential(nn.Linear(4, n), nn.BatchNorm1d(n), nn.ReLU(), nn.Linear(n, 1))  # noqa: E731
    x, y = data()
    ensemble = bc.fit("deep_ensemble", make(5), (x, y), likelihood="gaussian", epochs=2).sample(5)
    ensemble.save(tmp_path / "e.safetensors")
    assert torch.equal(bc.load(tmp_path / "e.safetensors", model=make(5)).predict(x).means, ensemble.predict(x).means)
    assert torch.equal(pickled(ensemble).predict(x).means, ensemble.predict(x).means)
    with pytest.raises(bc.InvalidModel, match="pass the module"):
        bc.load(tmp_path / "e.safetensors")
    with pytest.raises(bc.InvalidModel, match="do not fit the model"):
        bc.load(tmp_path / "e.safetensors", model=make(6))


def test_tensors_keep_dtype_shape_and_bits() -> None:
    kept = {
        "a/b.c": torch.randn(2, 3).T,
        "scalar": torch.tensor(7),
        "half": torch.tensor([1.5], dtype=torch.bfloat16),
        "bytes": torch.arange(5, dtype=torch.uint8),
        "flag": torch.tensor([True, False]),
        "empty": torch.zeros(0, 3),
        "nan": torch.tensor([float("nan"), -0.0, float("inf")], dtype=torch.float64),
    }
    again = bc.load_tensors(bc.save_tensors(kept))
    for name, tensor in kept.items():
        assert again[name].dtype == tensor.dtype
        assert again[name].shape == tensor.shape
        assert again[name].tolist() == tensor.tolist() or name == "nan"
    assert again["nan"].isnan().tolist() == [True, False, False]
    assert bc.save_tensors(kept) == bc.save_tensors(again)


def test_foreign_and_broken_files_are_refused(tmp_path: Path) -> None:
    good = bc.save_tensors({"a": torch.zeros(100)})
    (tmp_path / "short").write_bytes(good[:-20])
    (tmp_path / "text").write_text("hello, this is no tensor file")
    (tmp_path / "nothing").write_bytes(b"")
    save_file({"a": torch.zeros(2)}, tmp_path / "foreign")
    for name, words in {
        "short": "cut short",
        "text": "safetensors",
        "nothing": "safetensors",
        "foreign": "not one of",
    }.items():
        with pytest.raises(bc.InvalidFile, match=words):
            bc.load(tmp_path / name)
        with pytest.raises(bc.InvalidFile, match=words):
            bc.load_tensors((tmp_path / name).read_bytes())
    with pytest.raises(bc.InvalidFile, match="kind 'tensors'"):
        bc.load(good)
    for path, words in ((tmp_path / "absent", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(bc.InvalidFile, match=words):
            bc.load(path)


def test_loading_while_another_process_saves_gives_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    writer = (
        "import sys, torch, bensemble_core as bc\n"
        "while True:\n"
        "    for n in (1, 50):\n"
        "        bc.save_tensors({f'{n}/{i}': torch.full((n,), float(n)) for i in range(n)}, sys.argv[1])\n"
    )
    bc.save_tensors({"1/0": torch.ones(1)}, path)
    with subprocess.Popen([sys.executable, "-c", writer, str(path)]) as process:
        try:
            deadline = time.monotonic() + 4
            while time.monotonic() < deadline:
                found = bc.load_tensors(path)
                assert all(t.tolist() == [float(len(found))] * len(found) for t in found.values())
        finally:
            process.kill()


@pytest.mark.parametrize("method", ["rank1_bnn", "batch_ensemble", "laplace", "swag", "mfvi", "pbp"])
def test_a_wide_posterior_draws_the_same_bits_after_a_file(method: str, tmp_path: Path) -> None:
    """In float64, where a product of matrices shows how they lie in memory; deep enough that names have an order."""
    x, y = (values.double() for values in data())
    model = {"name": "mlp", "hidden": [33] * 10}
    fitted = bc.fit(method, model, (x, y), likelihood="gaussian", epochs=2, **OPTIONS.get(method, {}))
    fitted.save(tmp_path / "f")
    drawn, again = fitted.sample(3, seed=1), bc.load(tmp_path / "f").sample(3, seed=1)
    for name, tensor in drawn.stacked.items():
        assert torch.equal(again.stacked[name], tensor)


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f.safetensors"
    bc.save_tensors({"a": torch.ones(2)}, path)

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(io.os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        bc.save_tensors({"a": torch.zeros(2)}, path)
    assert bc.load_tensors(path)["a"].tolist() == [1.0, 1.0]
    assert list(tmp_path.iterdir()) == [path]


def test_an_update_without_the_old_rows_asks_for_them(tmp_path: Path) -> None:
    x, y = data()
    fitted = bc.fit("map", {"name": "mlp", "hidden": [4]}, (x, y), likelihood="gaussian", epochs=2)
    fitted.save(tmp_path / "f.safetensors")
    again = bc.load(tmp_path / "f.safetensors")
    with pytest.raises(bc.InvalidData, match="keep=False"):
        again.update((x, y))
    assert torch.equal(
        again.update((torch.cat([x, x]), torch.cat([y, y])), keep=False).state["linear1.weight"],
        fitted.update((x, y)).state["linear1.weight"],
    )

"""A file is checked against its own header before a number of it is used: names, shapes, sizes, finite weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core import io
from tests.contracts.test_posteriors import known, small, with_tasks

HUGE = 10**12
Tensors = dict[str, Tensor]
Change = Callable[[dict[str, Any], Tensors], object]
OPTIONS: dict[str, Any] = {"snapshot_ensemble": {"cycles": 2}, "swag": {"rank": 2}, "multi_swag": {"rank": 2}}


def rows() -> tuple[Tensor, Tensor]:
    x = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    return x, x[:, 0] + 1


def fitted(method: str = "map", **options: Any) -> bc.Fitted:
    options = (known(method, {"epochs": 4}) or small(method)) | OPTIONS.get(method, {}) | options
    own = with_tasks(method, *rows())
    return bc.fit(method, {"name": "mlp", "hidden": [6]}, own, likelihood="gaussian", **options)


def changed(thing: bc.Fitted | bc.Ensemble, path: Path, change: Change) -> bytes:
    thing.save(path)
    header, tensors = io.read(path.read_bytes())
    change(header, tensors)
    return io.to_bytes(header, tensors)


def put(*keys: str, to: Any) -> Change:
    def change(header: dict[str, Any], _: Tensors) -> None:
        for key in keys[:-1]:
            header = header[key]
        header[keys[-1]] = to

    return change


def drop(*keys: str) -> Change:
    def change(header: dict[str, Any], _: Tensors) -> None:
        for key in keys[:-1]:
            header = header[key]
        del header[keys[-1]]

    return change


def cut(name: str) -> Change:
    return lambda _, tensors: tensors.update({name: tensors[name][..., :1].contiguous()})


def lose(name: str) -> Change:
    return lambda _, tensors: tensors.pop(name)


def spoil(name: str, value: float) -> Change:
    return lambda _, tensors: tensors[name].view(-1)[:1].fill_(value)


IN_BOTH: list[Change] = [
    put("problem", "model", "n_outputs", to=HUGE),
    put("problem", "model", "n_outputs", to="one"),
    put("problem", "model", "input_shape", to=[HUGE]),
    put("problem", "model", "input_shape", to=[-1]),
    put("problem", "model", "input_shape", to=[]),
    put("problem", "model", "spec", "hidden", to=[7]),
    put("problem", "model", "spec", "hidden", to=[6, 6]),
    put("problem", "model", "spec", "name", to="evil"),
    put("problem", "model", "spec", "evil", to=1),
    put("problem", "dtype", to="Tensor"),
    put("problem", "dtype", to="int64"),
    put("problem", "dtype", to=["float32"]),
    put("problem", "likelihood", "scale", to=[1.0, 1.0, 1.0]),
    put("problem", "likelihood", "scale", to=[0.0]),
    put("problem", "likelihood", "scale", to=["1"]),
    put("problem", "likelihood", "evil", to=1),
    put("problem", "likelihood", "name", to="evil"),
    put("problem", "likelihood", to=None),
    put("problem", "prior", "scale", to="wide"),
    put("problem", to=[]),
    drop("problem"),
    drop("problem", "model", "spec"),
    drop("problem", "prior"),
    cut("scaling/scale"),
    lose("scaling/scale"),
    spoil("scaling/scale", 0.0),
    put("kind", to="evil"),
]
IN_FITTED: list[Change] = [
    lose("state/linear1.bias"),
    lose("state/likelihood/log_noise"),
    cut("state/linear1.weight"),
    cut("state/linear1.bias"),
    spoil("state/linear2.weight", float("nan")),
    lambda _, tensors: tensors.update({"state/evil": torch.zeros(1)}),
    lambda _, tensors: tensors.update({"state/linear1.bias": tensors["state/linear1.bias"].long()}),
    put("posterior", "name", to="evil"),
    put("posterior", "epochs", to="many"),
    put("posterior", to=None),
    put("seed", to="a"),
    drop("seed"),
]
IN_ENSEMBLE: list[Change] = [
    lose("stacked/linear1.bias"),
    cut("stacked/linear1.weight"),
    spoil("stacked/linear2.weight", float("inf")),
    put("plan", "mode", to="evil"),
    put("plan", "layout", to="evil"),
    put("plan", "rows", to=0),
    put("plan", "rows", to=-1),
    put("plan", "rows", to=HUGE),
    put("plan", "rows", to=1.5),
    put("notes", to="one sentence"),
    put("notes", to=[1]),
    put("is_student", to="yes"),
    put("is_student", to=1),
    put("is_student", to=True),  # of two members
    lambda _, tensors: tensors.update({k: v[:0] for k, v in tensors.items() if k.startswith("stacked/")}),
    drop("plan"),
    drop("transform"),
    put("transform", to={"name": "fixed_masks", "layers": ["linear1"]}),
    put("transform", to={"name": "fixed_masks", "layers": ["nowhere"]}),
    lambda _, tensors: tensors.update({"log_weights": torch.zeros(7)}),
    lambda _, tensors: tensors.update({"log_weights": torch.tensor([0.0, torch.nan])}),
    lambda _, tensors: tensors.update({"log_weights": torch.tensor([-torch.inf, -torch.inf])}),
    lambda _, tensors: tensors.update({"calibration/scale": torch.ones(3)}),
]


@pytest.mark.parametrize("change", IN_BOTH + IN_FITTED)
def test_a_changed_posterior_is_refused(change: Change, tmp_path: Path) -> None:
    with pytest.raises(bc.InvalidFile):
        bc.load(changed(fitted(), tmp_path / "f", change))


@pytest.mark.parametrize("change", IN_BOTH + IN_ENSEMBLE)
def test_a_changed_ensemble_is_refused(change: Change, tmp_path: Path) -> None:
    with pytest.raises(bc.InvalidFile):
        bc.load(changed(fitted("deep_ensemble", members=2).sample(2), tmp_path / "e", change))


@pytest.mark.parametrize("method", [*bc.POSTERIORS])
def test_every_method_misses_any_tensor_that_is_lost_or_cut(method: str, tmp_path: Path) -> None:
    whole = fitted(method)
    path = tmp_path / "f"
    whole.save(path)
    _, kept = io.read(path)
    for name in whole.state:
        with pytest.raises(bc.InvalidFile):
            bc.load(changed(whole, path, lose(f"state/{name}")))
        if kept[f"state/{name}"].shape[-1] > 1:
            with pytest.raises(bc.InvalidFile):
                bc.load(changed(whole, path, cut(f"state/{name}")))
    with pytest.raises(bc.InvalidFile, match="expected no"):
        bc.load(changed(whole, path, lambda _, tensors: tensors.update({"state/linear9.bias": torch.zeros(1)})))


@pytest.mark.parametrize(
    "options", [{"structure": s, "bias": b} for s in ("kron", "diag", "full") for b in ("own", "joint")]
)
def test_every_curvature_of_laplace_is_checked(options: dict[str, Any], tmp_path: Path) -> None:
    whole = fitted("laplace", **options)
    whole.save(tmp_path / "f")
    bc.load(tmp_path / "f")
    for name in (n for n in whole.state if n.startswith("laplace/")):
        with pytest.raises(bc.InvalidFile):
            bc.load(changed(whole, tmp_path / "f", lose(f"state/{name}")))


@pytest.mark.parametrize("method", ["mc_dropout", "laplace", "rank1_bnn"])
def test_a_members_file_needs_its_transform(method: str, tmp_path: Path) -> None:
    members = fitted(method).sample(3)
    assert members.transform is not None
    with pytest.raises(bc.InvalidFile):
        bc.load(changed(members, tmp_path / "e", put("transform", to=None)))


def test_pruned_updated_and_normalised_posteriors_load(tmp_path: Path) -> None:
    x, y = rows()
    own = fitted("mfvi")
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 1))
    normalised = bc.fit("swag", net, (x, y), likelihood="gaussian", epochs=4, rank=2)
    for thing in (bc.prune(own, share=0.5).fitted, own.update((x, y)), fitted("mfvi", prior_scale="ard"), normalised):
        thing.save(tmp_path / "f")
        assert set(bc.load(tmp_path / "f", model=net if thing is normalised else None).state) == set(thing.state)


def test_a_buffer_may_hold_infinities(tmp_path: Path) -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)
            self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = torch.softmax(self.layer(x) + self.mask, -1)
            return out

    x, y = rows()
    own = bc.fit("map", Masked(), (x, (y > 1).long()), likelihood="categorical", epochs=1)
    own.save(tmp_path / "f")
    assert bc.load(tmp_path / "f", model=Masked()).state["mask"].isinf().any()


@pytest.mark.parametrize("text", ["{", "[]", "3", '"x"', "null"])
def test_a_header_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(bc.InvalidFile, match="header"):
        bc.load(save({"a": torch.zeros(2)}, metadata={"bensemble": text}))


def test_what_was_written_is_read_as_before(tmp_path: Path) -> None:
    whole = fitted("deep_ensemble", members=2)
    same = changed(whole, tmp_path / "f", lambda header, tensors: None)
    assert same == (tmp_path / "f").read_bytes()
    assert set(bc.load(same).state) == set(whole.state)
    assert len(load(same)) > 4

"""Every entry of POSTERIORS walks the whole protocol; a new method is one more row here by being registered."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Union

import pytest
import torch
from pydantic import Discriminator, TypeAdapter, ValidationError
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core.types import Snapshot

NAMES = list(bc.POSTERIORS)
SMALL: dict[str, Any] = {"epochs": 3}  # options that keep an entry quick; a method with others adds its own here
OPTIONS: dict[str, dict[str, Any]] = {
    "deep_ensemble": {"members": 3, **SMALL},
    "snapshot_ensemble": {"cycles": 3, **SMALL},
    "swag": {"rank": 2, "epochs": 6},
    "multi_swag": {"members": 2, "rank": 2, "epochs": 6},
}
MODELS: dict[str, Any] = {
    "mlp": {"name": "mlp", "hidden": [6]},
    "module": nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)),
}
REGRESSION: dict[str, Any] = {  # entries that are for numbers only, with a module they are for
    "pbp": nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5, bias=False), nn.ReLU(), nn.Linear(5, 1)),
}


def data(name: str = "") -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(24, 4, generator=g)
    return x, x[:, 0] - x[:, 1].abs() if name in REGRESSION else x[:, :3].argmax(1)


def network(name: str, model: str) -> Any:
    return REGRESSION[name] if model == "module" and name in REGRESSION else MODELS[model]


def likelihood(name: str) -> str:
    return "gaussian" if name in REGRESSION else "categorical"


def outputs(predictive: Any) -> Tensor:
    return predictive.means if predictive.family == "gaussian" else predictive.logits


def fit(name: str, model: str = "mlp", **extra: Any) -> bc.Fitted:
    options = OPTIONS.get(name, SMALL) | extra
    return bc.fit(name, network(name, model), data(name), likelihood=likelihood(name), **options)


def same(a: Any, b: Any) -> bool:
    return set(a) == set(b) and all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_is_a_frozen_dataclass_that_declares_itself(name: str) -> None:
    kind = bc.POSTERIORS[name]
    entry = kind()
    fields = {f.name: f for f in dataclasses.fields(kind)}
    assert entry.name == name
    assert kind.aims in ("none", "mean_field", "exact")
    assert isinstance(kind.resumes, bool)
    assert isinstance(kind.starts_from_weights, bool)
    assert not any(f.startswith("__") for f in fields)
    assert all("description" in f.metadata for f in fields.values() if f.name != "name")
    assert entry.cost(1000) > 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        entry.name = "other"


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", NAMES)
def test_fit_and_sample_are_functions_of_their_seeds(name: str, model: str) -> None:
    generator = torch.get_rng_state()
    first, second = fit(name, model, seed=5), fit(name, model, seed=5)
    assert same(first.state, second.state)
    a, b = first.sample(4, seed=1), first.sample(4, seed=1)
    assert same(a.stacked, b.stacked)
    assert same(a.shared, b.shared)
    assert torch.equal(torch.get_rng_state(), generator)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", NAMES)
def test_sampling_gives_as_many_members_as_the_method_has(name: str, model: str) -> None:
    fitted = fit(name, model)
    counts = [fitted.sample(n).n_members for n in (1, 2, 4)]
    assert counts == sorted(counts)
    assert all(count <= n for count, n in zip(counts, (1, 2, 4), strict=True))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", NAMES)
def test_predictions_are_deterministic_finite_and_the_same_for_identical_rows(name: str, model: str) -> None:
    ensemble = fit(name, model).sample(4)
    x = data()[0][:1].expand(40, 4)
    found = outputs(ensemble.predict(x))
    assert found.shape[:2] == (ensemble.n_members, 40)
    assert bool(found.isfinite().all())
    assert torch.equal(found, outputs(ensemble.predict(x)))
    assert torch.equal(found, found[:, :1].expand_as(found))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", NAMES)
def test_a_file_keeps_every_bit(name: str, model: str, tmp_path: Path) -> None:
    fitted, net = fit(name, model), network(name, model) if model == "module" else None
    fitted.save(tmp_path / "f")
    fitted.sample(3).save(tmp_path / "e")
    x = data()[0]
    expected = outputs(fitted.sample(3).predict(x))
    assert torch.equal(outputs(bc.load(tmp_path / "f", model=net).sample(3).predict(x)), expected)
    assert torch.equal(outputs(bc.load(tmp_path / "e", model=net).predict(x)), expected)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", NAMES)
def test_an_entry_that_resumes_goes_on_bit_for_bit_and_one_that_is_cancelled_stops(name: str, model: str) -> None:
    kept: list[dict[str, Tensor]] = []

    def cancel(done: int, total: int, message: str, snapshot: Snapshot) -> None:
        assert 0 < done <= total
        kept.append(snapshot())
        raise bc.Cancelled("stop")

    with pytest.raises(bc.Cancelled):
        fit(name, model, report=cancel)
    assert len(kept) == 1
    if bc.POSTERIORS[name].resumes:
        stored = bc.load_tensors(bc.save_tensors(kept[0]))
        assert same(fit(name, model, resume=stored).state, fit(name, model).state)


@pytest.mark.parametrize("name", NAMES)
def test_an_update_starts_from_the_state(name: str) -> None:
    fitted = fit(name)
    x, y = data(name)
    updated = fitted.update((x[:5], y[:5]))
    assert set(updated.state) == set(fitted.state)
    assert not same(updated.state, fitted.state)


@pytest.mark.parametrize("name", NAMES)
def test_double_precision_stays_double(name: str) -> None:
    x, y = data(name)
    fitted = bc.fit(name, MODELS["mlp"], (x.double(), y), likelihood=likelihood(name), **OPTIONS.get(name, SMALL))
    assert outputs(fitted.sample(2).predict(x.double())).dtype == torch.float64


@pytest.mark.parametrize("name", NAMES)
def test_a_module_starts_from_its_weights_where_the_entry_says_so(name: str) -> None:
    net = nn.Linear(4, 1 if name in REGRESSION else 3)
    fitted = bc.fit(name, net, data(name), likelihood=likelihood(name), **(OPTIONS.get(name, SMALL) | {"epochs": 0}))
    kept = torch.equal(fitted.state["weight"][0], net.weight.detach())
    assert kept == bc.POSTERIORS[name].starts_from_weights


def test_pydantic_reads_the_bounds_from_the_same_dataclasses() -> None:
    union: Any = Annotated[Union[tuple(bc.POSTERIORS.values())], Discriminator("name")]  # noqa: UP007
    adapter: TypeAdapter[Any] = TypeAdapter(union)
    schema = adapter.json_schema()
    assert set(schema["discriminator"]["mapping"]) == set(NAMES)
    members = schema["$defs"]["DeepEnsemble"]["properties"]["members"]
    assert (members["minimum"], members["maximum"], members["default"]) == (1, 1000, 5)
    assert schema["$defs"]["DeepEnsemble"]["additionalProperties"] is False
    made = adapter.validate_python({"name": "deep_ensemble", "members": 3, "epochs": 2})
    assert made == bc.DeepEnsemble(members=3, epochs=2)
    for wrong in ({"members": 0}, {"lr": float("inf")}, {"memers": 1}):
        with pytest.raises(ValidationError):
            adapter.validate_python({"name": "deep_ensemble", **wrong})


def test_pydantic_reads_the_models_too() -> None:
    union: Any = Annotated[Union[tuple(bc.MODELS.values())], Discriminator("name")]  # noqa: UP007
    adapter: TypeAdapter[Any] = TypeAdapter(union)
    made = adapter.validate_python({"name": "mlp", "hidden": [128, 128]})
    assert made.hidden == (128, 128)
    with pytest.raises(ValidationError):
        adapter.validate_python({"name": "mlp", "hidden": [0]})

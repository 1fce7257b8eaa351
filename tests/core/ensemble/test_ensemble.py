"""Ensemble: rows in any form, the same bits, the same numbers however members run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bensemble_core as bc
from bensemble_core import io
from bensemble_core.ensemble import Ensemble
from bensemble_core.ensemble.members import Plan

MLP = {"name": "mlp", "hidden": [16, 16]}


def rows(n: int, d: int = 6, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def fitted(method: str = "deep_ensemble", model: Any = None, n: int = 40, **options: Any) -> bc.Fitted:
    x = rows(n)
    return bc.fit(method, model or MLP, (x, (x[:, 0] > 0).long()), likelihood="categorical", epochs=3, **options)


def with_plan(ensemble: Ensemble, mode: Any, n: int = 32) -> Ensemble:
    return Ensemble(
        problem=ensemble.problem,
        stacked=ensemble.stacked,
        shared=ensemble.shared,
        log_weights=ensemble.log_weights,
        transform=ensemble.transform,
        stored_plan=Plan(mode=mode, rows=n),
    )


@pytest.mark.parametrize("method", ["deep_ensemble", "mc_dropout"])
def test_members_at_once_predict_what_they_predict_one_by_one(method: str) -> None:
    ensemble = fitted(method).sample(5)
    x = rows(100, seed=1)
    at_once, loop = (with_plan(ensemble, mode).predict(x).log_probs for mode in ("vmap", "loop"))
    torch.testing.assert_close(at_once, loop, rtol=1e-6, atol=1e-6)


def test_predict_is_the_module_itself_for_weights_handed_in() -> None:
    net = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.GELU(), nn.Linear(5, 2))
    net(rows(20, seed=3) * 4)  # give the running statistics something to remember
    x = rows(33)
    ensemble = bc.fit("map", net, (x, torch.zeros(33, dtype=torch.int64)), likelihood="categorical", epochs=0).sample(1)
    torch.testing.assert_close(ensemble.predict(x).logits[0], net.eval()(x), rtol=1e-6, atol=1e-6)


def test_a_row_has_the_same_bits_whatever_follows_it() -> None:
    ensemble = with_plan(fitted().sample(5), "vmap")
    x = rows(200, seed=1)
    whole = ensemble.predict(x).logits
    for n in (1, 31, 32, 33, 100):
        assert torch.equal(ensemble.predict(x[:n]).logits, whole[:, :n])


def test_identical_rows_get_identical_predictions() -> None:
    for method in ("deep_ensemble", "mc_dropout"):
        x = rows(1).expand(700, 6)
        logits = fitted(method).sample(7).predict(x).logits
        assert torch.equal(logits, logits[:, :1].expand_as(logits))


def test_chunks_are_multiples_of_blocks_and_join_to_the_whole() -> None:
    ensemble = with_plan(fitted().sample(3), "vmap")
    x = rows(150, seed=1)
    chunks = list(ensemble.iter_predict(x, 64))
    assert [c.n_rows for c in chunks] == [64, 64, 22]
    assert torch.equal(torch.cat([c.logits for c in chunks], 1), ensemble.predict(x).logits)


def test_rows_come_as_tensors_arrays_memory_maps_and_lists(tmp_path: Path) -> None:
    ensemble = fitted().sample(3)
    x = rows(70, seed=1)
    expected = ensemble.predict(x).logits
    np.save(tmp_path / "x.npy", x.numpy())
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    big_endian = x.numpy().astype(">f4")
    for form in (x.numpy(), mapped, big_endian, x.double(), x.tolist()):
        assert torch.equal(ensemble.predict(form).logits, expected)
    assert ensemble.predict(x[:0]).logits.shape == (3, 0, 2)


def test_rows_of_the_wrong_shape_are_refused_and_flat_ones_reshaped() -> None:
    ensemble = fitted().sample(2)
    with pytest.raises(bc.InvalidData, match=r"expected rows of shape \[6\], got \[5\]"):
        ensemble.predict(rows(4, 5))
    assert torch.equal(ensemble.predict(rows(4).reshape(4, 2, 3)).logits, ensemble.predict(rows(4)).logits)


def test_features_are_the_input_of_the_last_linear_layer() -> None:
    net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
    x = rows(40)
    ensemble = bc.fit("map", net, (x, (x[:, 0] > 0).long()), likelihood="categorical", epochs=0).sample(1)
    torch.testing.assert_close(ensemble.features(x), net[:2](x), rtol=1e-6, atol=1e-6)


def test_features_without_a_linear_layer_are_the_rows() -> None:
    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(6, 2))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.w

    x = rows(40)
    ensemble = bc.fit("map", Product(), (x, (x[:, 0] > 0).long()), likelihood="categorical", epochs=0).sample(1)
    assert torch.equal(ensemble.features(x), x)


def test_tied_weights_are_stored_once_and_stay_tied() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(6, 6, bias=False)
            self.b = nn.Linear(6, 6, bias=False)
            self.b.weight = self.a.weight
            self.head = nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(torch.tanh(self.b(torch.tanh(self.a(x)))))
            return out

    net, x = Tied(), rows(40)
    done = bc.fit("map", net, (x, (x[:, 0] > 0).long()), likelihood="categorical", epochs=3)
    assert set(done.state) == {"a.weight", "head.weight", "head.bias"}
    net.load_state_dict({k: v[0] for k, v in done.state.items()} | {"b.weight": done.state["a.weight"][0]})
    scaled = done.problem.scaling(x) if done.problem.scaling else x
    torch.testing.assert_close(done.sample(1).predict(x).logits[0], net(scaled), rtol=1e-5, atol=1e-6)


def test_non_persistent_buffers_are_part_of_the_state(tmp_path: Path) -> None:
    class Shifted(nn.Module):
        def __init__(self, shift: float) -> None:
            super().__init__()
            self.linear = nn.Linear(6, 2)
            self.register_buffer("shift", torch.tensor([shift, 0.0]), persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.linear(x) + self.shift
            return out

    x = rows(40)
    done = bc.fit("map", Shifted(3.0), (x, (x[:, 0] > 0).long()), likelihood="categorical", epochs=0)
    done.save(tmp_path / "f.safetensors")
    again = bc.load(tmp_path / "f.safetensors", model=Shifted(0.0))
    assert torch.equal(again.sample(1).predict(x).logits, done.sample(1).predict(x).logits)


def test_modules_that_work_in_place_on_their_input_see_the_rows_unchanged() -> None:
    net = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 2))
    x = rows(40)
    copy = x.clone()
    ensemble = bc.fit("deep_ensemble", net, (x, (x[:, 0] > 0).long()), likelihood="categorical", epochs=2).sample(3)
    logits = ensemble.predict(x).logits
    assert torch.equal(x, copy)
    assert ensemble.problem.scaling is not None
    h = ensemble.problem.scaling(x).relu()
    for m in range(3):
        expected = h @ ensemble.stacked["1.weight"][m].T + ensemble.stacked["1.bias"][m]
        torch.testing.assert_close(logits[m], expected, rtol=1e-5, atol=1e-5)


def test_weights_reach_the_predictive() -> None:
    ensemble = fitted().sample(3)
    heavy = Ensemble(
        problem=ensemble.problem,
        stacked=ensemble.stacked,
        log_weights=torch.tensor([0.0, -torch.inf, -torch.inf]),
    )
    x = rows(10)
    torch.testing.assert_close(heavy.predict(x).mean(), ensemble.predict(x).log_probs[0].exp())


def test_integer_rows_index_an_embedding() -> None:
    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(10, 4)
            self.head = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(self.words(x).mean(1))
            return out

    g = torch.Generator().manual_seed(0)
    x = torch.randint(10, (60, 5), generator=g)
    y = (x.double().mean(1) > 4.5).long()
    ensemble = bc.fit("deep_ensemble", Bag(), (x, y), likelihood="categorical", epochs=100, members=2).sample(2)
    assert (ensemble.predict(x).mean().argmax(1) == y).double().mean() > 0.85


def test_the_device_is_a_parameter() -> None:
    ensemble = fitted().sample(2).to("cpu")
    assert ensemble.device == torch.device("cpu")
    with pytest.raises(bc.InvalidData, match="leading axis"):
        Ensemble(problem=ensemble.problem, stacked={"a": torch.zeros(2, 1), "b": torch.zeros(3, 1)})


def test_fewer_members_than_asked_for_are_noted_and_the_note_is_kept(tmp_path: Path) -> None:
    three = fitted(members=3)
    (note,) = three.sample(10).notes
    assert note == "10 members were asked for and 3 drawn: this deep_ensemble keeps no more"
    assert three.sample(3).notes == three.sample().notes == fitted("mfvi").sample(10).notes == ()
    assert three.sample(10, at_most=True).notes == ()
    assert bc.rank(three.sample(10), rows(9), acquisition="entropy", k=2).notes == (note,)
    assert bc.rank(three.sample(10), rows(9), acquisition="random", k=2).notes == ()
    three.sample(10).save(tmp_path / "e")
    again = bc.load(tmp_path / "e")
    assert again.notes == again.to("cpu").notes == (note,)


def test_a_file_from_before_there_were_notes_loads() -> None:
    ensemble = fitted().sample(5)
    header, tensors = ensemble.to_tensors()
    del header["notes"]
    assert bc.load(io.to_bytes(header, tensors)).notes == ()

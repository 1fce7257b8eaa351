"""Derived models: ensembles of functions run, are scored, ranked and kept as networks are."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import bensemble_core as bc
from bensemble_core import io
from bensemble_core.ensemble.members import Plan
from bensemble_core.models import derived
from bensemble_core.models.derived import Kernel
from bensemble_core.types import Problem

M, D, T, G, P, F = 5, 3, 2, 2, 4, 6


def rows(n: int = 40) -> Tensor:
    return torch.randn(n, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def functions(kernel: Any = "rbf", dtype: torch.dtype = torch.float64) -> bc.Ensemble:
    g = torch.Generator().manual_seed(0)
    model = Kernel(input_shape=(D,), n_outputs=T, kernel=kernel, n_groups=G, n_centres=P, n_frequencies=F)
    likelihood = bc.Gaussian(noise=0.1).bind(torch.zeros(3, T), n_outputs=T, standardise=False)
    shapes = io.model_shapes(Problem(model=model, likelihood=likelihood, prior=None, dtype=dtype))
    drawn = {name: torch.randn(M, *shape, generator=g, dtype=torch.float64) for name, shape in shapes.items()}
    own = {name: drawn[name] for name in ("coefficients", "linear", "bias")}
    return bc.Ensemble(
        problem=Problem(model=model, likelihood=likelihood, prior=None, dtype=dtype),
        stacked=own,
        shared={name: value[0] for name, value in drawn.items() if name not in own},
    )


@pytest.mark.parametrize("kernel", ["rbf", "matern52"])
def test_a_kernel_model_is_its_formula(kernel: Any) -> None:
    ensemble, x = functions(kernel), rows(7)
    t = {**ensemble.shared, **ensemble.stacked}
    expected = torch.zeros(M, 7, T, dtype=torch.float64)
    for m in range(M):
        for n in range(7):
            basis = []
            for g in range(G):
                for p in range(P):
                    r = float((x[n] * t["scales"][g] - t["centres"][g, p]).norm())
                    rough = (1 + math.sqrt(5) * r + 5 * r * r / 3) * math.exp(-math.sqrt(5) * r)
                    basis.append(math.exp(-r * r / 2) if kernel == "rbf" else rough)
            basis += [math.cos(float(t["frequencies"][f] @ x[n] + t["phases"][f])) for f in range(F)]
            whole = t["coefficients"][m] @ torch.tensor(basis, dtype=torch.float64)
            expected[m, n] = whole + t["linear"][m] @ x[n] + t["bias"][m]
    torch.testing.assert_close(ensemble.predict(x).means, expected)


def test_members_run_at_once_and_share_their_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    ensemble, x = functions(), rows()
    assert ensemble.plan.mode == "vmap"
    one_by_one = replace(ensemble, stored_plan=Plan(mode="loop", rows=64)).predict(x).means
    seen: list[tuple[int, ...]] = []

    def note(a: Tensor, b: Tensor) -> Tensor:
        assert not torch._C._functorch.is_batchedtensor(a)
        seen.append(tuple(a.shape))
        return torch.cdist(a, b).square()

    monkeypatch.setattr(derived, "squared_distances", note)
    found = replace(ensemble, stored_plan=Plan(mode="vmap", rows=64)).predict(x).means
    assert seen == [(G, 64, D)]  # once, for all members
    torch.testing.assert_close(found, one_by_one)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_files_keep_every_bit(dtype: torch.dtype, tmp_path: Path) -> None:
    ensemble, x = functions("matern52", dtype), rows().to(dtype)
    ensemble.save(tmp_path / "e")
    again = bc.load(tmp_path / "e")
    assert again.problem.model == ensemble.problem.model
    assert again.predict(x).means.dtype == dtype
    assert torch.equal(again.predict(x).means, ensemble.predict(x).means)
    assert "model=kernel" in repr(again)


@pytest.mark.parametrize(
    "wrong",
    [{"kernel": "cosine"}, {"n_centres": -1}, {"n_centres": 1 << 40}, {"n_groups": "2"}, {"derived": "spell"}],
)
def test_a_file_that_says_something_else_is_refused(wrong: dict[str, Any]) -> None:
    header, tensors = functions().to_tensors()
    header["problem"]["model"] |= wrong
    with pytest.raises(bc.InvalidFile):
        bc.Ensemble.from_tensors(header, tensors)


def test_functions_are_scored_ranked_and_have_features() -> None:
    ensemble, x = functions(), rows()
    assert torch.equal(ensemble.features(x), x)  # there is no layer to look into
    spread = ensemble.predict(x).epistemic_variance().sum(-1)
    for selection in ("top_k", "power", "batchbald", "kcenter", "typiclust"):
        ranked = bc.rank(ensemble, x, k=4, selection=selection)
        assert len(set(ranked.rows.tolist())) == 4
    top = bc.rank(ensemble, x, k=4, acquisition={"name": "predictive_variance", "part": "epistemic"}, selection="top_k")
    assert int(top.rows[0]) == int(spread.argmax())

"""Ordinary slips are answered in the library's own words, and what can only mean one thing is taken as meant."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor, nn

import bensemble_core as bc

MLP: dict[str, Any] = {"name": "mlp", "hidden": [4]}
X = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
Y = X[:, 0] + 1
TABLE = np.array([[0.0, 1.0, 2.0]] * 2 + [[0.0, "Paris", 1]] * 10, dtype=object)
GONE = "cuda:99"  # on a machine with CUDA too
WORDS = torch.arange(24).reshape(12, 2) % 7


def embedding() -> nn.Module:
    return nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(6, 2))


def fit(method: Any = "map", model: Any = MLP, data: Any = (X, Y), **given: Any) -> bc.Fitted:
    return bc.fit(method, model, data, **{"likelihood": "gaussian", "epochs": 1, **given})


def of_words(method: str = "map", rows: Tensor = WORDS, **given: Any) -> bc.Fitted:
    return fit(method, embedding(), (rows, torch.arange(12) % 2), likelihood="categorical", **given)


def test_whole_numbers_of_numpy_are_seeds(tmp_path: Path) -> None:
    mine, numpys = fit(seed=3), fit(seed=np.int64(3))
    assert torch.equal(mine.state["linear1.weight"], numpys.state["linear1.weight"])
    assert type(numpys.seed) is int
    numpys.save(tmp_path / "f")
    assert numpys.sample(np.int64(1), seed=np.uint8(2)).n_members == 1
    assert (
        fit(likelihood=bc.Gaussian(noise=np.float32(0.5)), prior=bc.Normal(scale=np.float32(2))).save(tmp_path / "f")
        is None
    )
    assert bc.load(tmp_path / "f").problem.likelihood.noise == 0.5


def test_a_model_may_be_its_name() -> None:
    assert torch.equal(fit(model="mlp").state["linear1.weight"], fit(model={"name": "mlp"}).state["linear1.weight"])
    bc.check("map", "mlp", likelihood="gaussian", input_shape=[3])


REFUSED: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: fit(seed=1.5), bc.InvalidOption, "seed has to be a whole number, got 1.5"),
    (lambda: fit(seed=None), bc.InvalidOption, "got None"),
    (
        lambda: bc.rank(
            fit().sample(1), X, acquisition="predictive_variance", selection="kcenter", k=2, labelled=[[1, 2, 3]]
        ),
        bc.InvalidData,
        "labelled is an array",
    ),
    (lambda: bc.score(fit().sample(1), X, "epig", target=X.tolist()), bc.InvalidData, "target is an array"),  # type: ignore[arg-type]
    (
        lambda: bc.rank(None, X, acquisition="random", selection="kcenter", k=2, labelled=np.array(3.0)),
        bc.InvalidData,
        "labelled is an array",
    ),
    (lambda: bc.score(fit().sample(1), np.full((3, 3), "a")), bc.InvalidData, "an array of numbers"),
    (lambda: fit(lr=10**400), bc.InvalidOption, "lr has to be a finite number"),
    (lambda: bc.choose(torch.rand(5), {"name": "power", "beta": 10**400}, k=2), bc.InvalidOption, "a finite number"),
    (lambda: fit(seed="a"), bc.InvalidOption, "got 'a'"),
    (lambda: fit().sample(1, seed=0.5), bc.InvalidOption, "seed has to be"),  # type: ignore[arg-type]
    (lambda: fit().sample(1.5), bc.InvalidOption, "number of members has to be a whole number"),  # type: ignore[arg-type]
    (lambda: fit().update((X, Y), seed=1.5), bc.InvalidOption, "seed has to be"),  # type: ignore[arg-type]
    (lambda: fit("mlp"), bc.InvalidOption, "unknown posterior 'mlp'"),
    (lambda: bc.fit(bc.MAP, MLP, (X, Y), likelihood="gaussian"), bc.InvalidOption, "or an instance"),  # type: ignore[arg-type]
    (lambda: fit(model="perceptron"), bc.InvalidOption, "unknown model 'perceptron'"),
    (lambda: fit(model=nn.Linear), bc.InvalidModel, "the class Linear; pass an instance"),
    (lambda: fit(model=3), bc.InvalidModel, "or an nn.Module, got 3"),
    (lambda: fit(prior=1.0), bc.InvalidOption, r"prior has to be Normal\(scale=…\), .* got 1.0"),
    (lambda: fit(prior="normal"), bc.InvalidOption, "got 'normal'"),
    (lambda: fit(prior=bc.Normal), bc.InvalidOption, "prior has to be"),
    (lambda: bc.Normal(scale="1"), bc.InvalidOption, "got '1'"),  # type: ignore[arg-type]
    (lambda: fit(likelihood=None), bc.InvalidOption, "likelihood has to be a name"),
    (lambda: fit(likelihood=bc.Gaussian), bc.InvalidOption, "likelihood has to be a name"),
    (lambda: fit(augment=3), bc.InvalidOption, "augment has to be a function"),
    (lambda: fit(data=(X.to_sparse(), Y)), bc.InvalidData, "dense tensor"),
    (lambda: fit(data=(X + 0j, Y)), bc.InvalidData, "real numbers"),
    (lambda: fit(data=(X, Y.to_sparse())), bc.InvalidData, "dense tensor"),
    (lambda: fit().sample(1).predict(X.to_sparse()), bc.InvalidData, "dense tensor"),
    (lambda: fit().sample(1).predict(X.numpy() + 0j), bc.InvalidData, "tensor of numbers, .* got complex"),
    (lambda: fit(device=GONE), bc.InvalidOption, "device 'cuda:99' cannot be used here .*; use cpu"),
    (lambda: fit(device="gpu"), bc.InvalidOption, "device 'gpu' cannot be used here"),
    (lambda: fit(device="meta"), bc.InvalidOption, "device 'meta' holds no numbers"),
    (lambda: fit().sample(1).to(GONE), bc.InvalidOption, "device 'cuda:99' cannot be used here"),
    (lambda: bc.load("nowhere", device=GONE), bc.InvalidOption, "device 'cuda:99' cannot be used here"),
    (
        lambda: bc.fit_splits("map", MLP, [(X, Y)], likelihood="gaussian", device=GONE),
        bc.InvalidOption,
        "device 'cuda:99' cannot be used here",
    ),
    (lambda: fit(data=({"a": X[:, 0]}, Y)), bc.InvalidData, r"x has to be an array .* got a dict; .*x\.values\(\)"),
    (lambda: fit(data=(None, Y)), bc.InvalidData, "x has to be an array .* got None"),
    (lambda: fit(data=("rows.csv", Y)), bc.InvalidData, "x has to be an array .* got a str"),
    (lambda: fit(data=([["1", "a"]] * 12, Y)), bc.InvalidData, "x has to be .*: row 0 holds .*'1'"),
    (lambda: fit(data=(TABLE, Y)), bc.InvalidData, "x has to be .* got object: row 2 holds 'Paris'"),
    (lambda: fit(data=([[1.0], [1.0, 2.0]], Y[:2])), bc.InvalidData, "x has to be .*, all of one shape, got list"),
    (lambda: fit(data=(sparse.csr_array(X.numpy()), Y)), bc.InvalidData, r"sparse csr_array; pass x\.toarray\(\)"),
    (
        lambda: fit(data=(X, ["cat"] * 12)),
        bc.InvalidData,
        "y has to be .*row 0 holds .*'cat'.*; turn labels into",
    ),
    (lambda: fit(data=(X, dict.fromkeys(range(12), 1))), bc.InvalidData, "y has to be an array .* got a dict"),
    (lambda: fit().sample(1).predict({"a": X}), bc.InvalidData, "x has to be an array .* got a dict"),  # type: ignore[arg-type]
    (lambda: fit().sample(1).predict(None), bc.InvalidData, "x has to be an array .* got None"),  # type: ignore[arg-type]
    (lambda: fit().sample(1).predict(TABLE), bc.InvalidData, "row 2 holds 'Paris'"),
    (lambda: fit().sample(1).predict(sparse.csr_array(X.numpy())), bc.InvalidData, "sparse"),
    (lambda: bc.rank(fit().sample(1), {"a": X}, k=1), bc.InvalidData, "a pool is an array .* got dict"),  # type: ignore[arg-type]
    (lambda: bc.rank(fit().sample(1), None, k=1), bc.InvalidData, "a pool is an array .* got NoneType"),  # type: ignore[arg-type]
    (lambda: fit(data=(X, Y * 1e30)), bc.InvalidData, "targets vary by .* larger unit"),
    (lambda: fit(data=(X, Y * 1e30), standardise=False), bc.InvalidData, "or pass x and y in float64"),
    (lambda: bc.check("map", MLP, likelihood="gaussian", input_shape=[-1]), bc.InvalidModel, r"got \[-1\]"),
    (lambda: bc.check("map", nn.Linear(3, 1), likelihood="gaussian", input_shape=[]), bc.InvalidModel, r"got \[\]"),
    (lambda: bc.check("map", MLP, likelihood="gaussian", input_shape=[10**12]), bc.InvalidModel, "shape of a row"),
    (lambda: fit("mfvi").update((X[:0], Y[:0])), bc.InvalidData, "needs new rows"),
    (lambda: fit("laplace").update((X[:0], Y[:0])), bc.InvalidData, "needs new rows"),
    (lambda: of_words(rows=WORDS + 1), bc.InvalidData, "embedding does not have"),
    (lambda: of_words("laplace", rows=WORDS + 1, structure="diag", epochs=0), bc.InvalidData, "embedding does not"),
    (lambda: of_words().sample(1).predict(WORDS - 1), bc.InvalidData, "embedding does not have"),
    (lambda: of_words().sample(1).predict(WORDS + 0.7), bc.InvalidData, "not whole numbers"),
    (lambda: of_words().update((WORDS.float(), torch.arange(12) % 2)), bc.InvalidData, "not whole numbers"),
]


@pytest.mark.parametrize(("slip", "error", "words"), REFUSED)
def test_a_slip_is_refused_in_words(slip: Callable[[], object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        slip()


def test_rows_may_be_nested_lists() -> None:
    ensemble = fit(data=(X.tolist(), Y.tolist())).sample(1)
    torch.testing.assert_close(ensemble.predict(X.tolist()).means, ensemble.predict(X.double()).means)


def test_an_update_that_refits_may_have_no_new_rows() -> None:
    fitted = fit()
    assert fitted.update((X[:0], Y[:0])).data.n_rows == 12  # type: ignore[union-attr]


def test_metrics_take_arrays_as_fit_does() -> None:
    predictive = fit().sample(1).predict(X)
    assert bc.metrics.evaluate(predictive, Y.numpy()) == bc.metrics.evaluate(predictive, Y)
    assert bc.metrics.auroc(np.array([0.1, 0.9]), np.array([False, True])) == 1.0
    assert bc.metrics.ood_auroc(np.zeros(2), np.ones(3)) == 1.0
    classes = of_words().sample(1).predict(WORDS)
    assert bc.metrics.evaluate(classes, np.zeros(12, dtype=np.int64))["n"] == 12
    with pytest.raises(bc.InvalidData, match="targets have to be finite, row 3"):
        bc.metrics.evaluate(predictive, Y.index_fill(0, torch.tensor([3]), torch.nan))
    for n_bins in (-1, 0):
        with pytest.raises(bc.InvalidOption, match=f"n_bins is at least 1, got {n_bins}"):
            bc.metrics.reliability(classes, torch.zeros(12, dtype=torch.int64), n_bins=n_bins)


def test_the_order_of_bytes_makes_no_difference() -> None:
    ensemble, rows = fit().sample(1), X.numpy()
    scores = [bc.score(ensemble, given, "predictive_variance") for given in (rows, rows.astype(">f4"))]
    assert torch.equal(*scores)

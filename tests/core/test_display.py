"""What a person sees of an object: one line in a terminal, a small table in a notebook."""

from html.parser import HTMLParser
from typing import Any

import pytest
import torch
from torch import nn

import bensemble_core as bc

X = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
MLP = {"name": "mlp", "hidden": [16, 16]}


def fit(method: str = "deep_ensemble", **given: Any) -> bc.Fitted:
    return bc.fit(method, given.pop("model", MLP), (X, Y), **{"likelihood": "categorical", "epochs": 2, **given})


def test_an_ensemble_is_told_in_one_line() -> None:
    drawn = fit(members=3).sample(3)
    assert repr(drawn) == (
        "Ensemble(members=3, model=mlp(hidden=[16, 16]), input=[6], likelihood=categorical(2 classes), "
        "dtype=float32, device=cpu)"
    )
    assert "notes=10 members were asked for and 3 drawn" in repr(fit(members=3).sample(10))
    named = bc.Ensemble.from_modules([nn.Linear(6, 2).double()], likelihood=bc.Categorical(classes=("cat", "dog")))
    assert repr(named) == (
        "Ensemble(members=1, model=Linear, input=[6], likelihood=categorical(cat, dog), dtype=float64, device=cpu)"
    )


def test_a_fitted_posterior_is_told_by_what_was_asked_for() -> None:
    assert repr(fit(members=3, seed=7)) == (
        "Fitted(method=deep_ensemble(epochs=2, members=3), model=mlp(hidden=[16, 16]), input=[6], "
        "likelihood=categorical(2 classes), prior=Normal(scale=1.0), rows=40, seed=7, dtype=float32, device=cpu)"
    )
    numbers = bc.fit("map", "mlp", (X, X[:, 0]), likelihood=bc.Gaussian(noise=0.5), prior=None, epochs=1)
    assert "likelihood=gaussian(noise=0.5), prior=none, rows=40" in repr(numbers)


def test_predictives_rankings_and_data_are_told_by_their_sizes() -> None:
    ensemble = fit(members=3).sample(3)
    predictive = ensemble.predict(X)
    assert repr(predictive) == "CategoricalPredictive(members=3, rows=40, classes=2, dtype=float32, device=cpu)"
    gaussian = bc.GaussianPredictive(means=torch.zeros(2, 5), variances=torch.ones(2, 5), log_weights=torch.zeros(2))
    assert repr(gaussian) == (
        "GaussianPredictive(members=2, rows=5, outputs=1, weights=unequal, dtype=float32, device=cpu)"
    )
    ranking = bc.choose(torch.arange(30.0), k=12)[0]
    told = repr(bc.Ranking(rows=ranking, scores=ranking / 8, n_scored=30, measure="score", values=ranking.double()))
    assert told.startswith("Ranking(k=12, rows=[29, 28, 27, 26, 25, 24, 23, 22, 21, 20, … 2 more], scores=[3.625, 3.5,")
    assert told.endswith("n_scored=30, measure=score)")
    assert repr(bc.Data(x=X, y=Y, task=Y)) == "Data(rows=40, x=float32 [40, 6], y=int64 [40], tasks=2, device=cpu)"


def everything() -> list[Any]:
    ensemble = fit(members=3).sample(10)
    calibrated = bc.calibrate(ensemble, X, Y)
    predictive = ensemble.predict(X)
    return [
        *(fit(method) for method in ("map", "swa")),
        fit(model=nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))),
        ensemble,
        calibrated,
        calibrated.calibration,
        bc.Calibration(family="categorical", scale=torch.ones(2), shift=torch.zeros(2)),
        ensemble.problem,
        ensemble.problem.scaling,
        predictive,
        predictive.decompose(),
        bc.Data(x=X, y=Y),
        bc.metrics.reliability(predictive, Y),
        bc.metrics.risk_coverage(predictive.entropy(), torch.rand(40)),
        ensemble.predict(X[:0]),
    ]


def test_whatever_holds_tensors_shows_a_line_and_a_table_and_no_tensor() -> None:
    for thing in everything():
        assert "\n" not in repr(thing)
        assert "tensor(" not in repr(thing)
        assert len(repr(thing)) < 500
        assert thing._repr_html_().startswith(f"<table><caption>{type(thing).__name__}</caption><tr>")


class Cells(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_table_escapes_what_it_is_told() -> None:
    evil = "<script>alert('&')</script>"
    net = bc.Ensemble.from_modules([nn.Linear(6, 2)], likelihood=bc.Categorical(classes=(evil, "dog")))
    cells = Cells(net._repr_html_())
    assert cells.tags == {"table", "caption", "tr", "th", "td"}
    assert f"categorical({evil}, dog)" in cells.words


@pytest.mark.parametrize("n", [0, 1])
def test_a_ranking_of_no_or_one_row_is_shown(n: int) -> None:
    none = torch.zeros(n)
    assert f"k={n}, rows=[" in repr(bc.Ranking(rows=none.long(), scores=none, n_scored=n, measure="score", values=none))

"""What is drawn of a ranking: the spread of its scores, and a sample with what is uncertain about each row."""

from typing import Any

import numpy as np
import pytest
import torch

import bensemble_core as bc
from app.db.tables import RankingResult
from app.housekeeping.sweep import queue_sweep
from app.rankings import draw_figures as drawing
from app.rankings.figures import histogram
from tests.app.conftest import Service
from tests.app.hammering import refused
from tests.app.housekeeping.test_sweep import age, keys
from tests.app.rankings.test_rankings import rank, sharded, trained
from tests.app.working import on_sqlite

__all__ = ["sharded"]
N = 2 * 8192 + 50  # three shards, with tiny shard_bytes
NUMBERS = {"task": {"kind": "regression"}}


def ensemble_of(service: Service, project: dict[str, Any]) -> bc.Ensemble:
    ensemble_id = service.get(f"/projects/{project['id']}")["current_ensemble_id"]
    path = service.services.settings.data_dir / "ensemble.safetensors"
    path.write_bytes(service.client.get(f"/v1/ensembles/{ensemble_id}/file").content)
    found = bc.load(path)
    assert isinstance(found, bc.Ensemble)
    return found


def inputs(service: Service, pool_id: str, rows: list[int]) -> np.ndarray[Any, Any]:
    found: list[Any] = []
    for start in range(0, len(rows), 1000):
        named = ",".join(map(str, rows[start : start + 1000]))
        found += service.get(f"/pools/{pool_id}/items", rows=named, features=True)["items"]
    return np.array([item["x"] for item in found], dtype=np.float32)


def test_the_histogram_counts_every_row_that_could_be_chosen(sharded: Service) -> None:
    project, pool_id = trained(sharded, N)
    ranking = rank(sharded, pool_id, acquisition={"name": "bald"})
    found = sharded.get(f"/rankings/{ranking['id']}/scores")
    assert (len(found["edges"]), len(found["counts"])) == (65, 64)
    assert found["n"] == sum(found["counts"]) == ranking["n_scored"] == N - 40
    assert found["picks"] == pytest.approx([item["score"] for item in ranking["items"]])
    assert found["edges"][-1] == pytest.approx(max(found["picks"]))
    rows = list(range(40, N))
    scores = bc.score(ensemble_of(sharded, project), inputs(sharded, pool_id, rows), "bald").numpy()
    expected, _ = np.histogram(scores, bins=np.array(found["edges"]))
    assert np.abs(expected - found["counts"]).max() <= 2  # rows on an edge, by rounding


@pytest.mark.parametrize("changes", [{}, NUMBERS], ids=["classes", "numbers"])
def test_the_sample_has_the_parts_of_the_uncertainty(sharded: Service, changes: dict[str, Any]) -> None:
    project, pool_id = trained(sharded, N, **changes)
    ranking = rank(sharded, pool_id, acquisition={"name": "bald"}, k=20)
    found = sharded.get(f"/rankings/{ranking['id']}/sample")
    assert len(found["row"]) == 5000
    assert found["row"] == sorted(set(found["row"]))
    assert min(found["row"]) >= 40  # labelled rows could not be chosen
    picked = {row for row, is_picked in zip(found["row"], found["picked"], strict=True) if is_picked}
    assert picked == {item["row"] for item in ranking["items"]}
    predictive = ensemble_of(sharded, project).predict(inputs(sharded, pool_id, found["row"]))
    if changes:
        split = predictive.decompose("variance")
        expected = [split.aleatoric.sqrt().reshape(-1), split.epistemic.sqrt().reshape(-1)]
    else:
        split = predictive.decompose("entropy")
        expected = [split.aleatoric, split.epistemic]
        assert found["score"] == pytest.approx(found["epistemic"], abs=1e-6)
    assert found["unit"] == ("sd" if changes else "nats")
    assert found["aleatoric"] == pytest.approx(expected[0].tolist(), abs=2e-3 if changes else 1e-5)
    assert found["epistemic"] == pytest.approx(expected[1].tolist(), abs=2e-3 if changes else 1e-5)


def test_a_smaller_sample_is_the_beginning_of_the_larger_with_all_picks(sharded: Service) -> None:
    _, pool_id = trained(sharded, N)
    ranking = rank(sharded, pool_id, acquisition={"name": "entropy"}, k=20)
    path = f"/rankings/{ranking['id']}/sample"
    whole = sharded.get(path)
    for n in (40, 41, 1000):
        some = sharded.get(path, n=n)
        assert len(some["row"]) == n
        assert sum(some["picked"]) == 20
        assert set(some["row"]) <= set(whole["row"])
    few = sharded.get(path, n=10)
    assert (len(few["row"]), sum(few["picked"])) == (10, 5)
    best = {item["row"] for item in ranking["items"][:5]}
    assert {row for row, is_picked in zip(few["row"], few["picked"], strict=True) if is_picked} == best
    for n in (0, 5001):
        refused(sharded, "GET", f"{path}?n={n}", 422)


def test_a_sample_is_fair_and_that_of_a_replay(sharded: Service) -> None:
    _, pool_id = trained(sharded, N)
    ranking = rank(sharded, pool_id, acquisition={"name": "margin"}, seed=3)
    found = sharded.get(f"/rankings/{ranking['id']}/sample")
    rows = np.array(found["row"])[~np.array(found["picked"])]
    assert abs(rows.mean() - N / 2) < 5 * N / np.sqrt(12 * len(rows))  # five standard errors of a uniform mean
    again = sharded.post(f"/rankings/{ranking['id']}/replay", None, 202)["ranking"]
    sharded.run_jobs()
    replayed = sharded.get(f"/rankings/{again['id']}", explain=True)
    assert replayed["items"] == ranking["items"]
    for what in ("scores", "sample"):
        assert sharded.get(f"/rankings/{again['id']}/{what}") == sharded.get(f"/rankings/{ranking['id']}/{what}")
    other = rank(sharded, pool_id, acquisition={"name": "margin"}, seed=4)
    assert sharded.get(f"/rankings/{other['id']}/sample")["row"] != found["row"]


@on_sqlite
def test_what_scoring_has_kept_is_what_a_forward_pass_would_say(
    sharded: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for changes in ({}, NUMBERS):
        _, pool_id = trained(sharded, 9000, **changes)
        kept = rank(sharded, pool_id, acquisition={"name": "bald"})
        with monkeypatch.context() as patched:
            patched.setattr(drawing, "_from_kept", lambda *_: None)
            predicted = rank(sharded, pool_id, acquisition={"name": "bald"})
        ours, theirs = (sharded.get(f"/rankings/{each['id']}/sample") for each in (kept, predicted))
        assert ours["row"] == theirs["row"]
        for part in ("aleatoric", "epistemic"):
            assert ours[part] == pytest.approx(theirs[part], abs=2e-3 if changes else 1e-5)


@on_sqlite
def test_a_score_that_is_not_kept_has_the_parts_by_a_forward_pass(sharded: Service) -> None:
    _, pool_id = trained(sharded, 300)
    epig = rank(sharded, pool_id, acquisition={"name": "epig"}, target={"pool_id": pool_id})
    bald = rank(sharded, pool_id, acquisition={"name": "bald"})
    ours, theirs = (sharded.get(f"/rankings/{each['id']}/sample") for each in (epig, bald))
    assert sorted(ours["row"]) == sorted(theirs["row"]) == list(range(40, 300))
    assert ours["epistemic"] == pytest.approx(theirs["epistemic"], abs=1e-5)
    assert ours["score"] != theirs["score"]


@on_sqlite
def test_without_an_ensemble_there_are_scores_and_no_parts(sharded: Service) -> None:
    project = sharded.project(input={"shape": [2]}, task={"kind": "classification", "classes": ["a", "b"]})
    rows = np.random.default_rng(0).normal(size=(60, 2)).tolist()
    pool_id = sharded.post(f"/projects/{project['id']}/pools", {"name": "rows", "rows": rows}, 201)["id"]
    ranking = rank(sharded, pool_id, selection={"name": "typiclust"})
    found = sharded.get(f"/rankings/{ranking['id']}/sample")
    assert (found["aleatoric"], found["epistemic"], found["row"]) == (None, None, list(range(60)))
    assert sum(found["picked"]) == 10
    assert sharded.get(f"/rankings/{ranking['id']}/scores")["n"] == 60


@on_sqlite
def test_a_ranking_without_figures_says_what_to_do(sharded: Service) -> None:
    _, pool_id = trained(sharded, 300)
    asked = sharded.post(f"/pools/{pool_id}/rankings", {"k": 5}, 202)["ranking"]
    for what in ("scores", "sample"):
        refused(sharded, "GET", f"/rankings/{asked['id']}/{what}", 409, "this ranking is queued")
    sharded.run_jobs()
    assert sharded.get(f"/rankings/{asked['id']}/scores")["n"] == 260
    with sharded.services.database.write() as session:
        session.get_one(RankingResult, asked["id"]).figures_key = None
    for what in ("scores", "sample"):
        refused(sharded, "GET", f"/rankings/{asked['id']}/{what}", 409, "rank again to see it")


@on_sqlite
def test_figures_are_swept_if_orphaned_and_go_with_their_pool(sharded: Service) -> None:
    _, pool_id = trained(sharded, 300)
    ranking = rank(sharded, pool_id)
    (own,) = (key for key in keys(sharded) if key.startswith("figures/"))
    assert own.startswith(f"figures/{ranking['id']}/")
    lost = [f"figures/{ranking['id']}/77.safetensors", "figures/00000000-0000-7000-8000-000000000000/1.safetensors"]
    for key in lost:
        sharded.services.objects.put(key, b"of an attempt that was not published")
    age(sharded, 2)
    queue_sweep(sharded.services.database)
    sharded.run_jobs()
    assert [key for key in keys(sharded) if key.startswith("figures/")] == [own]
    assert sharded.client.delete(f"/v1/pools/{pool_id}").status_code == 204
    sharded.run_jobs()
    assert not [key for key in keys(sharded) if key.startswith(("figures/", "rankings/"))]


def test_a_histogram_tells_scores_apart_that_are_near_each_other() -> None:
    near = 1.0 + torch.arange(65, dtype=torch.float32) * 2**-23
    edges, counts = histogram(near)
    assert counts.tolist() == [1] * 63 + [2]
    assert edges.diff().min() > 0
    edges, counts = histogram(torch.full((7,), 3.0))
    assert (edges[0].item(), edges[-1].item(), counts.sum().item()) == (2.5, 3.5, 7)

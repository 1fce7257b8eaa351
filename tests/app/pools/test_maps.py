"""A pool on a plane: principal components of a sample, with the labels of now."""

from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA

from app.pools import draw_map, project_rows
from app.pools.given_rows import as_npy
from app.pools.project_rows import principal_components
from tests.app.conftest import Service
from tests.app.hammering import classification, empty_pool, pool, refused, regression


def uploaded(service: Service, project_id: str, x: np.ndarray[Any, Any]) -> str:
    made = empty_pool(service, project_id)
    headers = {"Content-Type": "application/x-npy"}
    assert service.client.put(f"/v1/pools/{made}/data", content=as_npy(x), headers=headers).status_code == 202
    service.run_jobs()
    return made


def mixed(n: int, width: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Columns that share three causes, so that the first components stand out."""
    rng = np.random.default_rng(seed)
    causes = rng.normal(size=(n, 3)) * [3.0, 2.0, 1.0]
    return (causes @ rng.normal(size=(3, width)) + 0.3 * rng.normal(size=(n, width)) + 5).astype(np.float32)


@pytest.mark.parametrize("width", [4, 30, 700])
def test_components_are_those_of_scikit_learn_but_for_their_sign(width: int) -> None:
    x = mixed(400, width)
    points, explained = principal_components(x)
    z = (x - x.mean(0, dtype=float)) / x.std(0, dtype=float)
    reference = PCA(2, svd_solver="full").fit(z)
    assert explained == pytest.approx(tuple(reference.explained_variance_ratio_), abs=1e-4)
    expected = reference.transform(z)
    for i in range(2):
        sign = np.sign(points[:, i] @ expected[:, i])
        assert np.abs(sign * points[:, i] - expected[:, i]).max() < 1e-2 * expected[:, i].std()


def test_the_largest_loading_is_positive_and_of_equal_ones_the_first() -> None:
    rng = np.random.default_rng(0)
    common = rng.normal(size=500)
    for signs in ((1, 1, 1), (-1, 1, -1), (1, -1, -1)):
        x = (common[:, None] * signs + rng.normal(size=(500, 3)) * [2.0, 1.0, 0.1]).astype(np.float32)
        points, _ = principal_components(x)
        assert np.corrcoef(points[:, 0], x[:, 2])[0, 1] > 0.5  # of the least noise, so of the largest loading
    pair = np.stack([common, -common + 0.1 * rng.normal(size=500)], axis=1).astype(np.float32)
    points, _ = principal_components(pair)  # two columns always have loadings of one size
    assert np.corrcoef(points[:, 0], pair[:, 0])[0, 1] > 0.9


def test_constant_columns_and_units_make_no_difference() -> None:
    x = mixed(200, 5)
    with_constant = np.concatenate([np.full((200, 1), 7.0, np.float32), x * np.float32(1000)], axis=1)
    plain, shares = principal_components(x)
    other, same_shares = principal_components(with_constant)
    np.testing.assert_allclose(other, plain, atol=1e-3)
    assert same_shares == pytest.approx(shares, abs=1e-5)


def test_few_columns_and_rows_have_a_map_too() -> None:
    line = np.arange(10, dtype=np.float32)[:, None]
    points, explained = principal_components(line)
    assert explained == pytest.approx((1.0, 0.0))
    assert np.all(np.diff(points[:, 0]) > 0)
    assert not points[:, 1].any()
    for nothing in (np.ones((5, 3), np.float32), line[:1]):
        points, explained = principal_components(nothing)
        assert (points.any(), explained) == (False, (0.0, 0.0))
    huge = np.array([[3e38, 1.0], [-3e38, 2.0], [1e38, 4.0]], dtype=np.float32)
    points, explained = principal_components(huge)
    assert np.isfinite(points).all()
    assert sum(explained) == pytest.approx(1.0)


def test_a_map_has_a_sample_of_rows_and_the_labels_of_now(service: Service) -> None:
    project_id = classification(service)
    x = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
    made = uploaded(service, project_id, x)
    path = f"/pools/{made}/map"
    whole = service.get(path)
    assert sorted(whole["row"]) == list(range(300))
    assert set(whole["status"]) == {"unlabelled"}
    assert whole["label"] == [None] * 300
    assert sum(whole["explained"]) == pytest.approx(1.0)
    z = (x - x.mean(0)) / x.std(0)  # two columns are turned, and distances stay
    points = np.array([whole["x"], whole["y"]]).T
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), np.linalg.norm(z[whole["row"]], axis=1), atol=1e-3)
    first = whole["row"][0]
    labels = [{"pool_id": made, "row": first, "value": "red"}, {"pool_id": made, "row": whole["row"][1], "skip": True}]
    service.post(f"/projects/{project_id}/labels", {"labels": labels}, 201)
    some = service.get(path, n=50)
    assert (some["row"], some["x"], some["explained"]) == (whole["row"][:50], whole["x"][:50], whole["explained"])
    assert some["label"][:3] == ["red", None, None]
    assert some["status"][:3] == ["labelled", "skipped", "unlabelled"]


def test_a_map_is_computed_once_for_all_who_ask(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    made = pool(service, classification(service))
    seen: list[str] = []
    compute = project_rows.project_rows
    monkeypatch.setattr(draw_map, "project_rows", lambda files: seen.append("computed") or compute(files))
    first = service.get(f"/pools/{made}/map")
    assert service.get(f"/pools/{made}/map") == first
    assert seen == ["computed"]


def test_wide_rows_are_sampled_by_what_fits_into_memory(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_rows, "MAX_NUMBERS", 2 * 40)
    made = uploaded(service, classification(service), np.random.default_rng(0).normal(size=(300, 2)))
    rows = service.get(f"/pools/{made}/map")["row"]
    assert len(set(rows)) == len(rows) == 40


def test_numbers_are_labels_of_a_map(service: Service) -> None:
    project_id = regression(service)
    made = pool(service, project_id)
    labels = [{"pool_id": made, "row": 4, "value": 1.5, "annotator": "ann"}]
    labels += [{"pool_id": made, "row": 4, "value": 2.5, "annotator": "bob"}]
    service.post(f"/projects/{project_id}/labels", {"labels": labels}, 201)
    found = service.get(f"/pools/{made}/map")
    assert [label for label in found["label"] if label is not None] == [2.0]
    assert found["row"][found["label"].index(2.0)] == 4


def test_what_has_no_map_says_so(service: Service) -> None:
    project_id = classification(service)
    refused(service, "GET", f"/pools/{empty_pool(service, project_id)}/map", 409, "has no rows yet")
    made = pool(service, project_id)
    for n in (0, 5001):
        refused(service, "GET", f"/pools/{made}/map?n={n}", 422)

"""The counts that a pool keeps are those that its label events add up to."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event, select
from sqlalchemy.orm import Session

from app.db import consensus
from app.db.label_counts import read_counts
from app.db.tables import Pool, PoolData, Project
from app.db.types import new_id
from app.labels.record import record_labels
from app.labels.schemas import RoundLabelIn
from app.pools.store import StoredPool, publish_pool
from tests.app.conftest import Service
from tests.app.working import on_sqlite

N_ROWS = 3
TASKS: dict[str, dict[str, Any]] = {
    "classification": {"kind": "classification", "classes": ["a", "b", "c"]},
    "regression": {"kind": "regression", "outputs": 1},
}
VALUES: dict[str, list[Any]] = {"classification": ["a", "b", "c"], "regression": [0.5, 1.0, 2.0]}
SAID = st.sampled_from(["label", "skip", "retract"])
SAYING = st.tuples(st.integers(0, 1), st.integers(0, N_ROWS - 1), st.sampled_from("xyz"), SAID, st.integers(0, 2))
POSTS = st.lists(st.lists(SAYING, min_size=1, max_size=8), max_size=6)
GIVEN = st.lists(st.none() | st.integers(0, 2), min_size=N_ROWS, max_size=N_ROWS)


def label_of(saying: tuple[int, int, str, str, int], values: list[Any]) -> RoundLabelIn:
    _, row, annotator, said, value = saying
    how: dict[str, Any] = {"value": values[value]} if said == "label" else {said: True}
    return RoundLabelIn(row=row, annotator=annotator, **how)


@on_sqlite
@pytest.mark.parametrize("kind", TASKS)
def test_counts_kept_with_every_label_equal_a_recount(service: Service, kind: str) -> None:
    """Two pools, one of which comes with labels of annotator x; any order of labels, corrections, ties, skips and
    retractions, several of a row in one post among them."""
    services, values = service.services, VALUES[kind]
    project_id = service.project(task=TASKS[kind], input={"shape": [1]})["id"]
    service.post(f"/projects/{project_id}/pools", {"name": "files of all", "rows": [[0]] * N_ROWS}, 201)
    with services.database.read() as session:
        project = session.get_one(Project, project_id)
        files = session.scalars(select(PoolData)).one()

    def publish(session: Session, labels: list[int | None]) -> str:
        pool = Pool(id=new_id(), project_id=project_id, name="p", purpose="candidates")
        session.add(pool)
        session.flush()
        came = [(row, values[value]) for row, value in enumerate(labels) if value is not None]
        stored = StoredPool(prefix=files.prefix, n_rows=N_ROWS, n_bytes=files.n_bytes, labels=came)
        publish_pool(services, session, project, pool, stored, annotator="x", key_id=None)
        return pool.id

    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(came=GIVEN, posts=POSTS)
    def check(came: list[int | None], posts: list[list[tuple[int, int, str, str, int]]]) -> None:
        with services.database.session(writes=True) as session:  # which is rolled back: nothing waits for the disk
            pools = [publish(session, came), publish(session, [])]
            for post in posts:
                said = [(pools[saying[0]], label_of(saying, values)) for saying in post]
                record_labels(services, session, project, said, default_annotator="x", key_id=None)
                for pool_id in pools:
                    labelled, _ = consensus.labelled_rows(session, pool_id, kind=kind)
                    skipped = consensus.skipped_rows(session, pool_id)
                    counts = read_counts(session, pool_id)
                    assert (counts.n_labelled, counts.n_skipped) == (len(labelled), len(skipped))

    check()


def test_counts_follow_a_row_through_tie_agreement_skip_and_retraction(service: Service) -> None:
    project_id = service.project(task=TASKS["classification"], input={"shape": [1]})["id"]
    rows = {"name": "p", "rows": [[0], [1]], "labels": ["a", None]}
    pool_id = service.post(f"/projects/{project_id}/pools", rows, 201)["id"]

    def counts(*sayings: dict[str, Any]) -> tuple[int, int]:
        body = {"labels": [{"pool_id": pool_id, **saying} for saying in sayings]}
        service.post(f"/projects/{project_id}/labels", body, 201)
        pool = service.get(f"/pools/{pool_id}")
        return pool["n_labelled"], pool["n_skipped"]

    assert counts({"row": 1, "skip": True, "annotator": "x"}) == (1, 1)
    assert counts({"row": 0, "value": "b", "annotator": "y"}) == (0, 1)  # a tie with the label that came along
    assert counts({"row": 0, "value": "a", "annotator": "y"}) == (1, 1)
    assert counts({"row": 1, "value": "c", "annotator": "y"}) == (2, 0)
    assert counts({"row": 1, "retract": True, "annotator": "y"}, {"row": 0, "skip": True}) == (1, 1)
    assert counts({"row": 0, "retract": True}, {"row": 0, "retract": True, "annotator": "y"}) == (0, 1)
    detail = service.post(f"/pools/{pool_id}/rankings", {"k": 2, "acquisition": {"name": "random"}}, 409)["detail"]
    assert "only 1 row of pool 'p' is neither labelled nor skipped" in detail


@on_sqlite
def test_a_pool_is_shown_and_ranked_without_reading_its_labels(service: Service) -> None:
    project_id = service.project(task=TASKS["classification"], input={"shape": [1]})["id"]
    rows = {"name": "p", "rows": [[0]] * 4, "labels": ["a", "b", None, None]}
    pool_id = service.post(f"/projects/{project_id}/pools", rows, 201)["id"]
    statements: list[str] = []
    engine = service.services.database.engine
    event.listen(engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    assert service.get(f"/pools/{pool_id}")["n_labelled"] == 2
    assert service.get(f"/projects/{project_id}/pools")["items"][0]["n_labelled"] == 2
    service.post(f"/pools/{pool_id}/rankings", {"k": 2, "acquisition": {"name": "random"}}, 202)
    service.post(f"/projects/{project_id}/rounds", {"pool_id": pool_id, "k": 2}, 202)
    assert len(statements) > 10
    assert [text for text in statements if "FROM label" in text] == []

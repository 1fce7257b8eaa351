"""The edge of a request when there are more requests than threads."""

import threading
import time

import httpx

from app.db import projects
from tests.app.conftest import Service

N_AT_ONCE = 60  # the server has 40 threads


def test_more_writers_than_threads_are_all_answered(service: Service) -> None:
    """All threads wait for the project's lock; whoever gets it must not need yet another one to commit."""
    project = service.project()
    pool = service.post(f"/projects/{project['id']}/pools", {"name": "few", "rows": [[0.0] * 64] * 100}, 201)
    path, answers = f"/v1/projects/{project['id']}/labels", []

    def label(row: int) -> None:
        said = {"pool_id": pool["id"], "row": row, "value": "3"}
        headers = {**service.client.headers, **({"Idempotency-Key": f"post-{row}"} if row % 2 else {})}
        with httpx.Client(base_url=service.client.base_url, headers=headers, timeout=20) as client:
            answers.append(client.post(path, json={"labels": [said]}).status_code)

    threads = [threading.Thread(target=label, args=(row,)) for row in range(N_AT_ONCE)]
    with service.services.database.write() as session:
        projects.lock(session, project["id"])
        for thread in threads:
            thread.start()
        time.sleep(2)  # until they have piled up
    for thread in threads:
        thread.join()
    assert answers == [201] * N_AT_ONCE
    events = service.get(f"/projects/{project['id']}/labels", history=True, limit=1000)["items"]
    assert [event["seq"] for event in events] == list(range(1, N_AT_ONCE + 1))
    assert sorted(event["row"] for event in events) == list(range(N_AT_ONCE))

"""A student serves as any ensemble does, but nobody ranks with it by disagreement."""

from dataclasses import replace
from typing import Any

import bensemble_core as bc
from app.db.tables import EnsembleResult
from bensemble_core import io
from tests.app.conftest import Service
from tests.app.test_loop import start, train


def test_a_student_predicts_and_ranks_but_not_by_disagreement(service: Service, digits: Any) -> None:
    project, pool = start(service, digits)
    ensemble = train(service, project, posterior={"name": "map", "epochs": 5})
    plain = bc.load(service.client.get(f"/v1/ensembles/{ensemble['id']}/file").content)
    key = f"ensembles/{ensemble['id']}/student.safetensors"
    service.services.objects.put(key, io.to_bytes(*replace(plain, is_student=True).to_tensors()))
    with service.services.database.write() as session:
        session.get_one(EnsembleResult, ensemble["id"]).file_key = key
    asked = [
        service.post(f"/pools/{pool['id']}/rankings", {"k": 3, **wanted}, 202)
        for wanted in ({"acquisition": {"name": "bald"}}, {"selection": {"name": "batchbald"}}, {})
    ]
    predicted = service.post(f"/ensembles/{ensemble['id']}/predictions", {"rows": digits[0][:2].tolist()}, 202)
    service.run_jobs()
    told = [service.get(f"/rankings/{one['ranking']['id']}") for one in asked]
    assert [one["status"] for one in told] == ["failed", "failed", "succeeded"]
    assert told[0]["error"]["status"] == 409
    assert told[0]["error"]["detail"].startswith("bald measures how members disagree, and this ensemble is a student")
    assert told[1]["error"]["detail"].startswith("batchbald measures how members disagree")
    assert service.get(f"/jobs/{asked[2]['job']['id']}")["result"]["n_forward"] == 300  # nothing was scored in vain
    items = service.get(f"/predictions/{predicted['prediction']['id']}")["items"]
    assert {sd for item in items for sd in item["probability_sd"].values()} == {0.0}

"""Read what there is and say what to do."""

from sqlalchemy import exists, func, select
from sqlalchemy.orm import Session

from app.advice.decide import Facts, because, decide
from app.advice.disagreements import read_disagreements
from app.advice.doubts import read_doubts
from app.advice.learning import read_agreement, read_curve, read_saved, read_trained
from app.advice.schemas import AdviceOut
from app.db import pools
from app.db.tables import Job, Label, Project, Round
from app.services import Services


def advise(services: Services, session: Session, project: Project) -> AdviceOut:
    candidates = pools.pools_with_data(session, project.id, "candidates")
    trained = read_trained(session, project.id)
    newest = trained[-1] if trained else None
    seen = newest.result.watermark if newest else 0
    facts = Facts(
        n_rows=sum(data.n_rows for _, data in candidates),
        n_labels=sum(pool.n_labelled for pool, _ in candidates),
        n_unseen=_unseen(session, project, [pool.id for pool, _ in candidates], seen),
        has_ensemble=newest is not None,
        trains_soon=_any(
            session, Job.project_id == project.id, Job.kind == "train_ensemble", Job.status.in_(("queued", "running"))
        ),
        round_trains=_any(
            session, Round.project_id == project.id, Round.retrain.is_(True), Round.status.in_(("ranking", "open"))
        ),
        curve=read_curve(project, trained),
        agreement=read_agreement(project, trained),
        saved=read_saved(project, trained),
        doubts=read_doubts(services, session, newest.result if newest else None),
        disagreements=read_disagreements(services, session, project),
    )
    action, sentence = decide(facts)
    return AdviceOut.of(
        facts,
        sentence=sentence,
        action=action,
        because=because(facts),
        ensemble_id=newest.ensemble.id if newest else None,
    )


def _unseen(session: Session, project: Project, pool_ids: list[str], watermark: int) -> int:
    query = select(func.count()).where(
        Label.project_id == project.id,
        Label.seq > watermark,
        Label.pool_id.in_(pool_ids),
        Label.action.in_(("label", "retract")),
    )
    return session.execute(query).scalar_one()


def _any(session: Session, *where: object) -> bool:
    return bool(session.execute(select(exists().where(*where))).scalar_one())  # type: ignore[arg-type]

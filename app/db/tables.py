"""Every table on one page. Requests and results are written once; jobs, rounds, reservations, schedules, a project's
choices and its pinned ensemble, a pool's counts of labels, and the sessions and proposals of experiments are the only
rows that change. Times are the database's."""

from datetime import datetime
from typing import Any

from sqlalchemy import Float, ForeignKey, Index, String, Text, UniqueConstraint, false, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from app.db.types import CLOCK, BigInt, Json, UtcDateTime

Id = String(36)


class Base(DeclarativeBase):
    type_annotation_map = {datetime: UtcDateTime(), dict[str, Any]: Json, list[Any]: Json, int: BigInt}  # noqa: RUF012


class ApiKey(Base):
    __tablename__ = "api_key"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    scopes: Mapped[list[Any]]
    project_ids: Mapped[list[Any] | None]
    created_at: Mapped[datetime] = mapped_column(default=CLOCK)
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class Project(Base):
    __tablename__ = "project"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    task: Mapped[dict[str, Any]]
    input: Mapped[dict[str, Any]]
    model: Mapped[dict[str, Any]]
    posterior: Mapped[dict[str, Any]]
    holdout: Mapped[float] = mapped_column(Float)
    acquisition: Mapped[dict[str, Any] | None]  # of rankings and rounds that name neither it nor a selection
    selection: Mapped[dict[str, Any] | None]
    calibrate: Mapped[Any] = mapped_column(Json, default=True, server_default="true")  # true | false | "folds"
    display: Mapped[dict[str, Any] | None]  # how items are shown to annotators
    created_at: Mapped[datetime] = mapped_column(default=CLOCK)
    last_seq: Mapped[int] = mapped_column(default=0)
    """Number of the newest label event; raising it is also the lock that puts a project's label writes in order."""
    last_version: Mapped[int] = mapped_column(default=0)
    last_round: Mapped[int] = mapped_column(default=0)
    pinned_ensemble_id: Mapped[str | None] = mapped_column(Id)


class ProjectChange(Base):
    """What a PATCH has changed: {field: [before, after]}. Never updated."""

    __tablename__ = "project_change"

    project_id: Mapped[str] = mapped_column(ForeignKey("project.id", ondelete="CASCADE"), primary_key=True)
    n: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    changes: Mapped[dict[str, Any]]
    key_id: Mapped[str | None] = mapped_column(Id)  # of the API key it came by; None without keys
    created_at: Mapped[datetime] = mapped_column(default=CLOCK)


class Pool(Base):
    __tablename__ = "pool"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id", ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(Text)
    purpose: Mapped[str] = mapped_column(String(20))
    created_at: Mapped[datetime] = mapped_column(default=CLOCK)
    ingest_job_id: Mapped[str | None] = mapped_column(Id)
    n_labelled: Mapped[int] = mapped_column(default=0, server_default="0")  # rows with an agreed label,
    n_skipped: Mapped[int] = mapped_column(default=0, server_default="0")  # and skipped ones: see `label_counts`


class PoolData(Base):
    """What an ingest made of a pool: there is at most one, and it never changes."""

    __tablename__ = "pool_data"

    pool_id: Mapped[str] = mapped_column(ForeignKey("pool.id", ondelete="CASCADE"), primary_key=True)
    prefix: Mapped[str] = mapped_column(Text)
    n_rows: Mapped[int]
    n_bytes: Mapped[int]
    n_given_labels: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime] = mapped_column(default=CLOCK)


class Label(Base):
    """One event: somebody labelled, skipped or took back a row. Never updated."""

    __tablename__ = "label"
    __table_args__ = (Index("label_by_row", "pool_id", "row", "annotator", "seq"),)

    project_id: Mapped[str] = mapped_column(ForeignKey("project.id", ondelete="CASCADE"), primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    pool_id: Mapped[str] = mapped_column(ForeignKey("pool.id", ondelete="CASCADE"))
    row: Mapped[int]
    annotator: Mapped[str] = mapped_column(Text)
    action: Mapped[str] = mapped_column(String(10))  # label | skip | retract
    value: Mapped[Any | None] = mapped_column(Json)
    source: Mapped[str] = mapped_column(String(10))  # pool | api
    lead_time: Mapped[float | None] = mapped_column(Float)
    created_at: Mapped[datetime] = mapped_column(default=CLOCK)
    key_id: Mapped[str | None] = mapped_column(Id)  # of the API key it came by; None of old ones, and without keys


class Ensemble(Base):
    __tablename__ = "ensemble"
    __table_args__ = (UniqueConstraint("project_id", "version"),)

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id", ondelete="CASCADE"))
    version: Mapped[int]
    posterior: Mapped[dict[str, Any]]
    n_members: Mapped[int]
    seed: Mapped[int]
    warm_start: Mapped[bool]
    parent_id: Mapped[str | None] = mapped_column(Id)
    job_id: Mapped[str] = mapped_column(Id)
    origin: Mapped[str] = mapped_column(Text)  # request | round:<id> | schedule:<id>
    created_at: Mapped[datetime] = mapped_column(default=CLOCK)


class EnsembleResult(Base):
    __tablename__ = "ensemble_result"

    ensemble_id: Mapped[str] = mapped_column(ForeignKey("ensemble.id", ondelete="CASCADE"), primary_key=True)
    file_key: Mapped[str] = mapped_column(Text)
    fitted_key: Mapped[str] = mapped_column(Text)
    n_bytes: Mapped[int]
    n_members: Mapped[int]
    watermark: Mapped[int]
    snapshot_hash: Mapped[str] = mapped_column(String(64))
    n_labels: Mapped[int]
    metrics: Mapped[dict[str, Any]]
    diagnostics: Mapped[dict[str, Any] | None]  # {values, warnings}; null of a method that does not tell
    log_evidence: Mapped[float | None] = mapped_column(Float)
    bound: Mapped[float | None] = mapped_column(Float)
    tuning: Mapped[dict[str, Any] | None]  # {metric, trials, chosen}; null where nothing was searched
    retrospect: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)  # see `ensembles.retrospect`; it is long
    seconds: Mapped[float] = mapped_column(Float)
    created_at: Mapped[datetime] = mapped_column(default=CLOCK)


class Ranking(Base):
    __tablename__ = "ranking"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id", ondelete="CASCADE"), index=True)
    pool_id: Mapped[str] = mapped_column(ForeignKey("pool.id", ondelete="CASCADE"), index=True)
    ensemble_id: Mapped[str | None] = mapped_column(Id)
    acquisition: Mapped[dict[str, Any]]
    selection: Mapped[dict[str, Any]]
    k: Mapped[int]
    seed: Mapped[int]
    target: Mapped[dict[str, Any] | None]  # {"pool_id": …} or {"n_rows": …}, which are in storage
    watermark: Mapped[int]
    job_id: Mapped[str] = mapped_column(Id)
    round_id: Mapped[str | None] = mapped_column(Id)
    replay_of: Mapped[str | None] = mapped_column(Id)
    created_at: Mapped[datetime] = mapped_column(default=CLOCK)


class RankingResult(Base):
    __tablename__ = "ranking_result"

    ranking_id: Mapped[str] = mapped_column(ForeignKey("ranking.id", ondelete="CASCADE"), primary_key=True)
    n_scored: Mapped[int]
    seconds: Mapped[float] = mapped_column(Float)
    notes: Mapped[list[Any]]
    measure: Mapped[str | None] = mapped_column(String(40))  # what the items' `value` is
    ceiling: Mapped[float | None] = mapped_column(Float)  # nats that no score of these members can pass
    context: Mapped[dict[str, Any] | None]  # what a replay can't read off the labels: see `kept_context`
    figures_key: Mapped[str | None] = mapped_column(Text)  # see `rankings.figures`; None of older ones
    created_at: Mapped[datetime] = mapped_column(default=CLOCK)


class RankingItem(Base):
    __tablename__ = "ranking_item"

    ranking_id: Mapped[str] = mapped_column(ForeignKey("ranking.id", ondelete="CASCADE"), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    row: Mapped[int]
    key: Mapped[str] = mapped_column(Text)
    score: Mapped[float] = mapped_column(Float)
    value: Mapped[float | None] = mapped_column(Float)
    explanation: Mapped[dict[str, Any] | None]


class Prediction(Base):
    __tablename__ = "prediction"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id", ondelete="CASCADE"), index=True)
    ensemble_id: Mapped[str] = mapped_column(ForeignKey("ensemble.id", ondelete="CASCADE"))
    pool_id: Mapped[str | None] = mapped_column(ForeignKey("pool.id", ondelete="CASCADE"))
    rows_key: Mapped[str | None] = mapped_column(Text)
    job_id: Mapped[str] = mapped_column(Id)
    created_at: Mapped[datetime] = mapped_column(default=CLOCK)


class PredictionResult(Base):
    __tablename__ = "prediction_result"

    prediction_id: Mapped[str] = mapped_column(ForeignKey("prediction.id", ondelete="CASCADE"), primary_key=True)
    file_key: Mapped[str] = mapped_column(Text)
    n_rows: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(default=CLOCK)


class Backtest(Base):
    """Strategies played on a pool's labels as they stood at the watermark; `request` has all that the answer takes."""

    __tablename__ = "backtest"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id", ondelete="CASCADE"), index=True)
    pool_id: Mapped[str] = mapped_column(ForeignKey("pool.id", ondelete="CASCADE"), index=True)
    request: Mapped[dict[str, Any]]  # strategies, rounds, k, seeds, and the project's posterior and model
    watermark: Mapped[int]
    job_id: Mapped[str] = mapped_column(Id)
    created_at: Mapped[datetime] = mapped_column(default=CLOCK)


class BacktestResult(Base):
    __tablename__ = "backtest_result"

    backtest_id: Mapped[str] = mapped_column(ForeignKey("backtest.id", ondelete="CASCADE"), primary_key=True)
    metric: Mapped[str] = mapped_column(String(20))  # accuracy | rmse
    n_pool: Mapped[int]
    n_test: Mapped[int]
    curves: Mapped[list[Any]]  # of each strategy over all seeds
    runs: Mapped[list[Any]]  # of each strategy and seed
    recommendation: Mapped[dict[str, Any]]  # {strategy, reason, body}
    notes: Mapped[list[Any]]
    seconds: Mapped[float] = mapped_column(Float)
    created_at: Mapped[datetime] = mapped_column(default=CLOCK)


class Round(Base):
    __tablename__ = "round"
    __table_args__ = (UniqueConstraint("project_id", "number"),)

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id", ondelete="CASCADE"))
    number: Mapped[int]
    pool_id: Mapped[str] = mapped_column(ForeignKey("pool.id", ondelete="CASCADE"), index=True)
    ranking_id: Mapped[str] = mapped_column(Id)
    overlap: Mapped[int]
    retrain: Mapped[bool]
    status: Mapped[str] = mapped_column(String(10))  # ranking | open | complete | closed
    ensemble_id: Mapped[str | None] = mapped_column(Id)
    origin: Mapped[str] = mapped_column(Text)  # request | schedule:<id>
    created_at: Mapped[datetime] = mapped_column(default=CLOCK)
    opened_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]


class RoundItem(Base):
    """A place in a round's queue; `n_done` counts the annotators who labelled or skipped it."""

    __tablename__ = "round_item"
    __table_args__ = (Index("round_item_by_row", "round_id", "row"),)

    round_id: Mapped[str] = mapped_column(ForeignKey("round.id", ondelete="CASCADE"), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    row: Mapped[int]
    n_done: Mapped[int] = mapped_column(default=0)


class Reservation(Base):
    """An annotator's hold on an item of a round. `done` once they answered; otherwise it lapses."""

    __tablename__ = "reservation"

    round_id: Mapped[str] = mapped_column(ForeignKey("round.id", ondelete="CASCADE"), primary_key=True)
    row: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    annotator: Mapped[str] = mapped_column(Text, primary_key=True)
    expires_at: Mapped[datetime]
    done: Mapped[bool] = mapped_column(default=False)


class Schedule(Base):
    __tablename__ = "schedule"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id", ondelete="CASCADE"), index=True)
    cron: Mapped[str | None] = mapped_column(Text)
    timezone: Mapped[str] = mapped_column(Text)
    every_labels: Mapped[int | None]
    on_round_complete: Mapped[bool]
    debounce_seconds: Mapped[float] = mapped_column(Float)
    training: Mapped[dict[str, Any]]  # posterior?, n_members, seed, warm_start, tune? of the ensembles it asks for
    then_open_round: Mapped[dict[str, Any] | None]
    paused: Mapped[bool] = mapped_column(default=False)
    labels_pending: Mapped[int] = mapped_column(default=0)
    next_fire_at: Mapped[datetime | None] = mapped_column(index=True)
    last_fired_at: Mapped[datetime | None]
    n_fired: Mapped[int] = mapped_column(default=0)
    note: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(default=CLOCK)


class Experiment(Base):
    """A model, a prior and where one may measure; `spec` does not change any more once a session has begun."""

    __tablename__ = "experiment"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    spec: Mapped[dict[str, Any]]
    spec_hash: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(default=CLOCK)


class DesignSession(Base):
    """One participant or sample. Its row is the lock of its proposals and observations, and nobody else's.

    `version` counts every change, so that what was computed from an older state is not written; `revision` counts only
    those of the observations, and is what a client sees. `last_n` is the newest number of an observation, also of one
    that was taken back: were it given again, a repeated undo would take back another outcome.
    """

    __tablename__ = "session"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    experiment_id: Mapped[str] = mapped_column(ForeignKey("experiment.id", ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(Text)
    seed: Mapped[int | None]
    prior: Mapped[dict[str, Any]]
    prior_observations: Mapped[list[Any]]  # {id, design, outcome} of other sessions, as they were when this one began
    revision: Mapped[int] = mapped_column("round", default=0)  # its older name
    version: Mapped[int] = mapped_column(default=0)
    last_n: Mapped[int] = mapped_column(default=0, server_default="0")
    token_digest: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime] = mapped_column(default=CLOCK)
    closed_at: Mapped[datetime | None]


class Proposal(Base):
    """A design handed out. `details` are what the answer said beside the columns."""

    __tablename__ = "proposal"
    __table_args__ = (UniqueConstraint("session_id", "number"),)

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    session_id: Mapped[str] = mapped_column(ForeignKey("session.id", ondelete="CASCADE"))
    number: Mapped[int]
    client_id: Mapped[str | None] = mapped_column(Text)
    design: Mapped[dict[str, Any]]
    eig: Mapped[float] = mapped_column(Float)
    se: Mapped[float | None] = mapped_column(Float)  # null where no error is stated
    method: Mapped[str] = mapped_column(String(20))
    details: Mapped[dict[str, Any]]
    status: Mapped[str] = mapped_column(String(10), default="pending")  # pending | observed | abandoned | stale
    reason: Mapped[str | None] = mapped_column(Text)
    expires_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(default=CLOCK)


class Observation(Base):
    """What was run and what came out. `answer` is what was learnt from it, as it was told then; `is_stale` after an
    earlier one was taken back, until it is computed anew."""

    __tablename__ = "observation"
    __table_args__ = (UniqueConstraint("session_id", "n"),)

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    session_id: Mapped[str] = mapped_column(ForeignKey("session.id", ondelete="CASCADE"))
    n: Mapped[int]
    proposal_id: Mapped[str | None] = mapped_column(Id, index=True)
    client_id: Mapped[str | None] = mapped_column(Text)
    design: Mapped[dict[str, Any]]
    outcome: Mapped[dict[str, Any]]
    answer: Mapped[dict[str, Any]]
    is_stale: Mapped[bool] = mapped_column(default=False, server_default=false())
    created_at: Mapped[datetime] = mapped_column(default=CLOCK)


class Simulation(Base):
    __tablename__ = "simulation"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    experiment_id: Mapped[str] = mapped_column(ForeignKey("experiment.id", ondelete="CASCADE"), index=True)
    request: Mapped[dict[str, Any]]
    spec_hash: Mapped[str] = mapped_column(String(64))
    job_id: Mapped[str] = mapped_column(Id)
    created_at: Mapped[datetime] = mapped_column(default=CLOCK)


class SimulationResult(Base):
    __tablename__ = "simulation_result"

    simulation_id: Mapped[str] = mapped_column(ForeignKey("simulation.id", ondelete="CASCADE"), primary_key=True)
    curves: Mapped[list[Any]]
    seconds: Mapped[float] = mapped_column(Float)
    created_at: Mapped[datetime] = mapped_column(default=CLOCK)


class Job(Base):
    """The queue and the REST resource in one. `token` fences: only the holder of the newest one may write."""

    __tablename__ = "job"
    __table_args__ = (
        Index("job_claim", "queue", "status", "run_at"),
        Index(
            "job_dedup",
            "dedup_key",
            unique=True,
            sqlite_where=text("status = 'queued' AND dedup_key IS NOT NULL"),
            postgresql_where=text("status = 'queued' AND dedup_key IS NOT NULL"),
        ),
        Index("job_parent", "parent_id"),
        Index("job_finished", "finished_at"),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    project_id: Mapped[str | None] = mapped_column(ForeignKey("project.id", ondelete="CASCADE"), index=True)
    queue: Mapped[str] = mapped_column(String(20))
    kind: Mapped[str] = mapped_column(String(40))
    payload: Mapped[dict[str, Any]]
    status: Mapped[str] = mapped_column(String(10), default="queued")  # queued|running|succeeded|failed|cancelled
    run_at: Mapped[datetime] = mapped_column(default=CLOCK)
    dedup_key: Mapped[str | None] = mapped_column(Text)
    parent_id: Mapped[str | None] = mapped_column(Id)
    attempts: Mapped[int] = mapped_column(default=0)
    max_attempts: Mapped[int] = mapped_column(default=5, server_default="5")  # its worker's setting
    crashes: Mapped[int] = mapped_column(default=0)
    token: Mapped[int] = mapped_column(default=0)
    worker: Mapped[str | None] = mapped_column(Text)
    lease_expires_at: Mapped[datetime | None]
    heartbeat_at: Mapped[datetime | None]  # when a worker last claimed it or renewed its lease
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    progress: Mapped[dict[str, Any] | None]
    checkpoint: Mapped[dict[str, Any] | None]
    error: Mapped[dict[str, Any] | None]
    result: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime] = mapped_column(default=CLOCK)
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class StoredAnswer(Base):
    """The answer given to a request with an Idempotency-Key, stored in the same transaction as its effects."""

    __tablename__ = "replay"

    key_id: Mapped[str] = mapped_column(String(36), primary_key=True)
    idempotency_key: Mapped[str] = mapped_column(String(255), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    status: Mapped[int]
    headers: Mapped[dict[str, Any]]
    body: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(default=CLOCK)

"""The first schema"""

import sqlalchemy as sa
from alembic import op

from app.db.types import BigInt, Json, UtcDateTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "api_key",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column(
            "scopes",
            Json,
            nullable=False,
        ),
        sa.Column(
            "project_ids",
            Json,
            nullable=True,
        ),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=True),
        sa.Column("revoked_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("digest"),
    )
    op.create_table(
        "project",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column(
            "task",
            Json,
            nullable=False,
        ),
        sa.Column(
            "input",
            Json,
            nullable=False,
        ),
        sa.Column(
            "model",
            Json,
            nullable=False,
        ),
        sa.Column(
            "posterior",
            Json,
            nullable=False,
        ),
        sa.Column("holdout", sa.Float(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("last_seq", BigInt, nullable=False),
        sa.Column("last_version", BigInt, nullable=False),
        sa.Column("last_round", BigInt, nullable=False),
        sa.Column("pinned_ensemble_id", sa.String(length=36), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "replay",
        sa.Column("key_id", sa.String(length=36), nullable=False),
        sa.Column("idempotency_key", sa.String(length=255), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("status", BigInt, nullable=False),
        sa.Column(
            "headers",
            Json,
            nullable=False,
        ),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("key_id", "idempotency_key"),
    )
    op.create_table(
        "ensemble",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=36), nullable=False),
        sa.Column("version", BigInt, nullable=False),
        sa.Column(
            "posterior",
            Json,
            nullable=False,
        ),
        sa.Column("n_members", BigInt, nullable=False),
        sa.Column("seed", BigInt, nullable=False),
        sa.Column("warm_start", sa.Boolean(), nullable=False),
        sa.Column("parent_id", sa.String(length=36), nullable=True),
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("project_id", "version"),
    )
    op.create_table(
        "job",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=36), nullable=True),
        sa.Column("queue", sa.String(length=20), nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column(
            "payload",
            Json,
            nullable=False,
        ),
        sa.Column("status", sa.String(length=10), nullable=False),
        sa.Column("run_at", UtcDateTime(), nullable=False),
        sa.Column("dedup_key", sa.Text(), nullable=True),
        sa.Column("parent_id", sa.String(length=36), nullable=True),
        sa.Column("attempts", BigInt, nullable=False),
        sa.Column("crashes", BigInt, nullable=False),
        sa.Column("token", BigInt, nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("lease_expires_at", UtcDateTime(), nullable=True),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column(
            "progress",
            Json,
            nullable=True,
        ),
        sa.Column(
            "checkpoint",
            Json,
            nullable=True,
        ),
        sa.Column(
            "error",
            Json,
            nullable=True,
        ),
        sa.Column(
            "result",
            Json,
            nullable=True,
        ),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=True),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("job", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_job_project_id"), ["project_id"], unique=False)
        batch_op.create_index("job_claim", ["queue", "status", "run_at"], unique=False)
        batch_op.create_index(
            "job_dedup",
            ["dedup_key"],
            unique=True,
            sqlite_where=sa.text("status = 'queued' AND dedup_key IS NOT NULL"),
            postgresql_where=sa.text("status = 'queued' AND dedup_key IS NOT NULL"),
        )
        batch_op.create_index("job_parent", ["parent_id"], unique=False)

    op.create_table(
        "pool",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("purpose", sa.String(length=20), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("ingest_job_id", sa.String(length=36), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("pool", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_pool_project_id"), ["project_id"], unique=False)

    op.create_table(
        "schedule",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=36), nullable=False),
        sa.Column("cron", sa.Text(), nullable=True),
        sa.Column("timezone", sa.Text(), nullable=False),
        sa.Column("every_labels", BigInt, nullable=True),
        sa.Column("on_round_complete", sa.Boolean(), nullable=False),
        sa.Column("debounce_seconds", sa.Float(), nullable=False),
        sa.Column(
            "training",
            Json,
            nullable=False,
        ),
        sa.Column(
            "then_open_round",
            Json,
            nullable=True,
        ),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.Column("labels_pending", BigInt, nullable=False),
        sa.Column("next_fire_at", UtcDateTime(), nullable=True),
        sa.Column("last_fired_at", UtcDateTime(), nullable=True),
        sa.Column("n_fired", BigInt, nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("schedule", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_schedule_next_fire_at"), ["next_fire_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_schedule_project_id"), ["project_id"], unique=False)

    op.create_table(
        "ensemble_result",
        sa.Column("ensemble_id", sa.String(length=36), nullable=False),
        sa.Column("file_key", sa.Text(), nullable=False),
        sa.Column("fitted_key", sa.Text(), nullable=False),
        sa.Column("n_bytes", BigInt, nullable=False),
        sa.Column("n_members", BigInt, nullable=False),
        sa.Column("watermark", BigInt, nullable=False),
        sa.Column("snapshot_hash", sa.String(length=64), nullable=False),
        sa.Column("n_labels", BigInt, nullable=False),
        sa.Column(
            "metrics",
            Json,
            nullable=False,
        ),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["ensemble_id"], ["ensemble.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("ensemble_id"),
    )
    op.create_table(
        "label",
        sa.Column("project_id", sa.String(length=36), nullable=False),
        sa.Column("seq", BigInt, autoincrement=False, nullable=False),
        sa.Column("pool_id", sa.String(length=36), nullable=False),
        sa.Column("row", BigInt, nullable=False),
        sa.Column("annotator", sa.Text(), nullable=False),
        sa.Column("action", sa.String(length=10), nullable=False),
        sa.Column(
            "value",
            Json,
            nullable=True,
        ),
        sa.Column("source", sa.String(length=10), nullable=False),
        sa.Column("lead_time", sa.Float(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pool.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("project_id", "seq"),
    )
    with op.batch_alter_table("label", schema=None) as batch_op:
        batch_op.create_index("label_by_row", ["pool_id", "row", "annotator", "seq"], unique=False)

    op.create_table(
        "pool_data",
        sa.Column("pool_id", sa.String(length=36), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("n_rows", BigInt, nullable=False),
        sa.Column("n_bytes", BigInt, nullable=False),
        sa.Column("n_given_labels", BigInt, nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pool.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("pool_id"),
    )
    op.create_table(
        "prediction",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=36), nullable=False),
        sa.Column("ensemble_id", sa.String(length=36), nullable=False),
        sa.Column("pool_id", sa.String(length=36), nullable=True),
        sa.Column("rows_key", sa.Text(), nullable=True),
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["ensemble_id"], ["ensemble.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["pool_id"], ["pool.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("prediction", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_prediction_project_id"), ["project_id"], unique=False)

    op.create_table(
        "ranking",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=36), nullable=False),
        sa.Column("pool_id", sa.String(length=36), nullable=False),
        sa.Column("ensemble_id", sa.String(length=36), nullable=True),
        sa.Column(
            "acquisition",
            Json,
            nullable=False,
        ),
        sa.Column(
            "selection",
            Json,
            nullable=False,
        ),
        sa.Column("k", BigInt, nullable=False),
        sa.Column("seed", BigInt, nullable=False),
        sa.Column("watermark", BigInt, nullable=False),
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("round_id", sa.String(length=36), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pool.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("ranking", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_ranking_pool_id"), ["pool_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_ranking_project_id"), ["project_id"], unique=False)

    op.create_table(
        "round",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=36), nullable=False),
        sa.Column("number", BigInt, nullable=False),
        sa.Column("pool_id", sa.String(length=36), nullable=False),
        sa.Column("ranking_id", sa.String(length=36), nullable=False),
        sa.Column("overlap", BigInt, nullable=False),
        sa.Column("retrain", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(length=10), nullable=False),
        sa.Column("ensemble_id", sa.String(length=36), nullable=True),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("opened_at", UtcDateTime(), nullable=True),
        sa.Column("ended_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pool.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("project_id", "number"),
    )
    with op.batch_alter_table("round", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_round_pool_id"), ["pool_id"], unique=False)

    op.create_table(
        "prediction_result",
        sa.Column("prediction_id", sa.String(length=36), nullable=False),
        sa.Column("file_key", sa.Text(), nullable=False),
        sa.Column("n_rows", BigInt, nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["prediction_id"], ["prediction.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("prediction_id"),
    )
    op.create_table(
        "ranking_item",
        sa.Column("ranking_id", sa.String(length=36), nullable=False),
        sa.Column("rank", BigInt, autoincrement=False, nullable=False),
        sa.Column("row", BigInt, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("score", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["ranking_id"], ["ranking.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("ranking_id", "rank"),
    )
    op.create_table(
        "ranking_result",
        sa.Column("ranking_id", sa.String(length=36), nullable=False),
        sa.Column("n_scored", BigInt, nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column(
            "notes",
            Json,
            nullable=False,
        ),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["ranking_id"], ["ranking.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("ranking_id"),
    )
    op.create_table(
        "reservation",
        sa.Column("round_id", sa.String(length=36), nullable=False),
        sa.Column("row", BigInt, autoincrement=False, nullable=False),
        sa.Column("annotator", sa.Text(), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=False),
        sa.Column("done", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["round_id"], ["round.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("round_id", "row", "annotator"),
    )
    op.create_table(
        "round_item",
        sa.Column("round_id", sa.String(length=36), nullable=False),
        sa.Column("rank", BigInt, autoincrement=False, nullable=False),
        sa.Column("row", BigInt, nullable=False),
        sa.Column("n_done", BigInt, nullable=False),
        sa.ForeignKeyConstraint(["round_id"], ["round.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("round_id", "rank"),
    )
    with op.batch_alter_table("round_item", schema=None) as batch_op:
        batch_op.create_index("round_item_by_row", ["round_id", "row"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("round_item", schema=None) as batch_op:
        batch_op.drop_index("round_item_by_row")

    op.drop_table("round_item")
    op.drop_table("reservation")
    op.drop_table("ranking_result")
    op.drop_table("ranking_item")
    op.drop_table("prediction_result")
    with op.batch_alter_table("round", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_round_pool_id"))

    op.drop_table("round")
    with op.batch_alter_table("ranking", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_ranking_project_id"))
        batch_op.drop_index(batch_op.f("ix_ranking_pool_id"))

    op.drop_table("ranking")
    with op.batch_alter_table("prediction", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_prediction_project_id"))

    op.drop_table("prediction")
    op.drop_table("pool_data")
    with op.batch_alter_table("label", schema=None) as batch_op:
        batch_op.drop_index("label_by_row")

    op.drop_table("label")
    op.drop_table("ensemble_result")
    with op.batch_alter_table("schedule", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_schedule_project_id"))
        batch_op.drop_index(batch_op.f("ix_schedule_next_fire_at"))

    op.drop_table("schedule")
    with op.batch_alter_table("pool", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_pool_project_id"))

    op.drop_table("pool")
    with op.batch_alter_table("job", schema=None) as batch_op:
        batch_op.drop_index("job_parent")
        batch_op.drop_index(
            "job_dedup",
            sqlite_where=sa.text("status = 'queued' AND dedup_key IS NOT NULL"),
            postgresql_where=sa.text("status = 'queued' AND dedup_key IS NOT NULL"),
        )
        batch_op.drop_index("job_claim")
        batch_op.drop_index(batch_op.f("ix_job_project_id"))

    op.drop_table("job")
    op.drop_table("ensemble")
    op.drop_table("replay")
    op.drop_table("project")
    op.drop_table("api_key")

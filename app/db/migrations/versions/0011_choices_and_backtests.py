"""Projects choose how rows are ranked, changes are recorded, and backtests say what to choose"""

import sqlalchemy as sa
from alembic import op

from app.db.types import BigInt, Json, UtcDateTime

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def _id(name: str = "id", *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.String(length=36), nullable=nullable)


def _belongs_to(parent: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([f"{parent}_id"], [f"{parent}.id"], ondelete="CASCADE")


def upgrade() -> None:
    # no batch: that may make the table anew on SQLite, and all that belongs to projects would go with the old one
    op.add_column("project", sa.Column("acquisition", Json, nullable=True))
    op.add_column("project", sa.Column("selection", Json, nullable=True))
    op.add_column("project", sa.Column("calibrate", Json, nullable=False, server_default="true"))
    op.create_table(
        "project_change",
        _id("project_id"),
        sa.Column("n", BigInt, nullable=False, autoincrement=False),
        sa.Column("changes", Json, nullable=False),
        _id("key_id", nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        _belongs_to("project"),
        sa.PrimaryKeyConstraint("project_id", "n"),
    )
    op.create_table(
        "backtest",
        _id(),
        _id("project_id"),
        _id("pool_id"),
        sa.Column("request", Json, nullable=False),
        sa.Column("watermark", BigInt, nullable=False),
        _id("job_id"),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        _belongs_to("project"),
        _belongs_to("pool"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_backtest_project_id", "backtest", ["project_id"])
    op.create_index("ix_backtest_pool_id", "backtest", ["pool_id"])
    op.create_table(
        "backtest_result",
        _id("backtest_id"),
        sa.Column("metric", sa.String(length=20), nullable=False),
        sa.Column("n_pool", BigInt, nullable=False),
        sa.Column("n_test", BigInt, nullable=False),
        sa.Column("curves", Json, nullable=False),
        sa.Column("runs", Json, nullable=False),
        sa.Column("recommendation", Json, nullable=False),
        sa.Column("notes", Json, nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        _belongs_to("backtest"),
        sa.PrimaryKeyConstraint("backtest_id"),
    )


def downgrade() -> None:
    op.drop_table("backtest_result")
    op.drop_table("backtest")
    op.drop_table("project_change")
    for name in ("calibrate", "selection", "acquisition"):
        op.drop_column("project", name)

"""Experiments, their sessions, proposals, observations and simulations"""

import sqlalchemy as sa
from alembic import op

from app.db.types import BigInt, Json, UtcDateTime

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def _id(name: str = "id", *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.String(length=36), nullable=nullable)


def _belongs_to(parent: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([f"{parent}_id"], [f"{parent}.id"], ondelete="CASCADE")


def upgrade() -> None:
    op.create_table(
        "experiment",
        _id(),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("spec", Json, nullable=False),
        sa.Column("spec_hash", sa.String(length=64), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "session",
        _id(),
        _id("experiment_id"),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("seed", BigInt, nullable=True),
        sa.Column("prior", Json, nullable=False),
        sa.Column("prior_observations", Json, nullable=False),
        sa.Column("round", BigInt, nullable=False),
        sa.Column("version", BigInt, nullable=False),
        sa.Column("token_digest", sa.String(length=64), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("closed_at", UtcDateTime(), nullable=True),
        _belongs_to("experiment"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("token_digest"),
    )
    op.create_index("ix_session_experiment_id", "session", ["experiment_id"])
    op.create_table(
        "proposal",
        _id(),
        _id("session_id"),
        sa.Column("number", BigInt, nullable=False),
        sa.Column("client_id", sa.Text(), nullable=True),
        sa.Column("design", Json, nullable=False),
        sa.Column("eig", sa.Float(), nullable=False),
        sa.Column("se", sa.Float(), nullable=False),
        sa.Column("method", sa.String(length=20), nullable=False),
        sa.Column("details", Json, nullable=False),
        sa.Column("status", sa.String(length=10), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("expires_at", UtcDateTime(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        _belongs_to("session"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("session_id", "number"),
    )
    op.create_table(
        "observation",
        _id(),
        _id("session_id"),
        sa.Column("n", BigInt, nullable=False),
        _id("proposal_id", nullable=True),
        sa.Column("client_id", sa.Text(), nullable=True),
        sa.Column("design", Json, nullable=False),
        sa.Column("outcome", Json, nullable=False),
        sa.Column("answer", Json, nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        _belongs_to("session"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("session_id", "n"),
    )
    op.create_index("ix_observation_proposal_id", "observation", ["proposal_id"])
    op.create_table(
        "simulation",
        _id(),
        _id("experiment_id"),
        sa.Column("request", Json, nullable=False),
        sa.Column("spec_hash", sa.String(length=64), nullable=False),
        _id("job_id"),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        _belongs_to("experiment"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_simulation_experiment_id", "simulation", ["experiment_id"])
    op.create_table(
        "simulation_result",
        _id("simulation_id"),
        sa.Column("curves", Json, nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        _belongs_to("simulation"),
        sa.PrimaryKeyConstraint("simulation_id"),
    )


def downgrade() -> None:
    for table in ("simulation_result", "simulation", "observation", "proposal", "session", "experiment"):
        op.drop_table(table)

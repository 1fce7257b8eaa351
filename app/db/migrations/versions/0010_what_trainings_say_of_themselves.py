"""Trainings say how far their draws can be trusted, how well they explain the labels, and what was tuned"""

import sqlalchemy as sa
from alembic import op

from app.db.types import Json

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("ensemble_result", schema=None) as batch_op:
        batch_op.add_column(sa.Column("diagnostics", Json, nullable=True))
        batch_op.add_column(sa.Column("log_evidence", sa.Float(), nullable=True))
        batch_op.add_column(sa.Column("bound", sa.Float(), nullable=True))
        batch_op.add_column(sa.Column("tuning", Json, nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("ensemble_result", schema=None) as batch_op:
        batch_op.drop_column("tuning")
        batch_op.drop_column("bound")
        batch_op.drop_column("log_evidence")
        batch_op.drop_column("diagnostics")

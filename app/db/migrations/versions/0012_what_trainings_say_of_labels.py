"""Trainings look back: agreement with the version before, labels in doubt, what random rows would have given"""

import sqlalchemy as sa
from alembic import op

from app.db.types import Json

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("ensemble_result", schema=None) as batch_op:
        batch_op.add_column(sa.Column("retrospect", Json, nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("ensemble_result", schema=None) as batch_op:
        batch_op.drop_column("retrospect")

"""Rankings know their target, and say of each pick why it was chosen"""

import sqlalchemy as sa
from alembic import op

from app.db.types import Json

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("ranking", schema=None) as batch_op:
        batch_op.add_column(sa.Column("target", Json, nullable=True))
    with op.batch_alter_table("ranking_result", schema=None) as batch_op:
        batch_op.add_column(sa.Column("measure", sa.String(length=40), nullable=True))
    with op.batch_alter_table("ranking_item", schema=None) as batch_op:
        batch_op.add_column(sa.Column("value", sa.Float(), nullable=True))
        batch_op.add_column(sa.Column("explanation", Json, nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("ranking_item", schema=None) as batch_op:
        batch_op.drop_column("explanation")
        batch_op.drop_column("value")
    with op.batch_alter_table("ranking_result", schema=None) as batch_op:
        batch_op.drop_column("measure")
    with op.batch_alter_table("ranking", schema=None) as batch_op:
        batch_op.drop_column("target")

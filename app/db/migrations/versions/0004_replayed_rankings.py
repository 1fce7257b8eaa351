"""Rankings can be made again: they know whose replay they are, and what they saw beside labels"""

import sqlalchemy as sa
from alembic import op

from app.db.types import Json

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("ranking", schema=None) as batch_op:
        batch_op.add_column(sa.Column("replay_of", sa.String(length=36), nullable=True))
    with op.batch_alter_table("ranking_result", schema=None) as batch_op:
        batch_op.add_column(sa.Column("context", Json, nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("ranking_result", schema=None) as batch_op:
        batch_op.drop_column("context")
    with op.batch_alter_table("ranking", schema=None) as batch_op:
        batch_op.drop_column("replay_of")

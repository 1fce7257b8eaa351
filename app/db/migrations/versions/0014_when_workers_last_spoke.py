"""Jobs say when their worker last spoke, and how often it would try"""

import sqlalchemy as sa
from alembic import op

from app.db.types import BigInt, UtcDateTime

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("job", schema=None) as batch_op:
        batch_op.add_column(sa.Column("max_attempts", BigInt, nullable=False, server_default="5"))
        batch_op.add_column(sa.Column("heartbeat_at", UtcDateTime(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("job", schema=None) as batch_op:
        batch_op.drop_column("heartbeat_at")
        batch_op.drop_column("max_attempts")

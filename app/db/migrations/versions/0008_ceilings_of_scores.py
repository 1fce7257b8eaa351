"""Rankings know what their members' scores can reach at most"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("ranking_result", schema=None) as batch_op:
        batch_op.add_column(sa.Column("ceiling", sa.Float(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("ranking_result", schema=None) as batch_op:
        batch_op.drop_column("ceiling")

"""Observations know that what they taught was computed with an outcome that was taken back since"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("observation", schema=None) as batch_op:
        batch_op.add_column(sa.Column("is_stale", sa.Boolean(), nullable=False, server_default=sa.false()))
    # there is a gap in the numbers before it; where that was made earlier still, to compute it anew does no harm
    op.execute(
        "UPDATE observation SET is_stale = TRUE WHERE n > (SELECT COUNT(*) FROM observation AS other "
        "WHERE other.session_id = observation.session_id AND other.n <= observation.n)"
    )


def downgrade() -> None:
    with op.batch_alter_table("observation", schema=None) as batch_op:
        batch_op.drop_column("is_stale")

"""Sessions count the numbers that they gave to observations, so that none is given twice"""

import sqlalchemy as sa
from alembic import op

from app.db.types import BigInt

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("session", schema=None) as batch_op:
        batch_op.add_column(sa.Column("last_n", BigInt, nullable=False, server_default="0"))
    op.execute(
        "UPDATE session SET last_n = "
        "COALESCE((SELECT MAX(n) FROM observation WHERE observation.session_id = session.id), 0)"
    )


def downgrade() -> None:
    with op.batch_alter_table("session", schema=None) as batch_op:
        batch_op.drop_column("last_n")

"""Rankings say where that lies which is drawn of them"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("ranking_result", sa.Column("figures_key", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("ranking_result", "figures_key")

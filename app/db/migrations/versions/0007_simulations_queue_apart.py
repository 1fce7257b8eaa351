"""Simulations that wait move to the queue of their own"""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("UPDATE job SET queue = 'simulate' WHERE kind = 'simulate'")


def downgrade() -> None:
    op.execute("UPDATE job SET queue = 'design' WHERE kind = 'simulate'")

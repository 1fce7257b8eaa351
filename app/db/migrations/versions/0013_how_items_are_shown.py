"""Projects say how their items are shown to annotators"""

import sqlalchemy as sa
from alembic import op

from app.db.types import Json

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # no batch: that may make the table anew on SQLite, and all that belongs to projects would go with the old one
    op.add_column("project", sa.Column("display", Json, nullable=True))


def downgrade() -> None:
    op.drop_column("project", "display")

"""Pools count their labelled and skipped rows, labels know by which key they came, a proposal may state no error"""

import sqlalchemy as sa
from alembic import op

from app.db.types import BigInt, Json

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

STANDING = """
WITH numbered AS (
    SELECT pool_id, "row", action, value,
           row_number() OVER (PARTITION BY pool_id, "row", annotator ORDER BY seq DESC) AS newest
    FROM label WHERE project_id = :project_id
), standing AS (SELECT pool_id, "row", action, value FROM numbered WHERE newest = 1 AND action <> 'retract')
"""
SKIPPED = """
SELECT pool_id, count(*) FROM (
    SELECT pool_id, "row" FROM standing GROUP BY pool_id, "row"
    HAVING sum(CASE action WHEN 'label' THEN 1 ELSE 0 END) = 0
) AS skipped GROUP BY pool_id
"""
LABELLED = {
    "classification": """
, votes AS (SELECT pool_id, "row", count(*) AS n FROM standing WHERE action = 'label' GROUP BY pool_id, "row", value)
, places AS (SELECT pool_id, "row", rank() OVER (PARTITION BY pool_id, "row" ORDER BY n DESC) AS place FROM votes)
SELECT pool_id, count(*) FROM (
    SELECT pool_id, "row" FROM places WHERE place = 1 GROUP BY pool_id, "row" HAVING count(*) = 1
) AS labelled GROUP BY pool_id
""",
    "regression": """
SELECT pool_id, count(DISTINCT "row") FROM standing WHERE action = 'label' GROUP BY pool_id
""",
}


def upgrade() -> None:
    with op.batch_alter_table("label", schema=None) as batch_op:
        batch_op.add_column(sa.Column("key_id", sa.String(length=36), nullable=True))
    with op.batch_alter_table("pool", schema=None) as batch_op:
        batch_op.add_column(sa.Column("n_labelled", BigInt, nullable=False, server_default="0"))
        batch_op.add_column(sa.Column("n_skipped", BigInt, nullable=False, server_default="0"))
    with op.batch_alter_table("proposal", schema=None) as batch_op:
        batch_op.alter_column("se", existing_type=sa.Float(), nullable=True)
    connection = op.get_bind()
    projects = connection.execute(sa.select(sa.table("project", sa.column("id"), sa.column("task", Json)))).all()
    for project_id, task in projects:
        for column, query in (("n_labelled", LABELLED[task["kind"]]), ("n_skipped", SKIPPED)):
            counts = connection.execute(sa.text(STANDING + query), {"project_id": project_id}).all()
            for pool_id, n in counts:
                connection.execute(
                    sa.text(f"UPDATE pool SET {column} = :n WHERE id = :pool_id"), {"n": n, "pool_id": pool_id}
                )


def downgrade() -> None:
    op.execute(sa.text("UPDATE proposal SET se = 0 WHERE se IS NULL"))
    with op.batch_alter_table("proposal", schema=None) as batch_op:
        batch_op.alter_column("se", existing_type=sa.Float(), nullable=False)
    with op.batch_alter_table("pool", schema=None) as batch_op:
        batch_op.drop_column("n_skipped")
        batch_op.drop_column("n_labelled")
    with op.batch_alter_table("label", schema=None) as batch_op:
        batch_op.drop_column("key_id")

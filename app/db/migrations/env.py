"""Alembic's entry: runs the migrations on the connection that `app.db.migrate` hands over."""

from alembic import context

from app.db.tables import Base

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    render_as_batch=connection.dialect.name == "sqlite",
    compare_type=False,
)
with context.begin_transaction():
    context.run_migrations()

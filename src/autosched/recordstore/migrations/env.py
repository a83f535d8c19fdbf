"""Runs migrations on the connection that `opening.migrate` hands over, in its transaction."""

from alembic import context

from autosched.recordstore.tables import META

context.configure(connection=context.config.attributes["connection"], target_metadata=META)
context.run_migrations()

"""The schema of the first release: a record has a number, and "blocked" is the word for candidates that are not run."""

import sqlalchemy as sa
from alembic import op

revision = "1.0"
down_revision = "6"


def upgrade() -> None:
    """Rename the column, and the failure."""
    op.alter_column("measurements", "trial", new_column_name="record")
    for table in ("measurements", "schedules"):
        op.execute(sa.text(f"UPDATE {table} SET failure = 'blocked' WHERE failure = 'poisoned'"))

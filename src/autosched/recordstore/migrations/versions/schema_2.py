"""Schedules are found by the digest of their object code."""

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"


def upgrade() -> None:
    """Make the index."""
    coded = sa.text("code <> ''")
    op.create_index("ix_schedules_code", "schedules", ["code"], sqlite_where=coded, postgresql_where=coded)

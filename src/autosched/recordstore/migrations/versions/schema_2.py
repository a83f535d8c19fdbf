"""An index of schedules by object code; measurements of daemons precede imported ones."""

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"


def upgrade() -> None:
    """Create the index and the column; nothing was imported before."""
    op.add_column("schedules", sa.Column("own", sa.SmallInteger, nullable=False, server_default="1"))
    coded = sa.text("code <> ''")
    op.create_index("ix_schedules_code", "schedules", ["code"], sqlite_where=coded, postgresql_where=coded)

"""Programs of workloads; schedules of one template are hints for all backends that have it."""

from hashlib import blake2b

import msgspec
import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"

ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create the table; write the loose keys again."""
    op.create_table(
        "programs",
        sa.Column("workload_id", ID, sa.ForeignKey("workloads.id"), primary_key=True, autoincrement=False),
        sa.Column("form", sa.Text, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    connection = op.get_bind()
    rows = connection.execute(sa.text("SELECT id, target, threads, backend, template FROM environments")).all()
    for number, target, threads, backend, template in rows:
        told = (target, threads, "" if template else backend.partition(" ")[0], template)
        key = blake2b(msgspec.msgpack.encode(told), digest_size=16).digest()
        changed = sa.text("UPDATE environments SET loose_key = :key WHERE id = :id")
        connection.execute(changed, {"key": key, "id": number})

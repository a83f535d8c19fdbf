"""How far the record store has caught up with the daemon's database."""

from dataclasses import dataclass


@dataclass
class ProjectionStatus:
    """Changed by the projection alone; read by views."""

    url: str = ""
    """The store, without a password; empty: there is none."""
    stored: int = 0
    """Records and tags repeated in this life of the daemon."""
    behind: int = 0
    """Records and tags that the store does not have yet."""
    trouble: str = ""
    """Why the store does not catch up, and what to do; empty when all is well."""

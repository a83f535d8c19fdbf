"""Progress of copying records to the record store."""

from dataclasses import dataclass


@dataclass
class ProjectionStatus:
    """Written by the projection only; read by views."""

    url: str = ""
    """URL of the store without a password; empty if there is no store."""
    stored: int = 0
    """Records and tags written to the store since the daemon started."""
    behind: int = 0
    """Records and tags that the store does not have yet."""
    trouble: str = ""
    """Why the store lags, and what to do; empty if all is well."""

"""Quotas of uploads: files that one user, or the client of one job, has uploaded and that no job refers to."""

from autosched import formatting
from autosched.errors import Refused

FILES_MAX = 1_000
"""Maximum number of such files of one user or job."""


class UploadQuota:
    """The uploads of each user and job since the daemon started; those of an earlier daemon count for none."""

    def __init__(self) -> None:
        self.bytes_max = 0
        """Maximum bytes of one user or job; 0: no limit."""
        self._of: dict[str, dict[str, int]] = {}
        """Bytes by the hash of the file, by user or job."""

    def count(self, whose: str, sha256: str, size: int) -> None:
        """Count the bytes of a file so far. Raises Refused if they are too many."""
        own = self._of.setdefault(whose, {})
        held = sum(own.values()) - own.get(sha256, 0)
        if self.bytes_max and held + size > self.bytes_max:
            raise Refused(
                f"this daemon refuses: {whose} has uploaded {formatting.size(held)} that no job uses, and"
                f" limits.user_upload_bytes_max is {formatting.size(self.bytes_max)}; submit jobs for them, or wait"
                " until they are deleted"
            )
        if sha256 not in own and len(own) >= FILES_MAX:
            raise Refused(
                f"this daemon refuses: {whose} has uploaded {len(own)} files that no job uses; submit jobs for them,"
                " or wait until they are deleted"
            )
        own[sha256] = max(size, own.get(sha256, 0))

    def used(self, sha256: str | None) -> None:
        """Note that a job refers to a file, or that it is deleted."""
        if sha256 is not None:
            for whose, own in list(self._of.items()):
                own.pop(sha256, None)
                if not own:
                    del self._of[whose]

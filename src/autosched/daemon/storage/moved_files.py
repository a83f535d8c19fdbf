"""Files that move between the hosts of a job, such as builds that another host measures. They are removed with the
job's client."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from autosched.daemon.storage.blob_store import Blobs
from autosched.model import JobId


class MovedFiles:
    """A store of files for each job, in one folder. Nothing in it survives a restart of the daemon."""

    def __init__(self, folder: Path, bytes_max: int) -> None:
        """`bytes_max`: maximum size of one file."""
        self._folder, self._bytes_max = folder, bytes_max
        self.job_bytes_max = 0
        """Maximum bytes of the files of one job; 0: no limit."""
        self._of: dict[JobId, Blobs] = {}
        shutil.rmtree(folder, ignore_errors=True)

    def of(self, job: JobId) -> Blobs:
        """The files of a job."""
        if (found := self._of.get(job)) is None:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            found = self._of[job] = Blobs(self._folder / str(job), self._bytes_max, durable=False)
            found.uploads.bytes_max = self.job_bytes_max
        return found

    def forget(self, job: JobId, files: Iterable[str]) -> None:
        """Remove files that are not needed any more."""
        if (known := self._of.get(job)) is not None:
            for sha256 in files:
                known.path(sha256).unlink(missing_ok=True)
                known.uploads.used(sha256)

    def clear(self, job: JobId) -> None:
        """Remove all files of a job."""
        if self._of.pop(job, None) is not None:
            shutil.rmtree(self._folder / str(job), ignore_errors=True)

"""Backend ``ansor``: TVM's MetaSchedule (Ansor's search) taken apart into select, build, profile and update."""

from pathlib import Path

from autosched.backend import Session
from autosched.model import JobSpec


class AnsorBackend:
    """The entry point."""

    api = (1, 1)

    def open(self, job: JobSpec, model: Path, workdir: Path, outdir: Path, device_cores: int) -> Session:
        """Check options and target, and start a session. Raises RequestError."""
        from autosched_backend_ansor.session import AnsorSession  # needs TVM; reading this package's name does not

        return AnsorSession(job, model, workdir, outdir, device_cores)

"""A backend without a compiler: synthetic operators with known best latencies, and stages that sleep.

With it the whole system (daemon, clients, scheduling, records, reports) runs where TVM is not installed. `options` has
the settings of a job: times that are constant or random, from an instance of the scheduling problem, or from a daemon's
database; and failures, hangs and crashes.
"""

from pathlib import Path

from autosched.model import JobSpec
from autosched_backend_mock import options, time_sources
from autosched_backend_mock.session import MockSession


class MockBackend:
    """The entry point."""

    api = (2, 0)
    Options = options.Options

    def open(self, job: JobSpec, model: Path, workdir: Path, outdir: Path, device_cores: int) -> MockSession:
        """Check the options."""
        chosen = options.read(job.options)
        return MockSession(job, chosen, time_sources.chosen(chosen, job), workdir, outdir)

"""A portfolio of the other backends. Each task's budget moves to the backend that gains."""

from pathlib import Path

from autosched import backend
from autosched.backend import Session
from autosched.errors import RequestError
from autosched.model import JobSpec
from autosched_backend_auto.options import Options, names
from autosched_backend_auto.portfolio import Portfolio
from autosched_tvm.api import SearchMethod, TvmBackend, method_of
from autosched_tvm.api import options as option_table


class AutoBackend(TvmBackend[Options]):
    """The entry point."""

    name = "auto"
    options = Options

    def open(self, job: JobSpec, model: Path, workdir: Path, outdir: Path, device_cores: int) -> Session:
        """Check the names of the other backends first. Raises RequestError, NotFound."""
        for name in names(option_table.read(self.name, Options, job.options)):
            if name == self.name:
                raise RequestError(f"backend {self.name} cannot be one of its own backends; name others: backends=a,b")
            backend.check_name(name)
        return super().open(job, model, workdir, outdir, device_cores)

    def method(self, given: Options, threads: int) -> SearchMethod:
        """All methods, each with the common options and its own defaults."""
        return Portfolio({name: method_of(name, given, threads) for name in names(given)}, given.batch)

"""A backend on TVM: the session is the same for all, what differs are the options and the method of the search."""

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic

from autosched import backend
from autosched.backend import Session
from autosched.errors import RequestError
from autosched.model import JobSpec
from autosched_tvm.tuning import options as option_table
from autosched_tvm.tuning.fallback import Fallback
from autosched_tvm.tuning.options import AnyOptions

if TYPE_CHECKING:
    from autosched_tvm.tuning.search_method import SearchMethod


class TvmBackend(Generic[AnyOptions]):
    """The object behind an entry point of the group ``autosched.backends``."""

    api = (1, 6)
    name: ClassVar[str]
    options: type[AnyOptions]

    def open(self, job: JobSpec, model: Path, workdir: Path, outdir: Path, device_cores: int) -> Session:
        """Check options and target, and start a session. Raises RequestError."""
        from autosched_tvm.tuning.session import TvmSession  # needs TVM; to read this package's name does not

        given = option_table.read(self.name, self.options, job.options)
        if given.fallback:
            backend.check_name(given.fallback)

        def method(threads: int) -> "SearchMethod":
            own = self.method(given, threads)
            if not given.fallback:
                return own
            return Fallback(own, given.fallback, lambda: method_of(given.fallback, given, threads))

        return TvmSession(job, model, workdir, outdir, device_cores, given, method)

    def method(self, given: AnyOptions, threads: int) -> "SearchMethod":
        """How candidates are searched for in one job, with a number of threads. Its `search` may raise Unsupported."""
        raise NotImplementedError


def method_of(name: str, given: option_table.Options, threads: int) -> "SearchMethod":
    """The method of another backend, with its own defaults where `given` does not say. Raises RequestError."""
    other = backend.load(name)
    if not isinstance(other, TvmBackend):
        raise RequestError(f"backend {name!r} does not work on TVM's schedules, so it cannot take part in this job")
    common = {field: getattr(given, field) for field in option_table.Options.__struct_fields__ if field != "fallback"}
    return other.method(other.options(**common), threads)

"""Base class of backends on TVM: they share the session, and differ in their options and their search method."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic

from autosched import backend
from autosched.backend import Session
from autosched.errors import RequestError
from autosched.model import JobSpec
from autosched_tvm.tuning import options as option_table
from autosched_tvm.tuning.fallback import Fallback
from autosched_tvm.tuning.options import AnyOptions
from autosched_tvm.tvm_types import IRModule, Target

if TYPE_CHECKING:
    from autosched_tvm.ranking.measured_task import Family, MeasuredTask
    from autosched_tvm.tuning.search_method import SearchMethod


class TvmBackend(Generic[AnyOptions]):
    """The object behind an entry point of the group ``autosched.backends``."""

    api = (2, 0)
    name: ClassVar[str]
    options: type[AnyOptions]

    def open(self, job: JobSpec, model: Path, workdir: Path, outdir: Path, device_cores: int) -> Session:
        """Checks options and target, and starts a session. Raises RequestError."""
        # imported here: reading this package's name must not load TVM
        from autosched_tvm.tuning.session import TvmSession

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
        """Returns the search method of one job, for a number of threads. Its `search` may raise Unsupported."""
        raise NotImplementedError

    def measured_task(
        self, workload: str, module: IRModule, target: Target, networks: frozenset[str],
        latencies_s: Mapping[bytes, float | None],
    ) -> "tuple[Family, MeasuredTask] | None":  # fmt: skip
        """Returns the operator family of a workload, and the features of its measured schedules; None for a workload
        whose schedules this backend cannot rank.

        `module`: the workload's IRModule. `networks`: those that contain it. `latencies_s`: seconds of each candidate,
        None for a failure.
        """
        return None


def method_of(name: str, given: option_table.Options, threads: int) -> "SearchMethod":
    """Returns the method of another backend, with its own defaults where `given` has no value. Raises RequestError."""
    other = backend.load(name)
    if not isinstance(other, TvmBackend):
        raise RequestError(f"backend {name!r} does not work on TVM's schedules, so it cannot take part in this job")
    common = {field: getattr(given, field) for field in option_table.Options.__struct_fields__ if field != "fallback"}
    return other.method(other.options(**common), threads)

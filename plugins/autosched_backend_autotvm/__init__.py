"""Templates with explicit knobs, and AutoTVM's tuners over their configurations."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from autosched.backend import Session
from autosched.model import JobSpec
from autosched_backend_autotvm import options
from autosched_backend_autotvm.options import Options
from autosched_tvm.api import SearchMethod, TvmBackend
from autosched_tvm.tvm_types import IRModule, Target

if TYPE_CHECKING:
    from autosched_tvm.api import Family, MeasuredTask


class AutoTvmBackend(TvmBackend[Options]):
    """The entry point."""

    name = "autotvm"
    options = Options

    def open(self, job: JobSpec, model: Path, workdir: Path, outdir: Path, device_cores: int) -> Session:
        """Checks the values of the options, then opens the session. Raises RequestError."""
        options.read(job.options)
        return super().open(job, model, workdir, outdir, device_cores)

    def method(self, given: Options, threads: int) -> SearchMethod:
        """Returns one method for all tasks of the job, which share what they learn."""
        from autosched_backend_autotvm.search_method import (
            AutoTvmMethod,  # imported here: reading this package's name must not load TVM
        )

        return AutoTvmMethod(given)

    def measured_task(
        self, workload: str, module: IRModule, target: Target, networks: frozenset[str],
        latencies_s: Mapping[bytes, float | None],
    ) -> "tuple[Family, MeasuredTask] | None":  # fmt: skip
        """Returns the template of a workload, and the features of its measured configurations; None without one."""
        from autosched_backend_autotvm import stored_tasks

        return stored_tasks.measured_task(workload, module, target, networks, latencies_s)

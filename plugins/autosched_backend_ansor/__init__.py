"""TVM's MetaSchedule (Ansor's search) taken apart into select, build, profile and update."""

from autosched_backend_ansor.options import Options
from autosched_tvm.api import SearchMethod, TvmBackend


class AnsorBackend(TvmBackend[Options]):
    """The entry point."""

    name = "ansor"
    options = Options

    def method(self, given: Options, threads: int) -> SearchMethod:
        """One cost model for all tasks of the job."""
        # imported here, because the package's name must be readable without TVM
        from autosched_backend_ansor.search import AnsorMethod

        return AnsorMethod(given, threads)

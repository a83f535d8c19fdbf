"""TVM's MetaSchedule (Ansor's search) taken apart into select, build, profile and update."""

from autosched_backend_ansor.options import Options
from autosched_tvm.api import SearchMethod, TvmBackend


class AnsorBackend(TvmBackend[Options]):
    """The entry point."""

    name = "ansor"
    options = Options

    def method(self, given: Options, threads: int) -> SearchMethod:
        """One cost model for all tasks of the job."""
        from autosched_backend_ansor.search import AnsorMethod  # needs TVM; to read this package's name does not

        return AnsorMethod(given, threads)

"""TVM's MetaSchedule (Ansor's search) taken apart into select, build, profile and update."""

from autosched.tvm.backend import TvmBackend
from autosched.tvm.searching import Method
from autosched_backend_ansor.options import Options


class AnsorBackend(TvmBackend[Options]):
    """The entry point."""

    name = "ansor"
    options = Options

    def method(self, given: Options, threads: int) -> Method:
        """One cost model for all tasks of the job."""
        from autosched_backend_ansor.search import AnsorMethod  # needs TVM; to read this package's name does not

        return AnsorMethod(given, threads)

"""The genetic search of Tensor Comprehensions, on the sampling decisions of TVM's schedules."""

from autosched_backend_tc.options import Options
from autosched_tvm.api import SearchMethod, TvmBackend


class TcBackend(TvmBackend[Options]):
    """The entry point."""

    name = "tc"
    options = Options

    def method(self, given: Options, threads: int) -> SearchMethod:
        """Every task has a population of its own."""
        # imported here, because the package's name must be readable without TVM
        from autosched_backend_tc.search import TcMethod

        return TcMethod(given)

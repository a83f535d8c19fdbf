"""The genetic search of Tensor Comprehensions, on the sampling decisions of TVM's schedules."""

from autosched.tvm.backend import TvmBackend
from autosched.tvm.searching import Method
from autosched_backend_tc.options import Options


class TcBackend(TvmBackend[Options]):
    """The entry point."""

    name = "tc"
    options = Options

    def method(self, given: Options, threads: int) -> Method:
        """Every task has a population of its own."""
        from autosched_backend_tc.search import TcMethod  # needs TVM; to read this package's name does not

        return TcMethod(given)

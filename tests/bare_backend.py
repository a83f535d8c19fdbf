"""A session and a tuner of which tests implement the parts that they call."""

from collections.abc import Iterator, Sequence

from autosched.backend import Built, Evaluation, Lease, Measured, Network, Session, Tuner
from autosched.model import Record, TaskInfo


class BareTuner(Tuner):
    """A search whose methods were not expected to be called."""

    def restore(self, records: Sequence[Record]) -> None:
        raise NotImplementedError

    def select(self, count: int, lease: Lease) -> Sequence[bytes]:
        raise NotImplementedError

    def build(self, candidates: Sequence[bytes], lease: Lease) -> Sequence[Built]:
        raise NotImplementedError

    def profile(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        raise NotImplementedError

    def update(self, measured: Sequence[Measured], lease: Lease) -> None:
        raise NotImplementedError


class BareSession(Session):
    """A session whose methods were not expected to be called."""

    def import_network(self, lease: Lease) -> Network:
        raise NotImplementedError

    def tuner(self, task: TaskInfo, seed: int) -> Tuner:
        raise NotImplementedError

    def compile(self, records: Sequence[Record], lease: Lease) -> None:
        raise NotImplementedError

    def evaluate(self, lease: Lease) -> Evaluation:
        raise NotImplementedError

    def kill(self, lease: Lease | None = None) -> None:
        raise NotImplementedError

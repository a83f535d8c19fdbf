"""Errors of the runtime. Each message says what is wrong, why, and what to do next."""


class NetworkError(Exception):
    """A compiled network cannot be loaded or run."""


class FileMissing(NetworkError):
    """A file of a compiled network is not there."""


class OutOfMemory(NetworkError, MemoryError):
    """A network needs more memory than this process gets."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: free some, or raise the limit of this process (ulimit -v) or of its container")


class InvalidInput(NetworkError, ValueError):
    """Inputs that the network does not take."""

"""Errors of the runtime. Each message says what is wrong, why, and what to do next."""


class NetworkError(Exception):
    """A compiled network cannot be loaded or run."""


class FileMissing(NetworkError):
    """A file of a compiled network is not there."""


class InvalidInput(NetworkError, ValueError):
    """Inputs that the network does not take."""

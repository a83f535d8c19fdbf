"""Errors of `autosched_runtime` as errors for autosched's users."""

from collections.abc import Iterator
from contextlib import contextmanager

from autosched.errors import NotFound, RequestError
from autosched_runtime.errors import FileMissing, NetworkError


@contextmanager
def in_words() -> Iterator[None]:
    """Raise RequestError, or NotFound for a file that is missing, in place of the runtime's errors."""
    try:
        yield
    except FileMissing as error:
        raise NotFound(str(error)) from error
    except NetworkError as error:
        raise RequestError(str(error)) from error

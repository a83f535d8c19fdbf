"""Paths of unix sockets. The system limits them to 107 bytes; a longer one is reached through its open folder."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATH_BYTES_MAX = 107
"""Maximum length of a unix socket's path: sun_path without its final zero."""
NAME_BYTES_MAX = 80
"""Maximum length of its last part, if the path is longer."""


@contextmanager
def short(path: str | Path) -> Iterator[str]:
    """A name of the socket that fits, for one bind or connect within the context. Raises OSError without the folder."""
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        yield os.fspath(path)
        return
    path = Path(path)
    if len(os.fsencode(path.name)) > NAME_BYTES_MAX:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path))
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)

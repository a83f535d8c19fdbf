"""Small files that are written atomically: a reader finds the former content or the new one."""

import os
from pathlib import Path


def write(path: Path, content: bytes, *, private: bool = False, durable: bool = False) -> Path:
    """Replace a file; returns its path. `private`: only its user may read it. `durable`: it must survive a power
    failure. Only one process at a time may write it. Raises OSError."""
    part = path.with_name(f".{path.name}.part")
    flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC
    try:
        with open(os.open(part, flags, 0o600 if private else 0o666), "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    return path

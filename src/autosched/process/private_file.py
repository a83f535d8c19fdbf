"""Small files that only their user may read, written atomically."""

import os
from pathlib import Path


def write(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Replace a file. `durable`: it must survive a power failure. Raises OSError."""
    new = path.with_name(f"{path.name}.new")
    with open(os.open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    new.replace(path)

"""A wall clock that can be set while programs run. Their monotonic clock continues, as on a real machine."""

import mmap
import os
import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).with_name("clock.c")


class WallClock:
    """Clock of programs that are started with `environment`, and of their children."""

    def __init__(self, folder: Path) -> None:
        """Needs a C compiler. Raises RuntimeError without one."""
        compiler = shutil.which(os.environ.get("CC", "cc"))
        if compiler is None:
            raise RuntimeError("there is no C compiler to make a clock with that can be set: install one")
        library, file = folder / "clock.so", folder / "clock"
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
        file.write_bytes(struct.pack("=q", 0))
        with file.open("r+b") as opened:
            self._seconds = mmap.mmap(opened.fileno(), 8)
        self.environment: Mapping[str, str] = {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(file)}

    def set_ahead(self, seconds: int) -> None:
        """Sets the difference from the true clock, in seconds."""
        self._seconds[:] = struct.pack("=q", seconds)

"""Networks of networks.toml, compiled without a search."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from networks import networks

COMPILE_MAX_S = 900.0


@contextmanager
def compiled(names: Sequence[str], keep: Path | None = None) -> Iterator[dict[str, Path]]:
    """Yields the library of each network, by its name. They are deleted at the end, or stay in the folder `keep`, where
    those that are there already are taken."""
    with TemporaryDirectory(prefix="autosched-compiled-") as folder:
        environment = {**os.environ, "XDG_STATE_HOME": folder}
        autosched = [sys.executable, "-m", "autosched", "-q"]
        made = {}
        for network in networks(*names):
            output = (keep or Path(folder)) / network.name
            if found := list(output.glob("*.so")):
                (made[network.name],) = found
                continue
            shapes = [f"--shape={name}={','.join(map(str, shape))}" for name, shape in network.shapes.items() if shape]
            words = ["tune", str(network.fetch()), "--zero-shot", *shapes, "--output", str(output)]
            subprocess.run([*autosched, *words], check=True, env=environment, timeout=COMPILE_MAX_S, stdout=sys.stderr)
            (made[network.name],) = output.glob("*.so")
        if any(Path(folder).iterdir()):
            subprocess.run([*autosched, "stop"], check=True, env=environment, timeout=COMPILE_MAX_S, stdout=sys.stderr)
        yield made

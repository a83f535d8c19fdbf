"""Networks of networks.toml, compiled without a search."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from networks import networks

COMMAND_MAX_S = 3600.0
"""Maximum time of one command in seconds. A range of shapes is many networks."""


@contextmanager
def commands() -> Iterator[Callable[..., None]]:
    """Yields a function that runs a command of autosched, of a daemon of its own, which ends with its state."""
    with TemporaryDirectory(prefix="autosched-compiled-") as state:

        def run(*words: str) -> None:
            command = [sys.executable, "-m", "autosched", "-q", *words]
            environment = {**os.environ, "XDG_STATE_HOME": state}
            subprocess.run(command, check=True, env=environment, timeout=COMMAND_MAX_S, stdout=sys.stderr)

        yield run
        if any(Path(state).iterdir()):
            run("stop")


@contextmanager
def compiled(names: Sequence[str], keep: Path | None = None) -> Iterator[dict[str, Path]]:
    """Yields the library of each network, by its name. They are deleted at the end, or stay in the folder `keep`, where
    those that are there already are taken."""
    with TemporaryDirectory(prefix="autosched-compiled-") as folder, commands() as run:
        made = {}
        for network in networks(*names):
            output = (keep or Path(folder)) / network.name
            if not list(output.glob("*.so")):
                shapes = [
                    f"--shape={name}={','.join(map(str, shape))}" for name, shape in network.shapes.items() if shape
                ]
                run("tune", str(network.fetch()), "--zero-shot", *shapes, "--output", str(output))
            (made[network.name],) = output.glob("*.so")
        yield made

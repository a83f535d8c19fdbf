"""The states of this machine's GPUs, once a second, from a process that asks the driver (`gpu_probe`)."""

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from autosched import gpus
from autosched.gpu_probe import WATCH_S, GpuState
from autosched.process import isolated_python, program_runner

log = logging.getLogger(__name__)

AGAIN_S = 10.0
"""Seconds between two attempts to watch."""
ENDS_S = 60.0
"""Seconds that the process may take beyond its own limit."""


class GpuStates:
    """Runs the process, and again when it ends."""

    def __init__(self, heard: Callable[[Sequence[GpuState]], None]) -> None:
        """`heard`: called with each answer."""
        self._heard = heard
        self.why_not = ""
        """Why there are no answers; empty if there are, or if none is expected yet."""

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            try:
                ended = await program_runner.run(
                    isolated_python.command(gpus.PROBE, "watch"), timeout_s=WATCH_S + ENDS_S,
                    environment=isolated_python.environment(), on_line=self._hear,
                )  # fmt: skip
                self.why_not = f"its watch {ended.how}: {ended.last_words}" if ended.code else ""
            except (OSError, TimeoutError) as error:
                self.why_not = f"its watch failed: {error or 'it took too long'}"
            if self.why_not:
                log.warning("GPUs are not watched: %s", self.why_not)
                await asyncio.sleep(AGAIN_S)

    def _hear(self, line: str) -> None:
        try:
            states = msgspec.json.decode(line, type=tuple[GpuState, ...])
        except msgspec.MsgspecError as error:
            self.why_not = f"its watch cannot be read: {error}"
            return
        self.why_not = ""
        self._heard(states)

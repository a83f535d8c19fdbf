"""Reboots a faulty device, and measures its speed. Runs on the device's own machine."""

import logging
import os
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from autosched.model import UnitName
from autosched.process import isolated_python, program_runner

log = logging.getLogger(__name__)

SENTINEL = "autosched.sentinel"
SENTINEL_S = 30.0
"""Maximum seconds of the sentinel."""
SAID_MAX = 200
"""Maximum characters of a program's last output in a message."""
DEVICE = "AUTOSCHED_DEVICE"
"""Environment variable of a reboot hook: the device's name."""


class Pace(Struct, frozen=True):
    """Results of the sentinel benchmark, in seconds."""

    core_s: float
    memory_s: float


class Unwell(Exception):
    """The device is faulty; the reason in words."""


async def treat(unit: UnitName, cores: Sequence[int], hook: Sequence[str], hook_s: float) -> Pace | None:
    """Reboot a device if there is a hook, and run the sentinel on it; None if it has no cores.

    `hook_s`: maximum seconds of the hook. Raises Unwell.
    """
    if hook:
        log.warning("the reboot hook of %s is called", unit)
        await run(hook, hook_s, {DEVICE: unit}, "its reboot hook")
    if not cores:
        return None
    said = await run(isolated_python.command(SENTINEL, ",".join(map(str, cores))), SENTINEL_S, {}, "its sentinel")
    try:
        return msgspec.json.decode(said, type=Pace)
    except msgspec.MsgspecError as error:
        raise Unwell(f"its sentinel said nothing that can be read: {error}") from None


async def run(words: Sequence[str], timeout_s: float, environment: Mapping[str, str], what: str) -> str:
    """Run a program to its end; returns its output. Raises Unwell if it fails or takes too long."""
    try:
        ended = await program_runner.run(words, timeout_s=timeout_s, environment={**os.environ, **environment})
    except TimeoutError:
        raise Unwell(f"{what} took longer than {timeout_s:g} s") from None
    except OSError as error:
        raise Unwell(f"{what} cannot be started: {error}") from None
    if ended.code:
        raise Unwell(f"{what} {ended.how}: {ended.last_words[:SAID_MAX]}")
    return ended.out

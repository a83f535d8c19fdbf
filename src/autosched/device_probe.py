"""Treat a device that was not as it should be, and measure how fast it is. On the machine to which it belongs."""

import logging
import os
import sys
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from autosched.model import UnitName
from autosched.process import program_runner

log = logging.getLogger(__name__)

SENTINEL = "autosched.sentinel"
SENTINEL_S = 30.0
"""Seconds within which the sentinel ends."""
SAID_MAX = 200
"""Maximum characters of a program's last words."""
DEVICE = "AUTOSCHED_DEVICE"
"""In the environment of a reboot hook: the device's name."""


class Pace(Struct, frozen=True):
    """Results of the sentinel benchmark, in seconds."""

    core_s: float
    memory_s: float


class Unwell(Exception):
    """The device is not as it should be; in words."""


async def treat(unit: UnitName, cores: Sequence[int], hook: Sequence[str], hook_s: float) -> Pace | None:
    """Reboot a device where there is a hook, and run the sentinel on it; None: it has no cores to run it on.

    `hook_s`: seconds that the hook may take. Raises Unwell.
    """
    if hook:
        log.warning("the reboot hook of %s is called", unit)
        await run(hook, hook_s, {DEVICE: unit}, "its reboot hook")
    if not cores:
        return None
    said = await run([sys.executable, "-m", SENTINEL, ",".join(map(str, cores))], SENTINEL_S, {}, "its sentinel")
    try:
        return msgspec.json.decode(said, type=Pace)
    except msgspec.MsgspecError as error:
        raise Unwell(f"its sentinel said nothing that can be read: {error}") from None


async def run(words: Sequence[str], timeout_s: float, environment: Mapping[str, str], what: str) -> str:
    """Run a program to its end; returns what it printed. Raises Unwell when it fails or takes too long."""
    try:
        ended = await program_runner.run(words, timeout_s=timeout_s, environment={**os.environ, **environment})
    except TimeoutError:
        raise Unwell(f"{what} took longer than {timeout_s:g} s") from None
    except OSError as error:
        raise Unwell(f"{what} cannot be started: {error}") from None
    if ended.code:
        raise Unwell(f"{what} {ended.how}: {ended.last_words[:SAID_MAX]}")
    return ended.out

"""Measures the speed of this machine's devices before they are lent, and keeps it for the next agent."""

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from autosched.device_probe import Unwell, treat
from autosched.machine import boot_id
from autosched.model import Pool, Unit, UnitName, device_kind
from autosched.process import whole_file
from autosched.protocol import ProbedUnit

log = logging.getLogger(__name__)

FILE = "paces.json"
"""File in the state folder with the results."""


class Paces(Struct, frozen=True):
    """Results that were measured since the machine's boot."""

    boot: str
    units: tuple[Unit, ...]
    found: dict[UnitName, ProbedUnit]


async def paces(pools: Sequence[Pool], folder: Path, *, busy: bool) -> dict[UnitName, ProbedUnit]:
    """Speed of each device with cores. `busy`: whether clients run here, so that nothing can be measured now."""
    units = tuple(unit for pool in pools if device_kind(pool.name) for unit in pool.units if unit.cores)
    known = _kept(folder)
    if known is not None and (known.boot, known.units) == (boot_id(), units):
        return known.found
    if busy or not units:
        return {}
    found: dict[UnitName, ProbedUnit] = {}
    for unit in units:
        try:
            pace = await treat(unit.name, unit.cores, (), 0.0)
        except Unwell as error:
            log.warning("how fast %s is cannot be measured: %s", unit.name, error)
        else:
            found[unit.name] = ProbedUnit() if pace is None else ProbedUnit(pace.core_s, pace.memory_s)
    whole_file.write(folder / FILE, msgspec.json.encode(Paces(boot_id(), units, found)), private=True)
    return found


def _kept(folder: Path) -> Paces | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((folder / FILE).read_bytes(), type=Paces)
    return None

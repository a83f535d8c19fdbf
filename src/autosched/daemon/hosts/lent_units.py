"""Units that a host lends: their names in the daemon, the kinds of its devices, what is wrong with them. Pure."""

import hashlib
import platform
import re
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from autosched.errors import RequestError
from autosched.model import DEVICE_POOL, HOST_POOL, HostName, Pool, Unit, UnitName, at_host, device_kind, lent_by
from autosched.protocol import HostFacts

SLUG_CHARS = 40
"""Maximum length of the part of a kind's name that tells the model of its devices."""


def lent(
    host: HostName, pools: Sequence[Pool], cpu: str, reference: Callable[[str, HostName], str]
) -> tuple[Pool, ...]:
    """Pools under the names that they have in the daemon.

    `cpu`: model of the host's processor; `reference`: model of the devices of a kind on other hosts. Devices of another
    model are a kind of their own, "cpu.amd-epyc-9v74": what is fast on one says little about the other.
    """

    def named(pool: Pool) -> Pool:
        kind, devices = device_kind(pool.name), not pool.name.startswith(HOST_POOL)
        model = cpu if devices and pool.units[0].accelerator is None else ""
        other = bool(model) and reference(kind, host) not in ("", model)
        name = f"{DEVICE_POOL}{kind}.{slug(model)}" if other else pool.name
        return Pool(name, tuple(Unit(unit.name, unit.cores, unit.accelerator, model=model) for unit in pool.units))

    return lent_by(host, map(named, pools))


def software(facts: HostFacts, own: Mapping[str, str]) -> str:
    """Digest of the versions on a host that decide how code is built and measured; empty: they are those of the
    daemon's own host, `own`."""
    theirs = {name: version for name, version in facts.versions.items() if name != "python"}
    theirs["architecture"] = facts.system.rpartition(" ")[2]
    if theirs == {name: version for name, version in own.items() if name != "python"} | {
        "architecture": platform.machine()
    }:
        return ""
    return hashlib.sha256(msgspec.json.encode(theirs, order="sorted")).hexdigest()[:16]


def slug(model: str) -> str:
    """The model of a device as a part of the name of its kind."""
    return re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")[:SLUG_CHARS].strip("-") or "other"


def check_names(host: HostName, pools: Sequence[Pool], taken: Collection[UnitName]) -> None:
    """Raise RequestError for names that other units have, or that would be read as something else."""
    units = [unit.name for pool in pools for unit in pool.units]
    if clash := [unit for unit in units if unit in taken]:
        raise RequestError(f"the daemon has a unit {clash[0]} already: name it otherwise in the agent's settings")
    for pool in pools:
        if not (pool.name == at_host(HOST_POOL, host) or pool.name.startswith(DEVICE_POOL)):
            raise RequestError(f"{pool.name} is no pool of lanes or devices")
    if any(name.count("@") != 1 for name in (*units, *(pool.name for pool in pools))):
        raise RequestError("names of units and kinds of a host have no @: name them otherwise in its settings")


def check_cores(pools: Sequence[Pool], owners: Mapping[int, tuple[UnitName, bool]]) -> None:
    """Raise RequestError where a core is one of a device and of another unit.

    `owners`: the units that have cores of the same machine already, and whether each is a device.
    """
    for pool in pools:
        for unit in pool.units:
            for core in (core for core in unit.cores if core in owners):
                owner, is_device = owners[core]
                if is_device or device_kind(pool.name):
                    raise RequestError(
                        f"core {core} belongs to {owner} already, on this very machine: what runs on one would disturb"
                        f" measurements on the other. Give the agent other cores (-c FILE), or end the other one"
                    )

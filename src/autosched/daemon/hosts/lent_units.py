"""Names and kinds of the units that a host lends, and the checks of them."""

import hashlib
import logging
import platform
import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import msgspec

from autosched.daemon.hosts.device_comparison import DIFFERS, Reference, difference, pace_of
from autosched.errors import RequestError
from autosched.model import DEVICE_POOL, HOST_POOL, HostName, Pool, UnitName, at_host, device_kind, lent_by
from autosched.protocol import HostFacts, ProbedUnit

log = logging.getLogger(__name__)

SLUG_CHARS = 40
"""Maximum number of characters that the model adds to the name of a kind."""


def lent(
    host: HostName,
    pools: Sequence[Pool],
    cpu: str,
    references: Mapping[str, Reference] = MappingProxyType({}),
    paces: Mapping[UnitName, ProbedUnit] = MappingProxyType({}),
) -> tuple[Pool, ...]:
    """The pools of a host under their names in the daemon.

    `cpu`: model of the host's processor; `references`: devices of each kind on other hosts. Devices of another model
    become a kind of their own, "cpu.amd-epyc-9v74", since latencies on one do not predict those on the other. Devices
    of the same model and another pace become a kind of their own, too: "cpu.lab2".
    """

    def named(pool: Pool) -> Pool:
        kind, devices = device_kind(pool.name), not pool.name.startswith(HOST_POOL)
        model, reference = cpu if devices and pool.units[0].accelerator is None else "", references.get(kind)
        name = pool.name
        if model and reference is not None and reference.model not in ("", model):
            name = f"{DEVICE_POOL}{kind}.{slug(model)}"
        elif reference is not None and (share := difference(pace_of(pool, paces), reference.pace)) > DIFFERS:
            name = f"{DEVICE_POOL}{kind}.{slug(host)}"
            log.warning(
                "the devices %s of host %s are a kind of their own, %s: their pace differs by %.0f %% from that of the"
                " others, although they have the same processor", kind, host, device_kind(name), 100 * share,
            )  # fmt: skip
        return Pool(name, tuple(msgspec.structs.replace(unit, model=model or unit.model) for unit in pool.units))

    return lent_by(host, map(named, pools))


def are_same(one: Sequence[Pool], other: Sequence[Pool]) -> bool:
    """Whether two lists of pools have the same units; names of kinds may differ."""
    return [pool.units for pool in one] == [pool.units for pool in other]


def software(facts: HostFacts, own: Mapping[str, str]) -> str:
    """Digest of the versions on a host that affect how code is built and measured; empty if they equal `own`, those of
    the daemon's host."""
    theirs = {name: version for name, version in facts.versions.items() if name != "python"}
    theirs["architecture"] = facts.system.rpartition(" ")[2]
    if theirs == {name: version for name, version in own.items() if name != "python"} | {
        "architecture": platform.machine()
    }:
        return ""
    return hashlib.sha256(msgspec.json.encode(theirs, order="sorted")).hexdigest()[:16]


def slug(model: str) -> str:
    """A device's model in the form that names of kinds have."""
    return re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")[:SLUG_CHARS].strip("-") or "other"


def check_names(host: HostName, pools: Sequence[Pool], taken: Collection[UnitName]) -> None:
    """Raise RequestError for names that other units have, and for names that the daemon would misread."""
    units = [unit.name for pool in pools for unit in pool.units]
    if clash := [unit for unit in units if unit in taken]:
        raise RequestError(f"the daemon has a unit {clash[0]} already: name it otherwise in the agent's settings")
    for pool in pools:
        if not (pool.name == at_host(HOST_POOL, host) or pool.name.startswith(DEVICE_POOL)):
            raise RequestError(f"{pool.name} is no pool of lanes or devices")
    if any(name.count("@") != 1 for name in (*units, *(pool.name for pool in pools))):
        raise RequestError("names of units and kinds of a host have no @: name them otherwise in its settings")


def check_cores(pools: Sequence[Pool], owners: Mapping[int, tuple[UnitName, bool]]) -> None:
    """Raise RequestError where a device shares a core with another unit.

    `owners`: units of the same machine by their cores, and whether each is a device.
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

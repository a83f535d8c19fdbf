"""Views of hosts for the protocol."""

from collections.abc import Iterator, Mapping

from autosched.core.state import Host, State
from autosched.daemon.hosts.host_registry import HostRegistry, Lender
from autosched.model import HostName, device_kind
from autosched.protocol import HostView

AWAY, HERE, LEFT = "away", "here", "left"


def host_views(state: State, registry: HostRegistry, now: float) -> tuple[HostView, ...]:
    """All known hosts except the daemon's own."""
    return tuple(_view(state, registry, name, host, now) for name, host in state.hosts.items())


def _view(state: State, registry: HostRegistry, name: HostName, host: Host, now: float) -> HostView:
    lender = registry.lenders.get(name)
    slots = [state.slots[unit] for unit in host.units if unit in state.slots]
    return HostView(
        host=name,
        state=LEFT if host.left else AWAY if host.away else HERE,
        reason=host.away,
        lost_in_s=None if host.lost_at is None else max(0.0, host.lost_at - now),
        units=host.units,
        kinds=tuple(kind for pool in host.pools if (kind := device_kind(pool.name))),
        busy=sum(slot.holder is not None for slot in slots),
        drained=sum(slot.unit.name in state.drained for slot in slots),
        jobs=tuple(job for job in state.active if state.jobs[job].host == name),
        helps=tuple(job for job in state.active if name in state.jobs[job].helpers),
        address=lender.address if lender is not None else "",
        heard_s=max(0.0, now - lender.heard_at) if lender is not None else None,
        facts=lender.facts if lender is not None else None,
        differs=tuple(differences(name, registry.lenders)),
        load=lender.load if lender is not None else 0.0,
        memory_free_bytes=lender.memory_free_bytes if lender is not None else 0,
        client_bytes=sum(client.memory_bytes for client in registry.clients_of(name)),
        clock_offset_s=lender.clock_offset_s if lender is not None else 0.0,
    )


def differences(host: HostName, lenders: Mapping[HostName, Lender]) -> Iterator[str]:
    """The versions on a host that differ from those on another host, in words."""
    if host not in lenders:
        return
    own = lenders[host].facts.versions
    for name, version in own.items():
        others = {other: lender.facts.versions.get(name, "none") for other, lender in lenders.items() if other != host}
        different = [f"{theirs} on {other}" for other, theirs in others.items() if theirs != version]
        if different:
            yield f"{name} {version}, but {', '.join(different)}"

"""Identity of measurements: which of them are comparable. Pure.

There are two keys. The strict key has everything that can change a latency or a failure: backend, compiler, resolved
target, kind and model of the device. The loose key has the user's settings; it is known before the model is imported,
and is the key of measurements without a known identity (from clients that do not report it, or from earlier versions).
The two kinds of keys never match.
"""

from bisect import bisect_right
from collections.abc import Sequence
from hashlib import blake2b

import msgspec
from msgspec import structs

from autosched.model import Identity, IdentityFrom, JobSpec, Record

DIGEST_BYTES = 8


def complete(told: Identity | None, spec: JobSpec, *, device: str, version: str) -> Identity:
    """The identity of a job's measurements. `told`: reported by its backend; `device`: model of the client's device.

    `version`: of the backend's package; empty if it has none.
    """
    known = told or Identity()
    return structs.replace(
        known,
        target=known.target or spec.target,
        device=known.device or device,
        backend=known.backend or f"{spec.backend} {version}".strip(),
    )


def circumstances(spec: JobSpec, identity: Identity | None) -> str:
    """The key within which measurements of one workload are comparable: strict if the identity is known, otherwise
    loose."""
    if identity is None:
        return loose(spec)
    told = (identity.backend, identity.compiler, identity.target, f"{spec.device}: {identity.device}")
    return "; ".join(part for part in told if part)


def loose(spec: JobSpec) -> str:
    """The key of measurements without a known identity, and of data that does not depend on it."""
    return f"{spec.backend} {spec.target} on {spec.device}"


def brief(key: str) -> str:
    """A key in a few words: backend and kind of device of a strict one."""
    parts = key.split("; ")
    return f"{parts[0]} on {parts[-1].partition(':')[0]}" if len(parts) > 1 else key


def digest(identity: Identity) -> str:
    """A short name of an identity, in hexadecimal digits: equal for equal identities, in all processes."""
    return blake2b(msgspec.json.encode(identity), digest_size=DIGEST_BYTES).hexdigest()


def moved(records: Sequence[Record], known: Sequence[IdentityFrom], device: str) -> list[Record]:
    """A job's records for a client that may be on another host now. `device`: model of its devices; `known`: identities
    of the records, in ascending order of record numbers.

    A measurement on another device model shows which schedules are good, and not how fast they are here: it counts as
    disturbed, so that the best ones are measured again.
    """
    found = []
    for record in records:
        identity = of_record(known, record.number)
        elsewhere = identity is not None and bool(identity.device) and identity.device != device
        if elsewhere and identity is not None and record.latency_s and not record.disturbed:
            record = structs.replace(record, disturbed=f"measured on another model of device, {identity.device}")
        found.append(record)
    return found


def of_record(known: Sequence[IdentityFrom], number: int) -> Identity | None:
    """The identity of a job's record; None if unknown. `known`: in ascending order of record numbers."""
    place = bisect_right([one.number for one in known], number)
    return known[place - 1].identity if place else None

"""Identity of measurements: which of them are comparable. Pure.

Two keys of circumstances. The strict one holds everything that can change a latency or a failure: backend, compiler,
resolved target, kind and model of the device. The loose one holds what a job's user asked for; it is known before the
model is imported, and it is the key of measurements whose identity is not known: those of clients that do not tell it,
and those stored before it was told. The two kinds of keys never meet.
"""

from bisect import bisect_right
from collections.abc import Sequence
from hashlib import blake2b

import msgspec
from msgspec import structs

from autosched.model import Identity, IdentityFrom, JobSpec, Record

DIGEST_BYTES = 8


def complete(told: Identity | None, spec: JobSpec, *, device: str, version: str) -> Identity:
    """The identity of a job's measurements. `told`: by its backend; `device`: model of the client's device.

    `version`: of the backend's package; empty where it has none.
    """
    known = told or Identity()
    return structs.replace(
        known,
        target=known.target or spec.target,
        device=known.device or device,
        backend=known.backend or f"{spec.backend} {version}".strip(),
    )


def circumstances(spec: JobSpec, identity: Identity | None) -> str:
    """The key of what may be compared, for one workload: strict where the identity is known, else loose."""
    if identity is None:
        return loose(spec)
    told = (identity.backend, identity.compiler, identity.target, f"{spec.device}: {identity.device}")
    return "; ".join(part for part in told if part)


def loose(spec: JobSpec) -> str:
    """The key of measurements whose identity is not known, and of what does not depend on it."""
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
    of the records, by growing trials.

    What was measured on another model of device says which schedules are good, and not how fast they are here: it
    counts as disturbed, so that the best are measured again.
    """
    found = []
    for record in records:
        identity = of_trial(known, record.trial)
        elsewhere = identity is not None and bool(identity.device) and identity.device != device
        if elsewhere and identity is not None and record.latency_s and not record.disturbed:
            record = structs.replace(record, disturbed=f"measured on another model of device, {identity.device}")
        found.append(record)
    return found


def of_trial(known: Sequence[IdentityFrom], trial: int) -> Identity | None:
    """The identity of a job's record; None: not known. `known`: by growing trials."""
    place = bisect_right([one.trial for one in known], trial)
    return known[place - 1].identity if place else None

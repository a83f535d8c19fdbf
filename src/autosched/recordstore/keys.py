"""Keys of stored schedules. Pure.

Two keys, as in XLA's autotuning cache. The strict one has everything that can change the machine code of a candidate or
how its latency is measured; equal strict keys mean that a stored latency may stand for a new measurement. The loose one
has what decides whether a candidate can be applied at all; it gives hints that are measured before they count. Neither
has names of machines or counts of their cores: MIOpen's users renamed files for lack of that.
"""

from functools import lru_cache
from hashlib import blake2b

import msgspec
from msgspec import Struct

from autosched.model import Identity, Record

ID_DIGITS = 12
"""Characters of an identifier that are shown: hexadecimal digits of a digest, or the first ones of a hash."""
DIGEST_BYTES = 16
"""Bytes of a digest: 2**64 rows before two of them collide by chance."""
THREADS = ("num-cores", "num_cores")
"""Attributes of a TVM target for the number of threads of a kernel."""
NAMES = ("tag", "model", "host", "keys", "device")
"""Attributes of a TVM target that only name hardware, or follow from its other attributes."""


class Environment(Struct, frozen=True, forbid_unknown_fields=True):
    """Circumstances of a measurement, as the store keeps them. Empty fields are not known."""

    target: str = ""
    """Instruction set and microarchitecture: a TVM target as JSON without names, or another backend's word."""
    threads: int = 0
    """Threads of a kernel; 0: not known."""
    compiler: str = ""
    """Compilers and their versions."""
    measurement: str = ""
    """Name and version of the method of measurement."""
    backend: str = ""
    """Name and version of the backend."""
    template: str = ""
    """Name and version of the schedule template; empty: schedules that need none."""
    device: str = ""
    """Model of the device. In neither key: latencies of two models are told apart, schedules are not."""

    @property
    def strict(self) -> bytes:
        """Strict key, to be taken together with the workload."""
        known = (self.target, self.threads, self.compiler, self.measurement, self.backend, self.template)
        return _digest(known)

    @property
    def loose(self) -> bytes:
        """Loose key, to be taken together with the workload. A schedule of a template can be applied by all backends
        that have it."""
        backend = "" if self.template else self.backend_name
        return _digest((self.target, self.threads, backend, self.template))

    @property
    def backend_name(self) -> str:
        """Name of the backend, without its version."""
        return self.backend.partition(" ")[0]


@lru_cache(1_024)
def environment(identity: Identity | None, backend: str, template: str = "") -> Environment:
    """The circumstances that a client told; `backend`: name of the job's backend, where the identity has none."""
    known = identity or Identity()
    target, threads = split_target(known.target)
    return Environment(
        target, threads, known.compiler, known.measurement, known.backend or backend, template, known.device
    )


def split_target(target: str) -> tuple[str, int]:
    """The target without names, and its number of threads (0: not told). Words that are no JSON object stay."""
    try:
        attributes = msgspec.json.decode(target, type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError):
        return target, 0
    threads = next((count for name in THREADS if isinstance(count := attributes.get(name), int)), 0)
    kept = {name: value for name, value in attributes.items() if name not in (*THREADS, *NAMES)}
    return msgspec.json.encode(kept, order="sorted").decode(), threads


def join_target(target: str, threads: int) -> str:
    """The inverse of `split_target`, as JSON: the target of a kernel with a number of threads (0: not told)."""
    attributes = msgspec.json.decode(target, type=dict[str, object])
    return msgspec.json.encode(attributes | ({"num-cores": threads} if threads else {})).decode()


def candidate_digest(candidate: bytes) -> bytes:
    """Digest of a schedule in its backend's encoding."""
    return blake2b(candidate, digest_size=DIGEST_BYTES).digest()


def measurement_id(origin: str, job: int, workload: str, record: Record) -> bytes:
    """Names a measurement in all stores: equal for the same record of the same daemon, however it is written.

    Two records of one number (a database that was put back from a backup counts anew) have two names.
    """
    failure = record.failure.value if record.failure is not None else ""
    told = (origin, job, record.trial, workload, record.candidate, record.latency_s, failure, record.purpose.value)
    return blake2b(msgspec.msgpack.encode(told), digest_size=DIGEST_BYTES).digest()


def _digest(values: tuple[object, ...]) -> bytes:
    return blake2b(msgspec.msgpack.encode(values), digest_size=DIGEST_BYTES).digest()

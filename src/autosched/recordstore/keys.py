"""Keys of stored schedules. Pure.

There are two keys, as in XLA's autotuning cache. The strict key has everything that can change the machine code of a
candidate or the way its latency is measured: with equal strict keys, a stored latency may replace a new measurement.
The loose key has everything that decides whether a candidate can be applied: with equal loose keys, a schedule is a
hint to be measured. Neither contains names of machines or counts of their cores, for lack of which MIOpen's users
renamed files.
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
FEATURES = "mattr"
"""Attribute of a TVM target for CPU features that are added to those of the named CPU, or removed from them."""
WITHOUT_EFFECT = frozenset((
    "64bit", "64bit-mode", "adx", "aes", "cldemote", "clflushopt", "clwb", "clzero", "cmpccxadd", "crc32", "cx16",
    "cx8", "enqcmd", "fsgsbase", "fxsr", "hreset", "invpcid", "kl", "lwp", "mmx", "movdir64b", "movdiri", "movrs",
    "mwaitx", "pclmul", "pconfig", "pku", "prefetchi", "prfchw", "ptwrite", "raoint", "rdpid", "rdpru", "rdrnd",
    "rdseed", "rtm", "serialize", "sgx", "sha", "sha512", "shstk", "sm3", "sm4", "tsxldtrk", "uintr", "usermsr",
    "vaes", "vpclmulqdq", "waitpkg", "wbnoinvd", "widekl", "avx512vp2intersect", "xsave", "xsavec", "xsaveopt",
    "xsaves", "ccidx", "ccpp", "perfmon", "sha2", "sha3", "ssbs", "sb", "specrestrict", "predres", "dit", "mte",
    "rand", "trbe",
))  # fmt: skip
"""CPU features, by their LLVM names, that no kernel uses: of the system, of cryptography and of synchronisation. A
compiler emits their instructions only for programs that name them."""
NAMES = ("tag", "model", "host", "keys", "device")
"""Attributes of a TVM target that only name hardware, or follow from its other attributes."""


class Environment(Struct, frozen=True, forbid_unknown_fields=True):
    """Environment of a measurement, as stored. Empty fields are unknown."""

    target: str = ""
    """Instruction set and microarchitecture: a TVM target as JSON without names, or another backend's text."""
    threads: int = 0
    """Number of threads of a kernel; 0 if unknown."""
    compiler: str = ""
    """Compilers and their versions."""
    measurement: str = ""
    """Name and version of the method of measurement."""
    backend: str = ""
    """Name and version of the backend."""
    template: str = ""
    """Name and version of the schedule template; empty for schedules without one."""
    device: str = ""
    """Model of the device. In neither key: latencies of two models are kept apart, schedules are not."""

    @property
    def strict(self) -> bytes:
        """Strict key, to be combined with the workload."""
        known = (self.target, self.threads, self.compiler, self.measurement, self.backend, self.template)
        return _digest(known)

    @property
    def loose(self) -> bytes:
        """Loose key, to be combined with the workload. All backends that have a template can apply its schedules."""
        backend = "" if self.template else self.backend_name
        return _digest((self.target, self.threads, backend, self.template))

    @property
    def backend_name(self) -> str:
        """Name of the backend, without its version."""
        return self.backend.partition(" ")[0]


@lru_cache(1_024)
def environment(identity: Identity | None, backend: str, template: str = "") -> Environment:
    """The environment reported by a client; `backend`: name of the job's backend, if the identity has none."""
    known = identity or Identity()
    target, threads = split_target(known.target)
    return Environment(
        target, threads, known.compiler, known.measurement, known.backend or backend, template, known.device
    )


def split_target(target: str) -> tuple[str, int]:
    """The target without names, and its number of threads (0 if unknown). Texts that are no JSON object stay."""
    try:
        attributes = msgspec.json.decode(target, type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError):
        return target, 0
    threads = next((count for name in THREADS if isinstance(count := attributes.get(name), int)), 0)
    kept = {name: value for name, value in attributes.items() if name not in (*THREADS, *NAMES)}
    changed = kept.pop(FEATURES, ())
    if isinstance(changed, list):
        effective = sorted({str(one) for one in changed if str(one).lstrip("+-") not in WITHOUT_EFFECT})
        kept |= {FEATURES: effective} if effective else {}
    return msgspec.json.encode(kept, order="sorted").decode(), threads


def join_target(target: str, threads: int) -> str:
    """The inverse of `split_target`, as JSON: the target of a kernel with a number of threads (0 if unknown)."""
    attributes = msgspec.json.decode(target, type=dict[str, object])
    return msgspec.json.encode(attributes | ({"num-cores": threads} if threads else {})).decode()


def candidate_digest(candidate: bytes) -> bytes:
    """Digest of a schedule in its backend's encoding."""
    return blake2b(candidate, digest_size=DIGEST_BYTES).digest()


def measurement_id(origin: str, job: int, workload: str, record: Record) -> bytes:
    """Name of a measurement in all stores: equal for the same record of the same daemon, in any encoding.

    Two records with one number (after restoring a backup) have different names.
    """
    failure = record.failure.value if record.failure is not None else ""
    told = (origin, job, record.number, workload, record.candidate, record.latency_s, failure, record.purpose.value)
    return blake2b(msgspec.msgpack.encode(told), digest_size=DIGEST_BYTES).digest()


def _digest(values: tuple[object, ...]) -> bytes:
    return blake2b(msgspec.msgpack.encode(values), digest_size=DIGEST_BYTES).digest()

"""A record of another program, as a measurement of the record store.

The same record has one name in all files: its origin is the program, and its job the target.
"""

from hashlib import blake2b

from autosched.model import Record
from autosched.recordstore.keys import Environment, measurement_id
from autosched.recordstore.rows import Measurement, SourceJob, Workload

JOB_BYTES = 6
"""Bytes of a job's number: a digest of the target."""


def measurement(
    origin: str, program: str, target: str, workload: Workload, environment: Environment, record: Record
) -> Measurement:
    """The measurement. `origin`: name of the origin. `program`: name for people. `target`: in that program's form."""
    number = int.from_bytes(blake2b(target.encode(), digest_size=JOB_BYTES).digest(), "little")
    name = measurement_id(origin, number, workload.hash, record)
    return Measurement(name, SourceJob(number, target, program), workload, environment, record)

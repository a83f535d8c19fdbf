"""Measurements for a store."""

from autosched.model import Identity, Purpose, Record
from autosched.recordstore.keys import Environment, environment, measurement_id
from autosched.recordstore.rows import Measurement, Origin, SourceJob, Workload

LAB = Origin("lab", detail="a host")
HERE = environment(Identity('{"kind": "llvm", "mcpu": "znver4"}', "AMD EPYC", "tvm 0.27", "autotvm 1"), "autotvm")
CONV = Workload("c0ffee", "conv2d", "conv2d 64x56x56 -> 64x56x56, 3x3", 2e8)
JOB = SourceJob(7, "squeeze", "squeezenet.onnx", "ab" * 32, "ada")


def measured(
    trial: int,
    latency_s: float | None,
    *,
    candidate: str = "",
    purpose: Purpose = Purpose.TRIAL,
    disturbed: str = "",
    workload: Workload = CONV,
    where: Environment = HERE,
    origin: Origin = LAB,
    job: SourceJob = JOB,
) -> Measurement:
    """Returns a measurement; by default each trial has its own candidate."""
    record = Record(
        task=1,
        number=trial,
        candidate=(candidate or f"schedule {trial}").encode(),
        latency_s=() if latency_s is None else (latency_s, 1.1 * latency_s, 1.2 * latency_s),
        purpose=purpose,
        disturbed=disturbed,
        code=f"{trial:032x}",
        measured_at=1.7e9 + trial,
    )
    return Measurement(measurement_id(origin.name, job.number, workload.hash, record), job, workload, where, record)

"""The workloads of a record store with their measured candidates, as TVM's modules."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from autosched.recordstore.keys import Environment, join_target
from autosched.recordstore.queries import Lookup
from autosched.recordstore.rows import Standing, judge
from autosched_tvm.tvm_types import IRModule, Target
from autosched_tvm.worker_messages import UNTUNED


@dataclass(frozen=True)
class StoredWorkload:
    """Workload that was measured on one device model."""

    hash: str
    device: str
    """Device model."""
    target: Target
    module: IRModule
    """IRModule with one PrimFunc "main"."""
    networks: frozenset[str]
    """Networks that contain the workload."""
    latencies_s: Mapping[bytes, float | None]
    """Seconds of each candidate, None for a failure."""
    rule_s: float | None
    """Seconds of the schedule by rule; None if it was not measured."""


def stored_workloads(lookup: Lookup, unreadable: Callable[[str], object] = lambda _: None) -> Iterator[StoredWorkload]:
    """Yields the workloads of a store with measured candidates besides the schedule by rule.

    `unreadable`: called with the hash of each workload whose program this version of TVM cannot read.
    """
    import tvm

    from autosched_tvm.compile import workload_program

    latencies: defaultdict[tuple[str, Environment], dict[bytes, float | None]] = defaultdict(dict)
    networks: defaultdict[str, set[str]] = defaultdict(set)
    for _, one in lookup.everything():
        standing, latency_s = judge(one.record)
        if standing >= Standing.SEARCHED:
            latencies[one.workload.hash, one.environment][one.record.candidate] = latency_s
            networks[one.workload.hash].add(one.job.network)
    programs = lookup.programs(networks)
    for (workload, environment), own in latencies.items():
        rule_s = own.pop(UNTUNED, None)
        if not own or (program := programs.get(workload)) is None:
            continue
        try:
            target = tvm.target.Target(json.loads(join_target(environment.target, environment.threads)))
            module = workload_program.module_of(workload_program.text_of(program))
        except Exception:  # TVM's: the program is of another version of it
            unreadable(workload)
            continue
        yield StoredWorkload(workload, environment.device, target, module, frozenset(networks[workload]), own, rule_s)

"""The first stage of a job: imports the network, and collects what earlier jobs and clients know about its tasks."""

from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from autosched.backend import Lease, Network
from autosched.client.plan import known_schedules, latency_goal, rounds
from autosched.client.plan.job_plan import JobPlan
from autosched.client.shared_knowledge import SharedKnowledge
from autosched.client.stage_runner import StageRunner
from autosched.machine import peak_flops
from autosched.model import IdentityFrom, Purpose, Record, TaskIndex
from autosched.records.identity import moved

InThread: TypeAlias = Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]]
"""Runs a function in a thread on the cores of the step."""


class Past(Struct):
    """Records from before this client."""

    records: list[Record] = []
    borrowed: int = 0
    """Number of leading records that come from another job."""
    identities: Sequence[IdentityFrom] = ()
    """Identities of the job's own records."""
    device_cores: int = 0

    def on_this_device(self, plan: JobPlan, network: Network) -> list[Record]:
        """All records that hold on this device model. Comparisons of an earlier client on another model are dropped and
        made again."""
        device = network.identity.device if network.identity is not None else ""
        if device and self.identities and self.identities[-1].identity.device not in ("", device):
            plan.early.forget()
        own = self.records[self.borrowed :]
        return [*self.records[: self.borrowed], *(moved(own, self.identities, device) if device else own)]


async def import_network(
    plan: JobPlan, runner: StageRunner, past: Past, shared: SharedKnowledge, lease: Lease, in_thread: InThread
) -> Sequence[Record]:
    """Import the network into the plan; returns records of known schedules, which are new to the daemon."""
    network: Network = await in_thread(lambda: runner.take_in(lease))
    latency_goal.check(plan.spec, network, peak_flops(max(1, past.device_cores)))
    taken = {record.task for record in past.records[past.borrowed :] if record.purpose is Purpose.KNOWN}
    recalled, known, hints = await shared.recall(plan.spec, network, taken, runner.next_number)
    if runner.session.learns:
        recalled = await shared.find_teachers(plan.spec, network, recalled)
    if runner.session.ranks and (rankers := await shared.rankers(plan.spec, network, recalled)):
        await in_thread(lambda: runner.take_rankers(rankers))
    records, borrowed, teachers = [*past.on_this_device(plan, network), *known], past.borrowed, shared.teachers
    await in_thread(lambda: runner.make_tuners(network, lease, records, borrowed, teachers, hints, recalled))
    if not rounds.budget(network, plan.spec.trials, recalled):
        measured = {*hints, *(record.task for record in records), *recalled.taken}
        hints = {**hints, **await first_candidates(network, runner, measured, lease, in_thread)}
    plan.imported(
        network,
        records,
        borrowed,
        runner.comparable(),
        recalled=recalled,
        compares=runner.session.compares,
        hints=hints,
    )
    return known


async def first_candidates(
    network: Network, runner: StageRunner, measured: Collection[TaskIndex], lease: Lease, in_thread: InThread
) -> dict[TaskIndex, tuple[bytes, ...]]:
    """The candidates that rankers expect to be the fastest, for a job without trials. `measured`: tasks with known
    schedules, which need no ranker.

    A task that competes with a measured one gets its default, so that it is measured too.
    """
    unknown = [info for info in network.tasks if info.task not in measured]
    first = await in_thread(lambda: runner.first(unknown, lease)) if runner.session.ranks else {}
    others = known_schedules.unmeasured_competitors(network, {*measured, *first})
    return first | {task: (default,) for task in others if (default := runner.default(task)) is not None}

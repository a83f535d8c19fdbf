"""Listing 2 of the thesis, line by line: a loop that polls all jobs. It is slow and simple, and defines
`interleaved`."""

from dataclasses import dataclass, field

from autosched.sim.scenario import Scenario

TICK_S = 0.5


@dataclass
class PolledJob:
    """A job as in the listing: it knows its stages, and whether the current one is done."""

    number: int
    arrives_at: float
    stages: list[tuple[str, str, float]]  # stage, resource, seconds
    done_until: int = 0
    busy_until: float | None = None
    previous_resource: str | None = None
    queued: bool = False

    def is_stage_done(self, now: float) -> bool:
        return not self.queued and (self.busy_until is None or self.busy_until <= now)

    def is_complete(self) -> bool:
        return self.done_until == len(self.stages)


@dataclass
class Polling:
    """`starts`: (time, resource, job, stage), in the order of the starts on each resource."""

    capacity: dict[str, int]
    jobs: list[PolledJob]
    starts: dict[str, list[tuple[float, int, str]]] = field(default_factory=dict)

    def run(self) -> None:
        queues: dict[str, list[PolledJob]] = {r: [] for r in self.capacity}
        busy = dict.fromkeys(self.capacity, 0)
        self.starts = {r: [] for r in self.capacity}
        now = 0.0
        while self.jobs:
            # Phase 1: round-robin scheduling
            for job in list(self.jobs):
                if job.arrives_at <= now and job.is_stage_done(now):
                    if job.previous_resource is not None:
                        busy[job.previous_resource] -= 1  # mark as free
                        job.previous_resource = None
                        job.done_until += 1
                    if job.is_complete():
                        self.jobs.remove(job)
                    else:
                        queues[job.stages[job.done_until][1]].append(job)
                        job.queued = True
            # Phase 2: execution
            for resource, queue in queues.items():
                while busy[resource] < self.capacity[resource] and queue:
                    job = queue.pop(0)
                    stage, _, seconds = job.stages[job.done_until]
                    job.queued, job.busy_until, job.previous_resource = False, now + seconds, resource
                    busy[resource] += 1  # mark as busy
                    self.starts[resource].append((now, job.number, stage))
            now += TICK_S


def listing_2(scenario: Scenario) -> dict[str, list[tuple[float, int, str]]]:
    """Runs the listing on a scenario of jobs with one task each, in the order of their arrival."""
    jobs = [
        PolledJob(number, plan.arrives_at, [(w.stage, w.pools[0], w.duration_s) for r in plan.tasks[0] for w in r])
        for number, plan in enumerate(scenario.jobs, start=1)
    ]
    polling = Polling({pool.name: len(pool.units) for pool in scenario.pools}, jobs)
    polling.run()
    return polling.starts

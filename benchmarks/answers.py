"""Tests that late, repeated and reordered answers of clients are never counted twice, with the daemon's own session
code.

``python benchmarks/answers.py --answers 1000000`` prints one JSON object; ``violations`` must be empty. The scheduler,
its loop, the sessions and the progress registry are the daemon's. Dictionaries replace the disk, and mark each counted
record and step. Clients die and are replaced, or lose their connection and reconnect. Their messages are in one heap
and are delivered in random order, several at the same time, and often more than once.
"""

import argparse
import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, cast

import msgspec

from autosched.core.actions import Action, StartStep
from autosched.core.events import ClientAttached, ClientLost, Event, JobSubmitted, ResourcesDeclared, StepEnded
from autosched.core.scheduler import Scheduler
from autosched.daemon.clients.client_session import ClientSession, Parts
from autosched.daemon.devices.attribution_handler import AttributionHandler
from autosched.daemon.jobs.progress import ProgressRegistry
from autosched.daemon.runtime import Runtime, spawn
from autosched.daemon.storage.job_store import ADD_RECORD, PUT_SPAN, JobStore
from autosched.daemon.storage.journal import Journal
from autosched.errors import Refused
from autosched.model import JobId, JobLoad, JobSpec, Outcome, Pool, Record, Step, StepId, TaskLoad, Unit
from autosched.protocol import AddRecord, EndStep
from autosched.records.failure_attribution import DeviceSuspicion

JOBS, LANES, TASKS = 24, 6, 3
RECORD = msgspec.msgpack.Decoder(Record)
AT_ONCE = 32
HEAP_MIN = 200
"""Minimum number of pending answers before one is delivered: late ones outlive whole clients."""
REPEATED, REPLACED, RETURNED = 0.5, 0.01, 0.01
"""Probability that a delivered answer is put back, and of the other events at each step."""
POOLS = (Pool("host", tuple(Unit(f"host/{lane}", (lane,)) for lane in range(LANES))),)


class Marks:
    """A journal that stores only what was counted."""

    def __init__(self) -> None:
        self.path, self.stalled, self.seq = "memory", "", 0
        self.ends: Counter[StepId] = Counter()
        self.records: Counter[tuple[JobId, int]] = Counter()
        self.bodies: dict[tuple[JobId, int], bytes] = {}
        self.spans: dict[StepId, bytes] = {}

    def append(self, now: float, event: Event, started: Any, also: Any = (), **_: bool) -> asyncio.Future[None]:
        """Appends an event with its rows."""
        self.seq += 1
        if isinstance(event, StepEnded):
            self.ends[event.step] += 1
        return self.write(*also)

    def write(self, *statements: Any, lazy: bool = False) -> asyncio.Future[None]:
        """Writes rows of the tables beside the journal, which are on disk some time later."""
        for sql, values in statements:
            if sql == ADD_RECORD:
                self.records[values[0], values[3]] += 1
                self.bodies[values[0], values[3]] = values[4]
            elif sql == PUT_SPAN:
                self.spans[values[0]] = values[1]
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        loop.call_soon(done.set_result, None)
        return done

    def rows(self, sql: str, *params: Any) -> list[tuple[object, ...]]:
        """Returns no earlier rows."""
        return []

    async def read(self, sql: str, *params: Any) -> list[tuple[object, ...]]:
        """Answers the one query of sessions here: the span of a step."""
        return [(self.spans[params[0]],)] if params[0] in self.spans else []


@dataclass(eq=False)
class Client:
    """One client of a job, over successive connections."""

    job: JobId
    trials: int
    lost: bool = False
    connection: int = 0
    held: dict[StepId, Step] = field(default_factory=dict)
    """Steps whose end was not acknowledged."""
    said: list[AddRecord | EndStep] = field(default_factory=list)
    """Messages that were not acknowledged."""


@dataclass(eq=False)
class Answer:
    """A message of a client in transit."""

    session: ClientSession
    method: AddRecord | EndStep
    client: Client


class Chaos:
    """Clients, and a heap of their messages."""

    def __init__(self, seed: int, session: type[ClientSession] = ClientSession) -> None:
        self.marks, self.progress, self.rng = Marks(), ProgressRegistry(), Random(seed)
        self.runtime = Runtime(cast(Journal, self.marks), Scheduler())
        unused = cast(Any, None)
        store = JobStore(cast(Journal, self.marks))
        attribution = AttributionHandler(self.runtime, self.progress, unused, unused, DeviceSuspicion(1.0))
        self._parts = Parts(
            self.runtime, store, unused, unused, self.progress, unused, attribution, unused, unused, None
        )
        self._session = session
        self._of: dict[JobId, Client] = {}
        self._sessions: dict[JobId, ClientSession] = {}
        self._heap: list[Answer] = []
        self.answered: Counter[str] = Counter()
        self.acknowledged: dict[StepId, Outcome] = {}
        self.violations: list[str] = []

    # What the scheduler asks for --------------------------------------------------------------------------------------

    def perform(self, action: Action) -> None:
        """Runs a step at once, and puts its messages onto the heap."""
        if isinstance(action, StartStep):
            client, step = self._of[action.step.job], action.step
            client.held[step.id] = step
            for _ in range(self.rng.randint(0, 3)):
                candidate = f"{id(client)}/{client.trials}".encode()
                record = Record(task=step.task, number=client.trials, candidate=candidate, latency_s=(0.001,))
                client.trials += 1
                self._say(client, AddRecord(record=record))
            outcome = Outcome.FAILED if self.rng.random() < 0.1 else Outcome.DONE
            self._say(client, EndStep(step=step.id, outcome=outcome, load=load(step.task)))

    def changed(self, job: JobId) -> None:
        """No caller waits for news."""

    def _say(self, client: Client, method: AddRecord | EndStep) -> None:
        client.said.append(method)
        self._heap.append(Answer(self._sessions[client.job], method, client))

    # Lives of clients -------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Starts all jobs and their first clients."""
        await self._post(lambda: ResourcesDeclared(POOLS, 1e6, 1e6))
        for job in range(1, JOBS + 1):
            await self._post(partial(JobSubmitted, job, JobSpec(name="net", model="0" * 64)))
            await self._attach(job)

    async def _post(self, prepare: Callable[[], Event]) -> None:
        await self.runtime.post(prepare)

    async def _attach(self, job: JobId) -> None:
        client = self._of[job] = Client(job, self.progress.get(job).next_number)
        self._connect(client)
        await self._post(lambda: ClientAttached(job, load(*range(1, TASKS + 1))))

    def _connect(self, client: Client) -> None:
        client.connection += 1
        mine = client.connection
        self._sessions[client.job] = self._session(
            client.job, lambda: client.lost or client.connection != mine, self._parts
        )

    async def replace(self, job: JobId) -> None:
        """Replaces a dead client, whose answers are still in transit."""
        self._of[job].lost = True
        await self._post(lambda: ClientLost(job, "killed", progressed=True))
        await self._attach(job)

    async def come_back(self, job: JobId) -> None:
        """Reconnects the client, which resends its unacknowledged messages."""
        client = self._of[job]

        def returned() -> Event:
            self._connect(client)
            told = load(*(task for task in range(1, TASKS + 1)))
            self._heap += [Answer(self._sessions[job], method, client) for method in client.said]
            return ClientAttached(job, told, tuple(client.held))

        await self._post(returned)

    # Answers ----------------------------------------------------------------------------------------------------------

    async def answer_one(self) -> None:
        """Delivers a message of the heap, for the first time or again."""
        place = self.rng.randrange(len(self._heap))
        self._heap[place], self._heap[-1] = self._heap[-1], self._heap[place]
        answer = self._heap.pop()
        if self.rng.random() < REPEATED:
            self._heap.append(answer)
        try:
            await answer.session.handle(answer.method)
        except Refused:
            self.answered["refused"] += 1
            return
        self.answered["acknowledged"] += 1
        self._check(answer)

    def _check(self, answer: Answer) -> None:
        method, client = answer.method, answer.client
        if method in client.said:
            client.said.remove(method)
        if isinstance(method, EndStep):
            client.held.pop(method.step, None)
            earlier = self.acknowledged.setdefault(method.step, method.outcome)
            if self.marks.ends[method.step] != 1 or earlier is not method.outcome:
                self.violations.append(
                    f"step {method.step}: acknowledged, counted {self.marks.ends[method.step]} times"
                )
        elif not self._is_kept(client.job, method.record):
            self.violations.append(f"record {method.record.number} of job {client.job}: acknowledged, and not kept")

    def _is_kept(self, job: JobId, record: Record) -> bool:
        """Returns whether the record is stored as it was sent, with the time of its receipt."""
        body = self.marks.bodies.get((job, record.number))
        return body is not None and msgspec.structs.replace(RECORD.decode(body), measured_at=0.0) == record

    async def happen(self) -> None:
        """Plays one round: many answers at once, and now and then a client is replaced or reconnects."""
        for job in self._of:
            if self.rng.random() < REPLACED:
                await self.replace(job)
            elif self.rng.random() < RETURNED:
                await self.come_back(job)
        if len(self._heap) < HEAP_MIN:
            for job in self.rng.sample(list(self._of), 4):
                await self.come_back(job)
        await asyncio.gather(*(self.answer_one() for _ in range(min(AT_ONCE, len(self._heap) // 2))))

    def check_all(self) -> None:
        """Checks the counts of all clients."""
        self.violations += [f"step {step} was counted {n} times" for step, n in self.marks.ends.items() if n != 1]
        self.violations += [f"record {name} was stored {n} times" for name, n in self.marks.records.items() if n != 1]
        for job in self._of:
            stored, known = sum(1 for name in self.marks.records if name[0] == job), self.progress.get(job).records
            if stored != known:
                self.violations.append(f"job {job} counts {known} records and has stored {stored}")
        self.runtime.state.check_all()


def load(*tasks: int) -> JobLoad:
    """Returns a load in which these tasks request another step."""
    return JobLoad(tasks=tuple(TaskLoad(task=task, resources_next=("host",), stage_next="build") for task in tasks))


async def shuffle(answers: int, seed: int, session: type[ClientSession] = ClientSession) -> dict[str, Any]:
    """Delivers at least a number of answers; returns their counts."""
    chaos = Chaos(seed, session)
    loop = spawn(chaos.runtime.run(chaos), "the scheduler's loop")
    began_at = time.perf_counter()
    try:
        await chaos.begin()
        while chaos.answered.total() < answers and not chaos.violations:
            await chaos.happen()
    finally:
        loop.cancel()
    chaos.check_all()
    return {
        "answers": chaos.answered.total(),
        **chaos.answered,
        "steps": len(chaos.marks.ends),
        "records": len(chaos.marks.records),
        "violations": chaos.violations[:10],
        "seconds": round(time.perf_counter() - began_at, 1),
    }


def main() -> None:
    """Measures and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    told = asyncio.run(shuffle(args.answers, args.seed))
    print(json.dumps(told, indent=1))
    raise SystemExit(bool(told["violations"]))


if __name__ == "__main__":
    main()

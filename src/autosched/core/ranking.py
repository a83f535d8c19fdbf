"""The queues in the order of the policy, and what becomes of a policy that is broken."""

import heapq
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice

from autosched.core import placement
from autosched.core.actions import ReplacePolicy
from autosched.core.policies import work_estimation
from autosched.core.policies.policy import INTERLEAVED, POLICIES, Policy
from autosched.core.state import Key, Queue, State, Task
from autosched.model import JobId, PoolName, TaskIndex

RECKON_ALL = 32
"""Maximum waiting tasks whose keys are computed anew at every event."""
RECKON_S = 0.01
"""Minimum seconds between two computations of all keys."""
RECKON_EVERY = 8
"""Events between two tasks whose keys are computed anew where more wait, which keeps a decision O(log n)."""
STALE_MIN = 64
LOOKED_AT_MAX = 8
"""Maximum waiting tasks that are looked at for one idle unit of another host."""


class Ranking:
    """The order of each queue. Calls the policy and survives its errors: `broken` then says why it was replaced."""

    def __init__(self, state: State, policy: Policy, guard: AbstractContextManager[object] | None = None) -> None:
        self.policy = policy
        self.broken: ReplacePolicy | None = None
        self.asleep = False
        """Whether a journal is replayed: then the policy is not asked."""
        self.dirty: dict[PoolName, None] = {}
        """Pools in which something may be startable now."""
        self._state = state
        self._guard: AbstractContextManager[object] = guard or nullcontext()
        waiting = [task for job in state.jobs.values() for task in job.tasks.values() if task.ticket]
        self._in_turn = {task.ticket: task for task in sorted(waiting, key=lambda task: task.ticket)}
        self._events = 0
        self._reckoned_at = -math.inf

    def adopt(self, policy: Policy) -> None:
        """From now on this policy decides: all queues are ordered anew."""
        self.policy, self.broken = policy, None
        self._state.shares_units |= policy.shares_units
        self.reorder()

    def reorder(self) -> None:
        """Reckon all keys anew."""
        waiting = list(self._in_turn.values())
        for queue in (*self._state.queues.values(), *(kind.queue for kind in self._state.kinds.values())):
            queue.heap.clear()
        for task in waiting:
            self._reckon(task, self._key(task))

    def forget(self) -> None:
        """Forget all waiting tasks."""
        self._in_turn.clear()
        self.dirty.clear()

    def enter(self, task: Task) -> None:
        """The task, which knows its pools, joins their queues."""
        task.ready_at = self._state.now
        self._join(task)

    def _join(self, task: Task) -> None:
        self._state.jobs[task.job].waiting += 1
        task.movable_in = self._state.movable_name(task)
        if task.movable_in:
            self._state.kinds[task.movable_in].new_tasks[task.job, task.index] = None
        elif self._state.hosts:
            self._state.jobs[task.job].bound[task.index] = None
        for queue in self._queues(task):
            queue.waiting += 1
        self._reckon(task, self._key(task))

    def _queues(self, task: Task) -> Iterator[Queue]:
        """All queues in which the task waits."""
        for pool in task.pools:
            yield self._state.queues[pool]
        if task.movable_in:
            yield self._state.kinds[task.movable_in].queue

    def send(self, task: Task, elsewhere: tuple[PoolName, ...]) -> None:
        """From now on a waiting task also waits for these pools of other hosts. Since when it waits stays the same."""
        self.leave(task)
        task.elsewhere = elsewhere
        self._join(task)

    def leave(self, task: Task) -> None:
        """Take a task out of its queues; its entries in the heaps go stale and are dropped when they come up."""
        if task.ticket:
            del self._in_turn[task.ticket]
            task.ticket = 0
            self._state.jobs[task.job].waiting -= 1
            self._state.jobs[task.job].bound.pop(task.index, None)
            for queue in self._queues(task):
                queue.waiting -= 1
            if task.movable_in:
                self._state.kinds[task.movable_in].new_tasks.pop((task.job, task.index), None)
            self.dirty.update(dict.fromkeys(task.pools))

    def refresh(self) -> None:
        """Time has passed, and what one job's steps took says something of the others: look at those who wait, or at
        those of them who were looked at longest ago."""
        if not self.policy.drifts or self.asleep:
            return
        state, count = self._state, len(self._in_turn)
        self._events += 1
        if self._events % RECKON_EVERY if count > RECKON_ALL else state.now < self._reckoned_at + RECKON_S:
            return
        self._reckoned_at = state.now
        tasks = list(islice(self._in_turn.values(), RECKON_ALL if count <= RECKON_ALL else 1))
        for job in dict.fromkeys(task.job for task in tasks):
            work_estimation.update_remaining_work(state, state.jobs[job])
        for task in tasks:
            key = self._key(task)  # a policy that breaks here gives all new tickets
            if key != task.key:
                self._reckon(task, key)
            elif count > RECKON_ALL:  # to the end of the line
                self._in_turn[task.ticket] = self._in_turn.pop(task.ticket)

    def head(self, pool: PoolName) -> Task | None:
        """The first waiting task of the pool, if the policy lets it go now.

        A task that avoids the free units holds up no other.
        """
        state, queue = self._state, self._state.queues[pool]
        found, passed = None, []
        while queue.heap and found is None:
            _, ticket, job, index = queue.heap[0]
            task = state.jobs[job].tasks[index] if state.is_live(ticket, job, index) else None
            if task is None:
                heapq.heappop(queue.heap)
            elif task.load.avoid and not self.policy.shares_units and not state.free_for(task, pool, 1):
                passed.append(heapq.heappop(queue.heap))
            else:
                found = task
        for entry in passed:
            heapq.heappush(queue.heap, entry)
        return found if found is not None and self.admits(found) else None

    def mover(self, queue: Queue, pool: PoolName) -> Task | None:
        """The first of the tasks that may run on any host, for an idle unit of one; None where moving none pays.

        O(log n): only the first few of the queue are looked at.
        """
        state = self._state
        found: Task | None = None
        passed: list[tuple[Key, int, JobId, TaskIndex]] = []
        while queue.heap and found is None and len(passed) < LOOKED_AT_MAX:
            _, ticket, job, index = entry = heapq.heappop(queue.heap)
            if not state.is_live(ticket, job, index):
                continue
            passed.append(entry)
            task = state.jobs[job].tasks[index]
            pays = pool not in task.pools and placement.pays(state, state.jobs[job], task.load.stage_next, pool)
            if pays and state.free_for(task, pool, 1):
                found = task if self.admits(task) else None
        for entry in passed:
            heapq.heappush(queue.heap, entry)
        return found

    def _reckon(self, task: Task, key: Key) -> None:
        """Give the task a new place in its queues."""
        state = self._state
        self._in_turn.pop(task.ticket, None)
        state.last_ticket += 1
        task.ticket, task.key = state.last_ticket, key
        self._in_turn[task.ticket] = task
        for queue in self._queues(task):
            if len(queue.heap) > 2 * queue.waiting + STALE_MIN:
                queue.heap = [entry for entry in queue.heap if state.is_live(*entry[1:])]
                heapq.heapify(queue.heap)
            heapq.heappush(queue.heap, (task.key, task.ticket, task.job, task.index))
        self.dirty.update(dict.fromkeys(task.pools))

    # The policy's own code: the only code of others that runs in here ------------------------------------------------

    def _key(self, task: Task) -> Key:
        if self.asleep:
            return ()
        if self.policy.name in POLICIES:
            return self.policy.key(self._state, task)
        try:
            with self._guard:
                key = self.policy.key(self._state, task)
            if not isinstance(key, tuple) or not all(isinstance(part, int | float | str) for part in key):
                raise TypeError(f"a key is a tuple of numbers and words, not {key!r}")
            if any(isinstance(part, float) and math.isnan(part) for part in key):
                raise ValueError(f"a key that is not a number has no place in an order: {key!r}")
        except Exception as error:
            self._break(error)
            return INTERLEAVED.key(self._state, task)
        return tuple(said for part in key for said in (isinstance(part, str), part))  # words after all numbers

    def admits(self, task: Task) -> bool:
        """Whether the policy lets a task go now."""
        if self.policy.admits is None:
            return True
        if self.policy.name in POLICIES:
            return self.policy.admits(self._state, task)
        try:
            with self._guard:
                return bool(self.policy.admits(self._state, task))
        except Exception as error:
            self._break(error)
            return True

    def _break(self, error: Exception) -> None:
        """Replace the policy by `interleaved` at once, since its error would come again."""
        self.replace(f"{type(error).__name__}: {error}")

    def stuck(self) -> bool:
        """Whether another package's policy holds everything back: no event would ever ask it again."""
        state = self._state
        return (
            self.policy.name not in POLICIES
            and not state.steps
            and not state.paused
            and any(state.first_free(p) and any(state.is_live(*e[1:]) for e in q.heap) for p, q in state.queues.items())
            and all(state.jobs[job].attached and not state.jobs[job].cut_off for job in state.active)
        )

    def replace(self, reason: str) -> None:
        """The policy decides no more."""
        name = self.policy.name
        self.broken = ReplacePolicy(name, INTERLEAVED.name, f"policy {name!r} is broken: {reason}")
        self.policy = INTERLEAVED
        self.reorder()

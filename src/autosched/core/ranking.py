"""Keeps the queues in the policy's order, and replaces a policy that fails."""

import heapq
import math
from itertools import islice

from autosched.core import placement
from autosched.core.actions import ReplacePolicy
from autosched.core.lifecycles import IDLE, Attached, Key, Waiting
from autosched.core.policies import work_estimation
from autosched.core.policies.policy import INTERLEAVED, POLICIES, Policy
from autosched.core.state import Queue, State, Task
from autosched.model import JobId, PoolName, TaskIndex

RECOMPUTE_ALL = 32
"""Maximum number of waiting tasks whose keys are all computed anew."""
RECOMPUTE_S = 0.01
"""Minimum seconds between two computations of all keys."""
RECOMPUTE_EVERY = 8
"""Number of events between two tasks whose keys are computed anew, where more tasks wait. Keeps a decision O(log n)."""
STALE_MIN = 64
LOOKED_AT_MAX = 8
"""Maximum number of waiting tasks that are examined for one idle unit of another host."""


class Ranking:
    """Order of each queue. Survives errors of the policy: `broken` then says why it was replaced."""

    def __init__(self, state: State, policy: Policy) -> None:
        self.policy = policy
        self.broken: ReplacePolicy | None = None
        self.asleep = False
        """Whether a journal is replayed: the policy is not called then."""
        self.dirty: dict[PoolName, None] = {}
        """Pools in which a task may be able to start now."""
        self._state = state
        tasks = [task for job in state.jobs.values() for task in job.tasks.values()]
        waiting = [(it.ticket, task) for task in tasks if (it := task.waiting) is not None]
        self._in_turn = dict(sorted(waiting, key=lambda entry: entry[0]))
        self._events = 0
        self._computed_at = -math.inf

    def adopt(self, policy: Policy) -> None:
        """Use another policy, and order all queues anew."""
        self.policy, self.broken = policy, None
        self._state.shares_units |= policy.shares_units
        self.reorder()

    def reorder(self) -> None:
        """Compute all keys anew."""
        tasks = list(self._in_turn.values())
        for queue in (*self._state.queues.values(), *(kind.queue for kind in self._state.kinds.values())):
            queue.heap.clear()
        for task in tasks:
            self._insert(task, _waiting(task), self._key(task))

    def forget(self) -> None:
        """Forget all waiting tasks."""
        self._in_turn.clear()
        self.dirty.clear()

    def enter(self, task: Task) -> None:
        """Add a waiting task to the queues of its pools."""
        task.ready_at = self._state.now
        self._join(task, _waiting(task))

    def _join(self, task: Task, waiting: Waiting) -> None:
        self._state.jobs[task.job].waiting += 1
        waiting.movable_in = self._state.movable_name(task, waiting)
        if waiting.movable_in:
            self._state.kinds[waiting.movable_in].new_tasks[task.job, task.index] = None
        elif self._state.hosts:
            self._state.jobs[task.job].bound[task.index] = None
        for queue in self._queues(waiting):
            queue.waiting += 1
        self._insert(task, waiting, self._key(task))

    def _queues(self, waiting: Waiting) -> list[Queue]:
        """All queues of a task."""
        queues = [self._state.queues[pool] for pool in waiting.all_pools]
        if waiting.movable_in:
            queues.append(self._state.kinds[waiting.movable_in].queue)
        return queues

    def send(self, task: Task, elsewhere: tuple[PoolName, ...]) -> None:
        """Let a waiting task also wait for these pools of other hosts. Its waiting time stays."""
        waiting = _waiting(task)
        self._leave_queues(task, waiting)
        waiting.elsewhere = elsewhere
        self._join(task, waiting)

    def withdraw(self, task: Task) -> None:
        """Make a task idle that waits, if it does."""
        if self.leave(task):
            self._state.move_task(task, IDLE)

    def leave(self, task: Task) -> bool:
        """Take a task out of its queues, if it waits. Returns whether it does."""
        if (waiting := task.waiting) is not None and waiting.ticket:
            self._leave_queues(task, waiting)
        return waiting is not None

    def _leave_queues(self, task: Task, waiting: Waiting) -> None:
        """Take a task out of its queues. Its stale heap entries are dropped when they reach the top."""
        del self._in_turn[waiting.ticket]
        waiting.ticket = 0
        self._state.jobs[task.job].waiting -= 1
        self._state.jobs[task.job].bound.pop(task.index, None)
        for queue in self._queues(waiting):
            queue.waiting -= 1
        if waiting.movable_in:
            self._state.kinds[waiting.movable_in].new_tasks.pop((task.job, task.index), None)
        for pool in waiting.all_pools:
            self.dirty[pool] = None

    def refresh(self) -> None:
        """Compute the keys of waiting tasks anew, since time and new estimates change them: of all tasks, or of the one
        whose key is oldest where many wait."""
        if not self.policy.drifts or self.asleep:
            return
        state, count = self._state, len(self._in_turn)
        self._events += 1
        if self._events % RECOMPUTE_EVERY if count > RECOMPUTE_ALL else state.now < self._computed_at + RECOMPUTE_S:
            return
        self._computed_at = state.now
        tasks = list(islice(self._in_turn.values(), RECOMPUTE_ALL if count <= RECOMPUTE_ALL else 1))
        for job in dict.fromkeys(task.job for task in tasks):
            work_estimation.update_remaining_work(state, state.jobs[job])
        for task in tasks:
            key = self._key(task)  # a policy that breaks here gives all new tickets
            waiting = _waiting(task)
            if key != waiting.key:
                self._insert(task, waiting, key)
            elif count > RECOMPUTE_ALL:  # now the newest
                self._in_turn[waiting.ticket] = self._in_turn.pop(waiting.ticket)

    def head(self, pool: PoolName) -> tuple[Key, int, Task] | None:
        """Key, ticket and task of the first waiting task of the pool, if the policy lets it start now.

        A task that avoids the free units does not block others.
        """
        state, queue = self._state, self._state.queues[pool]
        found, passed = None, []
        while queue.heap and found is None:
            key, ticket, job, index = queue.heap[0]
            task = state.jobs[job].tasks[index] if state.is_live(ticket, job, index) else None
            if task is None:
                heapq.heappop(queue.heap)
            elif task.load.avoid and not self.policy.shares_units and not state.free_for(task, pool, 1):
                passed.append(heapq.heappop(queue.heap))
            else:
                found = key, ticket, task
        for entry in passed:
            heapq.heappush(queue.heap, entry)
        return found if found is not None and self.admits(found[2]) else None

    def mover(self, queue: Queue, pool: PoolName) -> Task | None:
        """The first task that may run on any host and is worth moving to an idle unit of this pool; None: none.

        O(log n): only the first few tasks of the queue are examined.
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

    def _insert(self, task: Task, waiting: Waiting, key: Key) -> None:
        """Insert the task into its queues with a new key."""
        state = self._state
        self._in_turn.pop(waiting.ticket, None)
        state.last_ticket += 1
        waiting.ticket = ticket = state.last_ticket
        waiting.key = key
        self._in_turn[ticket] = task
        for queue in self._queues(waiting):
            if len(queue.heap) > 2 * queue.waiting + STALE_MIN:
                queue.heap = [entry for entry in queue.heap if state.is_live(*entry[1:])]
                heapq.heapify(queue.heap)
            heapq.heappush(queue.heap, (key, ticket, task.job, task.index))
        for pool in waiting.all_pools:
            self.dirty[pool] = None

    # Calls of the policy, which may be foreign code ------------------------------------------------------------------

    def _key(self, task: Task) -> Key:
        if self.asleep:
            return ()
        if self.policy.name in POLICIES:
            return self.policy.key(self._state, task)
        try:
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
        """Whether the policy lets a task start now."""
        if self.policy.admits is None:
            return True
        if self.policy.name in POLICIES:
            return self.policy.admits(self._state, task)
        try:
            return bool(self.policy.admits(self._state, task))
        except Exception as error:
            self._break(error)
            return True

    def _break(self, error: Exception) -> None:
        """Replace the policy by `interleaved` at once, since its error would repeat."""
        self.replace(f"{type(error).__name__}: {error}")

    def stuck(self) -> bool:
        """Whether a policy of another package holds all tasks back: no event would call the policy again."""
        state = self._state
        return (
            self.policy.name not in POLICIES
            and not state.steps
            and not state.paused
            and any(state.first_free(p) and any(state.is_live(*e[1:]) for e in q.heap) for p, q in state.queues.items())
            and all(isinstance(state.jobs[job].client, Attached) for job in state.active)
        )

    def replace(self, reason: str) -> None:
        """Replace the policy by `interleaved`."""
        name = self.policy.name
        self.broken = ReplacePolicy(name, INTERLEAVED.name, f"policy {name!r} is broken: {reason}")
        self.policy = INTERLEAVED
        self.reorder()


def _waiting(task: Task) -> Waiting:
    """The state of a task that waits."""
    waiting = task.waiting
    assert waiting is not None, f"task {task.index} of job {task.job} does not wait"
    return waiting

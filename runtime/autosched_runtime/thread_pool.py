"""Number of threads of TVM's kernels in this process.

TVM has a thread pool for each thread that calls kernels. By default a pool has a thread for every second core, and
binds the caller to cores of its choice. A pool cannot grow.
"""

import math
import os
import threading

from autosched_runtime.control_groups import cpu_quota
from autosched_runtime.tvm_interface import call, function, number

VARIABLE, BIND_VARIABLE = "TVM_NUM_THREADS", "TVM_BIND_THREADS"
SHARE_ALL_CORES = -3
"""TVM's affinity mode in which each thread of a pool may run on all cores of the pool."""


class _Pool(threading.local):
    """The pool of the calling thread."""

    wanted = 0
    """Number of threads of the last configuration; 0 before the first."""
    size = 0
    """Number of threads that the pool was made for; 0 before the first configuration."""
    lost = False
    """Whether the pool's workers were lost with a fork."""


_pool = _Pool()


def default(tuned_for: int) -> int:
    """Number of threads for a network that was tuned for this number of cores.

    The variable TVM_NUM_THREADS has precedence; otherwise at most `usable`.
    """
    chosen = os.environ.get(VARIABLE, "")
    if chosen.isdecimal() and int(chosen) > 0:
        return int(chosen)
    return max(1, min(tuned_for, usable()))


def usable() -> int:
    """Number of cores that this process may use at once, by its affinity and the quota of its control group."""
    return max(1, math.ceil(min(len(os.sched_getaffinity(0)), cpu_quota())))


def use(count: int) -> None:
    """Use `count` threads for kernels that the calling thread starts from now on. Cheap if nothing changes."""
    if count == _pool.wanted:
        return
    os.environ.setdefault(BIND_VARIABLE, "0")  # otherwise TVM moves this thread to cores that it must not use
    # TVM takes the number of threads from the length of the list; the named cores only matter for binding.
    call(function("runtime.config_threadpool"), SHARE_ALL_CORES, count, call(function("ffi.Array"), *_cores(count)))
    _pool.wanted = count
    _pool.size = _pool.size or count


def capacity() -> float:
    """Maximum number of threads of the calling thread's kernels: infinite before its pool is made, 0 for a pool whose
    workers a fork left behind."""
    return 0 if _pool.lost else _pool.size or math.inf


def lose() -> None:
    """Note that this process was forked by the calling thread. A pool of one thread has no workers."""
    _pool.lost = _pool.lost or _pool.size > 1


def in_use() -> int:
    """Number of threads of the calling thread's kernels. Creates its pool if necessary."""
    return number(function("runtime.NumThreads"))


def _cores(count: int) -> list[str]:
    usable = sorted(os.sched_getaffinity(0))
    return [str(usable[number % len(usable)]) for number in range(count)]

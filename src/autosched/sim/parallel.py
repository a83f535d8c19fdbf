"""Runs simulations in parallel, one process per core; results come in the order of the work."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

W = TypeVar("W")
R = TypeVar("R")


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def each(work: Callable[[W], R], items: Iterable[W], processes: int) -> Iterator[R]:
    """`work` of every item, in order. An exception ends all; so does leaving the iterator.

    `work` must be importable from a module that is not the main program.
    """
    if processes <= 1:
        yield from map(work, items)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, _leave_interrupts_to_parent) as pool:
        yield from pool.map(work, items)


def _leave_interrupts_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)

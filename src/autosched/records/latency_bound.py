"""A bound below which no measured latency can be, whatever a client reports."""

from collections.abc import Iterable

LEAST_S = 1e-9
"""Seconds that any call of a kernel takes, less the call itself: five cycles. Kernels of a few numbers take 8 ns."""
OPERATIONS_OF_CORE_HZ = 6e9 * 2_048 * 4
"""Upper bound of the operations of one core per second: 6 GHz, matrix units with 2,048 operations per cycle (AMX with
8-bit integers), and algorithms that need a quarter of the operations (Winograd's minimal filtering)."""


def impossible(latencies_s: Iterable[float], flops: float, cores: int) -> str:
    """Why a kernel with this number of operations cannot have had one of these latencies; empty if it can.

    `cores`: number of cores that ran it; 0: unknown, or no CPU.
    """
    least_s = min(latencies_s, default=1.0)
    bound_s = max(LEAST_S, flops / (cores * OPERATIONS_OF_CORE_HZ) if cores else 0.0)
    if least_s > bound_s:
        return ""
    what = f"{flops:.3g} operations on {cores} cores" if bound_s > LEAST_S else "a call"
    return f"a latency of {least_s:.3g} s is impossible: {what} takes more than {bound_s:.3g} s"

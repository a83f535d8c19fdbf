"""Classifies errors of workers as failures of candidates."""

import re

from autosched.errors import StepFailed
from autosched.model import Failure
from autosched.process.forked_workers import Died, Killed, Raised, TimedOut, WorkerError

DETAIL_MAX = 1_000
_OPERATOR = re.compile(r"ir\.Op\(.*?name=\"(?:relax\.)?([\w.]+)\".*?support_level=\d+\)")
_WHOLE_NUMBER = re.compile(r"T\.int64\((-?\d+)\)")


def of_build(error: WorkerError, timeout_s: float) -> tuple[Failure, str]:
    """Why a candidate has no kernel. Raises Killed, and StepFailed if the machine is at fault."""
    match error:
        case Killed():
            raise error
        case TimedOut():
            return Failure.BUILD_TIMEOUT, f"not compiled within {timeout_s:g} s of processor time"
        case Died():
            return Failure.BUILD_CRASH, f"the compiler crashed: {error}"[:DETAIL_MAX]
        case Raised():
            if _disk_full(error):
                raise StepFailed(f"nothing can be built: {gist(error)}. Free some space, then submit the job again")
            return Failure.BUILD_ERROR, gist(error)
    return Failure.BUILD_ERROR, gist(error)


def of_run(error: WorkerError, timeout_s: float) -> tuple[Failure, str]:
    """Why a kernel has no latency. Raises Killed."""
    match error:
        case Killed():
            raise error
        case TimedOut():
            return Failure.RUN_TIMEOUT, f"not measured within {timeout_s:g} s"
        case Died():
            return Failure.RUN_CRASH, f"the kernel crashed: {error}"[:DETAIL_MAX]
        case Raised() if is_wrong_result(error):
            return Failure.WRONG_RESULT, gist(error)
        case Raised(kind="KernelFault"):  # a GPU goes on, where a CPU would have ended the process
            return Failure.RUN_CRASH, gist(error)
    return Failure.RUN_ERROR, gist(error)


def is_wrong_result(error: WorkerError) -> bool:
    """Whether the result of a kernel differs from that of the reference."""
    return isinstance(error, Raised) and error.kind == "WrongResult"


def _disk_full(error: Raised) -> bool:
    return "No space left on device" in str(error)


def gist(error: Exception) -> str:
    """The most informative line of an error, with TVM's operators and whole numbers as people write them."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    said = _WHOLE_NUMBER.sub(r"\1", _OPERATOR.sub(r"\1", lines[-1])) if lines else type(error).__name__
    return said[:DETAIL_MAX]

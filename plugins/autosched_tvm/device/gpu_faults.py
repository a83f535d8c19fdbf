"""Puts each error of CUDA down to the candidate, to the device or to lack of memory. Loads without TVM.

After most errors no call of the process will do any more, and TVM aborts it when it frees a tensor. A worker therefore
ends after each of these exceptions (`ends_process`). Source: CUDA 13 Driver API, CUresult.
"""

import re
import signal

from autosched.errors import DeviceLost
from autosched.process.forked_workers import Died, Raised, TimedOut, WorkerError

NAME = re.compile(r"\bcudaError\w+|\bCUDA_ERROR_\w+")
CANDIDATE = frozenset({
    "assert", "hardwarestackerror", "illegaladdress", "illegalinstruction", "invalidaddressspace",
    "invalidconfiguration", "invalidpc", "invalidvalue", "launchfailed", "launchfailure", "launchoutofresources",
    "launchtimeout", "misalignedaddress",
})  # fmt: skip
"""Errors by their names in small letters, without "cudaError" and underlines."""
MEMORY = frozenset({"memoryallocation", "outofmemory"})
UNFIT = frozenset({"invalidimage", "invalidkernelimage", "invalidptx", "nobinaryforgpu", "nokernelimagefordevice"})


class KernelFault(Exception):
    """A kernel has done what a GPU reports as an error: it is wrong, or asks for more than there is."""

    ends_process = True


class GpuMemoryFull(Exception):
    """The memory of the GPU does not suffice."""

    ends_process = True


class GpuLost(DeviceLost):
    """The GPU has failed, whatever ran on it."""

    ends_process = True


def of_network(error: WorkerError) -> WorkerError | DeviceLost:
    """Returns DeviceLost where a whole network met an error of CUDA, hung, or was killed: its kernels ran alone before.
    The error itself otherwise; for lack of memory as well, which another attempt would meet again."""
    if isinstance(error, TimedOut) or (isinstance(error, Died) and error.signal_number == signal.SIGKILL):
        return GpuLost(f"the network did not end on the GPU: {error}")
    told = in_words(error)
    if (isinstance(error, Raised) and error.kind == GpuMemoryFull.__name__) or isinstance(told, GpuMemoryFull):
        return error
    if (isinstance(error, Raised) and error.kind == KernelFault.__name__) or told is not error:
        return GpuLost(f"the network failed on the GPU: {error}")
    return error


def in_words(error: Exception) -> Exception:
    """Returns the exception for an error that CUDA has reported; the error itself if CUDA has not."""
    text = str(error)
    if (found := NAME.search(text)) is None:
        return error
    name = re.sub(r"^cudaerror|_", "", found[0].lower().removeprefix("cuda_error_"))
    line = next(line.strip() for line in text.splitlines() if found[0] in line)
    said = line[:300] if line.startswith(found[0]) else f"{found[0]}: {line[:300]}"
    if name in CANDIDATE:
        return KernelFault(said)
    if name in MEMORY:
        return GpuMemoryFull(f"the GPU has too little memory: {said}")
    if name in UNFIT:
        return KernelFault(f"the code is for another GPU: {said}")
    return GpuLost(f"the GPU has failed: {said}")

"""Errors, named by who acts on them.

AutoschedError
├── ConfigError        the operator edits the file; names file, line and key
│   └── DiskFull       the daemon's disk is full; it starts when there is space
├── WireError          the peer broke the protocol; that connection closes, nothing else happens
├── RequestError       the user asked for the impossible; the session lives
│   ├── NotFound       no such job, device, backend, blob or module
│   ├── Refused        allowed in principle, not now or not for you
│   │   ├── StorageFull   the daemon's disk takes nothing more; what was acknowledged is safe
│   │   └── Busy          too much at once; says when to try again
│   ├── ModelRejected  the model cannot be tuned as it is; says the operator, the node and the fix
│   └── TargetUnfit    the device cannot run code for the job's target; says which target it can run
├── DaemonUnreachable  no daemon answers at the address; says how to start a daemon
├── Damaged            what is on disk is not what was written; says what is lost and the ways out
├── StoreUnavailable   the record store does not answer; jobs go on, nothing measured is lost
├── JobFailed          the job ended without a result; says why
├── JobCancelled       a user stopped the job
└── StepFailed         raised inside a client by a backend: this step is over, the job goes on
    ├── DeviceLost     the device was lost in the middle of the step: what was not measured is measured again
    └── Hindered       the machine could not run the step now, for example a full disk: it is repeated, none is to blame

Every message says what happened, why, and what to do next. `exit_code` is what the command line returns.
"""

import re
from collections.abc import Mapping
from typing import ClassVar


class AutoschedError(Exception):
    """An error with an explanation for the user."""

    exit_code: ClassVar[int] = 1
    code: ClassVar[str] = "error"  # sent over the wire
    retry_after_s: float | None = None
    """Seconds until the caller should retry, if the daemon said so."""


class ConfigError(AutoschedError):
    """The configuration cannot be used."""

    exit_code = 2
    code = "config"


class DiskFull(ConfigError):
    """The daemon cannot start, since its disk is full. A later start may succeed."""

    exit_code = 75  # EX_TEMPFAIL: a service manager tries again


class WireError(AutoschedError):
    """The peer broke the protocol."""

    code = "wire"


class RequestError(AutoschedError):
    """The request cannot be carried out."""

    exit_code = 2
    code = "request"


class NotFound(RequestError):
    """The named object does not exist."""

    exit_code = 4
    code = "not_found"


class Refused(RequestError):
    """The daemon refuses the request for now."""

    exit_code = 5
    code = "refused"


class Busy(Refused):
    """The daemon is overloaded; nothing was done."""

    code = "busy"

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StorageFull(Refused):
    """The daemon's disk is full."""

    code = "storage_full"


class ModelRejected(RequestError):
    """The model cannot be tuned as it is."""

    exit_code = 1
    code = "model_rejected"


class TargetUnfit(RequestError):
    """The device cannot run code for the job's target, whatever the candidate. The job ends."""


class DaemonUnreachable(AutoschedError):
    """No daemon answers."""

    exit_code = 3
    code = "unreachable"


class Damaged(AutoschedError):
    """The content on disk differs from what was written."""

    exit_code = 8
    code = "damaged"


class StoreUnavailable(AutoschedError):
    """The record store cannot be used now. Jobs go on without it, and it catches up later."""

    code = "store_unavailable"


class JobFailed(AutoschedError):
    """The job ended without a result."""

    exit_code = 6
    code = "job_failed"


class JobCancelled(AutoschedError):
    """The job was cancelled."""

    exit_code = 7
    code = "job_cancelled"


class StepFailed(AutoschedError):
    """This step cannot succeed; the reason is reported to its task, and the job goes on."""

    code = "step_failed"


class Hindered(StepFailed):
    """The machine could not run this step now, for a reason of its own, such as a full disk. The step is repeated."""

    code = "hindered"


class DeviceLost(StepFailed):
    """The device was lost during a step. The candidate that ran is not at fault and is measured again."""

    def __init__(self, message: str, candidate: bytes | None = None) -> None:
        """`candidate`: the candidate that ran when the device was lost; None if none did."""
        super().__init__(message)
        self.candidate = candidate


def from_wire(code: str, message: str) -> AutoschedError:
    """The exception for an error code received over the wire; unknown codes become RequestError."""
    kinds: dict[str, type[AutoschedError]] = {
        kind.code: kind
        for kind in (
            ConfigError,
            WireError,
            RequestError,
            NotFound,
            Refused,
            Busy,
            StorageFull,
            ModelRejected,
            DaemonUnreachable,
            Damaged,
            StoreUnavailable,
            JobFailed,
            JobCancelled,
            StepFailed,
        )
    }
    return kinds.get(code, RequestError)(message)


_KINDS = {
    "str": "text", "int": "a whole number", "float": "a number", "bool": "true or false", "array": "a list",
    "object": "a map", "bytes": "bytes", "null": "nothing", "ext": "an extension type",
}  # fmt: skip
"""Names of types for people."""


def misfit(error: Exception) -> str:
    """Explain an error of msgspec, place first: "limit: expected a whole number >= 1" for "Expected `int` >= 1 - at
    `$.limit`"."""
    what, _, place = str(error).partition(" - at `$")
    what = in_words(what, _KINDS)
    place = place.strip(".`")
    return f"{place}: {what[:1].lower()}{what[1:]}" if place else what


def in_words(what: str, kinds: Mapping[str, str]) -> str:
    """Replace the types in msgspec's message by words: `int | null` is "a whole number or nothing". Unknown types
    stay."""
    kind = rf"(?:{'|'.join(kinds)})"
    return re.sub(
        rf"`({kind}(?: \| {kind})*)`", lambda found: " or ".join(kinds[one] for one in found[1].split(" | ")), what
    )

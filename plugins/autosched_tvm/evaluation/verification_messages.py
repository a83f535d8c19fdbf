"""Request for a judgement of builds of a network, and the verdict. Loads without NumPy."""

from msgspec import Struct

from autosched.backend import Difference
from autosched_tvm.worker_messages import Remote


class Check(Struct, frozen=True):
    """How far outputs are from those of the reference."""

    equal: bool
    max_abs_error: float
    tolerance: float
    difference: Difference | None = None
    """The element that is furthest out of its tolerance; None where all are equal, and where there are no outputs."""
    crash: str = ""
    """How the build ended its process; empty for one with outputs."""

    @property
    def severity(self) -> tuple[bool, float]:
        """A key by which the worst of several checks is found."""
        return not self.equal, self.max_abs_error / self.tolerance if self.tolerance else self.max_abs_error


class Request(Struct, frozen=True):
    """Request for a judgement of builds."""

    models: tuple[str, ...]
    """The user's model as ONNX files, of which ONNX Runtime takes the first that it can run."""
    threads: int
    samples: str = ""
    """A .npz file with the user's samples; empty: samples are made up."""
    share: float | None = None
    """Tolerance as a share of each output's largest value; None: as measured."""
    remote: Remote | None = None
    """The board on which the builds run; None: this machine."""
    apart: bool = False
    """Run tuned builds in processes of their own, since one has crashed."""


class VerificationResult(Struct, frozen=True):
    """Which builds are right."""

    checks: dict[str, Check]
    reference: str
    """Reference of the comparison: "ONNX Runtime 1.x", or the untuned build."""
    notes: tuple[str, ...] = ()
    samples: int = 0

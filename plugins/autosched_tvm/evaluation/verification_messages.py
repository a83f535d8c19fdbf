"""Request for a judgement of builds of a network, and the verdict. Loads without NumPy."""

from msgspec import Struct

from autosched.backend import Difference
from autosched_tvm.worker_messages import Elsewhere


class Check(Struct, frozen=True):
    """Distance of outputs from those of the reference."""

    equal: bool
    max_abs_error: float
    tolerance: float
    difference: Difference | None = None
    """Element that exceeds its tolerance most; None where all are equal, and where there are no outputs."""
    crash: str = ""
    """How the build ended its process; empty for a build with outputs."""

    @property
    def severity(self) -> tuple[bool, float]:
        """Sort key that finds the worst of several checks."""
        return not self.equal, self.max_abs_error / self.tolerance if self.tolerance else self.max_abs_error


class Request(Struct, frozen=True):
    """Request for a judgement of builds."""

    models: tuple[str, ...]
    """Paths of the user's model as ONNX files. ONNX Runtime uses the first that it can run."""
    threads: int
    samples: str = ""
    """Path of a .npz file with the user's samples; empty: generate samples."""
    share: float | None = None
    """Tolerance as a share of each output's largest value; None: as measured."""
    remote: Elsewhere | None = None
    """GPU or board on which the builds run; None: the cores of this machine."""
    keeps_samples: bool = False
    """Whether samples are written beside a module that is judged alone."""
    apart: bool = False
    """Whether tuned builds run in separate processes, since one has crashed."""


class VerificationResult(Struct, frozen=True):
    """Builds that are correct."""

    checks: dict[str, Check]
    """Check of each build by its name; empty if there is no reference."""
    reference: str
    """Reference of the comparison: "ONNX Runtime 1.x", or the untuned build."""
    verified: bool = True
    """Whether the reference is another engine than TVM. The untuned build may have the same fault."""
    notes: tuple[str, ...] = ()
    samples: int = 0

"""Messages between a job's process and its workers. Loads without TVM."""

from msgspec import Struct

from autosched.backend import Skipped
from autosched.model import TaskInfo

UNTUNED = b""
"""The candidate that no search has found: the workload under the schedule of the rules."""


class Extracted(Struct, frozen=True):
    """The tasks of a network."""

    tasks: tuple[TaskInfo, ...]
    skipped: tuple[Skipped, ...]
    uses: int
    """Calls of tasks in one inference."""
    share: float
    """Share of the network's arithmetic that the tasks do."""
    notes: tuple[str, ...] = ()
    """Notes for the user about the import of the model."""


class Choice(Struct, frozen=True):
    """Schedules of one task that were measured, the best first."""

    task: int
    workload: str
    """File with the task's workload."""
    candidates: tuple[bytes, ...]
    """None where the workload as it is was the fastest."""
    best_s: float = 0.0
    """The best latency of all, without a schedule too; 0: not known."""


class Compilation(Struct, frozen=True):
    """Input of a compilation, apart from the schedules."""

    model: str
    """File of the prepared model."""
    target: str
    folder: str
    """Where the builds lie."""
    name: str
    layout: str
    winograd: bool = False


class Compiled(Struct, frozen=True):
    """Result of a compilation."""

    tasks: int
    """Tasks whose best schedule is in it."""
    notes: tuple[str, ...] = ()


class Plan(Struct, frozen=True):
    """How to measure a candidate."""

    repeat: int = 3
    """Samples."""
    min_repeat_s: float = 0.020
    """A sample runs at least this long."""
    best_s: float | None = None
    """The best latency known for the task."""


AS_IT_IS, FIXED, SIMPLIFIED = "as it is", "with fixed shapes", "simplified"


class Form(Struct, frozen=True):
    """A model as ONNX Runtime may be given it."""

    name: str
    path: str
    engine: str = "onnxruntime"
    """Engine that runs it: one of `autosched.backend.RIVALS`."""


# The functions that workers run, by name: the job's process need not load them.
TAKE_IN = "autosched.tvm.network:take_in"
BUILD = "autosched.tvm.building:build"
BUILD_BY_RULE = "autosched.tvm.building:build_by_rule"
READY = "autosched.tvm.profiling:ready"
PROFILE = "autosched.tvm.profiling:profile"
COMPARE = "autosched.tvm.profiling:compare"
COMPILE = "autosched.tvm.compiler:compile_network"
COMPILE_AGAIN = "autosched.tvm.compiler:compile_again"
FORMS = "autosched.tvm.frontend.forms:write"
FORMS_LIKE = "autosched.tvm.frontend.forms:write_like"
LOAD_MODULE = "autosched.tvm.engines:load_module"
LOAD_LITERT = "autosched.tvm.engines:load_litert"
LOAD_PYTORCH = "autosched.tvm.engines:load_pytorch"
LOAD_ONNXRUNTIME = "autosched.tvm.engines:load_onnxruntime"
BIND = "autosched.tvm.engines:bind"
RUN = "autosched.tvm.engines:run"
SAMPLE = "autosched.tvm.engines:sample"
OPERATORS = "autosched.tvm.engines:operators"
VERIFY = "autosched.tvm.verification:verify"
FIND_WRONG = "autosched.tvm.culprit:find"
VERIFY_MODULE = "autosched.tvm.verification:verify_module"
FIRST_SAMPLE = "autosched.tvm.verification:first_sample"
READ_SAMPLES = "autosched.tvm.verification:check_samples"

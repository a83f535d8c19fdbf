"""Messages between a job's process and its workers. Loads without TVM."""

from msgspec import Struct

from autosched.backend import Board, Skipped
from autosched.model import TaskInfo

UNTUNED = b""
"""The candidate without a search: the workload with the schedule of the rules."""

TEMPLATE = "trace 1"
"""Format of candidates (`TaskInfo.template`): a trace for the task's workload, of any search method.

The number grows when earlier traces cannot be replayed any more.
"""
MEASUREMENT = "tvm 1"
"""Method by which kernels are timed (`Identity.measurement`). The number grows with each change that alters
latencies."""


class Ways(Struct, frozen=True):
    """Ways to compute a network."""

    layout: str = "keep"
    """Memory layout of convolutions."""
    winograd: bool = False
    """Whether convolutions are also tuned with Winograd's algorithm."""
    integers: bool = False
    """Whether products of 8-bit numbers stay integer, if the target has an instruction for them."""


class Extracted(Struct, frozen=True):
    """The tasks of a network."""

    tasks: tuple[TaskInfo, ...]
    skipped: tuple[Skipped, ...]
    uses: int
    """Number of calls of tasks in one inference."""
    share: float
    """Share of the network's arithmetic in the tasks."""
    notes: tuple[str, ...] = ()
    """Notes for the user about the import of the model."""
    tasks_only: bool = False
    """Whether there is no network that calls them."""


class TaskSchedules(Struct, frozen=True):
    """Measured schedules of one task, the best first."""

    task: int
    workload: str
    """File of the task's workload."""
    candidates: tuple[bytes, ...]
    """Empty if the workload without a schedule was the fastest."""
    best_s: float = 0.0
    """The best latency of all, including without a schedule, in seconds; 0 if unknown."""


class Compilation(Struct, frozen=True):
    """Input of a compilation, apart from the schedules."""

    model: str
    """File of the prepared model."""
    target: str
    folder: str
    """Folder of the builds."""
    name: str
    layout: str
    winograd: bool = False
    compares_kernels: bool = True
    """Whether kernels that compute with integers are compared with their unscheduled forms."""
    without_rule: tuple[str, ...] = ()
    """Workload hashes of kernels whose schedule by rule is wrong. Without a measured schedule they have none."""
    untuned: bool = True
    """Whether there is an untuned build from the beginning; otherwise it is made if the judgement needs it."""


class Compiled(Struct, frozen=True):
    """Result of a compilation."""

    tasks: int
    """Number of tasks whose best schedule is in it."""
    notes: tuple[str, ...] = ()
    substitutes: int = 0
    """Number of tasks whose best schedule does not apply: it has the next one that does, or none."""
    builds: tuple[str, ...] = ()
    """Names of the builds' files, without suffix."""


class MeasurementPlan(Struct, frozen=True):
    """How to measure a candidate."""

    repeat: int = 3
    """Number of samples."""
    min_repeat_s: float = 0.020
    """Minimum seconds of a sample."""
    best_s: float | None = None
    """The best known latency of the task in seconds."""


class Remote(Struct, frozen=True):
    """A board on which a worker's work runs."""

    board: Board
    threads: int
    """Number of threads of kernels on the board."""
    lasts_s: float
    """Maximum seconds of the work."""
    triple: str = ""
    """LLVM's name of the board's processor; empty: that of this machine."""


class OwnGpu(Struct, frozen=True):
    """A GPU of the worker's machine, on which its work runs. The worker uses no other one."""

    uuid: str


Elsewhere = Remote | OwnGpu
"""Where work runs that does not run on the worker's cores."""


AS_IT_IS, FIXED, SIMPLIFIED = "as it is", "with fixed shapes", "simplified"


class Form(Struct, frozen=True):
    """A form of the model for ONNX Runtime."""

    name: str
    path: str
    engine: str = "onnxruntime"
    """Engine that runs it: one of `autosched.backend.RIVALS`."""


PRELOAD = "autosched_tvm.worker_preload"
"""Module that each worker imports when it starts."""

# The functions that workers run, by name: the job's process need not load them.
TAKE_IN = "autosched_tvm.compile.network_import:take_in"
BUILD = "autosched_tvm.compile.candidate_build:build"
BUILD_BY_RULE = "autosched_tvm.compile.candidate_build:build_by_rule"
READY = "autosched_tvm.device.kernel_profiling:ready"
PROFILE = "autosched_tvm.device.kernel_profiling:profile"
COMPARE = "autosched_tvm.device.kernel_profiling:compare"
BOARD_SENTINEL = "autosched_tvm.device.board_sentinel:run"
BOARD_FEATURES = "autosched_tvm.device.board_features:asked"
COMPILE = "autosched_tvm.compile.network_compiler:compile_network"
COMPILE_AGAIN = "autosched_tvm.compile.network_compiler:compile_again"
COMPILE_UNTUNED = "autosched_tvm.compile.network_compiler:compile_untuned"
FORMS = "autosched_tvm.evaluation.model_forms:write"
FORMS_LIKE = "autosched_tvm.evaluation.model_forms:write_like"
LOAD_MODULE = "autosched_tvm.evaluation.engines:load_module"
LOAD_LITERT = "autosched_tvm.evaluation.engines:load_litert"
LOAD_PYTORCH = "autosched_tvm.evaluation.engines:load_pytorch"
LOAD_ONNXRUNTIME = "autosched_tvm.evaluation.engines:load_onnxruntime"
CHOOSE = "autosched_tvm.evaluation.engines:choose"
FORGET = "autosched_tvm.evaluation.engines:forget"
LOAD_ONNXRUNTIME_THERE = "autosched_tvm.evaluation.engines:load_onnxruntime_there"
BIND = "autosched_tvm.evaluation.engines:bind"
RUN = "autosched_tvm.evaluation.engines:run"
SAMPLE = "autosched_tvm.evaluation.engines:sample"
OPERATORS = "autosched_tvm.evaluation.engines:operators"
CHECK_OPERATORS = "autosched_tvm.evaluation.operator_check:check"
VERIFY = "autosched_tvm.evaluation.verification:verify"
FIND_WRONG = "autosched_tvm.evaluation.schedule_bisection:find"
VERIFY_MODULE = "autosched_tvm.evaluation.verification:verify_module"
FIRST_SAMPLE = "autosched_tvm.evaluation.verification:first_sample"
READ_SAMPLES = "autosched_tvm.evaluation.verification:check_samples"

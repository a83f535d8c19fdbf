"""Options of sessions with the names that onnxruntime has.

Those that mean nothing here are accepted; those whose effect would be missed are told once, by name.
"""

from enum import IntEnum
from functools import cache
from typing import Any


class GraphOptimizationLevel(IntEnum):
    """Levels of ONNX Runtime's optimisation. A compiled network is optimised already."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Orders of operators. A compiled network runs them one after the other."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(IntEnum):
    """Orders of operators by their place in the graph, or by priority."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


_DEFAULTS: dict[str, Any] = {
    "intra_op_num_threads": 0, "inter_op_num_threads": 0, "execution_mode": ExecutionMode.ORT_SEQUENTIAL,
    "execution_order": ExecutionOrder.DEFAULT, "graph_optimization_level": GraphOptimizationLevel.ORT_ENABLE_ALL,
    "enable_cpu_mem_arena": True, "enable_mem_pattern": True, "enable_mem_reuse": True, "log_severity_level": -1,
    "log_verbosity_level": 0, "logid": "", "use_deterministic_compute": False, "use_per_session_threads": True,
    "enable_profiling": False, "optimized_model_filepath": "", "profile_file_prefix": "onnxruntime_profile_",
}  # fmt: skip
_LOST = ("enable_profiling", "optimized_model_filepath")
"""Options whose effect is missed."""


@cache
def lost(what: str) -> None:
    """Say once that something has no effect."""
    import logging  # takes milliseconds, which programs count that start often

    logging.getLogger("autosched_runtime").warning("%s has no effect on a compiled network", what)


class SessionOptions:
    """Options of a session. `intra_op_num_threads` is the number of threads of an inference; 0: the cores that the
    network was tuned for."""

    intra_op_num_threads: int

    def __init__(self) -> None:
        self._entries: dict[str, str] = {}
        for name, value in _DEFAULTS.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name not in _DEFAULTS:
            raise AttributeError(f"sessions have no option {name!r}; they have {', '.join(sorted(_DEFAULTS))}")
        if name == "intra_op_num_threads" and (not isinstance(value, int) or value < 0):
            raise ValueError(f"intra_op_num_threads is {value!r}: a number of threads is needed, or 0 for the default")
        if name in _LOST and value:
            lost(f"SessionOptions.{name}")
        object.__setattr__(self, name, value)

    def changed(self) -> dict[str, Any]:
        """The options that differ from the defaults."""
        return {name: getattr(self, name) for name, value in _DEFAULTS.items() if getattr(self, name) != value}

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keep an entry, which has no effect."""
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """An entry. Raises KeyError."""
        return self._entries[key]

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Without effect: shapes are compiled in."""

    add_free_dimension_override_by_denotation = add_free_dimension_override_by_name

    def add_initializer(self, name: str, value: Any) -> None:
        """Without effect: weights are compiled in."""
        lost(f"SessionOptions.add_initializer({name!r})")

    def register_custom_ops_library(self, path: str) -> None:
        """Without effect: operators are compiled in."""
        lost(f"SessionOptions.register_custom_ops_library({path!r})")


class RunOptions:
    """Options of an inference. None has an effect."""

    log_severity_level = 2
    log_verbosity_level = 0
    logid = ""
    only_execute_path_to_fetches = False
    terminate = False

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Without effect."""


def set_default_logger_severity(severity: int) -> None:
    """Without effect: `logging` has the logger autosched_runtime."""


set_default_logger_verbosity = set_seed = set_default_logger_severity


def disable_telemetry_events() -> None:
    """There are none."""


enable_telemetry_events = disable_telemetry_events

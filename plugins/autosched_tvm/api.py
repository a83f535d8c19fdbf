"""The names that other packages may import from autosched_tvm, each loaded on first use.

A backend on TVM derives from `TvmBackend`, adds fields to `options.Options`, and implements `SearchMethod`. The other
names are tools for its search. Importing this module loads neither TVM nor NumPy, so that a daemon or the command line
can read a backend's name and options. docs/plugins.md explains how to write a backend; most need none of this.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autosched_tvm.commands.model_check import quiet, read_shapes
    from autosched_tvm.commands.stored_workloads import StoredWorkload, stored_workloads
    from autosched_tvm.compile import candidate_build, intrinsics, kernel_sketches, network_import, targets, toolchain
    from autosched_tvm.compile.frontend import zoo_models
    from autosched_tvm.compile.layouts.layout_option import LayoutOption
    from autosched_tvm.compile.task_extraction import hash_of
    from autosched_tvm.compile.winograd import algebra as winograd_algebra
    from autosched_tvm.compile.winograd import kernel as winograd_kernel
    from autosched_tvm.compile.winograd import workload as winograd_workload
    from autosched_tvm.device.loaded_module import LoadedModule
    from autosched_tvm.ranking.measured_task import Family, MeasuredTask, aligned_features, shape_distance
    from autosched_tvm.ranking.ranker import Prediction, Ranker, decode_ranker
    from autosched_tvm.record_formats import metaschedule, tuning_logs
    from autosched_tvm.source_fingerprint import fingerprint_of
    from autosched_tvm.tuning import options, schedule_traces
    from autosched_tvm.tuning.early_stopping import EarlyStopping
    from autosched_tvm.tuning.search_method import Search, SearchContext, SearchMethod, Unsupported
    from autosched_tvm.tuning.sketch_space import Grown, SketchSpace
    from autosched_tvm.tuning.tvm_backend import TvmBackend, method_of
    from autosched_tvm.worker_messages import Ways

__all__ = [
    "EarlyStopping", "Family", "Grown", "LayoutOption", "LoadedModule", "MeasuredTask", "Prediction", "Ranker",
    "Search", "SearchContext", "SearchMethod", "SketchSpace", "StoredWorkload", "TvmBackend", "Unsupported", "Ways",
    "aligned_features", "candidate_build", "decode_ranker", "fingerprint_of", "hash_of", "intrinsics",
    "kernel_sketches", "metaschedule", "method_of", "network_import", "options", "quiet", "read_shapes",
    "schedule_traces", "shape_distance", "stored_workloads", "targets", "toolchain", "tuning_logs", "winograd_algebra",
    "winograd_kernel", "winograd_workload", "zoo_models",
]  # fmt: skip

_HOMES = {
    "commands.model_check": ("quiet", "read_shapes"),
    "commands.stored_workloads": ("StoredWorkload", "stored_workloads"),
    "compile.layouts.layout_option": ("LayoutOption",),
    "compile.task_extraction": ("hash_of",),
    "device.loaded_module": ("LoadedModule",),
    "ranking.measured_task": ("Family", "MeasuredTask", "aligned_features", "shape_distance"),
    "ranking.ranker": ("Prediction", "Ranker", "decode_ranker"),
    "source_fingerprint": ("fingerprint_of",),
    "tuning.early_stopping": ("EarlyStopping",),
    "tuning.search_method": ("Search", "SearchContext", "SearchMethod", "Unsupported"),
    "tuning.sketch_space": ("Grown", "SketchSpace"),
    "tuning.tvm_backend": ("TvmBackend", "method_of"),
    "worker_messages": ("Ways",),
}
"""Module -> the names that it defines."""
_MODULES = {
    "candidate_build": "compile.candidate_build",
    "intrinsics": "compile.intrinsics",
    "kernel_sketches": "compile.kernel_sketches",
    "metaschedule": "record_formats.metaschedule",
    "network_import": "compile.network_import",
    "options": "tuning.options",
    "schedule_traces": "tuning.schedule_traces",
    "targets": "compile.targets",
    "toolchain": "compile.toolchain",
    "tuning_logs": "record_formats.tuning_logs",
    "winograd_algebra": "compile.winograd.algebra",
    "winograd_kernel": "compile.winograd.kernel",
    "winograd_workload": "compile.winograd.workload",
    "zoo_models": "compile.frontend.zoo_models",
}
"""Name -> the module that it is."""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # otherwise the type checker would accept any name

    def __getattr__(name: str) -> Any:
        """Load the module of a name."""
        if name in _MODULES:
            found = import_module(f"autosched_tvm.{_MODULES[name]}")
        elif name in _HOME_OF:
            found = getattr(import_module(f"autosched_tvm.{_HOME_OF[name]}"), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found

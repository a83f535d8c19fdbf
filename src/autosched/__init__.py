"""autosched: tunes many neural networks at once on shared hosts and devices.

The Python API in one line: ``load_model("net.onnx").tune(trials=200).compile().save("net-tuned")``; later
``load_module("net-tuned/net.so").run(x)``. Names are imported when first used, so that the daemon and the command line
start fast.
"""

from typing import TYPE_CHECKING, Any

from autosched.version import __version__

__all__ = ["Model", "Module", "TunedModel", "__version__", "best", "experiment", "load_model", "load_module", "policy"]

if TYPE_CHECKING:
    from autosched.api import Model, Module, TunedModel, best, load_model, load_module, policy
    from autosched.experiments.reading import experiment


if not TYPE_CHECKING:  # otherwise the type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name == "experiment":
            from autosched.experiments import reading

            return reading.experiment
        if name in __all__:
            from autosched import api

            return getattr(api, name)
        raise AttributeError(f"module 'autosched' has no attribute {name!r}")

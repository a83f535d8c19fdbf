"""The Python API: a model is loaded, tuned and compiled to a module that runs.

    model = autosched.load_model("net.onnx", shapes={"x": (1, 3, 48, 320)})
    tuned = model.tune(trials=400)
    module = tuned.compile().save("net-tuned")
    module.run(x)

Each step returns the only type that has the next one. Every method that waits has an `_async` twin. A daemon does the
work: the one at ``daemon="tcp://host:port"`` or AUTOSCHED_HOST, otherwise this user's own, which is started if none
runs.

Files: tuning.py (models, jobs, tuned models), compiled_module.py, settings.py (settings of jobs), fluent.py (waits
for coroutines), result_folder.py (results on disk), daemon_address.py (chooses the daemon), connection.py (a
connection to it), on_demand.py (starts a private one), local_daemon.py (settings and record store on this machine),
whole_models.py (joins the files of a model), tvm_programs.py (runs programs on TVM in separate processes). Names are
imported on first use, because the command line uses these files and must start fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autosched.api.compiled_module import Inputs, Module, load_module
    from autosched.api.settings import Option, Settings
    from autosched.api.tuning import Job, Model, TunedModel, Watch, best, load_model, policy, policy_async, submit

__all__ = [
    "Inputs", "Job", "Model", "Module", "Option", "Settings", "TunedModel", "Watch", "best", "load_model",
    "load_module", "policy", "policy_async", "submit",
]  # fmt: skip

_HOMES = {
    "compiled_module": ("Inputs", "Module", "load_module"),
    "settings": ("Option", "Settings"),
    "tuning": ("Job", "Model", "TunedModel", "Watch", "best", "load_model", "policy", "policy_async", "submit"),
}
"""Module -> the names that it defines."""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # otherwise the type checker would accept any name

    def __getattr__(name: str) -> Any:
        """Import the module of a name."""
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"autosched.api.{_HOME_OF[name]}"), name)

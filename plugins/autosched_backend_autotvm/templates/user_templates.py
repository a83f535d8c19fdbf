"""Templates of other packages, found by entry points of the group ``autosched.templates``.

They are asked before the templates of this package, in the order of their names. One that fails is left out for the
task, and the job's result says so.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Protocol

from autosched.plugin_registry import installed_plugins
from autosched_backend_autotvm.config_space import Admit, Knob, Value
from autosched_backend_autotvm.templates.fused_kernel import Kernel
from autosched_backend_autotvm.templates.kernel_analysis import KernelAnalysis
from autosched_backend_autotvm.templates.template import Template
from autosched_tvm.api import hash_of
from autosched_tvm.tvm_types import IRModule, Schedule, Target

log = logging.getLogger(__name__)

GROUP = "autosched.templates"


class UserTemplate(Protocol):
    """The object of an entry point. A class is called without arguments.

    The name of the entry point is that of its operator family: the tasks that it matches share what a search learns.
    It may have a method `admit(config)`, which returns the reason why a configuration cannot work, or None.
    """

    def knobs(self, workload: IRModule, target: Target) -> Sequence[Knob] | None:
        """Returns the choices for a task's schedule; None for a task that it is not for.

        `workload`: an IRModule with one PrimFunc "main", not scheduled. `target`: a tvm.target.Target.
        """

    def schedule(self, schedule: Schedule, config: Mapping[str, Value]) -> None:
        """Schedules a task by a value of each knob, with a tvm.s_tir.Schedule and without its `sample_` methods. Raises
        TVM's exceptions if the task does not allow it."""


class Failures:
    """Failures of templates in this process, in words for the user."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}

    def add(self, name: str, error: Exception) -> None:
        """Remembers the first failure of a template."""
        if name not in self._told:
            log.warning("template %s is not used", name, exc_info=error)
            self._told[name] = f"template {name} was not used: {type(error).__name__}: {error}"

    def notes(self) -> list[str]:
        """Returns a note for each template that failed."""
        return list(self._told.values())


failures = Failures()


@cache
def installed() -> dict[str, UserTemplate]:
    """Returns the installed templates by name."""
    found: dict[str, UserTemplate] = {}
    for name, entry in installed_plugins(GROUP).items():
        try:
            loaded = entry.load()
            found[name] = loaded() if isinstance(loaded, type) else loaded
        except Exception as error:  # a user's code
            failures.add(name, error)
    return found


def find(workload: IRModule, target: Target) -> Template | None:
    """Returns the first installed template for a task, if there is one."""
    for name, template in installed().items():
        try:
            knobs = template.knobs(workload, target)
            if knobs is not None:
                return made(name, template, knobs, hash_of(workload))
        except Exception as error:  # a user's code
            failures.add(name, error)
    return None


def made(name: str, template: UserTemplate, knobs: Sequence[Knob], workload: str = "") -> Template:
    """Returns the template of a task with these knobs. `workload`: its hash; no other task has the same kernel. Raises
    ValueError."""
    names = [knob.name for knob in knobs]
    if len(set(names)) < len(names):
        raise ValueError(f"two knobs have the same name: {', '.join(names)}")
    admit: Admit | None = getattr(template, "admit", None)

    def prepare(schedule: Any, nest: KernelAnalysis) -> Kernel:
        """Changes nothing: the template knows all parts of its kernel."""
        return Kernel(schedule, nest, None, [], None, None)

    def run(kernel: Kernel, config: Mapping[str, Value]) -> None:
        template.schedule(kernel.schedule, config)

    nest = KernelAnalysis(name, workload, "", "", (), (), "")
    return Template(name, nest, tuple(knobs), run, admit, prepare=prepare, makers=(type(template).__module__,))

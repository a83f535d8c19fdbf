"""A package of another author, as an installer leaves it: a module, and metadata with entry points."""

from collections.abc import Mapping
from pathlib import Path

POLICIES = """
import time
from dataclasses import replace
from autosched.core.policies.policy import INTERLEAVED as like


def _raises(state, task):
    raise ZeroDivisionError("on purpose")


def _never_returns(state, task):
    while True:
        pass


def _sleeps(state, task):
    time.sleep(60)
    return like.key(state, task)


def _answers_nonsense(state, task):
    return "first"[task.index % 2 :] if task.index % 2 else (task.index,)


def _cannot_plan(state):
    raise ZeroDivisionError("on purpose")


lifo = replace(like, name="lifo", key=lambda state, task: tuple(-part for part in like.key(state, task)))
raises = replace(like, name="raises", key=_raises)
holds_back_and_raises = replace(like, name="holds-back-and-raises", admits=_raises)
never_returns = replace(like, name="never-returns", key=_never_returns)
sleeps = replace(like, name="sleeps", key=_sleeps)
cannot_plan = replace(like, name="cannot-plan", plan=_cannot_plan)
nonsense = replace(like, name="nonsense", key=_answers_nonsense)
stray = replace(like, name="another")
spoiling = replace(like, name="spoiling", shares_units=True)
number = 5
"""


BROKEN = "import no_such_module_anywhere\n"
POLICY_MODULES = {"their_policies": POLICIES, "their_broken_policies": BROKEN}


def install(folder: Path, group: str, modules: Mapping[str, str] = POLICY_MODULES, **entries: str) -> Path:
    """Makes a folder that, on the import path, provides these entry points and the modules with their objects."""
    (folder / "theirs-1.0.dist-info").mkdir(parents=True)
    (folder / "theirs-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    lines = [f"[{group}]", *(f"{name.replace('_', '-')} = {value}" for name, value in entries.items())]
    (folder / "theirs-1.0.dist-info/entry_points.txt").write_text("\n".join(lines) + "\n")
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    return folder

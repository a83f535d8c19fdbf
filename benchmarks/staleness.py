"""Claims whose code has changed since they were measured.

A claim depends on the program that measures it and on all modules of the project that this imports, directly or not;
also on those that it starts (`-m NAME`, NAME.py), whose full names are in its strings, or which it loads by the
beginning of their names (f"package.{name}") or by a group of entry points. Of backends those count that the program or
another file of benchmarks/ or tests/ names, the default one where it names none. Comments and docstrings are no code.
"""

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from subprocess import CalledProcessError
from typing import NamedTuple

from raw_results import PROJECT, Stamp, git

BACKENDS, DEFAULT_BACKEND = "autosched.backends", "autotvm"
CLIENT = PROJECT / "src/autosched/client/job_runner.py"
"""Module that loads a job's backend by its name."""
FRAMEWORK = "autosched_tvm"
ROOTS = ("src", "plugins", "runtime", "benchmarks", "tests")


class Change(NamedTuple):
    """How much of a program's code differs from that which was measured."""

    changed: tuple[str, ...]
    """Paths of the files that differ, relative to the project."""
    files: int
    """Number of files on which the claim depends."""


def change(program: Path, since: Stamp) -> Change:
    """Returns what has changed in the code of a program, relative to the project. Raises CalledProcessError."""
    files = sorted(str(path.relative_to(PROJECT)) for path in dependencies(program))
    differ = set(_changed_since(since.commit))
    return Change(tuple(path for path in files if path in differ), len(files))


@cache
def dependencies(program: Path) -> frozenset[Path]:
    """Returns the files of a program and of all modules of the project on which it depends."""
    found = _reached([Use(program)])
    if CLIENT in {use.file for use in found}:
        ours = [use.file for use in found if use.file.relative_to(PROJECT).parts[0] in ("benchmarks", "tests")]
        named = {node.value for file in ours for node in ast.walk(_tree(file)) if isinstance(node, ast.Constant)}
        chosen = [target for name, target in _entry_points(BACKENDS).items() if name in named]
        targets = chosen or [_entry_points(BACKENDS)[DEFAULT_BACKEND]]
        found |= _reached(use for target in targets for use in _files(target))
    return frozenset(use.file for use in found)


def _reached(uses: Iterable["Use"]) -> set["Use"]:
    found, waiting = set[Use](), list(uses)
    while waiting:
        use = waiting.pop()
        if use not in found:
            found.add(use)
            waiting += _used(use)
    return found


@cache
def _changed_since(commit: str) -> frozenset[str]:
    """Returns the paths of the files whose code differs from that at a commit, or was not there."""
    touched = git("diff", "--name-only", "--diff-filter=AMRT", "--no-renames", commit, "--", *ROOTS).split()
    found = set()
    for path in (path for path in touched if path.endswith(".py")):
        try:
            before = git("show", f"{commit}:{path}")
        except CalledProcessError:  # it was not there
            before = ""
        if not before or code(before) != _code_now(path):
            found.add(path)
    return frozenset(found)


@cache
def _code_now(path: str) -> str:
    return code((PROJECT / path).read_text())


@cache
def code(text: str) -> str:
    """Returns the code of a module without comments, docstrings and layout."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            body[:] = [one for one in body if not _is_text(one)] or [ast.Pass()]
    return ast.dump(tree)


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


class Use(NamedTuple):
    """A file that is used: whole, or, of a package whose module is used, only what runs at the import."""

    file: Path
    whole: bool = True


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


@cache
def _used(use: Use) -> frozenset[Use]:
    """Returns the files that a file names."""
    tree = _tree(use.file)
    nodes = list(ast.walk(tree)) if use.whole else tree.body
    names = {name for node in nodes for name in _named(node)}
    if use.file.is_relative_to(PROJECT / "src"):  # only a backend or a program of benchmarks/ brings a framework
        names = {name for name in names if not name.startswith(FRAMEWORK)}
    started = {name for node in nodes for name in _started(node)}
    return frozenset(
        used for name in (*names, *started, *(f"{one}.__main__" for one in started)) for used in _files(name)
    )


def _named(node: ast.AST) -> Iterable[str]:
    """Returns the names of the modules that a node of the syntax tree imports, or of which it holds the name."""
    match node:
        case ast.Import(names):
            return [one.name for one in names]
        case ast.ImportFrom(str(module), names, 0):
            inside = [f"{module}.{one.name}" for one in names]
            return [name if _files(name) else module for name in inside]
        case ast.Constant(str(text)):
            return _names_in(text)
        case ast.JoinedStr([ast.Constant(str(text)), *_]) if re.fullmatch(r"(\w+\.){2,}", text):  # modules of a package
            return _modules_of(text[:-1])
    return []


def _names_in(text: str) -> Iterable[str]:
    if text != BACKENDS and _entry_points(text):
        return _entry_points(text).values()
    if re.fullmatch(r"\w+\.py", text):
        return [text.removesuffix(".py")]
    return [text.partition(":")[0]] if re.fullmatch(r"[a-z_]\w*(\.\w+)+(:\w+)?", text) else []


def _started(node: ast.AST) -> Iterator[str]:
    """Yields the modules that a list of words, or a call of `command(MODULE, ...)`, starts as programs."""
    words: list[ast.expr] = []
    if isinstance(node, ast.List | ast.Tuple):
        words = node.elts
    elif isinstance(node, ast.Call):
        words = node.args
        if isinstance(node.func, ast.Attribute) and node.func.attr == "command" and words:
            words = [ast.Constant("-m"), *words]
    texts = [one.value if isinstance(one, ast.Constant) else None for one in words]
    yield from (name for word, name in pairwise(texts) if word == "-m" and isinstance(name, str))


@cache
def _groups() -> dict[str, dict[str, str]]:
    """Returns all groups of entry points."""
    project: dict[str, dict[str, dict[str, str]]] = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    return project["entry-points"]


def _entry_points(group: str) -> dict[str, str]:
    """Returns the modules of a group of entry points, by the entries' names."""
    return {name: target.partition(":")[0] for name, target in _groups().get(group, {}).items()}


@cache
def _modules_of(package: str) -> tuple[str, ...]:
    return tuple(
        f"{package}.{path.stem}"
        for root in ROOTS
        for path in (PROJECT / root / Path(*package.split("."))).glob("*.py")
        if not path.stem.startswith("__")
    )


@cache
def _files(name: str) -> tuple[Use, ...]:
    """Returns the file of a module and those of the packages around it; none if it is not of this project."""
    for root in ROOTS:
        place = (PROJECT / root).joinpath(*name.split("."))
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.is_file():
                around = [place.parents[depth] / "__init__.py" for depth in range(name.count("."))]
                return (Use(file), *(Use(path, whole=False) for path in around if path.is_file()))
    return ()

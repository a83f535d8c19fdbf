"""Tells whether a configuration that was measured earlier still means the same: by the code of its template."""

import ast
import hashlib
import inspect
from functools import cache
from importlib import import_module

SHARED = ("fused_kernel", "kernel_analysis", "template", "register_tiling")
"""Files of which the templates make use."""
DIGITS = 12


@cache
def version_of(module: str, *others: str) -> str:
    """The version of a module's templates: it changes with any code but imports, comments, docstrings and layout.

    `others`: further modules that decide what a configuration stands for.
    """
    package = __name__.rpartition(".")[0]
    names = (module, *(f"{package}.{name}" for name in SHARED), *others)
    sources = [inspect.getsource(import_module(name)) for name in names]
    return fingerprint(sources)


def fingerprint(sources: list[str]) -> str:
    """Digest of sources, the same for sources that do the same in the same words.

    Imports are left out, so that a module can move.
    """
    trees = [ast.parse(source) for source in sources]
    for tree in trees:
        for node in ast.walk(tree):
            for name in ("body", "orelse", "finalbody"):
                if isinstance(statements := getattr(node, name, None), list):
                    setattr(node, name, [one for one in statements if not _is_silent(one)])
    return hashlib.sha256("\n".join(map(ast.dump, trees)).encode()).hexdigest()[:DIGITS]


def _is_silent(statement: ast.AST) -> bool:
    """Whether a statement is an import or a docstring, also one of an attribute."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return True
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)

"""Tells whether a configuration that was measured earlier still means the same: by the code of its template."""

from autosched_tvm.api import fingerprint_of

SHARED = ("fused_kernel", "kernel_analysis", "template", "register_tiling")
"""Files of which the templates make use."""


def version_of(module: str, *others: str) -> str:
    """The version of a module's templates: it changes with any code but imports, comments, docstrings and layout.

    `others`: further modules that decide what a configuration stands for.
    """
    package = __name__.rpartition(".")[0]
    return fingerprint_of(module, *(f"{package}.{name}" for name in SHARED), *others)

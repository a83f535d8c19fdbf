"""Version of a template's code, which tells whether an earlier configuration still means the same."""

from autosched_tvm.api import fingerprint_of

SHARED = ("fused_kernel", "kernel_analysis", "template", "register_tiling")
"""Files that all templates use."""


def version_of(module: str, *others: str) -> str:
    """Returns the version of a module's templates. It changes with all code except imports, comments, docstrings and
    layout.

    `others`: further modules that determine the meaning of a configuration.
    """
    package = __name__.rpartition(".")[0]
    return fingerprint_of(module, *(f"{package}.{name}" for name in SHARED), *others)

"""Features of this machine's CPU that programs may use, by their LLVM names, for the compiler.

On x86, LLVM knows more of them than the kernel; it asks CPUID and XGETBV as Intel's manual requires (volume 1, section
14.3). Where TVM has no LLVM, and on Arm, the kernel answers: `autosched_runtime.cpu_features`.
"""

from functools import cache

from autosched_runtime import cpu_features


def granted() -> dict[str, bool]:
    """Returns each known feature, and whether this process may use its instructions. Empty if nothing is known."""
    found = {} if cpu_features.is_arm() else of_llvm()
    return cpu_features.visible(found) if found else cpu_features.granted()


@cache
def of_llvm() -> dict[str, bool]:
    """Returns the answer of LLVM; empty where TVM has no LLVM."""
    try:
        import tvm

        asked = tvm.get_global_func("tvm.codegen.llvm.GetHostCPUFeatures", allow_missing=True)
    except ImportError:
        return {}
    found = {} if asked is None else {str(name): bool(has) for name, has in asked().items()}
    return cpu_features.with_tiles(found)

"""The model of this machine's CPU in words."""

import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path

GRADES = {
    "AMX": ("amx_int8",), "AVX-512 VNNI": ("avx512f", "avx512vl", "avx512_vnni"), "AVX-512": ("avx512f",),
    "AVX2 VNNI": ("avx2", "avx_vnni"), "AVX2": ("avx2", "fma"), "AVX": ("avx",), "SSE": ("sse2",),
    "SVE2": ("sve2",), "SVE": ("sve",), "NEON dot products": ("asimddp",), "NEON": ("asimd",),
}  # fmt: skip
"""Grades of CPUs by their vector instructions, the highest first, and the flags of /proc/cpuinfo that make each."""


@cache
def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Name of the processor's model from the kernel, with the vector instructions that this machine offers; the
    architecture if the kernel has none.

    A hypervisor may give different processors one name, "AMD EPYC", and withhold instructions from some of them.
    """
    told = facts(cpuinfo)
    if not told:
        return platform.machine()
    model = told.get("model name") or told.get("Model")
    if model is None:
        arm = [told[name] for name in ("CPU implementer", "CPU part", "CPU variant") if name in told]
        model = " ".join([platform.machine(), *arm])
    number = f" (family {told['cpu family']}, model {told['model']})" if {"cpu family", "model"} <= told.keys() else ""
    granted = flags(told)
    grade = next((f", {name}" for name, needed in GRADES.items() if granted.issuperset(needed)), "")
    return f"{model}{number}{grade}"


def facts(cpuinfo: Path) -> dict[str, str]:
    """The kernel's facts about the last core; empty if it tells none."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def flags(told: Mapping[str, str]) -> frozenset[str]:
    """The features among the kernel's facts, in its words."""
    return frozenset((told.get("flags") or told.get("Features") or "").split())

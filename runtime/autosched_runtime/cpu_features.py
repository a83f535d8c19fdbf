"""Features of this machine's CPU that programs may use, by their LLVM names.

The model of a CPU says what its hardware has. A hypervisor or the kernel may withhold a part of it, such as AVX-512;
an instruction of a withheld feature ends the process with SIGILL. LLVM names a CPU by its model alone. This module
asks the kernel what is granted: /proc/cpuinfo on x86, the auxiliary vector on 64-bit Arm (Linux,
Documentation/arch/arm64/elf_hwcaps.rst).

The file also runs by itself in the process of a board's server. It needs Python alone.
"""

import ctypes
import os
import platform
import sys
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path

HIDDEN = "AUTOSCHED_HIDE_CPU_FEATURES"
"""Environment variable: features to be treated as withheld, separated by commas."""

_AT_HWCAP, _AT_HWCAP2 = 16, 26
_ARM = {
    _AT_HWCAP: {
        "fp-armv8": 0, "neon": 1, "aes": 3, "sha2": 6, "crc": 7, "lse": 8, "fullfp16": 10, "rdm": 12, "jsconv": 13,
        "complxnum": 14, "rcpc": 15, "ccpp": 16, "sha3": 17, "sm4": 19, "dotprod": 20, "sve": 22, "fp16fml": 23,
        "dit": 24, "rcpc-immo": 26, "flagm": 27, "ssbs": 28, "sb": 29, "pauth": 30,
    },
    _AT_HWCAP2: {
        "sve2": 1, "sve-aes": 2, "sve-bitperm": 4, "sve-sha3": 5, "sve-sm4": 6, "altnzcv": 7, "fptoint": 8, "f32mm": 10,
        "f64mm": 11, "i8mm": 13, "bf16": 14, "rand": 16, "bti": 17, "mte": 18, "sme": 23, "sme-i16i64": 24,
        "sme-f64f64": 25, "sve2p1": 36, "sme2": 37, "mops": 43,
    },
}  # fmt: skip
"""Bits of the kernel's words, from Linux, arch/arm64/include/uapi/asm/hwcap.h."""
ARM_FEATURES = frozenset(name for names in _ARM.values() for name in names)
"""Known features of 64-bit Arm."""
_X86 = {
    "abm": "lzcnt", "bmi1": "bmi", "pclmulqdq": "pclmul", "pni": "sse3", "sse4_1": "sse4.1", "sse4_2": "sse4.2",
    "sha_ni": "sha", "avx_vnni": "avxvnni", "avx512_bf16": "avx512bf16", "avx512_bitalg": "avx512bitalg",
    "avx512_fp16": "avx512fp16", "avx512_vbmi2": "avx512vbmi2", "avx512_vnni": "avx512vnni",
    "avx512_vp2intersect": "avx512vp2intersect", "avx512_vpopcntdq": "avx512vpopcntdq", "amx_bf16": "amx-bf16",
    "amx_int8": "amx-int8", "amx_tile": "amx-tile", "amx_fp16": "amx-fp16", "amx_complex": "amx-complex",
    "avx_ifma": "avxifma", "avx_ne_convert": "avxneconvert", "avx_vnni_int8": "avxvnniint8",
    "avx_vnni_int16": "avxvnniint16", "cmpxchg8b": "cx8",
    **{name: name for name in (
        "adx", "aes", "avx", "avx2", "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512ifma",
        "avx512vbmi", "avx512vl", "bmi2", "cmov", "cx16", "cx8", "f16c", "fma", "fma4", "gfni", "movbe",
        "popcnt", "sse", "sse2", "sse4a", "ssse3", "tbm", "vaes", "vpclmulqdq", "xop",
    )},
}  # fmt: skip
"""LLVM's names of the kernel's flags in /proc/cpuinfo."""
_ARM_MACHINES = ("aarch64", "arm64")
"""Names of 64-bit Arm."""
_AMX = "amx-"
TILE_REQUEST = (158, 0x1023, 18)
"""Arguments of the system call with which a process requests AMX's registers on x86-64: the number of arch_prctl,
ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA. Source: Linux, Documentation/arch/x86/xstate.rst."""


def granted() -> dict[str, bool]:
    """Returns each known feature, and whether this process may use its instructions. Empty if nothing is known."""
    return visible(of_arm() if is_arm() else of_x86())


def lacking(features: Iterable[str]) -> list[str]:
    """Returns the features that this machine's CPU lacks, or its hypervisor withholds. Unknown ones are not among
    them."""
    has = granted()
    return [name for name in features if not has.get(name, True)]


def in_the_kernels_words(features: Collection[str], machine: str) -> dict[str, list[str] | list[int]]:
    """Returns how Linux tells that a CPU has features: on 64-bit Arm, bits in the words AT_HWCAP and AT_HWCAP2; on x86,
    flags in /proc/cpuinfo. Other features are left out."""
    if machine in _ARM_MACHINES:
        return {
            "auxiliary": [sum(1 << bit for name, bit in names.items() if name in features) for names in _ARM.values()]
        }
    flags = {name: flag for flag, name in _X86.items()}
    return {"cpuinfo": [flags[name] for name in sorted(features) if name in flags]}


def is_arm() -> bool:
    """Returns whether the CPU is a 64-bit Arm."""
    return platform.machine() in _ARM_MACHINES


def visible(found: dict[str, bool]) -> dict[str, bool]:
    """Returns features as granted, except for those that the environment variable hides."""
    hidden = {name.strip() for name in os.environ.get(HIDDEN, "").split(",")}
    return {name: has and name not in hidden for name, has in found.items()} if hidden & found.keys() else found


@cache
def of_x86() -> dict[str, bool]:
    """Returns the features of an x86 CPU."""
    return with_tiles(of_kernel())


def with_tiles(found: dict[str, bool]) -> dict[str, bool]:
    """Returns features of an x86 CPU, with those of AMX only if Linux lets this process use AMX's registers."""
    if any(has and name.startswith(_AMX) for name, has in found.items()) and not _tiles_granted():
        found = {name: has and not name.startswith(_AMX) for name, has in found.items()}
    return found


def _tiles_granted() -> bool:
    """Returns whether Linux lets this process use AMX's registers, which it must request."""
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    return int(ctypes.CDLL(None, use_errno=True).syscall(*TILE_REQUEST)) == 0


def of_kernel(cpuinfo: Path = Path("/proc/cpuinfo")) -> dict[str, bool]:
    """Returns the features in the kernel's list of an x86 CPU."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    flags = {flag for line in lines if line.startswith("flags") for flag in line.partition(":")[2].split()}
    found: dict[str, bool] = {}
    for flag, name in _X86.items():
        found[name] = found.get(name, False) or flag in flags
    return found if flags else {}


@cache
def of_arm() -> dict[str, bool]:
    """Returns the features in the auxiliary vector of a process on 64-bit Arm."""
    words = {number: _word(number) for number in _ARM}
    return {name: bool(words[number] >> bit & 1) for number, names in _ARM.items() for name, bit in names.items()}


def _word(number: int) -> int:
    """Returns a word of this process' auxiliary vector."""
    ask = ctypes.CDLL(None).getauxval
    ask.restype, ask.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    return int(ask(number))

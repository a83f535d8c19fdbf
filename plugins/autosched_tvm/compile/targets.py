"""Resolves a user's target to an exact one: the CPU by name and features, the number of cores, no defaults left.

LLVM uses the name of a CPU for its scheduling model. The name also implies features, which a hypervisor may withhold;
an exact target of this machine removes what is withheld and adds what the name lacks.
"""

import difflib
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from autosched.device_types import CUDA_TAG, OLDEST_ARCH, TARGET_KINDS, gpu_target, named_arch
from autosched.errors import RequestError
from autosched.recordstore.keys import WITHOUT_EFFECT
from autosched_runtime.cpu_features import ARM_FEATURES
from autosched_tvm.granted_features import granted
from autosched_tvm.tvm_types import Target

AUTO = "auto"
CUDA = "cuda"
EXAMPLES = (
    'auto, llvm, x86-64-v3, "llvm -mcpu=skylake-avx512", {"kind": "llvm", "mcpu": "znver4", "num-cores": 4}, "cuda'
    ' -arch=sm_90"'
)
X86_CLASSES = {
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    "x86-64-v3": ("avx2", "fma", "bmi2"),
}
"""Features that the levels of the x86-64 psABI add, the highest level first."""
NAMED_MAX = 8
"""Maximum number of features that a message names."""
_FLAGS = {"arch", "mcpu", "mattr", "mtriple", "mabi", "num-cores", "opt-level", "vector-width"}


def resolve(text: str, cores: int) -> str:
    """Returns the target as a JSON object that TVM accepts. `cores`: number of cores of the device. Raises
    RequestError."""
    import tvm

    wanted = _read(text.strip())
    kind = wanted.get("kind")
    if kind == CUDA:
        return json.dumps(of_gpu(_named_arch(wanted)), sort_keys=True)
    if kind != "llvm":
        raise RequestError(
            f"target kind {kind!r} cannot be tuned here: this backend tunes CPUs (kind llvm) and NVIDIA's GPUs (kind"
            f" cuda). Try: {EXAMPLES}"
        )
    if wanted.get("mcpu") == "native":
        raise RequestError(
            'mcpu "native" would be compiled as a generic CPU; use the target "auto", which names this one'
        )
    wanted.setdefault("num-cores", max(1, cores))
    try:
        target = tvm.target.Target(wanted)
    except (ValueError, TypeError, RuntimeError) as error:
        raise RequestError(
            f"TVM refuses the target {json.dumps(wanted)}: {_first_sentence(error)}. Try: {EXAMPLES}"
        ) from error
    _check_cpu(wanted.get("mcpu"), tvm.target.codegen, target)
    return json.dumps(wanted, sort_keys=True)


def of_this_machine() -> dict[str, Any]:
    """Returns the exact target of this machine's CPU, without a number of cores. Equal CPUs with equal features have
    equal targets."""
    from tvm.target.codegen import llvm_get_system_cpu

    return exact({"kind": "llvm", "mcpu": str(llvm_get_system_cpu())}, granted())


def exact(named: Mapping[str, str], has: Mapping[str, bool]) -> dict[str, Any]:
    """Returns a target with the features of a CPU instead of those that its name implies.

    `has`: each known feature, and whether programs on that CPU may use its instructions.
    """
    added = {name for name, there in has.items() if there} - WITHOUT_EFFECT - features(named)
    wider = {**named, "mattr": sorted(f"+{name}" for name in added)}
    lacking = {name for name in features(wider) if not has.get(name, True)}
    # LLVM applies the list in order, and a removed feature takes with it those that need it: the removals come last
    found = {**named, "mattr": [*wider["mattr"], *sorted(f"-{name}" for name in lacking)]}
    left = features(found)
    kept = [one for one in found["mattr"] if one[0] == "-" or one[1:] in left]
    return {**named, **({"mattr": kept} if kept else {})}


def features(target: Mapping[str, Any]) -> frozenset[str]:
    """Returns the features that LLVM may use for a CPU target, by their LLVM names."""
    import tvm

    asked = tvm.target.codegen.llvm_get_cpu_features(tvm.target.Target(dict(target)))
    return frozenset(str(name) for name in asked)


def needed(target: str) -> tuple[str, ...]:
    """Returns the features of a resolved target that compiled code may use and that a machine can be asked for; none of
    GPUs."""
    if arch_of(target):
        return ()
    known = granted().keys() | ARM_FEATURES
    return tuple(sorted(name for name in features(json.loads(target)) - WITHOUT_EFFECT if name in known))


def withheld(target: str, has: Mapping[str, bool]) -> list[str]:
    """Returns the features of a resolved target that compiled code may use, and that a CPU withholds."""
    return sorted(name for name in features(json.loads(target)) - WITHOUT_EFFECT if not has.get(name, True))


def refusal(target: str, has: Mapping[str, bool], where: str) -> str:
    """Returns why code for a resolved target cannot run on a CPU, and the target that can; empty if it can run.

    `where`: the CPU in words.
    """
    lacking = withheld(target, has)
    if not lacking:
        return ""
    wanted = json.loads(target)
    others = {name: value for name, value in wanted.items() if name != "mattr"}
    fitting = json.dumps(exact(others, {name: has.get(name, True) for name in features(wanted) - WITHOUT_EFFECT}))
    return (
        f"{where} does not offer what the target {wanted.get('mcpu', target)!r} needs: {listed(lacking)}. A program"
        f" that uses it there ends with SIGILL. Use --target '{fitting}'"
    )


def listed(names: Sequence[str]) -> str:
    """Returns names of features in words, at most eight of them."""
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def cores_of(target: str) -> int:
    """Returns the number of cores of a resolved target."""
    return max(1, int(json.loads(target).get("num-cores", 1)))


def triple_of(target: str) -> str:
    """Returns the LLVM triple of a resolved target; empty for the machine that compiles."""
    return str(json.loads(target).get("mtriple", ""))


def of_gpu(arch: int) -> dict[str, Any]:
    """Returns the exact target of a GPU. `arch`: its compute capability, 90 for 9.0.

    Nothing is left for TVM to ask a device for, which a machine that builds lacks. The limits are those of all GPUs
    from compute capability 7.5 on; more than 48 KiB of shared memory have to be asked for at a launch. Source: CUDA C++
    Programming Guide 13, technical specifications per compute capability.
    """
    return {
        "kind": CUDA, "arch": f"sm_{arch}", "max_threads_per_block": 1_024, "max_shared_memory_per_block": 49_152,
        "registers_per_block": 65_536, "thread_warp_size": 32,
    }  # fmt: skip


def _named_arch(wanted: Mapping[str, Any]) -> int:
    """Returns the compute capability that a user's target for GPUs names. Raises RequestError."""
    said = str(wanted.get("arch", ""))
    if (arch := named_arch(said)) is None:
        raise RequestError(
            f"the target for GPUs names no architecture{f', but {said!r}' if said else ''}: write for example"
            f" {gpu_target(90)!r}, or --target auto with --device KIND, which asks the GPU"
        )
    if arch < OLDEST_ARCH:
        raise RequestError(
            f"CUDA 13 compiles for compute capability {OLDEST_ARCH // 10}.{OLDEST_ARCH % 10} and newer alone, and the"
            f" target names {said}"
        )
    return arch


def is_gpu(target: Target) -> bool:
    """Returns whether kernels for a target run on a GPU."""
    return str(target.kind.name) == CUDA


def arch_of(target: str) -> str:
    """Returns the architecture of a resolved target for GPUs ("sm_90"); empty for others."""
    told = json.loads(target)
    return str(told.get("arch", "")) if told.get("kind") == CUDA else ""


def _read(text: str) -> dict[str, Any]:
    if text in ("", AUTO):
        return of_this_machine()
    if text.startswith("{"):
        try:
            wanted = json.loads(text)
        except json.JSONDecodeError as error:
            raise RequestError(f"the target is not valid JSON ({error}). Try: {EXAMPLES}") from error
        return {"kind": "llvm", **wanted}
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise RequestError(f"the target {text!r} cannot be read: {error}. Try: {EXAMPLES}") from error
    if words[0].startswith(CUDA_TAG):
        return {"kind": CUDA, "arch": _arch_of_tag(words[0])}
    if len(words) == 1 and words[0] not in TARGET_KINDS:
        return {"kind": "llvm", "mcpu": words[0]}
    return {"kind": words[0], **_flags(words[1:])}


def _arch_of_tag(tag: str) -> str:
    """Returns the architecture of TVM's target for one of NVIDIA's devices. Raises RequestError."""
    import tvm

    try:
        return str(tvm.target.Target(tag).attrs.get("arch", ""))
    except (ValueError, TypeError, RuntimeError) as error:
        raise RequestError(
            f"TVM knows no target {tag!r}: {_first_sentence(error)}. Name the architecture: {gpu_target(90)!r}"
        ) from error


def _flags(words: list[str]) -> dict[str, Any]:
    flags: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.lstrip("-").partition("=")
        if not equals or name not in _FLAGS:
            known = ", ".join(f"-{flag}=..." for flag in sorted(_FLAGS))
            raise RequestError(f"target option {word!r} is not known; there are {known}")
        flags[name] = value.split(",") if name == "mattr" else int(value) if value.isdigit() else value
    return flags


def _check_cpu(mcpu: str | None, codegen: Any, target: Target) -> None:
    if mcpu is None:
        return
    known = [str(name) for name in codegen.llvm_get_cpu_archlist(target)]
    if known and mcpu not in known:
        near = difflib.get_close_matches(mcpu, known, n=3) or sorted(known)[:8]
        raise RequestError(f"LLVM knows no CPU {mcpu!r} for this target. Near: {', '.join(near)}. Or use: auto")


def _first_sentence(error: Exception) -> str:
    return str(error).strip().splitlines()[-1].split(" Target creation from")[0].rstrip(". ")


def cpu_classes(target: Target) -> tuple[str, ...]:
    """Returns the classes of instruction sets that a CPU has, the most special one first; none of other targets.

    Dot products of 8-bit integers (VNNI, and DOTPROD on Arm) make no class: their kernels have no templates.
    """
    from tvm.target.codegen import target_has_features

    if target.kind.name != "llvm":
        return ()
    if target.attrs.get("feature.is_aarch64", False):
        return ("neon",)
    return tuple(name for name, features in X86_CLASSES.items() if target_has_features(list(features), target))


def vector_bits(target: Target) -> int:
    """Returns the width of a CPU's vector registers in bits. TVM itself reports 512 for each x86 CPU."""
    from tvm.target.codegen import target_has_features

    known = 512 if target_has_features("avx512f", target) else 256 if target_has_features("avx", target) else 128
    return int(target.attrs.get("vector-width", known))


def vector_registers(target: Target) -> int:
    """Returns the number of vector registers of a CPU: 32 with AVX-512 and on 64-bit Arm, else 16."""
    from tvm.target.codegen import target_has_features

    wide = target_has_features("avx512f", target) or target.attrs.get("feature.is_aarch64", False)
    return 32 if wide else 16

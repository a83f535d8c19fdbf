import json

import pytest

from autosched.errors import RequestError

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

import tvm  # noqa: E402

from autosched_tvm.compile import targets  # noqa: E402


def resolved(text: str, cores: int = 2) -> dict[str, object]:
    found: dict[str, object] = json.loads(targets.resolve(text, cores))
    return found


def test_auto_names_this_cpu_and_the_device_cores() -> None:
    found = resolved("auto", cores=3)
    assert (found["kind"], found["num-cores"]) == ("llvm", 3)
    assert found["mcpu"] not in ("", "native", "generic")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("llvm", {"kind": "llvm", "num-cores": 2}),
        ("x86-64-v3", {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}),
        ("llvm -mcpu=skylake -num-cores=8", {"kind": "llvm", "mcpu": "skylake", "num-cores": 8}),
        ('{"kind": "llvm", "mcpu": "znver4"}', {"kind": "llvm", "mcpu": "znver4", "num-cores": 2}),
        ('{"mcpu": "znver4", "num-cores": 1}', {"kind": "llvm", "mcpu": "znver4", "num-cores": 1}),
        ("llvm -mattr=+avx2,+fma", {"kind": "llvm", "mattr": ["+avx2", "+fma"], "num-cores": 2}),
    ],
)
def test_short_and_long_forms_of_targets_are_read(text: str, expected: dict[str, object]) -> None:
    assert resolved(text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("native", "generic CPU; use the target"),
        ("llvm -mcpu=native", "generic CPU"),
        ("skylakee", "no CPU 'skylakee'.*Near: skylake"),
        ("cuda", "names no architecture: write for example 'cuda -arch=sm_90'"),
        ("vulkan", "tunes CPUs"),
        ("cuda -arch=sm_37", "compute capability 7.5 and newer alone, and the target names sm_37"),
        ("nvidia/no-such-card", "TVM knows no target 'nvidia/no-such-card'"),
        ("{nonsense", "not valid JSON"),
        ("[1]", "no CPU"),
        ('{"kind": "llvm", "mcpuu": "x"}', "TVM refuses"),
        ("llvm -mcpuu=x", "'-mcpuu=x' is not known"),
        ('llvm "', "closing quotation|not be read"),
    ],
)
def test_invalid_targets_are_refused_with_the_reason(text: str, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        targets.resolve(text, 1)


@pytest.mark.parametrize(
    ("target", "classes"),
    [
        ({"kind": "llvm", "mcpu": "x86-64-v4"}, ("x86-64-v4", "x86-64-v3")),
        ({"kind": "llvm", "mcpu": "znver4"}, ("x86-64-v4", "x86-64-v3")),
        ({"kind": "llvm", "mcpu": "haswell"}, ("x86-64-v3",)),
        ({"kind": "llvm", "mcpu": "x86-64-v2"}, ()),
        ({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"}, ("neon",)),
        ({"kind": "cuda", "arch": "sm_80"}, ()),
    ],
)
def test_a_cpu_belongs_to_the_classes_of_its_instructions(target: dict[str, str], classes: tuple[str, ...]) -> None:
    assert targets.cpu_classes(tvm.target.Target(target)) == classes


ZEN4_WITHOUT_AVX512 = {"avx": True, "avx2": True, "fma": True, "avx512f": False, "avx512bf16": False, "pku": False}


def test_a_withheld_feature_is_not_compiled_for() -> None:
    found = targets.exact({"kind": "llvm", "mcpu": "znver4"}, ZEN4_WITHOUT_AVX512)
    assert found["mattr"] == ["-avx512bf16", "-avx512f", "-pku"]
    target = tvm.target.Target(found)
    assert targets.cpu_classes(target) == ("x86-64-v3",)
    assert (targets.vector_bits(target), targets.vector_registers(target)) == (256, 16)


def test_a_feature_that_the_name_lacks_is_compiled_for() -> None:
    has = dict.fromkeys(("sse4.2", "avx", "avx2", "fma", "bmi2", "pku"), True) | {"avx512f": False}
    found = targets.exact({"kind": "llvm", "mcpu": "k8-sse3"}, has)
    assert found["mattr"] == ["+avx", "+avx2", "+bmi2", "+fma", "+sse4.2"], "pku is of the system"
    assert targets.cpu_classes(tvm.target.Target(found)) == ("x86-64-v3",)


def test_a_feature_needs_all_that_it_builds_on() -> None:
    has = {"avx512f": False, "avx512vnni": True, "avx2": True, "fma": True}
    found = targets.exact({"kind": "llvm", "mcpu": "haswell"}, has)
    assert not targets.features(found) & {"avx512f", "avx512vnni"}
    assert found["mattr"] == ["-avx512f"]


def test_the_same_machine_has_the_same_target_and_a_masked_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = targets.resolve("auto", 1)
    assert targets.resolve("auto", 1) == whole
    some = next(iter(sorted(name for name, has in targets.granted().items() if has and name in ("avx", "neon"))))
    monkeypatch.setenv("AUTOSCHED_HIDE_CPU_FEATURES", some)
    masked = targets.resolve("auto", 1)
    assert masked != whole
    assert some not in targets.features(json.loads(masked))


def test_nothing_is_compiled_for_that_this_machine_withholds() -> None:
    found, has = targets.features(targets.of_this_machine()), targets.granted()
    assert [name for name in sorted(found) if not has.get(name, True)] == []


def test_a_target_that_a_cpu_cannot_run_is_refused_with_one_that_it_can() -> None:
    wanted = targets.resolve("llvm -mcpu=znver4 -num-cores=2", 1)
    said = targets.refusal(wanted, ZEN4_WITHOUT_AVX512, "this machine's CPU")
    assert said.startswith("this machine's CPU does not offer what the target 'znver4' needs: avx512bf16, avx512f.")
    fitting = said.partition("--target '")[2].rstrip("'")
    assert targets.refusal(targets.resolve(fitting, 1), ZEN4_WITHOUT_AVX512, "") == ""
    assert json.loads(fitting)["num-cores"] == 2


@pytest.mark.parametrize("has", [{}, {"avx512f": True}, {"pku": False, "rdpru": False}])
def test_a_target_is_not_refused_for_what_no_kernel_uses(has: dict[str, bool]) -> None:
    assert targets.refusal(targets.resolve("znver4", 1), has, "the board") == ""


@pytest.mark.parametrize(("arch", "name"), [(75, "sm_75"), (90, "sm_90"), (120, "sm_120")])
def test_a_gpus_target_leaves_nothing_to_ask_a_device_for(arch: int, name: str) -> None:
    told = targets.of_gpu(arch)
    target = tvm.target.Target(told)
    assert targets.arch_of(json.dumps(told)) == str(target.attrs["arch"]) == name
    assert int(target.attrs["max_threads_per_block"]) == 1024
    assert targets.arch_of('{"kind": "llvm", "mcpu": "znver4"}') == ""


@pytest.mark.parametrize(
    ("text", "arch"),
    [
        ("cuda -arch=sm_90", "sm_90"), ('{"kind": "cuda", "arch": "sm_75"}', "sm_75"),
        ("nvidia/geforce-rtx-4090", "sm_89"), ("nvidia/nvidia-h100", "sm_90"),
    ],
)  # fmt: skip
def test_a_target_for_gpus_is_resolved_to_the_same_one_however_it_is_written(text: str, arch: str) -> None:
    resolved = targets.resolve(text, 4)
    assert json.loads(resolved) == targets.of_gpu(int(arch.removeprefix("sm_")))
    assert targets.resolve(resolved, 1) == resolved
    assert targets.needed(resolved) == ()
    assert targets.cores_of(resolved) == 1

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
        ("cuda", "tunes CPUs"),
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

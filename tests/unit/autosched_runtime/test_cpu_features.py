"""Features that this machine's CPU grants to programs."""

from pathlib import Path
from typing import Any

import pytest

from autosched_runtime import cpu_features
from autosched_tvm import granted_features

FLAGS = "processor\t: 0\nflags\t\t: fpu sse2 pni sse4_1 avx avx2 fma bmi1 abm avx512f avx512_vnni\nflags\t\t: fpu\n"


def test_kernel_flags_have_llvm_names(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(FLAGS)
    found = cpu_features.of_kernel(tmp_path / "cpuinfo")
    there = {name for name, has in found.items() if has}
    assert there == {"sse2", "sse3", "sse4.1", "avx", "avx2", "fma", "bmi", "lzcnt", "avx512f", "avx512vnni"}
    assert found["avx512bf16"] is False, "what the kernel does not list is withheld"


def test_machine_without_a_list_of_flags_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("Features\t: fp asimd\n")
    assert cpu_features.of_kernel(tmp_path / "cpuinfo") == {}
    assert cpu_features.of_kernel(tmp_path / "none") == {}


def test_hidden_features_are_withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"avx2": True, "fma": True, "xop": False}
    assert cpu_features.visible(found) == found
    monkeypatch.setenv(cpu_features.HIDDEN, "avx2, unknown")
    assert cpu_features.visible(found) == {"avx2": False, "fma": True, "xop": False}


@pytest.mark.parametrize("module", [cpu_features, granted_features])
def test_features_are_hidden_from_the_runtime_and_the_compiler(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = next(name for name, has in module.granted().items() if has)
    monkeypatch.setenv(cpu_features.HIDDEN, name)
    assert module.granted()[name] is False


@pytest.mark.parametrize("allowed", [False, True])
def test_tiles_need_the_permission_of_linux(allowed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_features, "_tiles_granted", lambda: allowed)
    found = {"avx2": True, "amx-tile": True, "amx-int8": True}
    assert cpu_features.with_tiles(found) == {"avx2": True, "amx-tile": allowed, "amx-int8": allowed}


def test_arm_features_are_bits_of_the_auxiliary_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    words = {16: 1 << 1 | 1 << 20, 26: 1 << 1}
    cpu_features.of_arm.cache_clear()
    monkeypatch.setattr(cpu_features, "_word", words.__getitem__)
    found = cpu_features.of_arm()
    cpu_features.of_arm.cache_clear()
    assert {name for name, has in found.items() if has} == {"neon", "dotprod", "sve2"}
    assert found["sve"] is False


def test_llvm_and_the_kernel_agree_on_this_machine() -> None:
    pytest.importorskip("tvm")
    of_llvm, of_kernel = granted_features.of_llvm(), cpu_features.of_kernel()
    assert {name for name, has in of_kernel.items() if has} <= {name for name, has in of_llvm.items() if has}

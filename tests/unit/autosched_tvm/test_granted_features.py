"""Features that this machine's CPU grants to programs."""

from pathlib import Path

import pytest

from autosched_tvm import granted_features

FLAGS = "processor\t: 0\nflags\t\t: fpu sse2 pni sse4_1 avx avx2 fma bmi1 abm avx512f avx512_vnni\nflags\t\t: fpu\n"


def test_kernel_flags_have_llvm_names(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(FLAGS)
    found = granted_features._of_kernel(tmp_path / "cpuinfo")
    there = {name for name, has in found.items() if has}
    assert there == {"sse2", "sse3", "sse4.1", "avx", "avx2", "fma", "bmi", "lzcnt", "avx512f", "avx512vnni"}
    assert found["avx512bf16"] is False, "what the kernel does not list is withheld"


def test_machine_without_a_list_of_flags_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("Features\t: fp asimd\n")
    assert granted_features._of_kernel(tmp_path / "cpuinfo") == {}
    assert granted_features._of_kernel(tmp_path / "none") == {}


def test_hidden_features_are_withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(granted_features, "_granted", lambda: {"avx2": True, "fma": True, "xop": False})
    assert granted_features.granted() == {"avx2": True, "fma": True, "xop": False}
    monkeypatch.setenv(granted_features.HIDDEN, "avx2, unknown")
    assert granted_features.granted() == {"avx2": False, "fma": True, "xop": False}


@pytest.mark.parametrize("allowed", [False, True])
def test_tiles_need_the_permission_of_linux(allowed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    granted_features._granted.cache_clear()
    monkeypatch.setattr(granted_features.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(granted_features, "_of_llvm", lambda: {"avx2": True, "amx-tile": True, "amx-int8": True})
    monkeypatch.setattr(granted_features, "_tiles_granted", lambda: allowed)
    try:
        assert granted_features.granted() == {"avx2": True, "amx-tile": allowed, "amx-int8": allowed}
    finally:
        granted_features._granted.cache_clear()


def test_arm_features_are_bits_of_the_auxiliary_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    words = {16: 1 << 1 | 1 << 20, 26: 1 << 1}
    monkeypatch.setattr(granted_features, "_word", words.__getitem__)
    found = granted_features._of_arm()
    assert {name for name, has in found.items() if has} == {"neon", "dotprod", "sve2"}
    assert found["sve"] is False


def test_llvm_and_the_kernel_agree_on_this_machine() -> None:
    pytest.importorskip("tvm")
    of_llvm, of_kernel = granted_features._of_llvm(), granted_features._of_kernel()
    assert {name for name, has in of_kernel.items() if has} <= {name for name, has in of_llvm.items() if has}

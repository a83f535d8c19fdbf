"""Facts about this machine."""

import os
import platform
from pathlib import Path
from types import SimpleNamespace

import pytest

from autosched import machine
from autosched_runtime.cpu_model import cpu_model

X86 = "processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9V74 80-Core Processor\n\nprocessor\t: 1\n"
PI = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd08\n\nModel\t\t: Raspberry Pi 4 Model B Rev 1.4\n"
EPYC = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\nflags\t\t: fpu sse2 avx avx2 fma"
ARM = "processor\t: 0\nFeatures\t: fp asimd asimddp\nCPU implementer\t: 0x41\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n"


@pytest.mark.parametrize(
    ("text", "model"),
    [
        (X86, "AMD EPYC 9V74 80-Core Processor"),
        (PI, "Raspberry Pi 4 Model B Rev 1.4"),
        (EPYC, "AMD EPYC (family 25, model 17), AVX2"),
        (f"{EPYC} avx512f avx512vl avx512_vnni\n", "AMD EPYC (family 25, model 17), AVX-512 VNNI"),
        (EPYC.replace("family\t: 25", "family\t: 26"), "AMD EPYC (family 26, model 17), AVX2"),
        (ARM, f"{platform.machine()} 0x41 0xd0c 0x3, NEON dot products"),
        ("", platform.machine()),
    ],
)
def test_the_model_is_what_the_kernel_tells(text: str, model: str, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert cpu_model(tmp_path / "cpuinfo") == model


def test_without_a_word_of_the_kernel_it_is_the_architecture(tmp_path: Path) -> None:
    assert cpu_model(tmp_path / "none") == platform.machine()


@pytest.mark.parametrize(("text", "there"), [("0-3\n", [0, 1, 2, 3]), ("0,2-3,8\n", [0, 2, 3, 8]), ("5\n", [5])])
def test_cores_are_those_that_are_online(text: str, there: list[int], tmp_path: Path) -> None:
    (tmp_path / "online").write_text(text)
    assert machine.online_cores(tmp_path / "online") == there


def test_without_a_list_of_cores_they_are_counted(tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("many\n")
    for name in ("none", "broken"):
        assert machine.online_cores(tmp_path / name) == list(range(os.cpu_count() or 1))


def test_cores_that_may_be_used_are_known_to_a_process_that_is_kept_to_one() -> None:
    before = os.sched_getaffinity(0)
    machine.cores.cache_clear()
    try:
        os.sched_setaffinity(0, {min(before)})
        assert machine.cores() >= before
        assert os.sched_getaffinity(0) == {min(before)}
    finally:
        os.sched_setaffinity(0, before)


def test_cores_of_another_machine_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cores", lambda: frozenset({0, 1, 2, 3}))
    assert machine.cores_of((2, 3, 4)) == (2, 3)
    assert machine.cores_of((62, 63)) == ()


@pytest.mark.parametrize(
    ("text", "lanes"),
    [
        ("processor : 0\nflags\t\t: fpu sse2 avx avx2 fma avx512f\n", 16),
        ("flags : sse2 avx avx2 fma\n", 8),
        ("flags : sse2\n", 4),
        ("Features : fp asimd evtstrm\n", 8),
        ("nothing of use", 16),
    ],
)
def test_the_peak_of_cores_is_a_bound(text: str, lanes: int, tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text(text)
    assert machine.peak_flops(3, info, tmp_path) == 3 * 2 * lanes * 2 * 5e9
    for core, clock_khz in ((0, "3000000\n"), (1, "3600000\n"), (2, "none")):
        folder = tmp_path / f"cpu{core}/cpufreq"
        folder.mkdir(parents=True)
        (folder / "cpuinfo_max_freq").write_text(clock_khz)
    assert machine.peak_flops(1, info, tmp_path) == pytest.approx(2 * lanes * 2 * 3.6e9)
    assert machine.peak_flops(1, tmp_path / "none", tmp_path) == pytest.approx(2 * 16 * 2 * 3.6e9)


def test_cores_that_were_taken_are_found_and_named() -> None:
    before, beyond = os.sched_getaffinity(0), max(machine.cores()) + 4_000
    assert machine.forbidden(()) == []
    assert machine.forbidden(before) == []
    assert machine.forbidden({*before, beyond}) == [beyond]
    assert os.sched_getaffinity(0) == before, "the caller stays where it is"
    with pytest.raises(OSError, match=rf"may not use these cores \(any more\): {beyond}; see its cpuset"):
        machine.pin([beyond])


def test_a_pinned_process_may_use_the_cores_beside_its_own() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert machine.forbidden(before) == []
    finally:
        os.sched_setaffinity(0, before)


def test_files_of_some_file_systems_may_not_be_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.executable(tmp_path / "missing"), "nothing is known of it"
    for flags, expected in ((0, True), (os.ST_NOEXEC | os.ST_RDONLY, False)):
        monkeypatch.setattr(os, "statvfs", lambda folder, flags=flags: SimpleNamespace(f_flag=flags))
        assert machine.executable(tmp_path) is expected

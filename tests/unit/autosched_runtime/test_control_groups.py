"""Limits of the control groups of a process."""

import math
from pathlib import Path

import pytest

from autosched_runtime.control_groups import cpu_quota, memory_limit


def control_groups(folder: Path, groups: str, files: dict[str, str]) -> tuple[Path, Path]:
    """Writes what the kernel would tell of the groups; returns the file and the folder."""
    (folder / "cgroup").write_text(groups)
    for name, text in files.items():
        (folder / "fs" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "fs" / name).write_text(text)
    return folder / "cgroup", folder / "fs"


@pytest.mark.parametrize(
    ("groups", "files", "quota"),
    [
        ("0::/\n", {}, math.inf),
        ("0::/a/b\n", {"a/cpu.max": "150000 100000\n", "a/b/cpu.max": "max 100000\n"}, 1.5),
        ("0::/outside\n", {"cpu.max": "50000 100000\n"}, 0.5),
        (
            "2:cpuacct:/x\n1:cpu:/x\n0::/\n",
            {"cpu/x/cpu.cfs_quota_us": "50000", "cpu/x/cpu.cfs_period_us": "100000"},
            0.5,
        ),
        ("4:cpu,cpuacct:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, math.inf),
        ("nonsense\n", {"cpu.max": "a b c"}, math.inf),
    ],
)
def test_the_quota_is_the_smallest_of_all_control_groups(
    groups: str, files: dict[str, str], quota: float, tmp_path: Path
) -> None:
    assert cpu_quota(*control_groups(tmp_path, groups, files)) == quota


def test_without_control_groups_there_is_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path / "none", tmp_path) == math.inf
    assert memory_limit(tmp_path / "none", tmp_path) == math.inf


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/a/b\n", {"a/memory.max": "1000\n", "a/b/memory.max": "max\n"}, 1_000),
        ("9:memory:/x\n", {"memory/x/memory.limit_in_bytes": "5000\n"}, 5_000),
        ("9:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, math.inf),
        ("9:cpu:/x\n", {"memory/x/memory.limit_in_bytes": "5000\n"}, math.inf),
    ],
)
def test_the_memory_limit_is_the_smallest_of_all_control_groups(
    groups: str, files: dict[str, str], limit: float, tmp_path: Path
) -> None:
    assert memory_limit(*control_groups(tmp_path, groups, files)) == limit

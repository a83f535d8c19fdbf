"""Reasons why a machine is slow, from what the kernel tells."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from autosched_runtime import control_groups
from autosched_runtime.disturbances import Counters, between, counters

BEFORE = Counters(at_s=100.0, own_s=1.0, busy_s=50.0, stolen_s=3.0, throttled=4, hot=2)
QUIET = replace(BEFORE, at_s=110.0, own_s=11.0, busy_s=60.0)
"""Ten seconds later: this process alone was busy."""


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def clocks(root: Path, now: int, highest: int) -> Path:
    cpus = {core: f"sys/devices/system/cpu/cpu{core}/cpufreq" for core in os.sched_getaffinity(0)}
    now_texts = {f"{folder}/scaling_cur_freq": f"{now}\n" for folder in cpus.values()}
    return written(root, now_texts | {f"{folder}/cpuinfo_max_freq": f"{highest}\n" for folder in cpus.values()})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, []),
        ({"busy_s": 60.5}, []),
        ({"busy_s": 60.0 + 5.0 * (os.cpu_count() or 1)}, ["other programs use"]),
        ({"throttled": 5}, ["the processor quota of its container stops it"]),
        ({"stolen_s": 3.0 + 1.0 * (os.cpu_count() or 1)}, ["the hypervisor withholds 10% of the processor time"]),
        ({"hot": 3}, ["the processor is hot, and slows down"]),
        ({"hot": 3, "throttled": 9}, ["the processor quota", "the processor is hot"]),
    ],
)
def test_what_disturbs_is_told(change: dict[str, float], words: list[str], tmp_path: Path) -> None:
    found = list(between(BEFORE, replace(QUIET, **change), tmp_path))  # type: ignore[arg-type]
    assert len(found) == len(words)
    for said, wanted in zip(found, words, strict=True):
        assert said.startswith(wanted)


@pytest.mark.parametrize(("now", "words"), [(3_400_000, []), (1_700_000, ["1.7 of 3.4 GHz"])])
def test_a_slow_clock_is_told(now: int, words: list[str], tmp_path: Path) -> None:
    found = list(between(BEFORE, QUIET, clocks(tmp_path, now, 3_400_000)))
    assert [said[-14:] for said in found] == words


def test_counters_are_read(tmp_path: Path) -> None:
    root = written(
        tmp_path,
        {
            "proc/stat": "cpu  100 20 300 4000 50 6 7 80 900 9\ncpu0 1 2 3\n",
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/cpu.stat": "usage_usec 5\nnr_throttled 7\n",
            "sys/fs/cgroup/a/b/cpu.stat": "nr_periods 5\nnr_throttled 2\n",
            "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "3\n",
            "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count": "4\n",
            "sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count": "no number\n",
        },
    )
    found = counters(root)
    second = os.sysconf("SC_CLK_TCK")
    assert (found.busy_s, found.stolen_s) == (433 / second, 80 / second)
    assert (found.throttled, found.hot) == (9, 7)
    assert found.own_s > 0


def test_a_machine_that_tells_nothing_has_no_reasons(tmp_path: Path) -> None:
    before, after = counters(tmp_path), counters(tmp_path)
    assert (before.busy_s, before.throttled, before.hot) == (0.0, 0, 0)
    assert list(between(before, after, tmp_path)) == []
    assert control_groups.throttled(tmp_path / "none", tmp_path) == 0


def test_this_machine_tells_its_counters() -> None:
    before, after = counters(), counters()
    assert after.at_s >= before.at_s
    assert after.busy_s >= before.busy_s > 0

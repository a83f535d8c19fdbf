"""Facts about this machine."""

import platform
from pathlib import Path

import pytest

from autosched.machine import cpu_model

X86 = "processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9V74 80-Core Processor\n\nprocessor\t: 1\n"
PI = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd08\n\nModel\t\t: Raspberry Pi 4 Model B Rev 1.4\n"
ARM = "processor\t: 0\nCPU implementer\t: 0x41\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n"


@pytest.mark.parametrize(
    ("text", "model"),
    [
        (X86, "AMD EPYC 9V74 80-Core Processor"),
        (PI, "Raspberry Pi 4 Model B Rev 1.4"),
        (ARM, f"{platform.machine()} 0x41 0xd0c 0x3"),
        ("", platform.machine()),
    ],
)
def test_the_model_is_what_the_kernel_tells(text: str, model: str, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert cpu_model(tmp_path / "cpuinfo") == model


def test_without_a_word_of_the_kernel_it_is_the_architecture(tmp_path: Path) -> None:
    assert cpu_model(tmp_path / "none") == platform.machine()

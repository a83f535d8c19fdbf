"""Makes a small aarch64 system in a folder, for a board's server in qemu: Debian's Python with the required wheels.

``python tests/arm_root.py`` makes it unless it exists. This takes a minute, a network connection and 500 MB in the
user's cache, and changes nothing else on this machine. It needs qemu-aarch64 (Debian: qemu-user), apt, dpkg, and a
linker for aarch64 (lld).
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "autosched" / "arm-root"
ROOT, SITE = FOLDER / "root", FOLDER / "site"
READY = FOLDER / "ready"
QEMU = "qemu-aarch64"
PYTHON = "python3.11"
DEBIAN = (PYTHON, "libstdc++6", "zlib1g")
WHEELS = ("apache-tvm", "apache-tvm-ffi", "numpy", "cloudpickle", "psutil", "ml-dtypes", "msgspec")
PLATFORMS = ("manylinux_2_34_aarch64", "manylinux_2_28_aarch64", "manylinux2014_aarch64")
LIMIT_S = 900.0


def is_ready() -> bool:
    """Returns whether the system, qemu and a linker for it are available."""
    return READY.exists() and all(map(shutil.which, (QEMU, "ld.lld")))


def command(*words: str) -> list[str]:
    """Returns the command that runs its Python."""
    return [QEMU, "-L", str(ROOT), str(ROOT / "usr/bin" / PYTHON), *words]


def environment(*paths: Path) -> dict[str, str]:
    """Returns the environment for its Python, with modules from these folders."""
    return {
        **os.environ, "PYTHONHOME": str(ROOT / "usr"), "PYTHONPATH": ":".join(map(str, (SITE, *paths))),
        "PYTHONDONTWRITEBYTECODE": "1", "TVM_NUM_THREADS": "1",
    }  # fmt: skip


def make() -> None:
    """Makes the system. Raises CalledProcessError."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    for folder in (ROOT, SITE, FOLDER / "lists/partial", FOLDER / "archives/partial"):
        folder.mkdir(parents=True)
    (FOLDER / "status").touch()
    apt = [
        "apt-get", "-qq", "-y", "-o", "APT::Architecture=arm64", "-o", "APT::Architectures=arm64",
        "-o", f"Dir::State::lists={FOLDER}/lists", "-o", f"Dir::State::status={FOLDER}/status",
        "-o", f"Dir::Cache={FOLDER}", "-o", f"Dir::Cache::archives={FOLDER}/archives", "-o", "Debug::NoLocking=1",
        "-o", "APT::Sandbox::User=root", "-o", "APT::Install-Recommends=false",
    ]  # fmt: skip
    _run([*apt, "update"])
    _run([*apt, "install", "--download-only", *DEBIAN])
    for package in sorted((FOLDER / "archives").glob("*.deb")):
        _run(["dpkg", "-x", str(package), str(ROOT)])
    words = [word for one in PLATFORMS for word in ("--platform", one)]
    wheels = [f"{name}=={version(name)}" for name in WHEELS]
    _run(
        [
            sys.executable, "-m", "pip", "install", "-q", "--target", str(SITE), *words, "--python-version", "3.11",
            "--implementation", "cp", "--only-binary=:all:", *wheels,
        ]
    )  # fmt: skip
    for left in ("lists", "archives"):
        shutil.rmtree(FOLDER / left)
    READY.touch()


def _run(words: Sequence[str]) -> None:
    subprocess.run(words, check=True, timeout=LIMIT_S)


if __name__ == "__main__":
    if not READY.exists():
        make()
    print(f"an aarch64 system is at {FOLDER}")

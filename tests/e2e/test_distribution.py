"""The files of a release install into a new environment and work there. `make dist` does the same with dependencies
from the package index. The runtime works beside other versions of TVM's libraries."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import autosched

pytest.importorskip("tvm")
from unit.autosched_runtime.small_networks import tuned_for, written

ROOT = Path(__file__).parents[2]
LIMIT_S = 300.0


def run(*words: str | Path, folder: Path, **variables: str) -> str:
    """Returns the output of a program that succeeds, in a folder without sources."""
    known = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    ended = subprocess.run(
        list(map(str, words)), cwd=folder, env=known | variables, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an sdist and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, folder=folder)
    return folder


@pytest.mark.parametrize("suffix", [".whl", ".tar.gz"])
def test_a_release_installs_and_the_machine_passes(suffix: str, files: Path, tmp_path: Path) -> None:
    """The environment sees the packages that this one has, but for autosched, which is installed from sources here."""
    (file,) = files.glob(f"autosched-{autosched.__version__}*{suffix}")
    place = tmp_path / "env"
    venv.create(place, with_pip=False)
    python = place / "bin/python"
    (packages,) = (place / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = (sys.executable, "-m", "pip", "--python", python, "install")
    run(*pip, "--no-index", "--no-deps", "--no-build-isolation", file, folder=tmp_path)
    where = run(python, "-c", "import autosched, autosched_tvm; print(autosched.__file__)", folder=tmp_path)
    assert Path(where.strip()).is_relative_to(place)
    variables = {"XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}
    said = run(place / "bin/autosched", "doctor", folder=tmp_path, **variables)
    assert "All is well" in said
    assert "backends: ansor, auto, autotvm, gcc, mock, tc" in said
    assert autosched.__version__ in run(place / "bin/autosched", "--version", folder=tmp_path)
    assert run(place / "bin/autosched", "install-systemd", "--help", folder=tmp_path)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the runtime from its wheel, and NumPy."""
    folder = tmp_path_factory.mktemp("runtime")
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", folder, ROOT / "runtime", folder=folder)
    venv.create(folder / "env", with_pip=False)
    python = folder / "env/bin/python"
    (packages,) = (folder / "env/lib").glob("python*/site-packages")
    for path in Path(sysconfig.get_path("purelib")).glob("numpy*"):
        (packages / path.name).symlink_to(path)
    (wheel,) = folder.glob("autosched_runtime-*-py3-none-manylinux_2_27_*.whl")
    assert wheel.stat().st_size < 4e6
    pip = (sys.executable, "-m", "pip", "--python", python, "install")
    run(*pip, "--no-index", "--no-deps", wheel, folder=folder)
    return python


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tuned_for(written(tmp_path_factory.mktemp("network") / "net.so"), 1)


OURS = """
x = np.arange(64, dtype="float32")
for _ in range(3):
    assert (autosched_runtime.load(sys.argv[1], threads=2).run({"x": x})[0] == x + x).all()
"""
TVM = """
import tvm
from tvm import relax
given = tvm.runtime.tensor(np.arange(64, dtype="float32"))
assert relax.VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())["main"](given).numpy()[3] == 6
"""
TVM_FFI = """
import tvm_ffi
assert tvm_ffi.__version__.startswith("0.1.9"), tvm_ffi.__version__
assert tvm_ffi.convert(lambda x: x + 1)(1) == 2 and tvm_ffi.convert([1, 2, 3])[1] == 2
"""
BEGIN = "import sys\nimport numpy as np\nimport autosched_runtime\n"


def test_the_runtime_needs_numpy_alone(runtime: Path, network: Path, tmp_path: Path) -> None:
    others = "print(sorted({name.partition('.')[0] for name in sys.modules} & {'tvm', 'tvm_ffi', 'msgspec'}))"
    assert run(runtime, "-c", BEGIN + OURS + others, network, folder=tmp_path).strip() == "[]"


@pytest.mark.parametrize("parts", [(OURS, TVM, OURS), (TVM, OURS, TVM)], ids=["first", "second"])
def test_the_runtime_works_beside_tvm(parts: tuple[str, ...], runtime: Path, network: Path, tmp_path: Path) -> None:
    program = BEGIN + "".join(parts) + "print('both')"
    said = run(runtime, "-c", program, network, folder=tmp_path, PYTHONPATH=sysconfig.get_path("purelib"))
    assert said.strip() == "both"


@pytest.mark.fetch
@pytest.mark.parametrize("parts", [(OURS, TVM_FFI, OURS), (TVM_FFI, OURS, TVM_FFI)], ids=["first", "second"])
def test_the_runtime_works_beside_another_version_of_tvm_ffi(
    parts: tuple[str, ...], runtime: Path, network: Path, tmp_path: Path
) -> None:
    install = ("-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path / "other", "apache-tvm-ffi==0.1.9")
    run(sys.executable, *install, folder=tmp_path)
    variables = {"PYTHONPATH": f"{tmp_path / 'other'}:{sysconfig.get_path('purelib')}"}
    program = BEGIN + "".join(parts) + "print('both')"
    assert run(runtime, "-c", program, network, folder=tmp_path, **variables).strip() == "both"

"""A compiled network for its user: run it, measure it, check it against its model, copy it."""

import asyncio
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack

import msgspec
from msgspec import Struct

from autosched import config, gpus
from autosched.api import daemon_address, result_folder, tvm_programs
from autosched.api.connection import Daemon
from autosched.api.fluent import Ordered, wait
from autosched.api.on_demand import Told, connected
from autosched.backend import Evaluation, OperatorTimes, Timing
from autosched.client import one_step_client
from autosched.config import Config
from autosched.device_types import CUDA_KINDS, named_arch, runs
from autosched.errors import DaemonUnreachable, NotFound, RequestError
from autosched.model import DEVICE_POOL, NETWORK_TASK, CudaDevice, JobId, JobSpec, TaskLoad, device_kind
from autosched.process import whole_file
from autosched.records.statistics import summarize
from autosched.runtime_errors import in_words
from autosched.stages import EVALUATE
from autosched.wire import blob_transfer
from autosched_runtime.side_file import cores_of, samples_beside

if TYPE_CHECKING:
    import numpy as np

    from autosched.export.exported import Packing
    from autosched_runtime.network import Network

DEFAULT_DEVICE = "cpu"
"""Kind of device that is meant where no other is named."""
PADDING_S = 600.0
"""Seconds for the comparison of padded inputs with exact ones."""
MEASURE_EXTRA_S = 60.0
"""Extra seconds to start the process, load the module and finish the running inference."""


def load_module(path: str | Path, *, threads: int | None = None) -> "Module":
    """Load a compiled module: its .so file, or the folder that contains it. Raises NotFound or RequestError.

    `threads`: number of threads of `Module.run`; None: the cores that it was tuned for, at most those that this process
    may use.
    """
    if threads is not None and threads < 1:
        raise RequestError(f"threads is {threads}: at least 1 is needed, or None for as many as it was tuned for")
    path = Path(path)
    if path.is_dir():
        found = sorted(file for file in path.glob("*.so") if result_folder.is_module(file))
        if len(found) != 1:
            raise RequestError(f"{path} holds {len(found)} modules (.so): name one of them")
        path = found[0]
    if not path.is_file():
        raise NotFound(f"there is no module {path}. `autosched tune` leaves one in its output folder")
    if path.suffix != ".so":
        raise RequestError(f"{path} is no compiled module (.so). Make one:  autosched tune MODEL.onnx")
    if not path.with_suffix(".json").is_file():
        raise RequestError(
            f"{path.with_suffix('.json')} is missing: it belongs to {path.name}. Copy both files together"
        )
    return Module(path.absolute(), threads)


class TemporaryFolder:
    """A temporary folder that is removed when nothing refers to it any more."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="autosched-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True)
class Module(Ordered):
    """A compiled network: a shared library, and a JSON file that describes its inputs and outputs."""

    path: Path
    threads: int | None = None
    """Number of threads of `run`; None: the number of cores that it was tuned for."""
    holder: TemporaryFolder | None = field(default=None, repr=False, compare=False)

    _instead = dict.fromkeys(("tune", "compile"), "it is compiled already; tune the Model again to get another")

    @property
    def cores(self) -> int:
        """Number of cores that it was tuned for. Raises RequestError if the file beside it cannot be read."""
        return _origin(self.path).cores

    @property
    def arch(self) -> int | None:
        """Compute capability of the GPU for which it was compiled, 90 for 9.0; None for CPUs. Raises RequestError if
        the file beside it cannot be read."""
        target = _origin(self.path).target
        return named_arch(str(target.get("arch", ""))) if target.get("kind") in CUDA_KINDS else None

    @property
    def verified(self) -> bool:
        """Whether another engine gives the same outputs; of modules handed over otherwise, nothing is known about them.
        Raises RequestError if the file beside it cannot be read."""
        return _origin(self.path).verified != ""

    def save(self, folder: str | Path) -> "Module":
        """Copy the module, and the report beside it, to a folder; returns the copy. Raises RequestError."""
        target = result_folder.prepare(Path(folder))
        names = [
            self.path.name,
            self.path.with_suffix(".json").name,
            samples_beside(self.path).name,
            result_folder.RECORDS,
            result_folder.REPORT,
            result_folder.PAGE,
        ]
        try:
            for source in (self.path.with_name(name) for name in names):
                if source.is_file() and source.parent != target:
                    whole_file.write(target / source.name, source.read_bytes())  # a process may run the former file
        except OSError as error:
            why = "the disk is full" if blob_transfer.is_full_disk(error) else error.strerror
            raise RequestError(f"the module could not be saved to {target}: {why}. Choose another folder") from None
        return Module(target / self.path.name, self.threads)

    @property
    def has_samples(self) -> bool:
        """Whether inputs with verified outputs were kept."""
        return samples_beside(self.path).is_file()

    def export(
        self, form: str = "file", output: str | Path | None = None, *, others: "Sequence[Module]" = (),
        **how: "Unpack[Packing]",
    ) -> Path:  # fmt: skip
        """Pack the module for where it runs, as a "file", "wheel", "folder", "c" project or "image"; returns what was
        written. `others`: modules of the same model for other CPUs or shapes, packed with it. The further arguments are
        those of `autosched export`. Raises RequestError, NotFound."""
        from autosched.export import Form, export  # few programs need it

        if form not in list(Form):
            raise RequestError(f"{form!r} is no form of a packed network: choose one of {', '.join(Form)}")
        modules = [module.path for module in (self, *others)]
        return export(modules, Form(form), None if output is None else Path(output), **how)

    def padding(
        self, others: "Sequence[Module]", *, least: int = 1, model: str | Path | None = None
    ) -> tuple[dict[str, Any] | None, str]:
        """How inputs of sizes between those of this module and others can be padded, for `export`; or None, and why
        they cannot. Runs padded inputs, and exact ones in ONNX Runtime.

        `least`: the smallest size. `model`: the module's model; None: searched as in `check`. Raises RequestError.
        """
        return wait(self.padding_async(others, least=least, model=model))

    async def padding_async(
        self, others: "Sequence[Module]", *, least: int = 1, model: str | Path | None = None
    ) -> tuple[dict[str, Any] | None, str]:
        """Like `padding`, for coroutines."""
        folder = TemporaryFolder()
        given = await self._model(None if model is None else Path(model), None, folder.path)
        file = await asyncio.to_thread(self.export, "file", folder.path / "net.asn", others=others)
        words = ["pad", str(file), "--model", str(given), "--least", str(least)]
        answer = await tvm_programs.ask(tvm_programs.MODULE_COMMAND, words, timeout_s=PADDING_S)
        return answer["padding"], answer["why"]

    def run(self, inputs: "Inputs") -> "list[np.ndarray[Any, Any]]":
        """Run one inference in this process: NumPy arrays in (by name, in order, or the only one) and out, in order.

        Raises RequestError for inputs that do not fit, and if neither TVM nor autosched-runtime is installed.
        """
        one = hasattr(inputs, "dtype")  # checked by attribute, so that NumPy need not be imported here
        given: Any = [inputs] if one else inputs
        with in_words():
            return _loaded(self.path, self.threads).run(given)

    async def run_async(self, inputs: "Inputs") -> "list[np.ndarray[Any, Any]]":
        """Like `run`, for coroutines, in a thread."""
        return await asyncio.to_thread(self.run, inputs)

    def evaluate(self, **words: Any) -> Timing:
        """Measure the latency of one inference. Keywords as in `evaluate_async`."""
        return wait(self.evaluate_async(**words))

    async def evaluate_async(
        self, *, daemon: str | None = None, device: str = "cpu", budget_s: float = 5.0, inputs: Sequence[str] = (),
        samples: str | Path | None = None, told: Told | None = None,
    ) -> Timing:  # fmt: skip
        """Measure in a child process on the device's cores, for about `budget_s` seconds, on made-up inputs or files.

        `samples`: a .npz file with samples of all inputs, of which the first is used.

        Where a daemon runs, its lease on the device is waited for and held: no job's measurement is disturbed.
        """
        words = ["evaluate", str(self.path), *_given(inputs), *_option("--inputs", samples)]
        return msgspec.convert((await self._measured(words, daemon, device, budget_s, told))["timing"], Timing)

    def operators(self, **words: Any) -> OperatorTimes:
        """Measure each operator within the network. Keywords as in `operators_async`."""
        return wait(self.operators_async(**words))

    async def operators_async(
        self, *, daemon: str | None = None, device: str = "cpu", budget_s: float = 5.0, inputs: Sequence[str] = (),
        told: Told | None = None,
    ) -> OperatorTimes:  # fmt: skip
        """Measure each operator inside of the network, where and on what `evaluate_async` measures the whole."""
        words = ["evaluate", str(self.path), "--operators", *_given(inputs)]
        found = (await self._measured(words, daemon, device, budget_s, told))["operators"]
        return msgspec.convert(found, OperatorTimes)

    def check(self, **words: Any) -> Evaluation:
        """Compare the outputs with the model's. Keywords as in `check_async`."""
        return wait(self.check_async(**words))

    async def check_async(
        self, *, model: str | Path | None = None, daemon: str | None = None, device: str = "cpu",
        tolerance: float | None = None, told: Told | None = None, **words: Unpack["CheckWords"],
    ) -> Evaluation:  # fmt: skip
        """Compare its outputs with those of its model in ONNX Runtime, and measure both side by side, as `evaluate`.

        `tolerance`: what outputs may differ by, as a share of each one's largest value; None: what rounding explains.

        The model is looked for in this folder, near the module, and in the daemon that compiled it. Raises NotFound
        when it is nowhere, RequestError when it is another one or ONNX Runtime cannot run it.
        """
        with tempfile.TemporaryDirectory(prefix="autosched-check-") as folder:
            source = await self._model(None if model is None else Path(model), daemon, Path(folder))
            asked = ["check", str(self.path), "--model", str(source), "--seed", str(words.get("seed", 0))]
            asked += [*_given(words.get("inputs", ())), *_option("--inputs", words.get("samples"))]
            asked += _option("--tolerance", tolerance)
            answer = await self._measured(asked, daemon, device, words.get("budget_s", 5.0), told)
        return msgspec.convert(answer["evaluation"], Evaluation)

    def compare(self, other: str | Path, **words: Any) -> dict[str, Timing]:
        """Compare its speed with another module's. Keywords as in `compare_async`."""
        return wait(self.compare_async(other, **words))

    async def compare_async(
        self, other: str | Path, *, daemon: str | None = None, device: str = "cpu", budget_s: float = 10.0,
        told: Told | None = None,
    ) -> dict[str, Timing]:  # fmt: skip
        """Its time over that of another module (NAME.so or NAME.asn), both in turns on the same cores: the median of
        the ratios in each round, and its bounds, by the inputs in words. Raises RequestError if their inputs differ."""
        words = ["compare", str(self.path), "--other", str(other)]
        found = (await self._measured(words, daemon, device, budget_s, told))["ratios"]
        return {inputs: summarize("ratio", ratios) for inputs, ratios in found.items()}

    async def _model(self, given: Path | None, daemon: str | None, folder: Path) -> Path:
        """The file of the module's model; downloaded to the folder if only the daemon has it."""
        origin = _origin(self.path)
        if (found := await asyncio.to_thread(_here, self.path, origin, given)) is not None:
            return found
        path = folder / origin.file
        try:
            async with connected(daemon, start=False) as connection:
                await blob_transfer.download(connection.link, origin.model, path)
        except (DaemonUnreachable, NotFound):
            raise NotFound(
                f"{origin.file}, which {self.path.name} was compiled from, is neither here nor in a daemon that runs."
                " Name it:  --model MODEL.onnx"
            ) from None
        return path

    async def _measured(
        self, words: Sequence[str], daemon: str | None, device: str, budget_s: float, told: Told | None
    ) -> dict[str, Any]:
        """Run the measuring child process; under a lease if a daemon runs."""

        async def measure(cores: Sequence[int], gpu: str) -> dict[str, Any]:
            timeout_s = budget_s + MEASURE_EXTRA_S
            where = [*tvm_programs.on_cores(cores), *tvm_programs.on_gpu(gpu)]
            words_said = [*words, "--budget-s", str(budget_s), *where]
            return await tvm_programs.ask(tvm_programs.MODULE_COMMAND, words_said, timeout_s=timeout_s)

        try:
            async with connected(daemon, start=False) as connection:
                kind = await self._kind(connection, device)
                return await self._leased(
                    connection, kind, budget_s, lambda order: measure(order.cores, order.gpu), told
                )
        except DaemonUnreachable:
            if daemon_address.named(daemon) is not None:
                raise
        if told is not None:
            told("No daemon runs: measuring without a lease; other programs on this machine may disturb it.")
        if (uuid := await asyncio.to_thread(self.gpu)) != "":
            return await measure((), uuid)
        return await measure(await asyncio.to_thread(self._usual_cores, device), "")

    def gpu(self) -> str:
        """UUID of the GPU of this machine on which it runs; empty for a module for CPUs. Raises NotFound."""
        arch = self.arch
        return gpus.chosen(arch).uuid if arch is not None else ""

    async def _kind(self, daemon: Daemon, device: str) -> str:
        """The kind of device on which it is measured: the given one, or for a module for GPUs one that runs it. Raises
        NotFound."""
        arch = self.arch
        if arch is None or device != DEFAULT_DEVICE:
            return device
        for unit in await daemon.units():
            if isinstance(unit.accelerator, CudaDevice) and runs(arch, unit.accelerator.arch):
                return device_kind(unit.pools[0])
        raise NotFound(f"the daemon has no GPU that runs code for compute capability {arch // 10}.{arch % 10}")

    def _usual_cores(self, device: str) -> tuple[int, ...]:
        """The cores of a device with the number of cores that it was tuned for, or of any device; empty if unknown."""
        count = min(self.cores, len(config.usable_cores()))
        pools = config.resources(config.with_device_cores(Config(), count)).pools
        return next((found.units[0].cores for found in pools if found.name == f"{DEVICE_POOL}{device}"), ())

    async def _leased(
        self,
        daemon: Daemon,
        device: str,
        budget_s: float,
        work: one_step_client.Work[dict[str, Any]],
        told: Told | None,
    ) -> dict[str, Any]:
        name = f"evaluate-{self.path.stem}"[:200]
        spec = JobSpec(name=name, model="0" * 64, device=device, backend="none", external=True)
        limit_s = 2 * budget_s + MEASURE_EXTRA_S
        load = TaskLoad(
            task=NETWORK_TASK, resources_next=(f"{DEVICE_POOL}{device}",), stage_next=EVALUATE,
            expected_s=budget_s, timeout_s=limit_s,
        )  # fmt: skip

        def waiting(job: JobId) -> None:
            if told is not None:
                told(f"Waiting for device {device} as job {job}. Why:  autosched explain {job}")

        where = (await daemon.info()).address or daemon.address
        return await one_step_client.run_under_lease(daemon.link, where, spec, load, work, waiting=waiting)

    async def save_async(self, folder: str | Path) -> "Module":
        """Like `save`, for coroutines."""
        return await asyncio.to_thread(self.save, folder)


class CheckWords(TypedDict, total=False):
    """Keyword arguments of a check."""

    budget_s: float
    """Seconds of measurement; 5 by default."""
    inputs: Sequence[str]
    """Files with one input each: FILE.npy or NAME=FILE.npy."""
    samples: str | Path | None
    """A .npz file with samples of all inputs, by name."""
    seed: int
    """Random seed of generated inputs."""


class Origin(Struct, frozen=True):
    """The model of a module, from the file beside the module; empty for older modules."""

    model: str = ""
    """Content hash of the model's file."""
    file: str = ""
    """The file's name."""
    target: dict[str, Any] = {}
    """Target of the compilation, in TVM's form."""
    verified: str | None = None
    """The engine that gives the same outputs; empty: none could check them; None for older modules."""

    @property
    def cores(self) -> int:
        """Number of cores that it was tuned for."""
        return cores_of(self.target)


def _option(name: str, value: object) -> list[str]:
    """An option of the child; empty to use the child's default."""
    return [] if value is None else [name, str(value)]


def _origin(module: Path) -> Origin:
    side = module.with_suffix(".json")
    try:
        found = msgspec.json.decode(side.read_bytes(), type=Origin)
    except (OSError, msgspec.MsgspecError) as error:
        raise RequestError(f"{side} does not describe a compiled module: {error}. Compile the network again") from None
    return msgspec.structs.replace(found, file=Path(found.file).name)


def _here(module: Path, origin: Origin, given: Path | None) -> Path | None:
    """The model's file: the given one, or one with its name and content near the module or in this folder."""
    if given is not None:
        if not given.is_file():
            raise NotFound(f"there is no model {given}. Name the file that {module.name} was compiled from")
        if origin.model and blob_transfer.sha256(given) != origin.model:
            raise RequestError(
                f"{given} is not what {module.name} was compiled from: that {origin.file} differs from it"
            )
        return given
    if not origin.model:
        raise RequestError(f"{module.name} does not say what it was compiled from. Name it:  --model MODEL.onnx")
    places = (place / origin.file for place in (Path(), module.parent, module.parent.parent))
    return next((path for path in places if path.is_file() and blob_transfer.sha256(path) == origin.model), None)


def _given(inputs: Sequence[str]) -> list[str]:
    return [word for text in inputs for word in ("--input", text)]


Inputs: TypeAlias = "Mapping[str, np.ndarray[Any, Any]] | Sequence[np.ndarray[Any, Any]] | np.ndarray[Any, Any]"


@cache
def _loaded(path: Path, threads: int | None) -> "Network":
    """The module in this process; loaded once."""
    try:
        from autosched_runtime.network import Network
    except ImportError as error:
        raise RequestError(tvm_programs.INSTALL) from error
    return Network(path, threads=threads)

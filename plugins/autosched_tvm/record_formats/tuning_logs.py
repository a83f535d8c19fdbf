"""Logs of AutoTVM (version 0.2, as in packages of TopHub) and of Ansor (version 0.6), as seeds of searches.

Both logs contain schedules of templates that TVM no longer has. The tiling and unrolling of a schedule can be kept:
they become the decisions of MetaSchedule's sketches for a workload of the record store with loops of the same extents.
Fusion of epilogues, vectorisation and layouts of inputs are lost. A seed is therefore one of the first candidates of a
search, and its latency in the log only orders the seeds.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import tvm
from msgspec import Struct

from autosched.errors import RequestError
from autosched.model import Record, TaskInfo
from autosched.recordstore.catalogue import Catalogue
from autosched.recordstore.json_lines import LINE_BYTES_MAX, Complain, Taken, lines, tuner_of
from autosched.recordstore.keys import Environment, join_target
from autosched.recordstore.rows import Measurement, Origin, Workload
from autosched.recordstore.store import RecordStore
from autosched_tvm.compile import workload_program
from autosched_tvm.record_formats import foreign_record
from autosched_tvm.tuning import schedule_traces
from autosched_tvm.tuning.schedule_traces import Decision, Sketch
from autosched_tvm.tuning.search_method import SearchContext
from autosched_tvm.tuning.sketch_space import SketchSpace
from autosched_tvm.tvm_types import IRModule, Schedule
from autosched_tvm.worker_messages import TEMPLATE

SEEDS_MAX = 16
"""Maximum seeds of one workload: the fastest of the log."""
FAILED_S = 1e9
"""Latency in seconds from which on a log means a failure."""
UNROLL = (0, 16, 64, 512)
"""Maximum unrolled steps among which MetaSchedule chooses on a CPU."""
UNROLLED, ROLLED = 64, 16
"""Maximum unrolled steps for AutoTVM's kernels with and without `unroll_kw`."""
SPATIAL, REDUCED = 4, 2
"""Levels of tiles of spatial loops and of reductions in MetaSchedule on a CPU."""

Tile = tuple[int, ...]
"""Factors of a loop, the outermost first."""


class Seed(Struct, frozen=True):
    """The usable part of a schedule in a log."""

    tilings: tuple[tuple[Tile, ...], ...]
    """Tiles of all loops, in the order of the loops; alternatives for several layouts."""
    unroll: int
    latency_s: tuple[float, ...]
    measured_at: float
    target: str
    tuner: str


class Dropped(Exception):
    """A valid line without use here. The argument is the reason, for counting."""


def read(file: BinaryIO, store: RecordStore, known: Catalogue, complain: Complain) -> Taken:
    """Import the seeds of a log into a store, for known workloads. A wrong line is reported and skipped.

    Raises StoreUnavailable.
    """
    found = Taken()
    seeds = list(_seeds(file, found, complain))
    spaces = _spaces(known)
    wanted: defaultdict[str, list[Seed]] = defaultdict(list)
    for seed in seeds:
        fitting = [name for tiling in seed.tilings for name in spaces.get(_extents(tiling), ())]
        for name in dict.fromkeys(fitting):
            wanted[name].append(seed)
        if not fitting:
            found.dropped["no known workload has loops of its extents"] += 1
    by_hash = {name: space for some in spaces.values() for name, space in some.items()}
    for name, some in wanted.items():
        ordered = sorted(some, key=lambda seed: (sum(seed.latency_s) / len(seed.latency_s), seed.measured_at))
        if (slower := len(ordered) - SEEDS_MAX) > 0:
            found.dropped[f"slower than the {SEEDS_MAX} best of its workload"] += slower
        _take(by_hash[name], ordered[:SEEDS_MAX], store, found)
    return found


class _Space:
    """A known workload with MetaSchedule's sketches."""

    def __init__(self, workload: Workload, where: Environment, module: IRModule) -> None:
        self.workload, self.environment = workload, where
        target = json.loads(join_target(where.target, where.threads))
        info = TaskInfo(task=1, name=workload.name or "workload", workload=workload.hash)
        context = SearchContext(info, module, tvm.target.Target(target), 1, 1, tuple, False)
        self.space = SketchSpace(context)
        tiles = [_tiles(design) for design in self.space.designs[: len(self.space.sketches)]]
        self.extents = [_extents(some) for some in tiles]
        """Extents of the tiled loops of each sketch."""
        self.levels = [tuple(map(len, some)) for some in tiles]

    def candidates(self, seed: Seed) -> Iterator[bytes]:
        """Schedules of the sketches whose loops have the seed's extents."""
        for number, sketch in enumerate(self.space.sketches):
            for tiling in seed.tilings:
                if self.extents[number] != _extents(tiling) or self.levels[number] != tuple(map(len, tiling)):
                    continue
                grown = self.space.grow(number, _decisions(sketch, tiling, seed.unroll), 1)
                if grown is not None:
                    yield grown.candidate()


def _spaces(known: Catalogue) -> dict[tuple[int, ...], dict[str, _Space]]:
    """Workloads with a known program, by the extents of the loops of their sketches."""
    places: dict[str, tuple[Workload, Environment]] = {}
    for one in known.workloads():
        if one.environment.template == TEMPLATE and one.environment.target.startswith("{"):
            places.setdefault(one.workload.hash, (one.workload, one.environment))
    found: defaultdict[tuple[int, ...], dict[str, _Space]] = defaultdict(dict)
    for name, program in known.programs(places).items():
        try:
            module = workload_program.module_of(workload_program.text_of(program))
            space = _Space(*places[name], module)
        except Exception:  # a program of another version of TVM, or without a design space
            continue
        for extents in space.extents:
            found[extents][name] = space
    return found


def _tiles(design: Schedule) -> list[Tile]:
    """The tiles of a schedule of a design space, in the order of its loops."""
    trace = schedule_traces.read(schedule_traces.write(design.trace.as_json()))
    assert trace is not None, "TVM's design spaces have all decisions made"
    return [decision for decision in trace.decisions if isinstance(decision, tuple)]


def _extents(tiling: Iterable[Tile]) -> tuple[int, ...]:
    return tuple(math.prod(tile) for tile in tiling)


def _decisions(sketch: Sketch, tiling: Sequence[Tile], unroll: int) -> list[Decision | None]:
    """Decisions of a sketch: the seed's tiles and the nearest unrolling; other decisions are drawn."""
    tiles = iter(tiling)
    made: list[Decision | None] = []
    for place in sketch.places:
        kind = sketch.instructions[place][0]
        if kind == "SamplePerfectTile":
            made.append(next(tiles))
        elif kind == "SampleCategorical":
            made.append(min(range(len(UNROLL)), key=lambda index: abs(UNROLL[index] - unroll)))
        else:
            made.append(None)
    return made


def _take(space: _Space, seeds: Sequence[Seed], store: RecordStore, found: Taken) -> None:
    where = Environment(space.environment.target, space.environment.threads, template=TEMPLATE)
    rows: defaultdict[str, list[Measurement]] = defaultdict(list)
    kept = 0
    for seed in seeds:
        applied = list(dict.fromkeys(space.candidates(seed)))
        if not applied:
            found.dropped["its tiles cannot be applied"] += 1
            continue
        kept += 1
        for candidate in applied:
            record = Record(
                task=0, number=0, candidate=candidate, latency_s=seed.latency_s, measured_at=seed.measured_at
            )
            one = foreign_record.measurement(seed.tuner, seed.tuner, seed.target, space.workload, where, record)
            rows[seed.tuner].append(one)
    for tuner, some in rows.items():
        found.new += store.add(Origin(tuner, True, tuner), some)
    found.seeded += bool(kept)


# Lines ----------------------------------------------------------------------------------------------------------------


def _seeds(file: BinaryIO, found: Taken, complain: Complain) -> Iterator[Seed]:
    for number, text in enumerate(lines(file), 1):
        if not text.strip() or text.lstrip().startswith(b"#"):
            continue
        found.lines += 1
        try:
            if len(text) > LINE_BYTES_MAX:
                raise RequestError(f"it is longer than {LINE_BYTES_MAX:,} bytes")
            yield seed_of(text)
        except Dropped as reason:
            found.dropped[str(reason)] += 1
        except RequestError as error:
            found.wrong += 1
            complain(number, str(error))


def seed_of(line: bytes) -> Seed:
    """The seed in a line of a log. Raises Dropped, and RequestError for a line of no log."""
    tuner = tuner_of(line)
    if not tuner:
        raise RequestError("it is no line of AutoTVM 0.2 or of Ansor 0.6")
    told = json.loads(line)
    try:
        return _of_autotvm(told) if tuner == "AutoTVM" else _of_ansor(told)
    except (KeyError, IndexError, TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
        raise RequestError(f"it is no record of {tuner}: {type(error).__name__}: {error}") from None


def _latencies(result: Any) -> tuple[float, ...]:
    """Latencies of a result. Raises Dropped for a failure."""
    seconds, failed = tuple(float(one) for one in result[0]), int(result[1])
    if failed or not seconds or max(seconds) >= FAILED_S:
        raise Dropped("it failed there")
    if not all(math.isfinite(one) and one > 0 for one in seconds):
        raise ValueError("its latencies are no positive numbers of seconds")
    return seconds


def _measured_at(result: Any) -> float:
    found = float(result[3]) if len(result) > 3 else 0.0
    return found if math.isfinite(found) and found > 0 else 0.0


def _check_cpu(target: str) -> str:
    if re.split(r"\s", target.strip(), maxsplit=1)[0] not in ("llvm", "c") and '"llvm"' not in target:
        raise Dropped("it is for another kind of device")
    return target


def _of_autotvm(told: dict[str, Any]) -> Seed:
    if float(told.get("version", 0.0)) != 0.2:
        raise ValueError(f"version {told.get('version')} is not 0.2")
    target, template, arguments = str(told["input"][0]), str(told["input"][1]), told["input"][2]
    knobs = {str(name): value for name, _, value in told["config"]["entity"]}
    latency_s = _latencies(told["result"])
    make = _TEMPLATES.get(template.partition(".")[0])
    if make is None:
        raise Dropped(f"{template} has no counterpart")
    unroll = UNROLLED if knobs.get("unroll_kw") is True else ROLLED
    tilings = tuple(make(arguments, knobs))
    return Seed(tilings, unroll, latency_s, _measured_at(told["result"]), _check_cpu(target), "AutoTVM")


def _spatial(extent: int, inner: int = 1) -> Tile:
    """A spatial loop, tiled once: AutoTVM's templates have one level."""
    if extent % inner:
        raise ValueError(f"{inner} does not divide {extent}")
    return (extent // inner, 1, 1, inner)


def _conv2d(arguments: Any, knobs: dict[str, Any], depthwise: bool = False) -> Iterator[tuple[Tile, ...]]:
    data, kernel = arguments[0][1], arguments[1][1]
    if len(data) != 4 or len(kernel) != 4:
        raise Dropped("its tensors are in blocks")
    (n, channels, height, width), (outputs, _, high, wide) = data, kernel
    strides, padding, dilation = arguments[2], arguments[3], arguments[4]
    top, left, bottom, right = padding if len(padding) == 4 else (*padding, *padding)
    out_h = (height + top + bottom - (high - 1) * dilation[0] - 1) // strides[0] + 1
    out_w = (width + left + right - (wide - 1) * dilation[1] - 1) // strides[1] + 1
    maps = channels if depthwise else outputs
    block, columns = int(knobs["tile_oc"][-1]), int(knobs["tile_ow"][-1])
    kw = (1, wide) if knobs.get("unroll_kw") is True else (wide, 1)
    window: tuple[Tile, ...] = ((high, 1), kw)
    if not depthwise:
        inner = int(knobs["tile_ic"][-1])
        if channels % inner:
            raise ValueError(f"{inner} does not divide {channels}")
        window = ((channels // inner, inner), *window)
    if maps % block:
        raise ValueError(f"{block} does not divide {maps}")
    rows = _spatial(out_h), _spatial(out_w, columns)
    yield (_spatial(n), _spatial(maps // block), *rows, _spatial(block, block), *window)  # channels in blocks
    yield (_spatial(n), _spatial(maps, block), *rows, *window)


def _depthwise(arguments: Any, knobs: dict[str, Any]) -> Iterator[tuple[Tile, ...]]:
    return _conv2d(arguments, knobs, depthwise=True)


def _dense(arguments: Any, knobs: dict[str, Any]) -> Iterator[tuple[Tile, ...]]:
    (rows, depth), (columns, _) = arguments[0][1], arguments[1][1]
    tiles = []
    for extent, name in ((rows, "tile_y"), (columns, "tile_x")):
        factors = [int(one) for one in knobs[name]]
        middle, inner = (factors[1] if len(factors) > 2 else 1), factors[-1]
        if extent % (middle * inner):
            raise ValueError(f"{name} does not divide {extent}")
        tiles.append((extent // (middle * inner), 1, middle, inner))
    inner = int(knobs["tile_k"][-1])
    if depth % inner:
        raise ValueError(f"tile_k does not divide {depth}")
    yield (*tiles, (depth // inner, inner))


_TEMPLATES: dict[str, Callable[[Any, dict[str, Any]], Iterator[tuple[Tile, ...]]]] = {
    "conv2d_NCHWc": _conv2d, "depthwise_conv2d_NCHWc": _depthwise, "dense_nopack": _dense, "dense_pack": _dense,
}  # fmt: skip
"""Templates of AutoTVM for x86 CPUs, by the first part of their names."""


def _of_ansor(told: dict[str, Any]) -> Seed:
    if told["v"] != "v0.6":
        raise ValueError(f"version {told['v']} is not v0.6")
    (_, target, *_), (_, steps) = told["i"]
    latency_s = _latencies(told["r"])
    _check_cpu(str(target))
    by_stage: defaultdict[int, list[Tile]] = defaultdict(list)
    for step in steps:
        if step[0] == "SP":
            extent, lengths = int(step[3]), [int(one) for one in step[4]]
            if extent % math.prod(lengths):
                raise ValueError(f"the lengths {lengths} do not divide {extent}")
            by_stage[int(step[1])].append((extent // math.prod(lengths), *lengths))
    tiled = [tiles for tiles in by_stage.values() if any(len(tile) == SPATIAL for tile in tiles)]
    if len(tiled) != 1:
        raise Dropped("it tiles no stage, or several")
    if any(len(tile) not in (SPATIAL, REDUCED) for tile in tiled[0]):
        raise Dropped("its tiles have other levels than those of a CPU")
    steps_max = [int(str(step[3]).rpartition("$")[2]) for step in steps if step[0] == "PR"]
    return Seed((tuple(tiled[0]),), max(steps_max, default=0), latency_s, _measured_at(told["r"]), str(target), "Ansor")

"""Loop nest of a Winograd convolution, made from the knobs that a schedule has written beside its workload.

    for each chunk of tiles
        for each tile and channel block: points = B^T tile B          (from the data, or a copy with zeros at an edge)
        for each part of the filters
            for each of the points, for each block of tiles
                sums = 0                                              (tiles by vectors of filters, in registers)
                for each channel: sums += points * weights
                products = sums
            for each tile: results = what is fused(A^T products A)

The points of a chunk and the products of a part stay in the L2 cache. The weights of a point stay in the L1 cache for
all blocks of the chunk.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from autosched_tvm import tvm_types
from autosched_tvm.compile.winograd import workload as stages
from autosched_tvm.compile.winograd.algebra import Algorithm
from autosched_tvm.compile.winograd.workload import Sizes
from autosched_tvm.tvm_types import BlockRV, IRModule, PrimFunc, Schedule

INDEX = "int64"
DTYPE = "float32"
LINE = 16
"""Number of float32 values in a cache line. Distances in buffers are odd multiples of it, so that they map to different
sets."""
USUAL_TILES = 24
"""Number of tiles of a chunk without measurements."""
SUMS_BUSY = 8
"""Number of vectors of sums that keep a core busy: two multiply-adds a cycle, with a latency of four cycles."""
VECTORS_USUAL, VECTORS_MAX = 2, 3
"""Number of vectors of filters in a part without measurements."""
UNROLLED = 32
"""Number of multiply-adds in an unrolled body. LLVM moves the loads of a longer one to its beginning for some CPUs
(Zen 4), where the registers do not suffice for them."""
CHUNKS, FILTERS = "chunks", "filters"
"""Names of the loops that can be spread over threads."""

Value = int | str
Expr = tvm_types.Expr | int
Stmt = tvm_types.Stmt


class NotExpandable(Exception):
    """The surroundings of the convolution in its kernel cannot be part of the loop nest; the message gives the
    reason."""


@dataclass(frozen=True)
class Knobs:
    """Choices of a loop nest."""

    tiles: int
    """Tiles in a block: rows of sums in registers."""
    vectors: int
    """Blocks of filters in a part: columns of sums in registers."""
    blocks: int
    """Blocks of tiles in a chunk."""
    parallel: str = CHUNKS

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> "Knobs":
        """Returns the knobs in the annotation."""
        tiles, vectors, blocks = (int(values[name]) for name in ("tiles", "vectors", "blocks"))
        return cls(tiles, vectors, blocks, str(values["parallel"]))


@dataclass(frozen=True)
class Fused:
    """Parts of a workload."""

    function: PrimFunc
    sizes: Sizes
    data: Any
    weights: Any
    out: Any
    value: Expr
    """Value that is stored for each result."""
    variables: tuple[Any, ...]
    """Its loop variables: image, filter block, row, column, filter."""
    result: Any
    """Buffer of the convolution's own results, which `value` reads at the same place."""


def expanded(module: IRModule) -> IRModule:
    """Returns a scheduled module with the loop nest in place of the stages; any other module unchanged. Raises
    NotExpandable."""
    if stages.marked(module) is None:
        return module
    schedule = s_tir.Schedule(module, debug_mask=0, enable_check=False)
    values = stages.chosen(schedule)
    if values is None:
        return module
    return tvm.IRModule({"main": _made(understand(module), Knobs.of(values))})


def by_rule(function: PrimFunc, registers: int, cores: int) -> Any | None:
    """Returns the loop nest of a workload without knobs from a search; None for a function without the mark, or with
    operators around the convolution that cannot be part of the nest. `registers`: number of vector registers of the
    CPU."""
    module = tvm.IRModule({"main": function})
    if stages.marked(module) is None:
        return None
    try:
        fused = understand(module)
    except NotExpandable:
        return None
    return _made(fused, usual(fused.sizes, registers, cores))


def usual(sizes: Sizes, registers: int, cores: int) -> Knobs:
    """Returns knobs that suit most convolutions: two vectors of filters and many tiles, or other numbers that leave
    fewer of them empty. The filters are spread over cores where there are too few chunks of tiles."""

    def worth(choice: tuple[int, int]) -> tuple[float, int, int]:
        vectors, tiles = choice
        used = _used(sizes.filter_blocks, vectors) * _used(sizes.tiles, tiles) * _busy(tiles * vectors)
        return used, -abs(vectors - VECTORS_USUAL), tiles

    vectors, tiles = max(
        (
            (vectors, tiles)
            for vectors in range(1, min(VECTORS_MAX, sizes.filter_blocks) + 1)
            for tiles in range(1, min(sizes.tiles, registers // 2, (registers - vectors - 1) // vectors) + 1)
        ),
        key=worth,
    )
    blocks = -(-USUAL_TILES // tiles)
    enough = sizes.tiles >= cores * blocks * tiles
    return Knobs(tiles, vectors, blocks, CHUNKS if enough else FILTERS)


def _used(extent: int, piece: int) -> float:
    """Returns the share of the pieces of an axis that is not empty."""
    return extent / (-(-extent // piece) * piece)


def _busy(sums: int) -> float:
    """Returns the share of the multiply-adds that a core can issue with a number of independent sums."""
    return min(1.0, sums / SUMS_BUSY)


def _made(fused: Fused, knobs: Knobs) -> PrimFunc:
    """Returns the function with the loop nest as its body."""
    nest = s_tir.SBlock([], [], [], "root", _Nest(fused, knobs).body())
    return fused.function.with_body(s_tir.SBlockRealize([], tirx.IntImm("bool", 1), nest))


def understand(module: IRModule) -> Fused:
    """Returns the parts of a workload with the mark. Raises NotExpandable."""
    mark = stages.marked(module)
    if mark is None:
        raise NotExpandable("it is no Winograd convolution")
    schedule = s_tir.Schedule(module, debug_mask=0, enable_check=False)
    try:
        last = _inlined(schedule)
        anchor = schedule.get(schedule.get_sblock(stages.RESULT))
        image, products = (schedule.get(schedule.get_sblock(name)) for name in (stages.IMAGE, stages.PRODUCTS))
    except s_tir.ScheduleError as error:
        said = str(error).strip().splitlines()[-1]
        raise NotExpandable(f"what surrounds the convolution cannot be fused: {said}") from error
    function = schedule.mod["main"]
    content = schedule.get(last)
    result = anchor.writes[0].source
    data = image.reads[0].source
    weights = products.reads[1].source
    store = content.body
    if not isinstance(store, tirx.BufferStore):
        raise NotExpandable("the last computation stores more than one value")
    if not all(any(buffer.same_as(one) for one in function.params) for buffer in (data, weights, store.buffer)):
        raise NotExpandable("the data, the weights or the result are no argument of the kernel")
    variables = tuple(v.var for v in content.iter_vars if int(v.iter_type) != tirx.IterVar.CommReduce)
    if content.name_hint == stages.RESULT:
        value = tirx.BufferLoad(result, list(variables))
    else:
        value = store.value
        loads = [load for load in _parts(value, tvm.ir.TensorLoad) if load.source.same_as(result)]
        extents = [int(variable.dom.extent) for variable in content.iter_vars]
        places = [*(load.indices for load in loads), store.indices]
        if not loads or not all(_at(place, variables, extents) for place in places):
            raise NotExpandable("what follows the convolution does not use its results place by place")
    sizes = _sizes(mark, data, weights, result)
    return Fused(function, sizes, data, weights, store.buffer, value, variables, result)


def _inlined(schedule: Schedule) -> BlockRV:
    """Returns the last block of the kernel, with all that follows the convolution inlined."""
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    names = [str(schedule.get(block).name_hint) for block in blocks]
    *between, last = blocks[names.index(stages.RESULT) :]
    for block in between[1:]:
        schedule.compute_inline(block)
    return last


def _at(indices: Sequence[Any], variables: Sequence[Any], extents: Sequence[int]) -> bool:
    """Returns whether indices are the loop variables in order."""
    return len(indices) == len(variables) and all(
        (isinstance(index, tirx.Var) and index.same_as(variable)) or (isinstance(index, tirx.IntImm) and extent == 1)
        for index, variable, extent in zip(indices, variables, extents, strict=True)
    )


def _sizes(mark: tuple[Algorithm, int, int], data: Any, weights: Any, result: Any) -> Sizes:
    algorithm, top, left = mark
    n, chunks, height, width, block = (int(d) for d in data.ty.shape)
    filters, lanes = int(weights.ty.shape[0]), int(weights.ty.shape[3])
    out_height, out_width = int(result.ty.shape[2]), int(result.ty.shape[3])
    return Sizes(algorithm, n, chunks, block, height, width, top, left, filters, lanes, out_height, out_width)


def _parts(expression: Any, kind: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(expression, (kind, found.append))
    return found


@dataclass(frozen=True)
class _Place:
    """Position of a tile: its image, and its number there."""

    image: Expr
    row: Expr
    column: Expr


class _Nest:
    """Writes the loop nest."""

    def __init__(self, fused: Fused, knobs: Knobs) -> None:
        self.fused, self.sizes = fused, fused.sizes
        self.algorithm = self.sizes.algorithm
        blocks = -(-self.sizes.tiles // knobs.tiles)
        self.chunks = -(-blocks // min(knobs.blocks, blocks))
        self.knobs = replace(knobs, blocks=-(-blocks // self.chunks))
        self.parts = -(-self.sizes.filter_blocks // knobs.vectors)
        self.whole = self.chunks * self.knobs.blocks * knobs.tiles == self.sizes.tiles
        self.points_distance = _odd_lines(self.sizes.channel_blocks * knobs.tiles * self.sizes.channel_block)
        self.products_distance = _odd_lines(self.knobs.blocks * knobs.tiles * knobs.vectors * self.sizes.filter_block)
        size = self.knobs.blocks * self.algorithm.products * self.points_distance
        self.points = _buffer("points", size)

    def body(self) -> Stmt:
        """Returns the whole loop nest."""
        spread = self.knobs.parallel == CHUNKS
        return _loop("chunk", self.chunks, self._chunk, tirx.ForKind.PARALLEL if spread else tirx.ForKind.SERIAL)

    def _chunk(self, chunk: Expr) -> Stmt:
        kind = tirx.ForKind.PARALLEL if self.knobs.parallel == FILTERS else tirx.ForKind.SERIAL
        return _sequence(
            tirx.AllocBuffer(self.points),
            _loop("block", self.knobs.blocks, lambda block: self._transform_block(chunk, block), kind),
            _loop("part", self.parts, lambda part: self._part(chunk, part), kind),
        )

    # Data ---------------------------------------------------------------------------------------------------

    def _transform_block(self, chunk: Expr, block: Expr) -> Stmt:
        def tile(number: Expr) -> Stmt:
            place = self._place((chunk * self.knobs.blocks + block) * self.knobs.tiles + number)
            top, left = tirx.Var("top", INDEX), tirx.Var("left", INDEX)
            tall, wide = self.algorithm.outputs
            return _sequence(
                tirx.Bind(top, place.row * tall - self.sizes.top),
                tirx.Bind(left, place.column * wide - self.sizes.left),
                _loop("channels", self.sizes.channel_blocks, lambda channels: self._transform_tile(
                    (place.image, channels), (top, left), (block, number)
                )),
            )  # fmt: skip

        return _loop("tile", self.knobs.tiles, tile)

    def _transform_tile(self, which: tuple[Expr, Expr], corner: tuple[Expr, Expr], place: tuple[Expr, Expr]) -> Stmt:
        """Transforms the tile of an image's channel block whose first number is at the corner."""
        (high, long), lanes = self.algorithm.inputs, self.sizes.channel_block
        image, channels = which
        top, left = corner

        def at(row: Expr, column: Expr, lane: Expr) -> Expr:
            return _load(self.fused.data, image, channels, top + row, left + column, lane)

        def inside(first: Expr, extent: int, length: int) -> list[Expr]:
            return [first >= 0, first + (length - 1) < extent]

        copy = _buffer("copy", high, long, lanes)

        def fill(row: Expr, column: Expr, lane: Expr) -> Stmt:
            known = tirx.all(*inside(top + row, self.sizes.height, 1), *inside(left + column, self.sizes.width, 1))
            return _store(copy, tirx.if_then_else(known, at(row, column, lane), _number(0)), row, column, lane)

        direct = self._transform(at, channels, place)
        from_copy = self._transform(lambda row, column, lane: _load(copy, row, column, lane), channels, place)
        padded = _sequence(
            tirx.AllocBuffer(copy),
            _loop("row", high, lambda row: _loop("column", long, lambda column: _lanes(
                lanes, lambda lane: [fill(row, column, lane)]
            ))),
            from_copy,
        )  # fmt: skip
        whole = tirx.all(*inside(top, self.sizes.height, high), *inside(left, self.sizes.width, long))
        return tirx.IfThenElse(whole, direct, padded)

    def _transform(self, at: Callable[[int, Expr, Expr], Expr], channels: Expr, place: tuple[Expr, Expr]) -> Stmt:
        (high, long), lanes = self.algorithm.inputs, self.sizes.channel_block
        block, number = place
        half = _buffer("half", high, long, lanes)

        def down(column: Expr, lane: Expr) -> list[Stmt]:
            values = self.algorithm.down.transform_data([at(row, column, lane) for row in range(high)])
            return [_store(half, value, row, column, lane) for row, value in enumerate(values)]

        def across(row: Expr, lane: Expr) -> list[Stmt]:
            numbers = [_load(half, row, column, lane) for column in range(long)]
            return [
                _store(self.points, value, self._point(block, row * long + column, channels, number, lane))
                for column, value in enumerate(self.algorithm.across.transform_data(numbers))
            ]

        return _sequence(
            tirx.AllocBuffer(half),
            _unrolled("column", long, lambda column: _lanes(lanes, lambda lane: down(column, lane))),
            _unrolled("row", high, lambda row: _lanes(lanes, lambda lane: across(row, lane))),
        )

    def _point(self, block: Expr, point: Expr, channels: Expr, tile: Expr, lane: Expr) -> Expr:
        """Returns the index of a number of the points."""
        row = (channels * self.knobs.tiles + tile) * self.sizes.channel_block + lane
        return (block * self.algorithm.products + point) * self.points_distance + row

    def _place(self, tile: Expr) -> _Place:
        """Returns the position of a tile. Padding tiles of the last block repeat the last tile."""
        sizes = self.sizes
        if not self.whole:
            tile = tirx.min(tile, _index(sizes.tiles - 1))
        across, down = sizes.tile_columns, sizes.tile_rows
        if sizes.batch == 1:
            return _Place(_index(0), tile // across, tile % across)
        return _Place(tile // (across * down), tile // across % down, tile % across)

    # Filters ------------------------------------------------------------------------------------------------

    def _part(self, chunk: Expr, part: Expr) -> Stmt:
        """Writes a part of the filters. The last part overlaps the one before so that it is whole; both compute the
        same results."""
        first = part * self.knobs.vectors
        if self.sizes.filter_blocks % self.knobs.vectors:
            first = tirx.min(first, _index(self.sizes.filter_blocks - self.knobs.vectors))
        products = _buffer("products", self.algorithm.products * self.products_distance)
        start = tirx.Var("first", INDEX)
        tiles = self.knobs.blocks * self.knobs.tiles
        return _sequence(
            tirx.Bind(start, first),
            tirx.AllocBuffer(products),
            _loop("point", self.algorithm.products, lambda point: _loop(
                "block", self.knobs.blocks, lambda block: self._multiply(products, point, block, start)
            )),
            _loop("tile", tiles, lambda tile: self._results(products, chunk * tiles + tile, tile, start)),
        )  # fmt: skip

    def _multiply(self, products: Any, point: Expr, block: Expr, first: Expr) -> Stmt:
        rows, vectors = self.knobs.tiles, self.knobs.vectors
        lanes, depth = self.sizes.filter_block, self.sizes.channel_block
        sums = _buffer("sums", rows, vectors, lanes)

        def cells(write: Callable[[Expr, Expr, Expr], Stmt]) -> Stmt:
            """Returns a statement for each number of the sums."""
            return _unrolled("row", rows, lambda row: _unrolled("vector", vectors, lambda vector: _lanes(
                lanes, lambda lane: [write(row, vector, lane)]
            )))  # fmt: skip

        def add(channels: Expr, channel: Expr) -> Stmt:
            def write(row: Expr, vector: Expr, lane: Expr) -> Stmt:
                number = _load(self.points, self._point(block, point, channels, row, channel))
                weight = _load(self.fused.weights, first + vector, point, channels * depth + channel, lane)
                return _store(sums, _load(sums, row, vector, lane) + number * weight, row, vector, lane)

            return cells(write)

        def place(row: Expr, vector: Expr, lane: Expr) -> Expr:
            return point * self.products_distance + ((block * rows + row) * vectors + vector) * lanes + lane

        most = max(1, UNROLLED // (rows * vectors))
        few = max(count for count in range(1, depth + 1) if depth % count == 0 and count <= most)

        def step(channels: Expr, part: Expr) -> Stmt:
            return _unrolled("channel", few, lambda channel: add(channels, part * few + channel))

        return _sequence(
            tirx.AllocBuffer(sums),
            cells(lambda row, vector, lane: _store(sums, _number(0), row, vector, lane)),
            _loop("channels", self.sizes.channel_blocks, lambda channels: _loop(
                "part", depth // few, lambda part: step(channels, part)
            )),
            cells(lambda row, vector, lane: _store(products, _load(sums, row, vector, lane), place(row, vector, lane))),
        )  # fmt: skip

    # Results ------------------------------------------------------------------------------------------------

    def _results(self, products: Any, tile: Expr, place: Expr, first: Expr) -> Stmt:
        (high, long), lanes = self.algorithm.inputs, self.sizes.filter_block
        (tall, wide), vectors = self.algorithm.outputs, self.knobs.vectors
        where = self._place(tile)

        def transform(vector: Expr) -> Stmt:
            half, made = _buffer("half", tall, long, lanes), _buffer("made", tall, wide, lanes)

            def at(point: Expr, lane: Expr) -> Expr:
                return _load(products, point * self.products_distance + (place * vectors + vector) * lanes + lane)

            def down(column: Expr, lane: Expr) -> list[Stmt]:
                numbers = [at(row * long + column, lane) for row in range(high)]
                values = self.algorithm.down.transform_results(numbers)
                return [_store(half, value, row, column, lane) for row, value in enumerate(values)]

            def across(row: Expr, lane: Expr) -> list[Stmt]:
                numbers = [_load(half, row, column, lane) for column in range(long)]
                values = self.algorithm.across.transform_results(numbers)
                return [_store(made, value, row, column, lane) for column, value in enumerate(values)]

            return _sequence(
                tirx.AllocBuffer(half),
                tirx.AllocBuffer(made),
                _unrolled("column", long, lambda column: _lanes(lanes, lambda lane: down(column, lane))),
                _unrolled("row", tall, lambda row: _lanes(lanes, lambda lane: across(row, lane))),
                self._write(made, where, first + vector),
            )

        body = _loop("vector", vectors, transform)
        return body if self.whole else tirx.IfThenElse(tile < self.sizes.tiles, body, None)

    def _write(self, made: Any, where: _Place, filters: Expr) -> Stmt:
        """Stores a tile's results with the fused operators, except those outside the image."""
        tall, wide = self.algorithm.outputs
        over_rows, over_columns = self.sizes.out_height % tall, self.sizes.out_width % wide
        top, left = where.row * tall, where.column * wide

        def number(row: Expr, column: Expr, *, rows: bool, columns: bool) -> Stmt:
            stored = _lanes(self.sizes.filter_block, lambda lane: [
                self._fused(made, (row, column, lane), (where.image, filters, top + row, left + column, lane))
            ])  # fmt: skip
            limits = [left + column < self.sizes.out_width] * columns + [top + row < self.sizes.out_height] * rows
            return tirx.IfThenElse(tirx.all(*limits), stored, None) if limits else stored

        if _parts(self.fused.value, tvm.ir.Call):  # functions are many instructions: a loop limits the code
            return _loop("row", tall, lambda row: _loop("column", wide, lambda column: number(
                row, column, rows=over_rows > 0, columns=over_columns > 0
            )))  # fmt: skip
        return _sequence(*(
            number(row, column, rows=0 < over_rows <= row, columns=0 < over_columns <= column)
            for row in range(tall)
            for column in range(wide)
        ))  # fmt: skip

    def _fused(self, made: Any, source: tuple[Expr, ...], sink: tuple[Expr, ...]) -> Stmt:
        """Stores one result, with the operators fused after the convolution."""
        places = dict(zip(self.fused.variables, sink, strict=True))

        def load(node: Any) -> Any:
            return _load(made, *source) if node.source.same_as(self.fused.result) else node

        def variable(node: Any) -> Any:
            return next((place for one, place in places.items() if node.same_as(one)), node)

        with_local = tvm_ffi.structural.structural_map(self.fused.value, (tvm.ir.TensorLoad, load))
        value = tvm_ffi.structural.structural_map(with_local, (tvm.ir.Var, variable))
        return _store(self.fused.out, value, *sink)


def _odd_lines(numbers: int) -> int:
    """Returns `numbers` rounded up to an odd number of cache lines."""
    lines = -(-numbers // LINE)
    return (lines + 1 - lines % 2) * LINE


def _index(number: int) -> Expr:
    return tirx.IntImm(INDEX, number)


def _number(value: float) -> Expr:
    return tirx.const(value, DTYPE)


def _indices(places: Sequence[Expr]) -> list[Expr]:
    return [_index(place) if isinstance(place, int) else place for place in places]


def _buffer(name: str, *shape: int) -> Any:
    return tirx.decl_buffer(_indices(shape), DTYPE, name)


def _load(buffer: Any, *places: Expr) -> Expr:
    return tirx.BufferLoad(buffer, _indices(places))


def _store(buffer: Any, value: Expr, *places: Expr) -> Stmt:
    return tirx.BufferStore(buffer, value, _indices(places))


def _sequence(*statements: Stmt) -> Stmt:
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))


def _loop(name: str, extent: int, body: Callable[[Expr], Stmt], kind: Any = tirx.ForKind.SERIAL) -> Stmt:
    """Returns a loop, or its body where it would run once and is not parallel."""
    if extent == 1:
        return body(_index(0))
    variable = tirx.Var(name, INDEX)
    return tirx.For(variable, _index(0), _index(extent), kind, body(variable))


def _unrolled(name: str, extent: int, body: Callable[[Expr], Stmt]) -> Stmt:
    """Returns a loop that is unrolled at the end of lowering: earlier passes take time in proportion to the
    statements."""
    return _loop(name, extent, body, tirx.ForKind.UNROLLED)


def _lanes(extent: int, body: Callable[[Expr], list[Stmt]]) -> Stmt:
    """Returns statements for all lanes of a vector."""
    variable = tirx.Var("lane", INDEX)
    return tirx.For(variable, _index(0), _index(extent), tirx.ForKind.VECTORIZED, _sequence(*body(variable)))

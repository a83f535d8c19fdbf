"""Sizes and options of a recurrent layer, and its activation functions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from autosched.errors import ModelRejected
from autosched_tvm.tvm_types import Expr

LANES = 8
"""Number of float32 sums computed together: one vector of AVX2."""
ACCUMULATORS_MAX = 8
"""Maximum number of vectors of sums that a block keeps in registers. AVX2 has 16, and the operands need some."""
ROWS_MAX = 2
"""Number of batch rows that share one pass over the recurrent weights."""

PART_BYTES_MIN = 1 << 19
"""Minimum size in bytes of the recurrent weights of a core. A step on several cores ends with a barrier, which takes
some 3 microseconds."""

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
_ALPHAS = {"Affine": 1.0, "LeakyRelu": 0.01, "ThresholdedRelu": 1.0, "ScaledTanh": 1.0, "HardSigmoid": 0.2, "Elu": 1.0}
_BETAS = {"Affine": 0.0, "ScaledTanh": 1.0, "HardSigmoid": 0.5}
_PLAIN = frozenset({"Relu", "Tanh", "Sigmoid", "Softsign", "Softplus"})


@dataclass(frozen=True)
class Activation:
    """An activation function with its parameters."""

    name: str
    alpha: float
    beta: float

    def __call__(self, x: Expr) -> Expr:
        """Returns the function of a TIR expression."""
        dtype = x.ty.dtype if hasattr(x, "ty") else x.dtype
        a, b, zero, one = (tirx.const(value, str(dtype)) for value in (self.alpha, self.beta, 0.0, 1.0))
        match self.name:
            case "Sigmoid":
                return tirx.sigmoid(x)
            case "Tanh":
                return tirx.tanh(x)
            case "Relu":
                return tirx.max(x, zero)
            case "Affine":
                return a * x + b
            case "LeakyRelu":
                return tirx.Select(x >= zero, x, a * x)
            case "ThresholdedRelu":
                return tirx.Select(x > a, x, zero)
            case "ScaledTanh":
                return a * tirx.tanh(b * x)
            case "HardSigmoid":
                return tirx.max(zero, tirx.min(one, a * x + b))
            case "Elu":
                return tirx.Select(x >= zero, x, a * (tirx.exp(tirx.min(x, zero)) - one))
            case "Softsign":
                return x / (one + tirx.abs(x))
            case _:  # Softplus, without overflow
                return tirx.max(x, zero) + tirx.log(one + tirx.exp(zero - tirx.abs(x)))


@dataclass(frozen=True)
class Layer:
    """Sizes and options of one layer; `activations` has one tuple for each direction."""

    kind: str
    steps: int
    batch: int
    hidden: int
    dtype: str
    backward: tuple[bool, ...]
    activations: tuple[tuple[Activation, ...], ...]
    clip: float = 0.0
    reset_after: bool = False
    """Whether the GRU's reset gate is applied after the product with the recurrent weights (ONNX:
    linear_before_reset)."""
    coupled: bool = False
    """Whether the LSTM's forget gate is one minus its input gate (ONNX: input_forget)."""
    peepholes: bool = False
    lengths: bool = False
    lanes: int = LANES
    """Unit of the block size, in hidden units."""
    parts: int = 1
    """Number of parts of a step that run in parallel."""

    @property
    def gates(self) -> int:
        """Number of gates."""
        return _GATES[self.kind]

    @property
    def directions(self) -> int:
        """Number of directions: 1, or 2 for a bidirectional layer."""
        return len(self.backward)

    @property
    def rows(self) -> int:
        """Number of batch rows computed together."""
        return min(self.batch, ROWS_MAX)

    @property
    def block(self) -> int:
        """Number of hidden units computed together."""
        units = -(-self.hidden // self.lanes)
        most = max(1, ACCUMULATORS_MAX // (self.gates * self.rows))
        return self.lanes * max(n for n in range(1, most + 1) if units % n == 0)

    @property
    def blocks(self) -> int:
        """Number of blocks of hidden units. The last one may be padded."""
        return -(-self.hidden // self.block)

    @property
    def flops(self) -> int:
        """Number of operations in the recurrent products of all steps."""
        return 2 * self.steps * self.batch * self.directions * self.gates * self.hidden**2

    @property
    def phases(self) -> tuple[tuple[int, ...], ...]:
        """Gates whose recurrent products are computed together."""
        gates = tuple(range(self.gates))
        return (gates[:2], gates[2:]) if self.kind == "GRU" and not self.reset_after else (gates,)


def parts_of(layer: Layer, weight_bytes: int, cores: int) -> int:
    """Returns the number of parts of a step that run in parallel. Each core reads the weights of its part in each step,
    and its cache may hold these where it cannot hold all. The two directions of a layer are parallel as they are."""
    return 1 if layer.directions > 1 else max(1, min(cores, layer.blocks, weight_bytes // PART_BYTES_MIN))


def layer_of(kind: str, attributes: dict[str, Any], sizes: tuple[int, int, int], dtype: str) -> Layer:
    """Returns the layer that an ONNX node describes. `sizes`: steps, batch rows, hidden units. Raises ModelRejected."""
    direction = _text(attributes.get("direction", "forward"))
    backward = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}.get(direction)
    if backward is None:
        raise ModelRejected(f"{kind} has the direction {direction!r}; ONNX knows forward, reverse and bidirectional")
    names = [_text(name) for name in attributes.get("activations", ())] or [*_DEFAULTS[kind]] * len(backward)
    each = len(_DEFAULTS[kind])
    if len(names) != each * len(backward):
        raise ModelRejected(f"{kind} has {len(names)} activations where it needs {each * len(backward)}")
    functions = _activations(names, attributes)
    return Layer(
        kind=kind, steps=sizes[0], batch=sizes[1], hidden=sizes[2], dtype=dtype, backward=backward,
        activations=tuple(tuple(functions[each * d : each * (d + 1)]) for d in range(len(backward))),
        clip=float(attributes.get("clip", 0.0)), reset_after=bool(attributes.get("linear_before_reset", 0)),
        coupled=bool(attributes.get("input_forget", 0)),
    )  # fmt: skip


def _activations(names: Sequence[str], attributes: dict[str, Any]) -> list[Activation]:
    """Returns the functions. Those with parameters take them in order from the node's two lists."""
    alphas, betas = iter(attributes.get("activation_alpha", ())), iter(attributes.get("activation_beta", ()))
    known = {name.lower(): name for name in (*_PLAIN, *_ALPHAS)}
    functions = []
    for given in names:
        name = known.get(given.lower())
        if name is None:
            raise ModelRejected(f"the activation {given!r} of a recurrent layer is not one of {', '.join(known)}")
        alpha = float(next(alphas, _ALPHAS[name])) if name in _ALPHAS else 0.0
        beta = float(next(betas, _BETAS[name])) if name in _BETAS else 0.0
        functions.append(Activation(name, alpha, beta))
    return functions


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)

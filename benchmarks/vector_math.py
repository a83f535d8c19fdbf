"""Accuracy of the transcendental functions that kernels evaluate in vector registers.

``python benchmarks/vector_math.py accuracy [FUNCTION ...]`` compares them with float64 for all float32 bit patterns
(two to five minutes each; ``--stride 101`` takes every 101st) and pow for random pairs. Errors are in units in the last
place (ulp) of the correctly rounded result. ``fit`` prints the coefficients of the polynomials.
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Callable
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TVM_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("TVM_BIND_THREADS", "0")

import numpy as np  # noqa: E402 - reads the variables above

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]

ULP_MAX = 4.0
CHUNK = 1 << 20
LANES = 16
PAIRS = 1 << 26
"""Number of random pairs of bit patterns with which pow is checked."""
LARGEST = float(np.finfo(np.float32).max)
SMALLEST_NORMAL = 2.0**-126
OVERFLOW = LARGEST + 2.0**103
"""Least magnitude that rounds to infinity in float32."""


def _sigmoid(x: Array) -> Any:
    return np.where(x < 0, np.exp(np.minimum(x, 0)), 1.0) / (1 + np.exp(-np.abs(x)))


def _flushed(function: Function) -> Function:
    """Returns a function whose subnormal float32 results are 0."""

    def computed(x: Array) -> Any:
        result = function(x)
        return np.where(np.abs(result) < SMALLEST_NORMAL, 0.0, result)

    return computed


REFERENCES: dict[str, Function] = {
    "exp": _flushed(np.exp), "exp2": _flushed(np.exp2), "exp10": _flushed(lambda x: np.power(10.0, x)),
    "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "tanh": np.tanh,
    "sigmoid": _flushed(_sigmoid), "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "rsqrt": lambda x: 1 / np.sqrt(x), "erf": lambda x: _erf()(x), "pow": np.power,
}  # fmt: skip
"""The functions in float64, by the name of their operator in TVM."""


def main() -> None:
    """Measures and prints a JSON object to stdout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("accuracy", "fit"))
    parser.add_argument("functions", nargs="*", help="Names of functions; default: all.")
    parser.add_argument("--stride", type=int, default=1, help="Distance of the bit patterns that are checked.")
    parser.add_argument("--mcpu", default="", help="CPU in LLVM's terms; default: this one.")
    args = parser.parse_args()
    if args.what == "fit":
        fit()
    else:
        print(json.dumps({name: _accuracy(name, args) for name in args.functions or REFERENCES}))


def kernel(function: Function, count: int, target: Any, *, lanes: int = LANES, inputs: int = 1, dtype: str = "float32",
           wide: bool = False) -> Any:  # fmt: skip
    """A library with an elementwise kernel `main`; `lanes` 0 leaves the loop to LLVM, `wide` the function to libm."""
    import tvm
    from tvm import s_tir, te

    from autosched_tvm.compile import lowering

    given = [te.placeholder((count,), dtype, name=f"x{number}") for number in range(inputs)]
    result = te.compute((count,), lambda i: function(*(array[i] for array in given)), name="y")
    schedule = s_tir.Schedule(te.create_prim_func([*given, result]))
    if lanes:
        _, inner = schedule.split(schedule.get_loops(schedule.get_sblock("y"))[0], [None, lanes])
        schedule.vectorize(inner)
    return tvm.tirx.build(schedule.mod, target=target, pipeline="s_tir" if wide else lowering.install())


def call(compiled: Any, *arrays: Array) -> Array:
    """Returns the result of an elementwise kernel, as a new array."""
    import tvm

    result = tvm.runtime.tensor(np.zeros_like(arrays[0]))
    compiled["main"](*(tvm.runtime.tensor(array) for array in arrays), result)
    return np.asarray(result.numpy())


def errors_ulp(got: Array, wanted: Array) -> Array:
    """Returns errors of float32 results against float64, in ulp; infinite for a wrong NaN or infinity."""
    with np.errstate(all="ignore"):
        overflows = np.abs(wanted) >= OVERFLOW
        unit = np.spacing(np.minimum(np.abs(wanted), LARGEST).astype(np.float32)).astype(np.float64)
        error = np.abs(got.astype(np.float64) - wanted) / unit
        # An overflow by rounding is right when the exact value is close to the largest number.
        close = np.isinf(got) & (got == np.copysign(np.inf, wanted)) & (np.abs(wanted) > LARGEST * (1 - 2.0**-24))
    same = (np.isnan(got) & np.isnan(wanted)) | close | (overflows & (got == np.copysign(np.inf, wanted)))
    error = np.where(np.isnan(error) | (overflows & np.isfinite(got)), math.inf, error)
    return np.where(same, 0.0, error)


def reference(name: str, *arrays: Array) -> Array:
    """Returns the function's float64 results for float32 arguments."""
    with np.errstate(all="ignore"):
        return np.asarray(REFERENCES[name](*(array.astype(np.float64) for array in arrays)))


def _erf() -> Function:
    """Returns the C library's erf of float64."""
    import tvm
    from tvm import tirx

    def erf(x: Array) -> Array:
        if x.size not in _ERF:
            target = tvm.target.Target("llvm")
            _ERF[x.size] = kernel(tirx.erf, x.size, target, lanes=0, dtype="float64", wide=True)
        return call(_ERF[x.size], x)

    return erf


_ERF: dict[int, Any] = {}


def _target(mcpu: str) -> Any:
    import tvm

    from autosched_tvm.compile import targets

    return tvm.target.Target({"kind": "llvm", "mcpu": mcpu} if mcpu else targets.of_this_machine())


def _accuracy(name: str, args: argparse.Namespace) -> dict[str, Any]:
    from tvm import tirx

    inputs = 2 if name == "pow" else 1
    compiled = kernel(getattr(tirx, name), CHUNK, _target(args.mcpu), inputs=inputs)
    worst, where, checked = 0.5, "", 0
    for arrays in _pairs() if inputs == 2 else _patterns(args.stride):
        got, wanted = call(compiled, *arrays), reference(name, *arrays)
        checked += got.size
        with np.errstate(over="ignore"):
            (off,) = np.nonzero(got.view(np.int32) != wanted.astype(np.float32).view(np.int32))
        if off.size:  # all others are rounded correctly
            errors = errors_ulp(got[off], wanted[off])
            at = int(errors.argmax())
            if errors[at] > worst:
                worst = float(errors[at])
                where = ", ".join(repr(float(array[off[at]])) for array in arrays)
    verdict = "" if worst <= ULP_MAX else "   TOO MUCH"
    print(f"{name:8} {checked:>13,} values, largest error {worst:.2f} ulp at {where}{verdict}", file=sys.stderr)
    return {"checked": checked, "ulp": worst, "at": where}


def _patterns(stride: int) -> Any:
    """Yields all float32 bit patterns in chunks, or one in `stride`."""
    for first in range(0, 1 << 32, CHUNK * stride):
        yield ((np.arange(CHUNK, dtype=np.uint64) * stride + first).astype(np.uint32).view(np.float32),)


def _pairs() -> Any:
    """Returns pairs of random bit patterns, and pairs whose power is neither 0 nor infinite."""
    generator = np.random.default_rng(0)
    for number in range(0, PAIRS, CHUNK):
        if number % (2 * CHUNK):
            bases, exponents = np.exp(generator.uniform(-8, 8, CHUNK)), generator.standard_normal(CHUNK) * 8
            yield bases.astype(np.float32), exponents.astype(np.float32)
        else:
            yield tuple(generator.integers(0, 1 << 32, CHUNK, dtype=np.uint32).view(np.float32) for _ in range(2))


def fit() -> None:
    """Prints the coefficients of all polynomials in `autosched_tvm.compile.vector_math.formulas`."""
    for name, (x, wanted, weight, degree, single) in _problems().items():
        coefficients, error = minimax(x, wanted, weight, degree, single=single)
        print(f"{name} = {tuple(coefficients)}  # weighted error {error:.1e}")


def _problems() -> dict[str, tuple[Array, Array, Array, int, bool]]:
    """Returns arguments, values, weights of errors, degree, and whether coefficients are float32, by name."""
    r = _nodes(-math.log(2) / 2 * 1.0005, math.log(2) / 2 * 1.0005)
    series = np.asarray(sum(r**k / math.factorial(k + 2) for k in range(18)))
    q = _nodes(-0.5005, 0.5005)
    f = _nodes(math.sqrt(0.5) - 1, math.sqrt(2) - 1)
    a = _nodes(1e-3, 4.0)
    z = np.log([math.erfc(value) for value in a])
    c = _nodes(1e-3, math.pi / 4 * 1.001)
    d = _nodes(1e-4, (math.sqrt(2) - 1) / (math.sqrt(2) + 1) * 1.0001)
    log2_ratio = np.asarray(2 / math.log(2) * sum(d ** (2 * k) / (2 * k + 1) for k in range(30)))
    return {
        "EXP_TAIL": (r, series, r * r / np.abs(np.expm1(r)), 4, True),
        "EXP_SERIES": (r, np.expm1(r) / r, np.abs(r) / np.exp(r), 5, True),
        "EXP2_TAIL": (q, np.expm1(q * math.log(2)) / q, np.abs(q) / np.exp2(q), 5, True),
        "LOG_TAIL": (f, (np.log1p(f) - f + f * f / 2) / f**3, np.abs(f**3 / np.log1p(f)), 7, True),
        "ERFC_LOG": (a, z / a, np.abs(a * np.exp(z) / np.expm1(z)) + 1e-9, 7, True),
        "SIN_TAIL": (c * c, (np.sin(c) - c) / c**3, c**3 / np.sin(c), 2, True),
        "COS_TAIL": (c * c, (np.cos(c) - 1 + c * c / 2) / c**4, c**4 / np.cos(c), 2, True),
        "LOG2_SERIES": (d * d, log2_ratio, 1 / log2_ratio, 4, False),
        "EXP2_SERIES": (q, np.exp2(q), 1 / np.exp2(q), 6, False),
    }


def _nodes(low: float, high: float, count: int = 4000) -> Array:
    """Returns Chebyshev nodes, none of which is 0."""
    nodes = (low + high) / 2 - (high - low) / 2 * np.cos(math.pi * (np.arange(count) + 0.5) / count)
    return np.asarray(nodes[np.abs(nodes) > 1e-4 * max(abs(low), high)])


def minimax(x: Array, wanted: Array, weight: Array, degree: int, *, single: bool) -> tuple[list[float], float]:
    """Returns the coefficients of the polynomial with the smallest maximum weighted error, constant first, and that
    error.

    Lawson's algorithm: least squares, in which the weight of a point grows with its error. Rounds the coefficients to
    float32 one by one, lowest power first, and fits the others again.
    """
    scale = float(np.abs(x).max())
    powers = np.stack([(x / scale) ** k for k in range(degree + 1)], axis=1)
    rest, coefficients = wanted.astype(np.float64), []
    for k in range(degree + 1):
        best = _lawson(powers[:, k:], rest, weight)[0] / scale**k
        best = float(np.float32(best)) if single else float(best)
        coefficients.append(best)
        rest = rest - best * x**k
    return coefficients, float(np.abs(rest * weight).max())


def _lawson(columns: Array, wanted: Array, weight: Array, iterations: int = 150) -> Array:
    shares = np.full(len(wanted), 1 / len(wanted))
    least, best = math.inf, np.zeros(columns.shape[1])
    for _ in range(iterations):
        root = np.sqrt(shares) * weight
        solution = np.linalg.lstsq(columns * root[:, None], wanted * root, rcond=None)[0]
        errors = np.abs(columns @ solution - wanted) * weight
        if errors.max() < least:
            least, best = float(errors.max()), solution
        shares = shares * (errors / errors.max() + 1e-12)
        shares /= shares.sum()
    return best


if __name__ == "__main__":
    main()

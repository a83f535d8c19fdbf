"""Transcendental functions as arithmetic on float32 vectors, each within 4 units in the last place on the whole range.

Only additions, multiplications, divisions, comparisons and bit operations are used, which each vector unit has. The
constants are split such that results hold with and without fused multiply-add. Infinities and NaN are those of IEEE 754
and of C's Annex F. Exponentials and sigmoid flush subnormal results to 0, and a zero result of sin and tan is always
positive. Argument reductions are those of Cody and Waite ("Software Manual for the Elementary Functions", 1980);
polynomials are minimax fits of this project (`python benchmarks/vector_math.py fit`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from autosched_tvm.compile.vector_math.expression_builder import (
    FLOAT32_EXPONENT_BIAS,
    FLOAT32_MANTISSA_BITS,
    FLOAT32_SIGN,
    ExpressionBuilder,
)
from autosched_tvm.tvm_types import Expr

Formula = Callable[[ExpressionBuilder, Any], Any]
Finish = Callable[[ExpressionBuilder, Any, Any, Any], Any]
"""Returns the result from sine and cosine of r and the number n of quarter turns, where r + n pi/2 is the argument."""

ROUNDING = 12_582_912.0
"""1.5 * 2**23. Adding it rounds a float32 of magnitude below 2**22 to an integer in the low bits."""
ROUNDING_DOUBLE = 6_755_399_441_055_744.0
"""1.5 * 2**52: the same for float64."""

LOG2_E = 1 / math.log(2)
LN_2_HIGH = 0.693359375
"""Leading 9 bits of ln 2. Products with integers below 2**15 are exact."""
LN_2_LOW = math.log(2) - LN_2_HIGH
EXP_TAIL = (0.4999999701976776, 0.1666654646396637, 0.04166743531823158, 0.00836626160889864, 0.0013870657421648502)
"""(e**r - 1 - r) / r**2 on |r| <= ln(2) / 2."""
EXP_SERIES = (
    1.0,
    0.4999999403953552,
    0.1666652113199234,
    0.04166826605796814,
    0.008368677459657192,
    0.001382073387503624,
)
"""(e**r - 1) / r on the same interval, weighted by its influence on e**r."""
EXP_LOWEST, EXP2_LOWEST, EXP10_LOWEST = -87.33654, -126.0, -37.929779
"""Least arguments for which e**x, 2**x and 10**x are normal numbers. Results of smaller arguments are 0 here: subnormal
numbers take a CPU a hundred times as long, and masks and quantised networks have many such arguments."""
EXP_HIGHEST = 89.0
"""An argument whose exponential is infinite, and whose power of two is 2**128."""
EXP2_TAIL = (
    0.6931471824645996, 0.24022647738456726, 0.05550359562039375, 0.009618503041565418, 0.0013390997191891074,
    0.00015327802975662053,
)  # fmt: skip
"""(2**r - 1) / r on |r| <= 1/2."""

LOG10_2_HIGH = 0.30078125
"""Leading 7 bits of log10(2)."""
LOG10_2_LOW = math.log10(2) - LOG10_2_HIGH
LOG_TAIL = (
    0.3333333134651184, -0.2500081956386566, 0.2000124156475067, -0.166234090924263, 0.14201579988002777,
    -0.13159610331058502, 0.12762217223644257, -0.07636439055204391,
)  # fmt: skip
"""(log(1 + f) - f + f**2 / 2) / f**3 on sqrt(1/2) <= 1 + f <= sqrt(2)."""
SQRT_HALF_BITS = 0x3F3504F3
SMALLEST_NORMAL = 2.0**-126
DENORMAL_SCALE = 2.0**23

TANH_LIMIT = 10.0
"""Magnitude of arguments from which tanh is 1 in float32."""
ERF_LIMIT = 4.0
"""Magnitude of arguments from which erf is 1 in float32."""
ERFC_LOG = (
    -1.128379225730896, -0.6366153955459595, -0.10282573103904724, 0.019364500418305397, -0.0002798322238959372,
    -0.0011883587576448917, 0.00035511222085915506, -3.670221849461086e-05,
)  # fmt: skip
"""log(erfc(a)) / a on 0 <= a <= 4, weighted by its influence on erf(a)."""

CIRCLE_LIMIT_BITS = 0x48000000
"""2**17 as an int32. The C library computes sin and cos of larger arguments."""
HALF_PI_HIGH = float.fromhex("0x1.921fb544p+0")
"""Leading 35 bits of pi / 2. Products with integers below 2**18 are exact in float64."""
HALF_PI_LOW = float.fromhex("0x1.0b4611a626331p-34")
SIN_TAIL = (-0.16666655242443085, 0.008332187309861183, -0.00019517907639965415)
"""(sin(r) - r) / r**3 as a polynomial of r**2 on |r| <= pi / 4."""
COS_TAIL = (0.04166664555668831, -0.0013887309469282627, 2.4432329155388288e-05)
"""(cos(r) - 1 + r**2 / 2) / r**4 as a polynomial of r**2 on |r| <= pi / 4."""

LOG2_SERIES = (2.885390081790073, 0.9617966733422272, 0.5770835855783991, 0.41167266094427124, 0.34073144118286325)
"""log2((1 + s) / (1 - s)) / s as a polynomial of s**2 on |s| <= (sqrt(2) - 1) / (sqrt(2) + 1), in float64."""
EXP2_SERIES = (
    1.0000000005550524, 0.6931472057671302, 0.24022646886055526, 0.05550328711820759, 0.009618489247079915,
    0.0013399957620452863, 0.00015345788182307768,
)  # fmt: skip
"""2**r on |r| <= 1/2, in float64."""
WHOLE_FLOAT32 = 2.0**24
"""Magnitude from which each float32 is an even integer."""


def exp(v: ExpressionBuilder, x: Expr) -> Expr:
    """Returns e**x."""
    bounded = v.at_most(v.at_least(x, EXP_LOWEST), EXP_HIGHEST)
    return _normal(v, x, EXP_LOWEST, _exp(v, bounded, _scaling(v, bounded)))


def exp_of_negative(v: ExpressionBuilder, x: Expr) -> Expr:
    """Returns e**x for x <= 0, in fewer steps."""
    return _normal(v, x, EXP_LOWEST, _exp(v, v.at_least(x, EXP_LOWEST), _small_scaling(v)))


def exp2(v: ExpressionBuilder, x: Expr) -> Expr:
    """Returns 2**x."""
    bounded = v.at_most(v.at_least(x, EXP2_LOWEST), 128.0)
    scaling = _scaling(v, bounded)
    shifted = v.keep(bounded + scaling.rounding)
    rest = v.keep(bounded - (shifted - scaling.rounding))
    result = scaling.applied(v, v.polynomial(rest, EXP2_TAIL) * rest + v.constant(1.0), shifted)
    return _normal(v, x, EXP2_LOWEST, result)


def exp10(v: ExpressionBuilder, x: Expr) -> Expr:
    """Returns 10**x."""
    bounded = v.at_most(v.at_least(x, EXP10_LOWEST), 38.6)
    scaling = _scaling(v, bounded)
    shifted = v.keep(bounded * v.constant(math.log2(10)) + scaling.rounding)
    whole = v.keep(shifted - scaling.rounding)
    rest = v.keep((bounded - whole * v.constant(LOG10_2_HIGH)) - whole * v.constant(LOG10_2_LOW))
    fraction = _small_expm1(v, v.keep(rest * v.constant(math.log(10)))) + v.constant(1.0)
    return _normal(v, x, EXP10_LOWEST, scaling.applied(v, fraction, shifted))


def sigmoid(v: ExpressionBuilder, x: Expr) -> Expr:
    """Returns 1 / (1 + e**-x), computed from e**-|x|, which does not overflow."""
    negative = v.bits(v.bits(x) | v.constant(FLOAT32_SIGN, "int32"), "float32")
    power = v.keep(exp_of_negative(v, v.keep(negative)))
    one = v.constant(1.0)
    return v.where(x < v.constant(0.0), power, one) / (one + power)


def tanh(v: ExpressionBuilder, x: Expr) -> Expr:
    """Returns (e**2a - 1) / (e**2a + 1) of a = |x|, with the sign of x."""
    doubled = v.keep(v.at_most(v.magnitude(x), TANH_LIMIT) * v.constant(2.0))
    minus_one, scale = _expm1_parts(v, doubled)
    expm1 = v.keep(minus_one * scale + (scale - v.constant(1.0)))
    return v.with_sign_of(expm1 / (expm1 + v.constant(2.0)), x)


def erf(v: ExpressionBuilder, x: Expr) -> Expr:
    """Returns 1 - e**log(erfc(a)) of a = |x|, with the sign of x; log(erfc(a)) / a is a polynomial."""
    a = v.at_most(v.magnitude(x), ERF_LIMIT)
    minus_one, scale = _expm1_parts(v, v.keep(a * v.polynomial(a, ERFC_LOG)))
    return v.with_sign_of((v.constant(1.0) - scale) - minus_one * scale, x)


def log(v: ExpressionBuilder, x: Expr) -> Expr:
    """Returns the natural logarithm."""
    mantissa, exponent = _split(v, x)
    f, tail = _log_parts(v, mantissa)
    low = exponent * v.constant(LN_2_LOW) + tail
    return _log_domain(v, x, v.keep(exponent * v.constant(LN_2_HIGH) + (f + low)))


def log2(v: ExpressionBuilder, x: Expr) -> Expr:
    """Returns the logarithm to base 2."""
    mantissa, exponent = _split(v, x)
    f, tail = _log_parts(v, mantissa)
    return _log_domain(v, x, v.keep((f + tail) * v.constant(LOG2_E) + exponent))


def log10(v: ExpressionBuilder, x: Expr) -> Expr:
    """Returns the logarithm to base 10."""
    mantissa, exponent = _split(v, x)
    f, tail = _log_parts(v, mantissa)
    low = v.keep((f + tail) * v.constant(1 / math.log(10)) + exponent * v.constant(LOG10_2_LOW))
    return _log_domain(v, x, v.keep(exponent * v.constant(LOG10_2_HIGH) + low))


def log1p(v: ExpressionBuilder, x: Expr) -> Expr:
    """Returns log(1 + x): the logarithm of the rounded sum u, corrected by (1 + x - u) / u."""
    one = v.constant(1.0)
    total = v.keep(one + x)
    lost = v.where(x < one, x - (total - one), one - (total - x))
    ordinary = (total < v.constant(math.inf)) & (v.constant(0.0) < total)
    correction = v.where(ordinary, lost / total, v.constant(0.0))
    return v.where(v.magnitude(x) < v.constant(2.0**-25), x, v.keep(log(v, total)) + correction)


def sin(v: ExpressionBuilder, x: Expr) -> Expr:
    """Returns the sine. The C library computes a vector with an element beyond 2**17."""
    return _reduced(v, x, tirx.sin, _turned)


def cos(v: ExpressionBuilder, x: Expr) -> Expr:
    """Returns the cosine. The C library computes a vector with an element beyond 2**17."""

    def finish(inner: ExpressionBuilder, sine: Expr, cosine: Expr, quarter: Expr) -> Expr:
        return _turned(inner, sine, cosine, inner.keep(quarter + inner.constant(1, "int32")))

    return _reduced(v, x, tirx.cos, finish)


def tan(v: ExpressionBuilder, x: Expr) -> Expr:
    """Returns the tangent. The C library computes a vector with an element beyond 2**17."""

    def finish(inner: ExpressionBuilder, sine: Expr, cosine: Expr, quarter: Expr) -> Expr:
        odd = _is_odd(inner, quarter)
        return inner.where(odd, inner.constant(0.0) - cosine, sine) / inner.where(odd, sine, cosine)

    return _reduced(v, x, tirx.tan, finish)


def power(v: ExpressionBuilder, x: Any, y: Any) -> Any:
    """Returns x**y by float64 logarithm and exponential, with the special cases of C's `pow`."""
    zero, one, infinite = v.constant(0.0), v.constant(1.0), v.constant(math.inf)
    base, size = v.magnitude(x), v.magnitude(y)
    product = v.keep(_log2_double(v, base) * v.cast("float64", y))
    result = v.keep(v.cast("float32", _exp2_double(v, product)))
    result = v.keep(v.where((base == one) & (size == infinite), one, result))
    whole, odd = _parity(v, y, size)
    negative = v.bits(x) < v.constant(0, "int32")
    flipped = v.bits(v.bits(result) ^ v.constant(FLOAT32_SIGN, "int32"), "float32")
    result = v.keep(v.where(negative & odd, flipped, result))
    undefined = (x < zero) & (base < infinite) & (size < infinite) & tirx.Not(whole)
    result = v.keep(v.where(undefined, v.constant(math.nan), result))
    return v.where((x == one) | (y == zero), one, result)


def constant_power(v: ExpressionBuilder, x: Expr, exponent: float) -> Expr | None:
    """Returns x**exponent for the exponents common in networks; None for others."""
    if exponent == 0:
        return v.constant(1.0)
    if exponent not in _PRODUCTS:
        return None
    return _PRODUCTS[exponent](v, x)


def _square_root(v: ExpressionBuilder, x: Any) -> Any:
    """Returns x**0.5, which differs from the square root for -0 and minus infinity."""
    root = v.where(x == v.constant(0.0), v.constant(0.0), tirx.sqrt(x))
    return v.where(x == v.constant(-math.inf), v.constant(math.inf), root)


def _reciprocal(v: ExpressionBuilder, x: Expr) -> Expr:
    return v.keep(v.constant(1.0) / x)


def _square(v: ExpressionBuilder, x: Expr) -> Expr:
    return v.keep(x * x)


_PRODUCTS: dict[float, Formula] = {
    -2.0: lambda v, x: _square(v, _reciprocal(v, x)),
    -1.0: _reciprocal,
    -0.5: lambda v, x: _reciprocal(v, v.keep(_square_root(v, x))),
    0.5: _square_root,
    1.0: lambda v, x: x,
    2.0: _square,
    3.0: lambda v, x: _square(v, x) * x,
    4.0: lambda v, x: _square(v, _square(v, x)),
}


@dataclass(frozen=True)
class _Scaling:
    """Multiplication by 2**n for n in [-126, 128]: by 2**(n + k), which is normal, and by 2**-k. The result overflows
    to infinity."""

    rounding: Expr
    """ROUNDING + k and the bias of an exponent. A number plus this one ends with the bits of 2**(n + k)."""
    rest: Expr
    """2**-k."""

    def applied(self, v: ExpressionBuilder, fraction: Expr, shifted: Expr) -> Expr:
        """Returns fraction * 2**n, from n + `rounding`."""
        return fraction * _exponent_of(v, shifted) * self.rest


def _exponent_of(v: ExpressionBuilder, shifted: Expr) -> Expr:
    """Returns the float32 whose exponent is in the low bits of a number."""
    return v.bits(tirx.shift_left(v.bits(shifted), v.constant(FLOAT32_MANTISSA_BITS, "int32")), "float32")


def _small_scaling(v: ExpressionBuilder) -> _Scaling:
    """Returns the scaling for exponents that are not positive."""
    return _Scaling(v.constant(ROUNDING + FLOAT32_EXPONENT_BIAS), v.constant(1.0))


def _scaling(v: ExpressionBuilder, x: Expr) -> _Scaling:
    """Returns the scaling for exponents of the sign of x."""
    small = _small_scaling(v)
    rounding = v.where(x < v.constant(0.0), small.rounding, v.constant(ROUNDING + FLOAT32_EXPONENT_BIAS - 1))
    return _Scaling(v.keep(rounding), v.keep(v.where(x < v.constant(0.0), small.rest, v.constant(2.0))))


def _normal(v: ExpressionBuilder, x: Expr, lowest: float, result: Expr) -> Expr:
    """Returns a result, or 0 where it would be subnormal."""
    return v.where(x < v.constant(lowest), v.constant(0.0), result)


def _exp(v: ExpressionBuilder, x: Expr, scaling: _Scaling) -> Expr:
    """Returns e**x of an argument in [EXP_LOWEST, EXP_HIGHEST]."""
    rest, shifted = _reduce(v, x, scaling.rounding)
    return scaling.applied(v, v.polynomial(rest, (1.0, *EXP_SERIES)), shifted)


def _reduce(v: ExpressionBuilder, x: Expr, rounding: Expr) -> tuple[Expr, Expr]:
    """Returns r and n + rounding, with x = n ln 2 + r."""
    shifted = v.keep(x * v.constant(LOG2_E) + rounding)
    whole = v.keep(shifted - rounding)
    return v.keep((x - whole * v.constant(LN_2_HIGH)) - whole * v.constant(LN_2_LOW)), shifted


def _small_expm1(v: ExpressionBuilder, rest: Expr) -> Expr:
    """Returns e**r - 1 of |r| <= ln(2) / 2, with a small relative error."""
    return v.polynomial(rest, EXP_TAIL) * v.keep(rest * rest) + rest


def _expm1_parts(v: ExpressionBuilder, x: Expr) -> tuple[Expr, Expr]:
    """Returns m and s, with e**x - 1 = m * s + (s - 1) and s a power of two. |x| is below 80."""
    rest, shifted = _reduce(v, x, v.constant(ROUNDING + FLOAT32_EXPONENT_BIAS))
    return v.keep(_small_expm1(v, rest)), v.keep(_exponent_of(v, shifted))


def _split(v: ExpressionBuilder, x: Expr) -> tuple[Expr, Expr]:
    """Returns m and k, both float32, with |x| = m * 2**k and sqrt(1/2) <= m < sqrt(2), of a finite x other than 0."""
    size = v.magnitude(x)
    tiny = size < v.constant(SMALLEST_NORMAL)
    bits = v.keep(v.bits(v.where(tiny, size * v.constant(DENORMAL_SCALE), size)))
    shift = v.constant(FLOAT32_MANTISSA_BITS, "int32")
    exponent = v.keep(tirx.shift_right(bits - v.constant(SQRT_HALF_BITS, "int32"), shift))
    mantissa = v.keep(v.bits(bits - tirx.shift_left(exponent, shift), "float32"))
    offset = v.where(tiny, v.constant(-float(FLOAT32_MANTISSA_BITS)), v.constant(0.0))
    return mantissa, v.keep(v.cast("float32", exponent) + offset)


def _log_parts(v: ExpressionBuilder, mantissa: Expr) -> tuple[Expr, Expr]:
    """Returns f and tail, with log(m) = f + tail."""
    f = v.keep(mantissa - v.constant(1.0))
    square = v.keep(f * f)
    return f, v.keep(v.polynomial(f, LOG_TAIL) * v.keep(square * f) - square * v.constant(0.5))


def _log_domain(v: ExpressionBuilder, x: Any, result: Any) -> Any:
    """Returns a logarithm of x with special cases: minus infinity at 0, NaN below; infinity and NaN stay."""
    outside = v.where(x == v.constant(0.0), v.constant(-math.inf), v.constant(math.nan))
    inside = v.where(x < v.constant(math.inf), result, x)
    return v.where(v.constant(0.0) < x, inside, outside)


def _reduced(v: ExpressionBuilder, x: Expr, library: Callable[[Any], Any], finish: Finish) -> Expr:
    """Returns a function of sine and cosine of r, and of n, with x = n pi/2 + r."""
    far = v.any_above(v.bits(v.magnitude(x)), CIRCLE_LIMIT_BITS)
    inner = ExpressionBuilder(v.lanes)
    shifted = inner.keep(x * inner.constant(2 / math.pi) + inner.constant(ROUNDING))
    whole = inner.keep(inner.cast("float64", shifted - inner.constant(ROUNDING)))
    exact = inner.cast("float64", x) - whole * inner.constant(HALF_PI_HIGH, "float64")
    rest = inner.keep(inner.cast("float32", exact - whole * inner.constant(HALF_PI_LOW, "float64")))
    square = inner.keep(rest * rest)
    sine = inner.keep(inner.polynomial(square, SIN_TAIL) * inner.keep(square * rest) + rest)
    tail = inner.polynomial(square, COS_TAIL) * inner.keep(square * square)
    cosine = inner.keep(inner.constant(1.0) - (square * inner.constant(0.5) - tail))
    result = inner.close(finish(inner, sine, cosine, inner.keep(inner.bits(shifted))))
    return tirx.if_then_else(far, library(x), result)


def _is_odd(v: ExpressionBuilder, number: Expr) -> Any:
    return (number & v.constant(1, "int32")) == v.constant(1, "int32")


def _turned(v: ExpressionBuilder, sine: Expr, cosine: Expr, quarter: Expr) -> Expr:
    """Returns the sine of the angle r + `quarter` quarter turns."""
    sign = tirx.shift_left(quarter & v.constant(2, "int32"), v.constant(30, "int32"))
    return v.bits(v.bits(v.where(_is_odd(v, quarter), cosine, sine)) ^ sign, "float32")


def _log2_double(v: ExpressionBuilder, base: Any) -> Any:
    """Returns log2 of a non-negative float32, as a float64."""
    mantissa, exponent = _split(v, base)
    m = v.keep(v.cast("float64", mantissa))
    one = v.constant(1.0, "float64")
    s = v.keep((m - one) / (m + one))
    finite = v.cast("float64", exponent) + s * v.polynomial(v.keep(s * s), LOG2_SERIES, "float64")
    infinite, zero = v.constant(math.inf, "float64"), v.constant(0.0)
    inside = v.where(base < v.constant(math.inf), finite, v.cast("float64", base))
    return v.keep(v.where(base == zero, v.constant(0.0, "float64") - infinite, inside))


def _exp2_double(v: ExpressionBuilder, x: Expr) -> Expr:
    """Returns 2**x of a float64, within the range of float32 and a little beyond."""
    x = v.at_most(v.at_least(x, -200.0, "float64"), 200.0, "float64")
    shifted = v.keep(x + v.constant(ROUNDING_DOUBLE, "float64"))
    rest = v.keep(x - (shifted - v.constant(ROUNDING_DOUBLE, "float64")))
    biased = v.bits(shifted, "int64") + v.constant(1023, "int64")
    scale = v.bits(tirx.shift_left(biased, v.constant(52, "int64")), "float64")
    return v.polynomial(rest, EXP2_SERIES, "float64") * scale


def _parity(v: ExpressionBuilder, y: Expr, size: Expr) -> tuple[Expr, Expr]:
    """Returns whether y is an integer, and whether it is odd."""
    large = size >= v.constant(WHOLE_FLOAT32)
    whole = v.keep(v.cast("int32", v.where(large, v.constant(0.0), y)))
    is_whole = large | (v.cast("float32", whole) == y)
    return is_whole, is_whole & _is_odd(v, whole)

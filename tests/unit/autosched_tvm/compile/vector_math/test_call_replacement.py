"""Transcendental functions in kernels: accuracy, special values, and no library calls in vectors."""

import re

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")

from tvm import tirx  # noqa: E402
from vector_math import LANES, REFERENCES, ULP_MAX, call, errors_ulp, kernel, reference  # noqa: E402

import this_cpu  # noqa: E402
from autosched_tvm.compile.vector_math import call_replacement  # noqa: E402

pytestmark = pytest.mark.tvm
PLAIN = tvm.target.Target({"kind": "llvm"})
"""A CPU without fused multiply-add."""
HOST = this_cpu.target()
CPUS = {
    "x86-64-v3": {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "x86-64-v3"},
    "cortex-a72": {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"},
}
UNARY = sorted(set(REFERENCES) - {"pow"})
COUNT = 1 << 16
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-45, -1e-45, 2.0**-126, -(2.0**-126), 3.4028235e38, -3.4028235e38,
     0.5, -0.5, 2, -2, 3, -3, 2.5, -2.5, 88.72283, 88.72284, -87.33655, -103.97, -103.98, -104, 128, -149, -150,
     38.53184, 10, -10, 4, -4, 131072, 131073, -1e30, 1e10, 2.0**24 - 1, 2.0**24, -(2.0**24) + 1],
    np.float32,
)  # fmt: skip


def sample() -> np.ndarray:
    """Returns special values, all magnitudes, and many usual values."""
    generator = np.random.default_rng(0)
    anything = generator.integers(0, 1 << 32, COUNT, dtype=np.uint32).view(np.float32)
    anything[: COUNT // 2] = generator.standard_normal(COUNT // 2) * 10.0 ** generator.integers(-3, 3, COUNT // 2)
    anything[: len(SPECIAL)] = SPECIAL
    return anything


@pytest.mark.parametrize("target", [PLAIN, HOST], ids=["plain", "host"])
@pytest.mark.parametrize("name", UNARY)
def test_float32_results_are_within_four_ulp(name, target):
    x = sample()
    errors = errors_ulp(call(kernel(getattr(tirx, name), COUNT, target), x), reference(name, x))
    assert errors.max() <= ULP_MAX, (x[errors.argmax()], errors.max())


@pytest.mark.parametrize("lanes", [0, 1, 3])
def test_loops_of_other_widths_give_the_same_results(lanes):
    x = sample()[:600]
    for name in ("exp", "sin"):
        np.testing.assert_array_equal(
            call(kernel(getattr(tirx, name), x.size, PLAIN, lanes=lanes), x),
            call(kernel(getattr(tirx, name), x.size, PLAIN, lanes=4), x),
        )


@pytest.mark.parametrize("name", UNARY)
def test_all_float16_results_are_within_one_ulp_and_a_half(name):
    x = np.arange(COUNT, dtype=np.uint16).view(np.float16)
    got, wanted = call(kernel(getattr(tirx, name), COUNT, HOST, dtype="float16"), x), reference(name, x)
    with np.errstate(all="ignore"):
        rounded = wanted.astype(np.float16)
        errors = np.abs(got.astype(np.float64) - wanted) / np.spacing(np.abs(rounded))
    errors[(got == rounded) | (np.isnan(got) & np.isnan(rounded))] = 0
    assert np.nanmax(errors) <= 1.5
    assert not np.isnan(errors).any()


@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_saturating_functions_keep_the_sign_of_zero(name):
    x = np.array([0.0, -0.0] * LANES, np.float32)
    np.testing.assert_array_equal(np.signbit(call(kernel(getattr(tirx, name), x.size, HOST), x)), np.signbit(x))


def test_power_is_that_of_c_for_all_pairs_of_special_values_and_close_for_others():
    x, y = (np.ascontiguousarray(grid).ravel() for grid in np.meshgrid(SPECIAL, SPECIAL))
    generator = np.random.default_rng(0)
    x = np.concatenate([x, np.exp(generator.uniform(-8, 8, COUNT)).astype(np.float32)])
    y = np.concatenate([y, (generator.standard_normal(COUNT) * 8).astype(np.float32)])
    padding = -x.size % LANES
    x, y = np.pad(x, (0, padding)), np.pad(y, (0, padding))
    got, wanted = call(kernel(tirx.pow, x.size, HOST, inputs=2), x, y), reference("pow", x, y)
    errors = errors_ulp(got, wanted)
    assert errors.max() <= 1, (x[errors.argmax()], y[errors.argmax()])
    zero = got == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(wanted[zero]))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("exponent", [-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0])
def test_constant_exponents_give_the_same_power(exponent):
    x = np.pad(SPECIAL, (0, -SPECIAL.size % LANES))
    compiled = kernel(lambda value: tirx.pow(value, tirx.const(exponent, "float32")), x.size, HOST)
    with np.errstate(all="ignore"):
        wanted = np.float64(x) ** exponent
    wanted[np.isneginf(x) & (abs(exponent) == 0.5)] = np.inf if exponent > 0 else 0  # NumPy takes the square root
    assert errors_ulp(call(compiled, x), wanted).max() <= ULP_MAX


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_vector_code_calls_no_library(cpu, dtype):
    for name in set(REFERENCES) - {"sin", "cos", "tan"}:
        inputs = 2 if name == "pow" else 1
        target = tvm.target.Target(CPUS[cpu])
        assert called(kernel(getattr(tirx, name), 1024, target, inputs=inputs, dtype=dtype)) == set(), name


@pytest.mark.parametrize("operator", call_replacement.VECTORIZABLE)
def test_a_vectorised_loop_stays_vectorised(operator):
    """Read from TVM's own code for the loop, before LLVM vectorises loops itself."""
    compiled = kernel(lambda x: tirx.call_intrin("float32", operator, x) * 3.0, 1024, PLAIN, lanes=8)
    stores = re.findall(r"store (\S+ x float|float)", compiled.inspect_source("ll"))
    assert set(stores) == {"<8 x float"}


@pytest.mark.parametrize("cpu", CPUS)
def test_only_large_angles_are_left_to_the_library(cpu):
    body = assembly(kernel(tirx.sin, 1024, tvm.target.Target(CPUS[cpu])))
    assert called_in(body) == {"sinf"}
    assert re.search(r"vfn?madd|vmulpd|fml[as]\s+v\d+\.4s", body)


def test_functions_for_other_devices_stay_as_they_are():
    body = tirx.Evaluate(tirx.exp(tirx.Var("x", "float32")))
    function = tirx.PrimFunc([], body).with_attr("target", tvm.target.Target({"kind": "cuda", "arch": "sm_80"}))
    assert "exp" in call_replacement.in_registers(function).script()


def test_other_types_and_calls_stay_as_they_are():
    for call_ in (tirx.exp(tirx.Var("x", "float64")), tirx.floor(tirx.Var("x", "float32"))):
        assert call_replacement.replaced(call_).same_as(call_)


def assembly(compiled) -> str:
    """Returns the code of the kernel itself."""
    text = compiled.inspect_source("asm")
    start = text.index("main_compute_:")
    return text[start : text.index(".Lfunc_end", start)]


def called_in(body: str) -> set[str]:
    return {name.removesuffix("@PLT") for name in re.findall(r"\b(?:bl|callq?)\s+([A-Za-z_]\w*)", body)}


def called(compiled) -> set[str]:
    return called_in(assembly(compiled))


NESTED = {
    "softplus": (
        lambda x: tirx.max(x, 0.0) + tirx.log(1.0 + tirx.exp(0.0 - tirx.abs(x))),
        lambda x: np.logaddexp(0.0, x),
    ),
    "mish": (lambda x: x * tirx.tanh(tirx.log(1.0 + tirx.exp(x))), lambda x: x * np.tanh(np.logaddexp(0.0, x))),
    "four deep": (
        lambda x: tirx.tanh(tirx.sigmoid(tirx.tanh(tirx.exp(x)))),
        lambda x: np.tanh(1 / (1 + np.exp(-np.tanh(np.exp(x))))),
    ),
}


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("name", NESTED)
def test_nested_functions_compile_quickly_and_correctly(name, lanes):
    """Without a buffer between them, a mish takes an hour to compile."""
    function, expected = NESTED[name]
    x = np.linspace(-20, 20, 4096, dtype=np.float32)
    made = call(kernel(function, x.size, HOST, lanes=lanes), x)
    np.testing.assert_allclose(made, expected(x.astype(np.float64)), rtol=2e-6, atol=2e-6)  # of 1 + exp(x) in float32


def test_no_argument_is_evaluated_before_the_condition_that_guards_it():
    x = tirx.decl_buffer([4], "float32", "x")
    value = tirx.log(1.0 + tirx.exp(x[0]))
    store = tirx.BufferStore(x, tirx.if_then_else(x[0] > 0.0, value, 0.0), [1])
    assert call_replacement.separated(store).same_as(store)
    assert isinstance(call_replacement.separated(tirx.BufferStore(x, value, [1])), tirx.SeqStmt)

"""The fake nvcc: makes a library for this CPU from TVM's CUDA C++, which the fake driver takes for a cubin.

It takes the options that TVM gives to NVIDIA's compiler. Needs g++ and the standard library.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
VERSION = "Cuda compilation tools, release 13.0, V13.0.88"
ARCHITECTURES = frozenset({75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121})
SHARED_MAX_BYTES = 49_152
GAP_BYTES = 64
"""Bytes between arrays in shared memory, so that an access outside of one is in none."""
OPTIONS = (
    "-std=c++17", "-O1", "-fPIC", "-c", "-w", "-fno-strict-aliasing", "-fvisibility=hidden", "-ffp-contract=off",
    "-fno-exceptions", "-fno-rtti", "-ftrivial-auto-var-init=pattern", "-fsanitize=thread",
    "-fsanitize=alignment,bounds,integer-divide-by-zero", "-fsanitize-undefined-trap-on-error",
    "--param=tsan-instrument-func-entry-exit=0",
)  # fmt: skip
MESSAGE_MAX = 4_000
"""Maximum characters of g++'s messages that are passed on."""
KERNEL = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\((\d+)[^)]*\) )?(\w+)\(([^)]*)\)\s*\{', re.ASCII)
QUALIFIER = r"(?:alignas\(\d+\) |__align__\(\d+\) )?"
STATIC = re.compile(rf"(?<!extern )__shared__ {QUALIFIER}([\w:<>, ]+?) (\w+)\[(\d+)\];")
DYNAMIC = re.compile(rf"extern __shared__ {QUALIFIER}([\w:<>, ]+?) (\w+)\[\];")
NAME_BYTES = {
    "bool": 1, "char": 1, "int8_t": 1, "half": 2, "short": 2, "int16_t": 2, "nv_bfloat16": 2, "int": 4, "int32_t": 4,
    "float": 4, "long": 8, "longlong": 8, "int64_t": 8, "double": 8,
}  # fmt: skip
"""Bytes of types of elements, by their names without a sign."""
OWN_TYPES = re.compile(r"typedef [\w ]+ u?int\d+_t;")
"""Types that a source for NVRTC defines, and g++ has."""
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[()]', re.DOTALL)
ASSEMBLY = re.compile(r"\b(?:__asm__|asm)\b\s*(?:volatile|__volatile__)?\s*\(")
COPY = re.compile(r"cp\.async\.c[ag]\.shared(?:::cta)?(?:::cluster)?\.global")
WAIT = re.compile(r"cp\.async\.wait_group\s+(\d+|%0)")


class Refused(Exception):
    """The source cannot be compiled. The message is nvcc's, or says what is missing here."""


class Kernel(NamedTuple):
    """A kernel of a source."""

    name: str
    threads_max: int
    """Maximum number of threads of a block; 0: not given."""
    shared: int
    """Bytes of its arrays in shared memory, on a device."""
    laid_out: int
    """The same here, with gaps."""
    arrays: tuple[tuple[int, int], ...]
    """Offset and size of each array in bytes."""


def main(words: Sequence[str]) -> int:
    """Compiles; returns the exit status."""
    if "--version" in words:
        print(VERSION)
        return 0
    try:
        compile_source(words)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 2
    return 0


def compile_source(words: Sequence[str]) -> None:
    """Raises Refused."""
    source = Path(next(word for word in words if word.endswith(".cu")))
    output = Path(words[words.index("-o") + 1])
    arch = re.search(r"(?:code=|arch=?)\s*sm_(\d+)[af]?", " ".join(words))
    if arch is None or int(arch[1]) not in ARCHITECTURES:
        raise Refused(f"nvcc fatal   : Unsupported gpu architecture '{arch and arch[0]}'")
    started = time.perf_counter()
    text, kernels = rewritten(source.read_text())
    for kernel in kernels:
        if kernel.shared > SHARED_MAX_BYTES:
            raise Refused(
                f"ptxas error   : Entry function '{kernel.name}' uses too much shared data ({kernel.shared:#x} bytes,"
                f" {SHARED_MAX_BYTES:#x} max)"
            )
    host, made = source.with_suffix(".fakecuda.cpp"), source.with_suffix(".fakecuda.o")
    host.write_text(text + table(kernels, int(arch[1])))
    defined = (f"-D__CUDA_ARCH__={arch[1]}0", "-D__CUDACC__", "-D__CUDACC_VER_MAJOR__=13", "-D__CUDACC_VER_MINOR__=0")
    include = (f"-I{HERE / 'include'}", "-include", "fakecuda_device.h")
    run("g++", *OPTIONS, *defined, *include, str(host), "-o", str(made))
    # The library is linked apart: with -fsanitize=thread, g++ would add the sanitizer's own library.
    run("g++", "-shared", str(made), f"-L{HERE / 'build'}", "-l:libcuda.so.1", "-o", str(output))
    if folder := os.environ.get("CUDA_FAKE"):
        with (Path(folder) / "log").open("a") as log:
            log.write(f"nvcc sm_{arch[1]} kernels {len(kernels)} seconds {time.perf_counter() - started:.2f}\n")


def run(*command: str) -> None:
    """Raises Refused with what a command says."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise Refused(f"fake nvcc: {done.stderr[:MESSAGE_MAX]}")


def rewritten(text: str) -> tuple[str, list[Kernel]]:
    """Returns the source for g++, and its kernels. Raises Refused."""
    text = OWN_TYPES.sub("", with_calls_for_ptx(text))
    pieces: list[str] = []
    kernels: list[Kernel] = []
    starts = list(KERNEL.finditer(text))
    at = 0
    for start, following in zip(starts, [*starts[1:], None][: len(starts)], strict=True):
        end = following.start() if following else len(text)
        body, shared, laid_out, arrays = with_arrays_placed(text[start.end() : end])
        pieces += [text[at : start.end()], body]
        kernels.append(Kernel(start[2], int(start[1] or 0), shared, laid_out, arrays))
        at = end
    return "".join([*pieces, text[at:]]), kernels


def with_arrays_placed(body: str) -> tuple[str, int, int, tuple[tuple[int, int], ...]]:
    """Returns the body of a kernel whose shared arrays lie in the driver's memory; their bytes on a device and here;
    and their places."""
    shared = laid_out = 0
    arrays: list[tuple[int, int]] = []

    def placed(found: re.Match[str]) -> str:
        nonlocal shared, laid_out
        kind, name, count = found[1], found[2], int(found[3])
        size = bytes_of(kind) * count
        shared = -(-shared // GAP_BYTES) * GAP_BYTES + size
        offset = laid_out
        arrays.append((offset, size))
        laid_out = -(-(offset + size) // GAP_BYTES) * GAP_BYTES + GAP_BYTES
        return f"{kind} (&{name})[{count}] = *reinterpret_cast<{kind} (*)[{count}]>(fakecuda_now.shared + {offset});"

    body = STATIC.sub(placed, body)
    body = DYNAMIC.sub(r"\1* \2 = reinterpret_cast<\1*>(fakecuda_now.dynamic_shared);", body)
    return body, shared, laid_out, tuple(arrays)


def bytes_of(kind: str) -> int:
    """Returns the size of a type by its name, such as "float", "float4", "half2", "signed char". Raises Refused."""
    name = kind.replace("unsigned ", "").replace("signed ", "").replace("long long", "longlong")
    for stem in (name, name.removeprefix("u")):
        if stem in NAME_BYTES:
            return NAME_BYTES[stem]
        if stem[:-1] in NAME_BYTES and stem[-1] in "1234":
            return NAME_BYTES[stem[:-1]] * int(stem[-1])
    raise Refused(f"fake nvcc: unknown type in shared memory: {kind}")


def with_calls_for_ptx(text: str) -> str:
    """Returns a source with calls in the place of the PTX for asynchronous copies. Raises Refused for other PTX."""
    pieces, at = [], 0
    for start, end, ptx, operands in assembly(text):
        if "cp.async.commit_group" in ptx:
            call = "fakecuda_commit();"
        elif wait := WAIT.search(ptx):
            call = f"fakecuda_wait({operands[0] if wait[1] == '%0' else wait[1]});"
        elif "cp.async.wait_all" in ptx:
            call = "fakecuda_commit(), fakecuda_wait(0);"
        elif COPY.search(ptx):
            zeros = f"({operands[3]}) != 1" if len(operands) > 3 else "false"
            call = f"fakecuda_copy({operands[0]}, {operands[1]}, {operands[2]}, {zeros});"
        else:
            raise Refused(f"fake nvcc: no CPU runs this PTX: {text[start:end][:300]}")
        pieces += [text[at:start], call]
        at = end
    return "".join([*pieces, text[at:]])


def assembly(text: str) -> Iterator[tuple[int, int, str, list[str]]]:
    """Yields begin, end, PTX and operands of each statement of inline assembly."""
    at = 0
    while start := ASSEMBLY.search(text, at):
        depth, opened = 1, 0
        literals: list[str] = []
        operands: list[str] = []
        for token in TOKEN.finditer(text, start.end()):
            if token[0] == "(":
                depth += 1
                opened = token.end() if depth == 2 else opened
            elif token[0] == ")":
                depth -= 1
                if depth == 1:
                    operands.append(text[opened : token.start()])
                if depth == 0:
                    at = text.index(";", token.end()) + 1
                    break
            elif depth == 1:
                literals.append(token[0][1:-1])
        yield start.start(), at, " ".join(literals), operands


def table(kernels: Sequence[Kernel], arch: int) -> str:
    """Returns the part of the source that tells the driver what the library holds."""
    lines = ['extern "C" const char __ehdr_start __attribute__((visibility("hidden")));',
             'extern "C" const char _end __attribute__((visibility("hidden")));']  # fmt: skip
    for kernel in kernels:
        name = kernel.name
        arrays = ", ".join(f"{{{offset}, {size}}}" for offset, size in kernel.arrays) or "{0, 0}"
        lines.append(f"static const fakecuda::Part fakecuda_arrays_{name}[] = {{{arrays}}};")
        lines.append(f"static void fakecuda_run_{name}(void** words) {{ fakecuda::call(&{name}, words); }}")
    entries = ", ".join(
        f'{{"{one.name}", fakecuda_run_{one.name}, {one.shared}, {one.laid_out}, {one.threads_max},'
        f" fakecuda_arrays_{one.name}, {len(one.arrays)}}}"
        for one in kernels
    )
    lines.append(f"static const fakecuda::Kernel fakecuda_kernels[] = {{{entries}}};")
    lines.append(
        'extern "C" __attribute__((visibility("default"))) const fakecuda::Module fakecuda_module = {fakecuda::MAGIC,'
        f" {arch}, fakecuda_kernels, {len(kernels)}, &__ehdr_start, &_end}};"
    )
    return "\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

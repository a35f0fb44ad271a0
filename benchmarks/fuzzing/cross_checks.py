"""Reference runtimes of what compiled C computes: the format's own runtime, other builds of the model, other
compilers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tvm

from benchmarks.fuzzing import runtimes
from benchmarks.fuzzing.forked import Stages
from benchmarks.fuzzing.ways import every_way, in_plain_c
from codegen_c.backend.build import Compiled
from codegen_c.emit.selftest import TestVector, emit_selftest, emit_vectors
from tests.support.poison import run_poisoned
from tvm_ext.building.build import build
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import QUICK_TOOLCHAIN
from tvm_ext.core.toolchain import LANGUAGE_FLAGS
from tvm_ext.execution.host_model import HostModel
from tvm_ext.verification.input_ranges import input_ranges, random_inputs

Arrays = Mapping[str, np.ndarray]
TOLERANCE = 1e-4
MEAN_STEPS, MOST_STEPS = 2.0, 64
"""Tolerance of quantized ONNX outputs, end to end: onnxruntime rounds each operator otherwise, and varies itself."""
_ROUNDED = {"qunary_i8", "generic"}
"""Kernels with tables or sums rounded from floats: a step beside TensorFlow Lite Micro, which later ones enlarge."""
SEED = 11
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O0")


class Disagreement(Exception):
    """Two that should compute the same do not. is_finite: all that was expected are numbers."""

    def __init__(self, runtime: str, text: str, *, is_finite: bool = True) -> None:
        super().__init__(f"{runtime}: {text}")
        self.runtime, self.is_finite = runtime, is_finite


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A runtime that does not take the file, and why."""

    runtime: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Built:
    """A model that was compiled. whole: the same without a limit on its memory; again: compiles it otherwise."""

    path: Path
    module: tvm.IRModule
    compiled: Compiled
    sources: Mapping[str, str]
    options: BuildOptions
    folder: Path
    whole: Compiled | None
    again: Callable[[BuildOptions], Compiled]

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        specs = {port.source: (port.shape, port.dtype) for port in self.compiled.interface.inputs}
        return random_inputs(specs, SEED, input_ranges(self.module))

    def outputs(self) -> Arrays:
        return host_outputs(self.compiled, self.inputs, self.folder / "host")


def host_outputs(compiled: Compiled, inputs: Arrays, folder: Path, **how: object) -> dict[str, np.ndarray]:
    """Outputs of the C, compiled for this machine without much optimisation."""
    folder.mkdir(exist_ok=True)
    for name, text in compiled.sources().items():
        (folder / name).write_text(text, encoding="utf-8")
    with HostModel(folder, compiled.interface, **{"toolchain": QUICK_TOOLCHAIN, **how}) as model:
        return model.run(inputs)


def against_runtime(built: Built, stages: Stages) -> str | Refused | None:
    """The first runtime that agrees; why none takes the file; None where there is none. Raises Disagreement.

    Where a format has two, they differ in the last bit of some operators: one that agrees is enough.
    """
    inputs, found = built.inputs, built.outputs()
    if built.options.quantize != "none":  # another model than its file
        return None
    stages.begin("runtime")
    kernels = {call.implementation.kernel for call in built.compiled.program.kernel_calls()}
    quantized = built.compiled.is_quantized
    refused: Refused | None = None
    different: Disagreement | None = None
    for answer in runtimes.answers(built.path, inputs):
        if answer.refusal:
            refused = refused or Refused(runtime=answer.runtime, reason=answer.refusal)
            continue
        try:
            for name, wanted in answer.outputs.items():
                is_exact = answer.is_exact and wanted.dtype.kind != "f" and not kernels & _ROUNDED
                _judge(answer, name, found[name], wanted, answer.disturbed[name], by_steps=quantized and not is_exact)
        except Disagreement as first:
            different = different or first
        else:
            return answer.runtime
    if different is not None:
        raise different
    return refused


def _judge(
    answer: runtimes.Answer, name: str, got: np.ndarray, wanted: np.ndarray, moved: np.ndarray, *, by_steps: bool
) -> None:
    """Compares where the runtime itself hardly moves when its inputs hardly do."""
    if got.size != wanted.size or got.dtype != wanted.dtype:
        raise Disagreement(
            answer.runtime, f"{name} is {got.dtype}{list(got.shape)}, not {wanted.dtype}{list(wanted.shape)}"
        )
    a, b, c = (np.asarray(x, np.float64).ravel() for x in (got, wanted, moved))
    finite = np.isfinite(b)
    scale = float(np.abs(b[finite]).max(initial=0.0))
    is_float = wanted.dtype.kind == "f"
    if by_steps:
        step = scale / 128 if is_float else 1.0
        gaps = np.abs(a - b)[finite] / max(step, 1e-30)
        if gaps.size and (gaps.mean() > MEAN_STEPS or gaps.max() > MOST_STEPS):
            raise Disagreement(
                answer.runtime, f"{name} differs by {gaps.mean():.2f} steps (mean), {gaps.max():g} at most"
            )
        return
    with np.errstate(invalid="ignore", over="ignore"):
        limit = TOLERANCE * scale if is_float else 0.0
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= limit)
        steady = (b == c) | (np.isnan(b) & np.isnan(c)) | (np.abs(b - c) <= limit / 4)
    wrong = np.flatnonzero(~same & steady)
    if wrong.size:
        at = int(wrong[0])
        raise Disagreement(
            answer.runtime, f"{name}: {wrong.size} of {a.size} differ, first [{at}]: {a[at]!r}, not {b[at]!r}",
            is_finite=answer.is_finite,
        )  # fmt: skip


def _equal(runtime: str, found: Arrays, expected: Arrays, *, tolerance: float = 0.0) -> None:
    """The same bits; with a tolerance floats need only be near."""
    for name, wanted in expected.items():
        got = found[name]
        if got.tobytes() == wanted.tobytes():
            continue
        is_finite = bool(np.isfinite(np.asarray(wanted, np.float64)).all())
        if np.array_equal(got, wanted, equal_nan=wanted.dtype.kind == "f"):
            continue  # NaN with other bits, or zeros with another sign
        if tolerance and wanted.dtype.kind == "f":
            if not is_finite:
                continue  # near is not defined there
            if np.abs(got - wanted).max() <= tolerance * max(float(np.abs(wanted).max()), 1e-30):
                continue
        raise Disagreement(runtime, f"{name} differs in {np.count_nonzero(got != wanted)} places", is_finite=is_finite)


def _unsplit(built: Built, stages: Stages) -> None:
    whole = built.whole
    if whole is not None and whole.is_quantized == built.compiled.is_quantized:  # int8 may be how it was made to fit
        _equal("unsplit", built.outputs(), host_outputs(whole, built.inputs, built.folder / "whole"))


def _size(built: Built, stages: Stages) -> None:
    """Other flags, other kernels: integers keep their bits."""
    other = built.again(replace(built.options, optimize="size" if built.options.optimize != "size" else "speed"))
    found = host_outputs(other, built.inputs, built.folder / "size")
    near = TOLERANCE if not built.compiled.is_quantized else 0.0
    _equal("optimize", found, built.outputs(), tolerance=near)


def _clang(built: Built, stages: Stages) -> None:
    expected = built.outputs()
    os.environ["CC"] = "clang"
    try:
        found = host_outputs(built.compiled, built.inputs, built.folder / "clang")
    finally:
        del os.environ["CC"]
    _equal("clang", found, expected)


def _optimized(built: Built, stages: Stages) -> None:
    """The C optimised as packages are for the host, against the same hardly optimised."""
    found = host_outputs(
        built.compiled, built.inputs, built.folder / "O3", toolchain=replace(QUICK_TOOLCHAIN, speed_flags=("-O3",))
    )
    _equal("-O3", found, built.outputs())


def _sanitized(built: Built, stages: Stages) -> None:
    """The self-test with the outputs that the plain build gives, under the sanitizers of gcc."""
    interface, folder = built.compiled.interface, built.folder / "sanitized"
    vector = TestVector(inputs=built.inputs, outputs=built.outputs())
    folder.mkdir()
    texts = {**built.sources, **emit_vectors(interface, [vector]), **emit_selftest(interface, tolerance=1e-3)}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    units = sorted(name for name in texts if name.endswith(".c"))
    command = ["gcc", *LANGUAGE_FLAGS, "-march=native", *SANITIZE, *units, "-lm", "-o", "selftest"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    # Limits on memory are not for the sanitizer, which reserves terabytes of addresses.
    done = subprocess.run(
        ["prlimit", "--as=unlimited", "./selftest"], cwd=folder, capture_output=True, text=True, timeout=100
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "runtime error" in line or "ERROR: Addr" in line]
        raise Disagreement("sanitizers", f"{(lines or ['self-test failed'])[0]}\n{(done.stdout + done.stderr)[-1500:]}")


def _ways(built: Built, stages: Stages) -> None:
    """Each way to fit, as the search for the cheapest would seldom take it, gives the bits that the model has."""
    options = replace(built.options, quantize="none", io_type="int8", ram=None, pin=None, keep=())
    expected = built.outputs()
    for number, (way, compiled) in enumerate(every_way(built.module, built.compiled.platform, options, SEED)):
        stages.begin(f"way {way}")
        near = 0.0 if built.compiled.is_quantized or "scratch" not in way else TOLERANCE
        found = host_outputs(compiled, built.inputs, built.folder / f"way_{number}")
        _equal(f"way {way}", found, expected, tolerance=near)


def _plain(built: Built, stages: Stages) -> None:
    """Integers are the same by the kernels of all processors, where no float comes before them."""
    is_exact = all(call.implementation.exact for call in built.compiled.program.kernel_calls())
    plain = in_plain_c(built.module) if is_exact else None
    if plain is not None:
        _equal("plain C", host_outputs(plain, built.inputs, built.folder / "plain"), built.outputs())


def _poisoned(built: Built, stages: Stages) -> None:
    found, _ = run_poisoned(built.compiled, built.inputs)
    _equal("poison", found, built.outputs())


def _package(built: Built, stages: Stages) -> None:
    """The whole build as a user has it, verified on the host."""
    stages.begin("package")
    package = build(built.module, built.compiled.platform, built.folder / "out", replace(
        built.options, verify=("host",), quantize="none", io_type="int8"))  # fmt: skip
    if built.options.quantize == "none":
        _equal("package", package.run(built.inputs), built.outputs(), tolerance=1e-5)


def _board(built: Built, stages: Stages) -> None:
    """The machine of the platform gives what the host gives; builds and boots, which takes a while."""
    if built.compiled.platform.board is None:
        return
    stages.begin("board", cpu_s=200)
    options = replace(built.options, verify=(), quantize="none", io_type="int8")
    package = build(built.module, built.compiled.platform, built.folder / "board", options)
    near = 0.0 if built.compiled.is_quantized else TOLERANCE
    _equal("board", package.run_board([built.inputs]).outputs[0], built.outputs(), tolerance=near)


CHECKS: dict[str, Callable[[Built, Stages], None]] = {
    "unsplit": _unsplit, "size": _size, "clang": _clang, "optimized": _optimized, "sanitizers": _sanitized,
    "ways": _ways, "plain": _plain, "poison": _poisoned, "package": _package, "board": _board,
}  # fmt: skip

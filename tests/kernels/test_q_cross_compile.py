"""Integer kernels for a Cortex-M: no warning, and no float arithmetic."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import numpy as np
import pytest

from codegen_c.kernels.contract import Implementation, StoredRows
from codegen_c.kernels.registry import COMMON, kernels_of, select
from codegen_c.operators.kinds import (
    MatmulShape,
    Operator,
    PackedQConv2d,
    PackedQDense,
    QAffine,
    QBinary,
    QConstantBinary,
    QConv2d,
    QConv2dTranspose,
    QDense,
    QDivide,
    QGroupNormalize,
    QInterpolate,
    QLstm,
    QMaskedSoftmax,
    QMatmul,
    QMean,
    QNormalize,
    QPool2d,
    QPrelu,
    QSvdfFeatures,
    QSvdfSum,
    TensorType,
    Window,
)
from relay_passes.analysis.recurrent_int8 import state_of_range
from tests.kernels.harness import PORTABLE, WARNINGS, smallest_rings, source_text
from tests.kernels.test_f32_recurrent import GATES
from tests.kernels.test_q_refusals import ADD, ALL, AVERAGE, CONV, IMAGE, MAX
from tests.kernels.test_q_sixteen_bits import unary, widened, widened_type
from tests.kernels.test_qrecurrent import INPUT, LAYERS, integers, operator_of
from tests.kernels.test_qreduce import taps
from tests.support.runtime_headers import INCLUDE_FLAGS
from tests.support.sweeps import some_of

PREFIX = "arm-none-eabi-"
FULL = {"low": -128, "high": 127}
SAME = Window(kernel=(3, 3), padding=(1, 1, 1, 1))
OPERATORS: tuple[Operator, ...] = (
    *ALL,
    *(replace(pool, window=SAME, outputs=(IMAGE,)) for pool in (MAX, AVERAGE)),
    *(replace(ADD, function=function) for function in ("subtract", "multiply")),
    replace(ADD, inputs=(IMAGE, replace(IMAGE, shape=(1, 1, 1, IMAGE.shape[3])))),
    replace(CONV, window=SAME, weight=np.ones((2, 3, 3, 2), np.int8), weight_scale=np.array([1, 2], np.float32)),
    replace(CONV, window=SAME, weight=np.ones((2, 3, 3, 1), np.int8), groups=2),
    *(
        kind(**{field.name: getattr(layer, field.name) for field in fields(layer)})
        for kind, layer in ((PackedQConv2d, CONV), (PackedQDense, next(one for one in ALL if type(one) is QDense)))
    ),
    QConv2dTranspose(
        inputs=(IMAGE,), outputs=(IMAGE,), window=SAME, weight=np.ones((2, 3, 3, 2), np.int8),
        weight_scale=np.array([1, 2], np.float32), bias=np.zeros(2, np.int32), **FULL,
    ),
    QMean(inputs=(IMAGE,), outputs=(replace(IMAGE, shape=(1, 1, 1, 2)),), axes=(1, 2), divide=True, **FULL),
    QMatmul(
        inputs=(IMAGE, replace(IMAGE, shape=(1, 1, 2, 2))), outputs=(IMAGE,), scale=0.5, **FULL,
        shape=MatmulShape(
            rows=IMAGE.shape[1], heads=IMAGE.shape[2], depth=2, columns=2, heads_inside=True, steps=(0, 2, 1)
        ),
    ),
    QNormalize(
        inputs=(IMAGE,), outputs=(IMAGE,), weight=np.ones(2, np.float32), bias=np.zeros(2, np.float32), epsilon=1e-5,
        is_centered=True, **FULL,
    ),
    QGroupNormalize(
        inputs=(IMAGE,), outputs=(IMAGE,), weight=np.ones(2, np.float32), bias=np.zeros(2, np.float32), epsilon=1e-5,
        groups=2, channel_axis=3, **FULL,
    ),
    QDivide(inputs=(IMAGE, IMAGE), outputs=(IMAGE,), **FULL),
    QPrelu(inputs=(IMAGE,), outputs=(IMAGE,), slopes=np.array([0.2, 0.3], np.float32), **FULL),
    QAffine(inputs=(IMAGE,), outputs=(IMAGE,), factors=np.array([2.0, -1.0]), addends=np.array([0.5, 9.0]), **FULL),
    *(
        QConstantBinary(
            inputs=(IMAGE,), outputs=(IMAGE,), constant=np.arange(5, 5 + channels, dtype=np.int8).reshape(1, 1, 1, -1),
            index=1,
            binary=QBinary(
                inputs=(IMAGE, replace(IMAGE, shape=(1, 1, 1, channels))), outputs=(IMAGE,), function="multiply",
                rounding="tflite", **FULL,
            ),
        )
        for channels in (1, 2)
    ),
    QMaskedSoftmax(inputs=(IMAGE,), outputs=(IMAGE,), mask=np.array([False, True])),
    QInterpolate(
        inputs=(IMAGE,), outputs=(replace(IMAGE, shape=(1, 7, 9, IMAGE.shape[3])),), rows=taps(IMAGE.shape[1], 7),
        columns=taps(IMAGE.shape[2], 9), **FULL,
    ),
    QLstm(
        inputs=(
            TensorType(shape=(2, 4), dtype="int8"), TensorType(shape=(2, 4), dtype="int16"),
            TensorType(shape=(3, 2, 5), dtype="int8"),
        ),
        outputs=(
            TensorType(shape=(2, 4), dtype="int8"), TensorType(shape=(2, 4), dtype="int16"),
            TensorType(shape=(3, 2, 4), dtype="int8"),
        ),
        input_weight=np.ones((16, 5), np.int8), hidden_weight=np.ones((16, 4), np.int8), bias=np.ones(16, np.int32),
        table=np.zeros(256, np.uint16), factors=((1 << 30, 36),) * 11, zero_points=(3, -4), cell_power=-11, clip=900,
    ),
    *(
        QSvdfFeatures(
            inputs=(TensorType(shape=(2, 5), dtype="int8"),), outputs=(TensorType(shape=(2, 1, 1, 8), dtype=state),),
            weight=np.ones((8, 5), np.int8), factor=(1 << 30, 36), zero_point=3, state_zero_point=0,
        )
        for state in ("int8", "int16")
    ),
    *(
        QSvdfSum(
            inputs=(TensorType(shape=(2, 5, 1, 12), dtype=state),),
            outputs=(TensorType(shape=(2, units), dtype="int8"),),
            weight=np.ones((12, 5), state), bias=np.ones(units, np.int32), factor=(1 << 30, 36), zero_point=3,
        )
        for state, units in (("int8", 6), ("int16", 12), ("int16", 4))
    ),
    *(operator_of(layer, integers(layer, INPUT, state_of_range(-1, 1))) for layer in LAYERS[: len(GATES)]),
)  # fmt: skip
WIDE = tuple(
    widened(operator)
    for operator in OPERATORS
    if isinstance(operator, QConv2d | QDense | QPool2d | QBinary | QMean)
    and not isinstance(operator, PackedQConv2d | PackedQDense)
)
"""The same on 16 bits, where there is a kernel for them; sums of these have 32 bits, but of the last layer 64."""
NINE_BITS = tuple(
    replace(operator, weight=np.full(operator.weight.shape, 200, np.int16), rounding="tflite")
    for operator in OPERATORS
    if type(operator) in (QConv2d, QDense, QConv2dTranspose) and getattr(operator, "groups", 1) == 1
)
"""Layers whose weights need 9 bits."""
FAR = replace(widened(CONV), bias=np.full(CONV.bias.shape, 1 << 40), weight_scale=np.full(CONV.bias.shape, 1e-9, "f4"))


def implementations() -> list[Implementation]:
    """Every kernel, with all rows stored and with as few as it needs."""
    found: list[Implementation] = []
    layers = (*OPERATORS, *WIDE, *NINE_BITS, FAR, unary(*map(widened_type, (IMAGE, IMAGE)), slope=0.2))
    for operator, target in (*((layer, PORTABLE) for layer in layers), (CONV, replace(PORTABLE, optimize="size"))):
        plain = select(operator, target, StoredRows())
        assert isinstance(plain, Implementation), plain
        found.append(plain)
        if plain.spatial:
            ringed = select(operator, target, smallest_rings(plain))
            assert isinstance(ringed, Implementation)
            found.append(ringed)
    return found


def test_every_integer_kernel_is_here() -> None:
    found = {implementation.kernel for implementation in implementations()}
    common = [info.name for info in walk_packages(import_module(COMMON).__path__, f"{COMMON}.") if not info.ispkg]
    known = {kernel.name for name in common for kernel in kernels_of(import_module(name))}
    assert found == {name for name in known if name.startswith("q") and "tflite" not in name}


@pytest.mark.skipif(shutil.which(f"{PREFIX}gcc") is None, reason=f"{PREFIX}gcc is not installed")
@pytest.mark.parametrize("optimize", some_of(["-Os", "-O3"], sweep=["-O2"]))
def test_compiles_for_cortex_m_without_float(tmp_path: Path, optimize: str) -> None:
    """Software floating point would show as calls into the compiler's library."""
    source, target = tmp_path / "kernels.c", tmp_path / "kernels.o"
    source.write_text(source_text(implementations()))
    flags = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=soft", "-std=c11", optimize, *WARNINGS]
    done = subprocess.run(
        [f"{PREFIX}gcc", *flags, *INCLUDE_FLAGS, "-c", str(source), "-o", str(target)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    symbols = subprocess.run([f"{PREFIX}nm", "-u", str(target)], capture_output=True, text=True, check=True).stdout
    called = set(re.findall(r"\bU (\S+)", symbols))
    assert called <= {"__aeabi_ldivmod", "memcpy", "memmove", "memset"}, called

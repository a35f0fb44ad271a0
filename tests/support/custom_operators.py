"""Operators that somebody else brings, and models that use them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from tests.support.tflite_file import TfliteWriter
from tvm_ext.custom import CustomCall, CustomCode, CustomOperator, CustomState, CustomTensor

Array = np.ndarray

HEADER = """#ifndef ENVELOPE_STEP_H
#define ENVELOPE_STEP_H
#include <stdint.h>

static inline int32_t envelope_step(int32_t before, int32_t sample, int32_t decay)
{
    const int32_t size = sample < 0 ? -sample : sample;
    const int32_t fallen = before - (before >> decay);
    return size > fallen ? size : fallen;
}
#endif
"""


def options(**values: Any) -> bytes:
    """A map of flexbuffers."""
    builder = flexbuffers.Builder()
    with builder.Map():
        for name, value in values.items():
            builder.Key(name)
            builder.TypedVectorFromElements(value) if isinstance(value, list) else builder.Add(value)
    return bytes(builder.Finish())


def _decay(call: CustomCall) -> int:
    return int(call.options["decay"])  # type: ignore[arg-type]


def _follow(call: CustomCall, arrays: Sequence[Array | None]) -> list[Array]:
    samples, before = (array for array in arrays if array is not None)
    level, found = int(before[0]), []
    for sample in samples.reshape(-1).tolist():
        level = max(abs(sample), level - (level >> _decay(call)))
        found.append(level)
    return [np.array(found, np.int32).reshape(samples.shape), np.array([level], np.int32)]


def _code(call: CustomCall) -> CustomCode:
    (samples,) = call.present
    body = f"""int32_t level = state[0];
for (int32_t i = 0; i < {int(np.prod(samples.shape))}; ++i) {{
    level = envelope_step(level, samples[i], {_decay(call)});
    envelope[i] = level;
}}
state_next[0] = level;"""
    return CustomCode(
        inputs=("samples",), outputs=("envelope",), body=body, headers={"envelope_step.h": HEADER}, instructions=12
    )


ENVELOPE = CustomOperator(
    name="Envelope",
    outputs=lambda call: [CustomTensor(shape=call.present[0].shape, dtype="int32")],
    reference=_follow,
    code=_code,
    states=lambda call: [CustomState(name="state", initial=np.array([100], np.int32))],
    refuses=lambda call: None if call.present[0].dtype == "int16" else f"it supports int16 only, not {call.present[0]}",
)
"""A level that rises at once and falls slowly, kept from run to run: integers, an option, a header."""


def _mish(call: CustomCall, arrays: Sequence[Array | None]) -> list[Array]:
    x = np.asarray(arrays[0], np.float64)
    return [(x * np.tanh(np.log1p(np.exp(x)))).astype(np.float32)]


def _mish_code(call: CustomCall) -> CustomCode:
    count = int(np.prod(call.present[0].shape))
    body = f"for (int32_t i = 0; i < {count}; ++i) {{\n    y[i] = x[i] * $_gate(x[i]);\n}}"
    helpers = "static inline float $_gate(float x)\n{\n    return tanhf(log1pf(expf(x)));\n}\n"
    return CustomCode(inputs=("x",), outputs=("y",), body=body, helpers=helpers, includes=("math.h",))


MISH = CustomOperator(
    name="Mish",
    outputs=lambda call: [CustomTensor(shape=call.present[0].shape, dtype="float32")],
    reference=_mish,
    code=_mish_code,
)
"""x * tanh(log(1 + e^x)), which the format has not: floats, a helper, math.h."""


def _matched(call: CustomCall, arrays: Sequence[Array | None]) -> list[Array]:
    x, bank = (array for array in arrays if array is not None)
    scores = (x.astype(np.int32) @ bank.astype(np.int32).T) + _RAMP[: len(bank)]
    return [scores.max(-1), scores.argmax(-1).astype(np.int32)]


_RAMP = np.arange(0, 64, 4, dtype=np.int32)


def _matched_code(call: CustomCall) -> CustomCode:
    bank = call.present[1]
    body = f"""int32_t *const scores = (int32_t *)(void *)scratch;
for (int32_t k = 0; k < {bank.shape[0]}; ++k) {{
    scores[k] = ramp[k];
    for (int32_t c = 0; c < {bank.shape[1]}; ++c) {{
        scores[k] += (int32_t)x[c] * bank[k * {bank.shape[1]} + c];
    }}
}}
score[0] = scores[0];
index[0] = 0;
for (int32_t k = 1; k < {bank.shape[0]}; ++k) {{
    if (scores[k] > score[0]) {{
        score[0] = scores[k];
        index[0] = k;
    }}
}}"""
    return CustomCode(
        inputs=("x", "bank"), outputs=("score", "index"), body=body, tables={"ramp": _RAMP[: bank.shape[0]]},
        scratch_bytes=4 * bank.shape[0], macs=bank.shape[0] * bank.shape[1],
    )  # fmt: skip


MATCHED = CustomOperator(
    name="Matched",
    outputs=lambda call: [CustomTensor(shape=(1,), dtype="int32"), CustomTensor(shape=(1,), dtype="int32")],
    reference=_matched,
    code=_matched_code,
)
"""The best of a bank of vectors: a constant input, a table, scratch, two outputs."""


def envelope(folder: Path, dtype: str = "int16", custom: bytes | None = None) -> Path:
    """Samples, and their envelope."""
    net = TfliteWriter()
    x = net.input("samples", (1, 32), dtype)
    y = net.operator("Envelope", [x], net.tensor("level", (1, 32), "int32"), custom=custom or options(decay=4))
    return saved(net, [y], folder, "envelope")


def both(folder: Path, rows: int = 5) -> Path:
    """Samples and their envelope, and beside them a vector and its match in a bank."""
    net = TfliteWriter()
    samples = net.input("samples", (1, 32), "int16")
    level = net.operator("Envelope", [samples], net.tensor("level", (1, 32), "int32"), custom=options(decay=4))
    bank = np.random.default_rng(0).integers(-128, 128, (rows, 8)).astype(np.int8)
    x, table = net.input("x", (1, 8), "int8"), net.constant("bank", bank)
    results = [net.tensor("score", (1,), "int32"), net.tensor("index", (1,), "int32")]
    net.operator("Matched", [x, table], results)
    return saved(net, [level, *results], folder, "both")


def mish(folder: Path, shape: tuple[int, ...] = (1, 4, 4, 3)) -> Path:
    """A built-in operator on both sides of one that somebody brought; the number of rows is open."""
    net = TfliteWriter()
    x = net.input("x", shape, signature=[1, -1, *shape[2:]])
    negative = net.operator("NEG", [x], net.tensor("negative", shape), "NegOptions")
    bent = net.operator("Mish", [negative], net.tensor("bent", shape))
    y = net.operator("ABS", [bent], net.tensor("y", shape), "AbsOptions")
    return saved(net, [y], folder, "mish")


def saved(net: TfliteWriter, outputs: Sequence[int], folder: Path, name: str) -> Path:
    path = folder / f"{name}.tflite"
    path.write_bytes(net.finish(outputs))
    return path

"""SignalWindow: multiply 16-bit frames by a window, shift right and saturate.

int16[..., N] times int16[W], repeated -> int16[..., N]; N is a multiple of W. Option: shift.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codegen_c.custom.audio.common import elements, first_of, header, number, of_types, tensor
from codegen_c.custom.contract import Array, CustomCall, CustomCode, CustomOperator, CustomTensor


def _outputs(call: CustomCall) -> Sequence[CustomTensor]:
    return [CustomTensor(shape=tensor(call, 0).shape, dtype="int16")]


def _refuses(call: CustomCall) -> str | None:
    weights = tensor(call, 1).shape
    if len(weights) != 1 or not weights[0] or elements(tensor(call, 0)) % weights[0]:
        return f"its window {list(weights)} does not fit an input of {list(tensor(call, 0).shape)}"
    return None if 0 <= number(call, "shift") < 32 else f"option 'shift' is {number(call, 'shift')}; allowed is 0 to 31"


def _reference(call: CustomCall, inputs: Sequence[Array | None]) -> Sequence[Array]:
    samples, weights = inputs
    assert samples is not None and weights is not None, "both are there"
    products = samples.astype(np.int32).reshape(-1, weights.size) * weights
    return [np.clip(products >> number(call, "shift"), -32768, 32767).astype(np.int16).reshape(samples.shape)]


def _code(call: CustomCall) -> CustomCode:
    count, length = elements(tensor(call, 0)), elements(tensor(call, 1))
    return CustomCode(
        inputs=("input", "weights"),
        outputs=("output",),
        body=f"tvm_ext_audio_window(input, weights, output, {count}, {length}, {number(call, 'shift')});",
        headers=header("tvm_ext_audio_window.h"),
        macs=count,
    )


OPERATORS = (
    CustomOperator(
        name="SignalWindow", outputs=_outputs, reference=_reference, code=_code,
        refuses=first_of(of_types(["int16", "int16"], ["int16"]), _refuses),
    ),
)  # fmt: skip

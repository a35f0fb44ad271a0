"""SignalFftAutoScale: shift samples left as far as the largest sample allows, and return the number of bits.

int16[N] -> int16[N], int32[]. The magnitude of -32768 does not fit 16 bits: after this sample the search for the
largest starts over, as in TensorFlow Lite Micro.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codegen_c.custom.audio.common import elements, first_of, header, of_types, tensor
from codegen_c.custom.contract import Array, CustomCall, CustomCode, CustomOperator, CustomTensor


def _outputs(call: CustomCall) -> Sequence[CustomTensor]:
    return [CustomTensor(shape=tensor(call, 0).shape, dtype="int16"), CustomTensor(shape=(), dtype="int32")]


def _refuses(call: CustomCall) -> str | None:
    shape = tensor(call, 0).shape
    return None if len(shape) == 1 else f"its input has shape {list(shape)}; it must be a vector"


def _reference(call: CustomCall, inputs: Sequence[Array | None]) -> Sequence[Array]:
    (samples,) = inputs
    assert samples is not None, "it is there"
    largest = 0
    for x in samples.tolist():
        if x > largest:
            largest = x
        elif -x > largest:
            largest = x if x == -32768 else -x
    shift = 15 - largest.bit_length() if largest > 0 else 0
    return [(samples.astype(np.int32) << shift).astype(np.int16), np.array(shift, np.int32)]


def _code(call: CustomCall) -> CustomCode:
    return CustomCode(
        inputs=("input",),
        outputs=("output", "scale_bits"),
        body=f"scale_bits[0] = tvm_ext_audio_auto_scale(input, output, {elements(tensor(call, 0))});",
        headers={**header("tvm_ext_audio_auto_scale.h"), **header("tvm_ext_audio_bits.h")},
    )


OPERATORS = (
    CustomOperator(
        name="SignalFftAutoScale", outputs=_outputs, reference=_reference, code=_code,
        refuses=first_of(of_types(["int16"], ["int16", "int32"]), _refuses),
    ),
)  # fmt: skip

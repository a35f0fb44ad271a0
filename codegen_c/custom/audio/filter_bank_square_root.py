"""SignalFilterBankSquareRoot: rounded square roots of channels, shifted right.

uint64[C], int32[] bits -> uint32[C]. The root of a value below 2^32 is limited to 16 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

import numpy as np

from codegen_c.custom.audio.common import elements, first_of, header, of_types, tensor
from codegen_c.custom.contract import Array, CustomCall, CustomCode, CustomOperator, CustomTensor


def _outputs(call: CustomCall) -> Sequence[CustomTensor]:
    return [CustomTensor(shape=tensor(call, 0).shape, dtype="uint32")]


def _refuses(call: CustomCall) -> str | None:
    shape, bits = tensor(call, 0).shape, tensor(call, 1)
    if len(shape) != 1 or elements(bits) != 1:
        return f"its inputs have shapes {list(shape)} and {list(bits.shape)}; they must be a vector and a number"
    return None


def _reference(call: CustomCall, inputs: Sequence[Array | None]) -> Sequence[Array]:
    energy, bits = inputs
    assert energy is not None and bits is not None, "both are there"
    roots = np.array([_root(x) for x in energy.tolist()], np.uint32)
    return [roots >> np.uint32(int(bits.item()) & 31)]


def _root(x: int) -> int:
    """Return the square root, rounded to nearest, of a number of 64 bits."""
    root = isqrt(x)
    most = 0xFFFF if x < 1 << 32 else 0xFFFFFFFF
    return root + int(x - root * root > root and root != most)


def _code(call: CustomCall) -> CustomCode:
    channels = elements(tensor(call, 0))
    return CustomCode(
        inputs=("input", "scale_bits"),
        outputs=("output",),
        body=f"tvm_ext_audio_square_roots(input, output, {channels}, scale_bits[0] & 31);",
        headers={**header("tvm_ext_audio_filter_bank.h"), **header("tvm_ext_audio_bits.h")},
        instructions=channels * 32 * 12,
    )


OPERATORS = (
    CustomOperator(
        name="SignalFilterBankSquareRoot", outputs=_outputs, reference=_reference, code=_code,
        refuses=first_of(of_types(["uint64", "int32"], ["uint32"]), _refuses),
    ),
)  # fmt: skip

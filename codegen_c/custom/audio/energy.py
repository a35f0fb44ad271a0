"""SignalEnergy: sum of the squares of the real and the imaginary part of each bin of a spectrum.

int16[2 B] -> uint32[B] for the bins [start_index, end_index). Other bins are 0; TensorFlow Lite Micro leaves their
memory unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codegen_c.custom.audio.common import first_of, header, number, of_types, tensor
from codegen_c.custom.contract import Array, CustomCall, CustomCode, CustomOperator, CustomTensor


def _outputs(call: CustomCall) -> Sequence[CustomTensor]:
    return [CustomTensor(shape=(tensor(call, 0).shape[0] // 2,), dtype="uint32")]


def _refuses(call: CustomCall) -> str | None:
    shape, (begin, end) = tensor(call, 0).shape, _range(call)
    if len(shape) != 1 or shape[0] % 2:
        return f"its input has shape {list(shape)}; it must be a vector of pairs"
    return None if 0 <= begin <= end <= shape[0] // 2 else f"bins {begin} to {end} exceed the {shape[0] // 2} bins"


def _range(call: CustomCall) -> tuple[int, int]:
    return number(call, "start_index"), number(call, "end_index")


def _reference(call: CustomCall, inputs: Sequence[Array | None]) -> Sequence[Array]:
    (spectrum,) = inputs
    assert spectrum is not None, "it is there"
    squares = spectrum.astype(np.int64).reshape(-1, 2) ** 2
    bins = np.arange(len(squares))
    begin, end = _range(call)
    return [np.where((bins >= begin) & (bins < end), squares.sum(1), 0).astype(np.uint32)]


def _code(call: CustomCall) -> CustomCode:
    bins, (begin, end) = tensor(call, 0).shape[0] // 2, _range(call)
    return CustomCode(
        inputs=("spectrum",),
        outputs=("energy",),
        body=f"tvm_ext_audio_energy(spectrum, energy, {bins}, {begin}, {end});",
        headers=header("tvm_ext_audio_energy.h"),
        macs=2 * (end - begin),
    )


OPERATORS = (
    CustomOperator(
        name="SignalEnergy", outputs=_outputs, reference=_reference, code=_code,
        refuses=first_of(of_types(["int16"], ["uint32"]), _refuses),
    ),
)  # fmt: skip

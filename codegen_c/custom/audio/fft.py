"""SignalRfft and SignalIrfft: Fourier transforms of real samples along the last axis, and their inverse.

T[..., N] -> T[..., fft_length + 2], pairs of a real and an imaginary part; the inverse T[..., fft_length + 2] -> T[...,
fft_length]. T is int16, int32 or float32. Both directions divide integers by fft_length. If N is less than the length,
zeros are appended. fft_length is a power of two. Sums are computed in the order of kiss_fft.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from codegen_c.c_text.text import loop
from codegen_c.custom.audio.common import elements, header, number, tensor
from codegen_c.custom.audio.fft_tables import LARGEST, SMALLEST, SUFFIXES, FftTables, irfft, retyped, rfft
from codegen_c.custom.contract import Array, CustomCall, CustomCode, CustomOperator, CustomTensor

_HEADER = "tvm_ext_audio_fft_s16.h"
_SAMPLES = "tvm_ext_audio_samples.h"


def _outputs(inverse: bool, call: CustomCall) -> Sequence[CustomTensor]:
    given = tensor(call, 0)
    last = number(call, "fft_length") + (0 if inverse else 2)
    return [CustomTensor(shape=(*given.shape[:-1], last), dtype=given.dtype)]


def _refuses(inverse: bool, call: CustomCall) -> str | None:
    length, given = number(call, "fft_length"), tensor(call, 0)
    if given.dtype not in SUFFIXES or not given.shape or len(call.inputs) != 1:
        return f"its input is {given}; its type must be one of {', '.join(SUFFIXES)}"
    if not SMALLEST <= length <= LARGEST or length & (length - 1):
        return f"option 'fft_length' is {length}; it must be a power of two from {SMALLEST} to {LARGEST}"
    if inverse:
        wanted = length + 2
        return None if given.shape[-1] == wanted else f"its input has {given.shape[-1]} elements a row, not {wanted}"
    return None if given.shape[-1] <= length else f"its input has {given.shape[-1]} samples a row, more than {length}"


def _tables(inverse: bool, call: CustomCall) -> FftTables:
    return FftTables.of(number(call, "fft_length"), tensor(call, 0).dtype, inverse=inverse)


def _reference(inverse: bool, call: CustomCall, inputs: Sequence[Array | None]) -> Sequence[Array]:
    (given,) = inputs
    assert given is not None, "it is there"
    tables, run = _tables(inverse, call), irfft if inverse else rfft
    rows = [run(row, tables, str(given.dtype)) for row in given.reshape(-1, given.shape[-1])]
    return [np.array(rows).reshape(*given.shape[:-1], -1)]


def _code(inverse: bool, call: CustomCall) -> CustomCode:
    given, tables = tensor(call, 0), _tables(inverse, call)
    suffix, count, size = SUFFIXES[given.dtype], given.shape[-1], np.dtype(given.dtype).itemsize
    result, rows = tables.length * 2 + (0 if inverse else 2), elements(given) // given.shape[-1]
    arguments = "&tables" if inverse else f"{count}, &tables"
    name = f"tvm_ext_audio_{'irfft' if inverse else 'rfft'}_{suffix}"
    each = [
        f"{name}(&input[row * {count}], &output[row * {result}], work, {arguments});",
    ]
    body = [
        f"const tvm_ext_audio_fft_{suffix}_tables tables = {{order, powers, split, {tables.length}, {tables.sign}}};",
        f"tvm_ext_audio_complex_{suffix} *const work = (tvm_ext_audio_complex_{suffix} *)(void *)scratch;",
        *loop("row", rows, each),
    ]
    fft = header(_HEADER)[_HEADER]
    return CustomCode(
        inputs=("input",),
        outputs=("output",),
        body="\n".join(body),
        headers={retyped(_HEADER, given.dtype): retyped(fft, given.dtype), **header(_SAMPLES)},
        tables={"order": tables.order, "powers": tables.powers, "split": tables.split},
        scratch_bytes=tables.length * 2 * size,
        macs=rows * 4 * (3 * tables.length // 4) * max(1, tables.length.bit_length() // 2),
        instructions=rows * tables.length * 40 * tables.length.bit_length() // 2,
    )


def _operator(name: str, inverse: bool) -> CustomOperator:
    return CustomOperator(
        name=name, outputs=partial(_outputs, inverse), reference=partial(_reference, inverse),
        code=partial(_code, inverse), refuses=partial(_refuses, inverse),
    )  # fmt: skip


OPERATORS = (_operator("SignalRfft", False), _operator("SignalIrfft", True))

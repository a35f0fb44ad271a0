"""Calls of TensorFlow Lite Micro's own custom operators, alone or side by side in one file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.custom_operators import options, saved
from tests.support.tflite_file import TYPES, TfliteWriter

Array = np.ndarray
Shaped = tuple[str, tuple[int, ...]]


def samples(random: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """Elements of a size that changes from call to call; of 16 bits the least one, too."""
    if dtype == "float32":
        return random.normal(0, 1, shape).astype(np.float32)
    limits = np.iinfo(dtype)
    if limits.min == 0:
        found = random.integers(0, limits.max, shape, dtype, endpoint=True)
        return found >> np.array(random.integers(0, limits.bits), dtype)
    most = int(limits.max) >> int(random.integers(0, limits.bits - 2))
    found = random.integers(-most, most, shape, dtype, endpoint=True)
    return np.where(random.random(shape) < 0.02, limits.min, found).astype(dtype) if most == limits.max else found


@dataclass(frozen=True, kw_only=True, eq=False)
class AudioCase:
    """One call. inputs, outputs: types and shapes. constants: behind the inputs.

    meant: which elements of its outputs are defined by TensorFlow Lite Micro, from all outputs; by default all.
    settles: runs whose outputs it does not define at all.
    """

    operator: str
    inputs: Sequence[Shaped]
    outputs: Sequence[Shaped]
    options: Mapping[str, Any] = field(default_factory=dict)
    constants: Sequence[Array] = ()
    meant: Callable[[Sequence[Array]], Sequence[Array | bool]] = lambda outputs: [True] * len(outputs)
    settles: int = 0

    def write(self, net: TfliteWriter, name: str) -> tuple[list[int], list[int]]:
        """Adds the call to a file; its inputs and outputs."""
        given = [net.input(f"{name}_in{i}", shape, dtype) for i, (dtype, shape) in enumerate(self.inputs)]
        known = [net.constant(f"{name}_c{i}", array) for i, array in enumerate(self.constants)]
        results = [net.tensor(f"{name}_out{i}", shape, dtype) for i, (dtype, shape) in enumerate(self.outputs)]
        net.operator(self.operator, [*given, *known], results, custom=options(**self.options))
        return given, results

    def drawn(self, random: np.random.Generator) -> list[Array]:
        return [samples(random, dtype, shape) for dtype, shape in self.inputs]


def _valid(outputs: Sequence[Array]) -> Sequence[Array | bool]:
    return [bool(outputs[1]), True]


def _bins(begin: int, end: int, count: int) -> Callable[[Sequence[Array]], Sequence[Array]]:
    inside = (np.arange(count) >= begin) & (np.arange(count) < end)
    return lambda outputs: [inside]


def _random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _bank(bins: int, widths: Sequence[int]) -> list[Array]:
    """Weights, unweights, first bins, first weights and widths of a filter bank."""
    starts = np.cumsum([0, *widths[:-1]])
    weights = [_random(seed).integers(-4096, 4097, sum(widths)) for seed in (1, 2)]
    return [np.asarray(array, np.int16) for array in (*weights, starts % (bins - max(widths)), starts, widths)]


def _fft(operator: str, dtype: str, count: int, length: int, outer: tuple[int, ...] = ()) -> AudioCase:
    inverse = operator == "SignalIrfft"
    result = length if inverse else length + 2
    return AudioCase(
        operator=operator, inputs=[(dtype, (*outer, count))], outputs=[(dtype, (*outer, result))],
        options={"T": TYPES[dtype], "fft_length": length},
    )  # fmt: skip


def _subtraction(*, clamping: bool) -> AudioCase:
    return AudioCase(
        operator="SignalFilterBankSpectralSubtraction",
        inputs=[("uint32", (9,))], outputs=[("uint32", (9,))] * 2,
        options={
            "alternate_one_minus_smoothing": 15401, "alternate_smoothing": 983, "clamping": clamping,
            "min_signal_remaining": 819, "num_channels": 9, "one_minus_smoothing": 15975, "smoothing": 409,
            "smoothing_bits": 10, "spectral_subtraction_bits": 14,
        },
    )  # fmt: skip


def _framer(size: int, step: int, frames: int, *, prefill: bool, outer: tuple[int, ...] = (1,)) -> AudioCase:
    return AudioCase(
        operator="SignalFramer", inputs=[("int16", (*outer, frames * step))],
        outputs=[("int16", (*outer, frames, size)), ("bool", ())], meant=_valid,
        options={"frame_size": size, "frame_step": step, "prefill": prefill},
    )  # fmt: skip


def _stacker(channels: int, left: int, right: int, step: int) -> AudioCase:
    return AudioCase(
        operator="SignalStacker", inputs=[("int16", (channels,))], meant=_valid,
        outputs=[("int16", (channels * (left + right + 1),)), ("bool", ())],
        options={"num_channels": channels, "stacker_left_context": left, "stacker_right_context": right,
                 "stacker_step": step},
    )  # fmt: skip


def _delay(count: int, length: int, outer: tuple[int, ...] = ()) -> AudioCase:
    shape = (*outer, count)
    return AudioCase(operator="SignalDelay", inputs=[("int16", shape)], outputs=[("int16", shape)],
                     options={"delay_length": length})  # fmt: skip


def _overlap(dtype: str, frames: int, size: int, step: int, outer: tuple[int, ...] = (1,)) -> AudioCase:
    return AudioCase(
        operator="SignalOverlapAdd", inputs=[(dtype, (*outer, frames, size))],
        outputs=[(dtype, (*outer, frames * step))], options={"T": TYPES[dtype], "frame_step": step},
    )  # fmt: skip


def _circular(rows: int, **options: int) -> AudioCase:
    return AudioCase(operator="CIRCULAR_BUFFER", inputs=[("int8", (1, 1, 2, 3))], outputs=[("int8", (1, rows, 2, 3))],
                     options=options, settles=rows - 1)  # fmt: skip


CASES: Mapping[str, AudioCase] = {
    "window": AudioCase(
        operator="SignalWindow", inputs=[("int16", (3, 20))], outputs=[("int16", (3, 20))], options={"shift": 11},
        constants=[_random(0).integers(-4096, 4097, 10).astype(np.int16)],
    ),
    "auto_scale": AudioCase(
        operator="SignalFftAutoScale", inputs=[("int16", (12,))], outputs=[("int16", (12,)), ("int32", ())]
    ),
    "rfft_s16": _fft("SignalRfft", "int16", 50, 64),
    "rfft_s16_by_two": _fft("SignalRfft", "int16", 32, 32, (2,)),
    "rfft_s32": _fft("SignalRfft", "int32", 64, 64),
    "rfft_f32": _fft("SignalRfft", "float32", 30, 32),
    "irfft_s16": _fft("SignalIrfft", "int16", 66, 64),
    "irfft_s32": _fft("SignalIrfft", "int32", 34, 32, (2,)),
    "irfft_f32": _fft("SignalIrfft", "float32", 66, 64),
    "rfft_smallest": _fft("SignalRfft", "int16", 4, 4),
    "irfft_smallest": _fft("SignalIrfft", "int16", 6, 4),
    "energy": AudioCase(
        operator="SignalEnergy", inputs=[("int16", (66,))], outputs=[("uint32", (33,))], meant=_bins(3, 30, 33),
        options={"start_index": 3, "end_index": 30},
    ),
    "filter_bank": AudioCase(
        operator="SignalFilterBank", inputs=[("uint32", (33,))], outputs=[("uint64", (6,))],
        options={"num_channels": 6}, constants=_bank(33, [2, 3, 0, 5, 7, 4, 6]),
    ),
    "square_root": AudioCase(
        operator="SignalFilterBankSquareRoot", inputs=[("uint64", (16,))], outputs=[("uint32", (16,))],
        constants=[np.array(3, np.int32)],
    ),
    "subtraction": _subtraction(clamping=False),
    "subtraction_clamped": _subtraction(clamping=True),
    "pcan": AudioCase(
        operator="SignalPCAN", inputs=[("uint32", (16,))] * 2, outputs=[("uint32", (16,))], options={"snr_shift": 6},
        constants=[_random(5).integers(0, 32767, 125).astype(np.int16)],
    ),
    "log": AudioCase(
        operator="SignalFilterBankLog", inputs=[("uint32", (16,))], outputs=[("int16", (16,))],
        options={"input_correction_bits": 3, "output_scale": 64},
    ),
    "framer": _framer(10, 4, 3, prefill=False, outer=(2,)),
    "framer_filled": _framer(10, 5, 1, prefill=True),
    "framer_with_gaps": _framer(3, 5, 2, prefill=False),
    "stacker": _stacker(4, 1, 2, 3),
    "stacker_of_the_past": _stacker(3, 2, 0, 1),
    "delay": _delay(8, 3, (2,)),
    "delay_longer_than_a_run": _delay(4, 10),
    "overlap_add": _overlap("int16", 3, 10, 4, (2,)),
    "overlap_add_f32": _overlap("float32", 2, 8, 8),
    "circular_buffer": _circular(4, cycles_max=1),
    "circular_buffer_by_rows": _circular(5),
    "circular_buffer_of_one": _circular(1, cycles_max=1),
}  # fmt: skip


def side_by_side(folder: Path) -> tuple[Path, TfliteWriter, Mapping[str, Sequence[int]]]:
    """All cases in one model: its file, what wrote it, and the results of each case."""
    net = TfliteWriter()
    results = {name: case.write(net, name)[1] for name, case in CASES.items()}
    return saved(net, [index for each in results.values() for index in each], folder, "audio"), net, results

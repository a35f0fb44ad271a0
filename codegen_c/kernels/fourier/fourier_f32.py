"""Kernels for float32 products with windowed cosines and sines, as Fourier transforms of real frames.

float32[..., samples] -> float32[..., rows], where each row of the constant matrix is a windowed cosine or sine
(`basis.py`). Frames are windows of a signal (a convolution whose stride is the distance of frames), vectors (a dense
layer), or columns of a matrix (a constant matrix on the left). The kernels compute all rows of a frame at once. Results
differ from those of the product by rounding, and are closer to the exact ones. The transform is computed in scratch, so
the output may take the memory of samples that no other frame reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from codegen_c.c_text.text import Value, block, loop, plus, structure, times
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.dense.dense_rows import in_rows
from codegen_c.kernels.fourier.basis import FourierBasis, RowOrder, fourier_basis
from codegen_c.kernels.fourier.transform import (
    NAMES,
    FourierTables,
    frame_instructions,
    frame_products,
    radices_of,
    spectrum,
)
from codegen_c.kernels.registry import select
from codegen_c.kernels.shared.lanes import SCALAR, Finish
from codegen_c.kernels.shared.vector_rows import Rows
from codegen_c.kernels.shared.window import ROW_PARAMETERS, row_elements, slot, spatial
from codegen_c.operators.kinds import Array, ConstantMatmul, Conv2d, Dense, Matmul, PowerSpectrum

HEADER = "tvm_ext_fourier_f32.h"
FINISH_INSTRUCTIONS = 6
"""Instructions per element of the loop over a frame's results if operators follow the transform, beside their own."""
ACCUMULATION = "steps of a Fourier transform of the frame"

POWERS = RowOrder(real=0, imaginary=None, step=1)
"""Order of the results where a power stands for both parts."""

Product = Conv2d | Dense | ConstantMatmul


def _matrix(operator: Product) -> Array:
    """Return the constant matrix, float32[rows, samples]."""
    if isinstance(operator, ConstantMatmul):
        return operator.first.reshape(-1, operator.first.shape[-1])
    return operator.weight.reshape(len(operator.weight), -1)


def holds_a_fourier_basis(operator: Product, target: Target) -> bool:
    """the constant must hold windowed cosines, or cosines and sines, of successive frequencies; the length of their
    transform and of frames must be even, and half of the length a product of several factors 2, 3, 4 and 5"""
    return is_transform(_matrix(operator))


def is_transform(matrix: Array) -> bool:
    """Return True if a product with a matrix float32[rows, samples] can be computed as Fourier transforms."""
    basis = fourier_basis(matrix)
    if basis is None or basis.length % 2 or len(basis.window) % 2:
        return False
    one_sided = basis.end <= basis.length // 2 + 1
    radices = radices_of(basis.length // 2)
    return radices is not None and len(radices) > 1 and (one_sided or basis.begin == 0)


def adds_no_bias(operator: Conv2d | Dense, target: Target) -> bool:
    """no bias may be added to the spectrum"""
    return not operator.bias.any()


def slides_over_one_signal(operator: Conv2d, target: Target) -> bool:
    """the window must slide along the rows or columns of images with one channel and no other extent"""
    rows, columns = operator.window.kernel
    _, height, width, channels = operator.inputs[0].shape
    along_rows = columns == 1 and width == 1 and operator.output.shape[2] == 1
    along_columns = rows == 1 and height == 1 and operator.output.shape[1] == 1
    across = (0, 2) if not along_rows else (1, 3)
    unpadded = not any(operator.window.padding[side] for side in across)
    is_plain = operator.window.dilation == (1, 1) and operator.groups == 1 and type(operator) is Conv2d
    return is_plain and channels == 1 and (along_rows or along_columns) and unpadded


def multiplies_floats(operator: ConstantMatmul, target: Target) -> bool:
    """both operands must be float32 matrices"""
    return isinstance(operator.product, Matmul)


# Parts that all three products share: tables, the text of a frame, and results in numpy.


def _constants(tables: FourierTables, finish: Finish) -> tuple[tuple[str, Array], ...]:
    return (
        ("order", tables.order), ("window", tables.window), ("turns", tables.turns), ("split", tables.split),
        *finish.constants(),
    )  # fmt: skip


def _parameters(finish: Finish) -> tuple[Parameter, ...]:
    types = {"order": "uint16_t", "window": "float", "turns": "float", "split": "float"}
    return (
        Parameter(name="input", ctype="float", role="input"),
        *finish.input_parameters(),
        Parameter(name="output", ctype="float", role="output"),
        *(Parameter(name=name, ctype=ctype, role="constant") for name, ctype in types.items()),
        *finish.constant_parameters(),
        Parameter(name="scratch", ctype="uint8_t", role="scratch"),
    )


def _layers(basis: FourierBasis, sample_step: int, bin_step: int, *, powers: bool = False) -> list[str]:
    """Return the shapes of frames and spectra. Elements of successive rows are `bin_step` apart.

    powers: True if the sum of both squares is written instead of both parts.
    """
    points, rows = basis.length // 2, POWERS if powers else basis.rows
    members: dict[str, Value] = {
        "length": points, "begin": basis.begin, "end": basis.end, "step": rows.step * bin_step,
        "real": rows.real * bin_step,
    }  # fmt: skip
    if rows.imaginary is not None:
        members |= {
            "imaginary": rows.imaginary * bin_step, "has_imaginary": True, "turns_imaginary": basis.is_conjugate,
        }  # fmt: skip
    members |= {"is_power": True} if powers else {}
    return [
        *structure("tvm_ext_frame", "frames", {"length": points, "sample_step": sample_step}),
        *structure("tvm_ext_spectrum", "spectrum", members),
        "tvm_ext_complex_f32 *const points = (tvm_ext_complex_f32 *)(void *)scratch;",
    ]


def _frame(tables: FourierTables, output: str) -> list[str]:
    """Return the statements that transform the frame at `samples`. output: address of its first result."""
    first, *others = tables.radices
    lines = [f"tvm_ext_fourier_begin_{NAMES[first]}_f32(&frames, points, samples, order, window);"]
    for step, radix in enumerate(others, 1):
        turns = plus("turns", tables.first_turn(step))
        lines.append(f"tvm_ext_fourier_{NAMES[radix]}_f32(points, {turns}, {tables.points}, {tables.parts[step]});")
    return [*lines, f"tvm_ext_spectrum_f32(&spectrum, points, split, {output});"]


def _finished(finish: Finish, rows: int, element: Callable[[str | int], str], channel: str) -> list[str]:
    """Return a loop that applies the epilogue to the rows of one frame.

    element: index of row k in the output, or in a residual input by its number. channel: index of channel constants.
    """
    if not finish.program.instructions:
        return []
    call = finish.call(
        "value",
        lambda operand: (
            f"channel{operand.index}[{channel}]"
            if operand.kind == "channel"
            else f"input{operand.index}[{element(operand.index)}]"
        ),
    )
    return loop(
        "k", rows, [f"const float value = output[{element('output')}];", f"output[{element('output')}] = {call};"]
    )


def _rows_of(basis: FourierBasis, frames: Array, *, powers: bool = False) -> Array:
    """Return the results of frames float32[count, samples] in numpy: float32[count, rows]."""
    real, imaginary = spectrum(frames, basis)
    if powers:
        return (real * real + imaginary * imaginary)[:, basis.begin : basis.end]
    points, rows = basis.length // 2, basis.rows
    if basis.end > points + 1:
        mirrored = np.arange(basis.length // 2 - 1, 0, -1)
        real = np.concatenate([real, real[:, mirrored]], axis=1)
        imaginary = np.concatenate([imaginary, -imaginary[:, mirrored]], axis=1)
    bins = slice(basis.begin, basis.end)
    count = basis.end - basis.begin
    result = np.zeros((len(frames), count * (1 if rows.imaginary is None else 2)), np.float32)
    result[:, rows.real : rows.real + count * rows.step : rows.step] = real[:, bins]
    if rows.imaginary is not None:
        signed = -imaginary[:, bins] if basis.is_conjugate else imaginary[:, bins]
        result[:, rows.imaginary : rows.imaginary + count * rows.step : rows.step] = signed
    return result


def _instructions(tables: FourierTables, rows: int, finish: Finish) -> int:
    program = finish.program
    own = rows * (FINISH_INSTRUCTIONS + program.num_instructions) if program.instructions else 0
    return frame_instructions(tables) + own


def _known(operator: Product) -> tuple[FourierBasis, FourierTables]:
    basis = fourier_basis(_matrix(operator))
    assert basis is not None, "constraints have recognized it"
    return basis, FourierTables.of(basis)


def _implementation(
    kernel: Kernel, tables: FourierTables, rows: int, finish: Finish, *, frames: int, body: Sequence[str],
    reference: Callable[[list[Array]], list[Array]], extra: Sequence[Parameter] = (), copied: int = 0,
    input_reads: float = 1.0,
) -> Implementation:  # fmt: skip
    """Return the kernel of a number of frames, with `rows` results each.

    extra: further parameters. copied: samples of a frame that are copied to scratch. input_reads: of the whole input.
    """
    return Implementation(
        kernel=kernel.name,
        function=CFunction(
            parameters=(*_parameters(finish), *extra), body="\n".join(body), helpers=finish.helper(SCALAR),
            includes=(HEADER, "tvm_ext_layer.h"),
        ),
        reference=reference,
        constants=_constants(tables, finish),
        scratch_bytes=4 * (2 * tables.points + copied),
        macs=frames * frame_products(tables),
        instructions=frames * _instructions(tables, rows, finish),
        passes=Passes(constants=float(frames), input=input_reads, scratch=2.0 * frames * len(tables.radices)),
        accumulation=ACCUMULATION,
    )  # fmt: skip


# Convolutions: frames of a signal.


def _convolution(operator: Conv2d, target: Target, stored: StoredRows) -> Implementation:
    return _of_signal(CONVOLUTION, operator, stored)


def _of_signal(kernel: Kernel, operator: Conv2d, stored: StoredRows, *, powers: bool = False) -> Implementation:
    """Return the kernel of the frames of a signal. The output of an operator on powers has one channel for each bin."""
    (basis, tables), finish = _known(operator), Finish(program=operator.finish)
    samples, window = len(basis.window), operator.window
    along = 0 if window.kernel[1] == 1 else 1
    images, extent = operator.inputs[0].shape[0], operator.inputs[0].shape[1 + along]
    ring = stored.input(0) if along == 0 else None
    is_copied = ring is not None or any(window.padding)
    frames = operator.output.shape[1 + along]
    begin = times("h" if along == 0 else "w", window.strides[along])
    begin = f"{begin} - {window.padding[along]}" if window.padding[along] else begin
    signal = f"&input[{times('n', extent)}]" if images > 1 else "input"
    if is_copied:
        kept = (ring.stored_text, ring.shift_text or "0") if ring else (str(extent), "0")
        frame = f"tvm_ext_frame_f32({signal}, copy, {begin}, {samples}, {extent}, {', '.join(kept)})"
    else:
        first = f"{times('n', extent)} + {begin}" if images > 1 else begin
        frame = f"&input[{first}]"
    pitch = stored.pitch or operator.output.shape[3]

    def place(index: int | None, width: int, row_width: int) -> str:
        rows = slot("h", stored.output if index is None else stored.input(index))
        row = f"n * {operator.output.shape[1]} + {rows}" if images > 1 else rows
        row = f"({row})" if images > 1 else row
        return " + ".join([times(row, row_width), *([times("w", width)] if along else [])])

    channels = operator.output.shape[3]
    first = place(None, pitch, row_elements(stored, operator.output))
    lines = [f"const float *const samples = {frame};", *_frame(tables, f"&output[{first}]")]

    def element(which: str | int) -> str:
        other = place(int(which), channels, operator.output.shape[2] * channels) if which != "output" else first
        return f"{other} + k"

    lines += _finished(finish, channels, element, "k")
    if along:
        lines = loop("w", frames, lines)
    lines = ["for (int32_t h = row_begin; h < row_end; ++h) {", block(lines), "}"]
    if images > 1:
        lines = loop("n", images, lines)
    copy = [f"float *const copy = (float *)(void *)&scratch[{8 * tables.points}];"] if is_copied else []

    def reference(inputs: list[Array]) -> list[Array]:
        signals = inputs[0].reshape(images, extent)
        padded = np.pad(signals, ((0, 0), (window.padding[along], window.padding[along + 2])))
        found = np.lib.stride_tricks.sliding_window_view(padded, samples, axis=1)[:, :: window.strides[along]]
        windows = found[:, :frames].reshape(-1, samples)
        result = _rows_of(basis, windows, powers=powers).reshape(operator.output.shape)
        return [operator.finish.run(result, inputs)]

    made = _implementation(
        kernel, tables, channels, finish, frames=images * frames, reference=reference, extra=ROW_PARAMETERS,
        body=[*_layers(basis, 1, 1, powers=powers), *copy, *lines], copied=samples if is_copied else 0,
        input_reads=max(1.0, frames * samples / extent),
    )  # fmt: skip
    rows = spatial(window, operator.inputs[0], operator.output, len(finish.residuals()), columns_at_once=1)
    return replace(made, spatial=rows, pitched=True, row_pitched=True)


# Dense layers: vectors are frames.


def _dense(operator: Dense, target: Target, stored: StoredRows) -> Implementation:
    return _of_vectors(DENSE, operator)


def _of_vectors(kernel: Kernel, operator: Dense, *, powers: bool = False) -> Implementation:
    """Return the kernel of vectors. The output of an operator on powers has one channel for each bin."""
    (basis, tables), finish = _known(operator), Finish(program=operator.finish)
    channels, samples = operator.output.shape[-1], operator.weight.shape[1]

    def reference(inputs: list[Array]) -> list[Array]:
        result = _rows_of(basis, inputs[0].reshape(-1, samples), powers=powers).reshape(operator.output.shape)
        return [operator.finish.run(result, inputs)]

    def vectors(count: int) -> Implementation:
        lines = [
            f"const float *const samples = &input[{times('m', samples)}];",
            *_frame(tables, f"&output[{times('m', channels)}]"),
            *_finished(finish, channels, lambda _: f"{times('m', channels)} + k", "k"),
        ]
        body = [*_layers(basis, 1, 1, powers=powers), *loop("m", count, lines)]
        return _implementation(kernel, tables, channels, finish, frames=count, body=body, reference=reference)

    def row(part: Dense, rows: Rows) -> Implementation:
        return vectors(1)

    count = operator.output.num_elements // channels
    by_rows = in_rows(operator, row) if count > 1 else None
    return replace(vectors(count), in_rows=by_rows)


# Constant matrices on the left: columns are frames.


def _columns(operator: ConstantMatmul, target: Target, stored: StoredRows) -> Implementation:
    product = operator.product
    assert isinstance(product, Matmul), "constraints have tested it"
    (basis, tables), finish = _known(operator), Finish(program=product.finish)
    rows, samples, columns = product.shape.rows, len(basis.window), product.shape.columns

    def reference(inputs: list[Array]) -> list[Array]:
        frames = np.ascontiguousarray(inputs[0].reshape(samples, columns).T)
        result = np.ascontiguousarray(_rows_of(basis, frames).T).reshape(operator.output.shape)
        return [product.finish.run(result, [operator.first, *inputs])]

    lines = [
        "const float *const samples = &input[column];",
        *_frame(tables, "&output[column]"),
        *_finished(finish, rows, lambda _: f"{times('k', columns)} + column", "column"),
    ]
    body = [*_layers(basis, columns, columns), *loop("column", columns, lines)]
    return _implementation(COLUMNS, tables, rows, finish, frames=columns, body=body, reference=reference)


# Powers: sums of the squares of real and imaginary parts.


def pairs_are_parts(operator: PowerSpectrum, target: Target) -> bool:
    """real and imaginary parts must alternate in the product, of frequencies up to half of the transform's length"""
    basis = fourier_basis(_matrix(operator.product))
    return basis is not None and basis.rows.imaginary == 1 and basis.end <= basis.length // 2 + 1


def is_a_cheaper_transform(operator: PowerSpectrum, target: Target) -> bool:
    """a Fourier transform must be the cheapest kernel of the product"""
    names = (CONVOLUTION.name, DENSE.name)
    made = select(operator.product, target)
    return isinstance(made, Implementation) and made.kernel in names


def _powers(operator: PowerSpectrum, target: Target, stored: StoredRows) -> Implementation:
    product, shape = operator.product, operator.product.output.shape
    output = replace(operator.output, shape=(*shape[:-1], shape[-1] // 2))
    written = replace(product, outputs=(output,), finish=operator.finish)
    if isinstance(written, Conv2d):
        made = _of_signal(POWERS_OF_FRAMES, written, stored, powers=True)
    else:
        made = _of_vectors(POWERS_OF_FRAMES, written, powers=True)

    def reference(inputs: list[Array]) -> list[Array]:
        return [made.reference(inputs)[0].reshape(operator.output.shape)]

    return replace(made, reference=reference, in_rows=None)


CONVOLUTION = Kernel(
    name="fourier_frames_f32",
    title="Convolution with windowed cosines and sines, as a Fourier transform of each frame",
    operator=Conv2d,
    implement=_convolution,
    constraints=(slides_over_one_signal, adds_no_bias, holds_a_fourier_basis),
)
DENSE = Kernel(
    name="fourier_vectors_f32",
    title="Dense layer of windowed cosines and sines, as a Fourier transform of each vector",
    operator=Dense,
    implement=_dense,
    constraints=(adds_no_bias, holds_a_fourier_basis),
)
COLUMNS = Kernel(
    name="fourier_columns_f32",
    title="Product of windowed cosines and sines with a matrix on their right, as a Fourier transform of each column",
    operator=ConstantMatmul,
    implement=_columns,
    constraints=(multiplies_floats, holds_a_fourier_basis),
)
POWERS_OF_FRAMES = Kernel(
    name="fourier_powers_f32",
    title="Power spectrum of the frames of a signal or of vectors, by a Fourier transform of each",
    operator=PowerSpectrum,
    implement=_powers,
    constraints=(pairs_are_parts, is_a_cheaper_transform),
)
KERNELS = (CONVOLUTION, DENSE, COLUMNS, POWERS_OF_FRAMES)

"""Converters of Fourier transforms (torch.stft, torch.istft, torch.fft), and operators on their complex results.

A complex tensor is a float tensor with one more axis, of its real and imaginary part, which is the last one. Only the
operators in `ON_COMPLEX` take such tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from relay_passes.dataflow import constant, static_shape
from tvm_ext.frontends.pytorch import operators
from tvm_ext.frontends.pytorch.operators import Converter, arguments_of
from tvm_ext.frontends.refusals import Refused

_MOST_ELEMENTS = 1 << 24
"""Elements of a transform's matrix: 64 MiB, which is more than a microcontroller has."""
_CONSTANTS = ("b_", "p_", "c_")
"""Prefixes that torch.export gives to the names of buffers, parameters and constants."""


def _unfold(node: Any, importer: Any) -> relax.Expr:
    """Convert the windows along an axis, which become the axis itself, with their elements as the last axis."""
    given, emit = arguments_of(node), importer.block_builder.emit
    x = importer.env[given["self"]]
    rank = len(static_shape(x))
    axis, size, step = given["dimension"] % rank, int(given["size"]), int(given["step"])
    begins = np.arange(0, static_shape(x)[axis] - size + 1, step)
    places = constant((begins[:, np.newaxis] + np.arange(size)).astype(np.int64))
    taken = emit(relax.op.take(x, places, axis))
    order = [index for index in range(rank + 1) if index != axis + 1]
    return taken if axis == rank - 1 else emit(relax.op.permute_dims(taken, [*order, axis + 1]))


def _transform(node: Any, importer: Any) -> relax.Expr:
    """Convert the transform of real numbers along one axis. Frames of a signal are not copied for it."""
    given, emit = arguments_of(node), importer.block_builder.emit
    x = importer.env[given["self"]]
    shape = static_shape(x)
    if len(given["dim"]) != 1 or str(x.ty.dtype) != "float32":
        raise Refused(f"a transform of {x.ty.dtype} along axes {list(given['dim'])}; transform float32 along one axis")
    rank, axis, size = len(shape), given["dim"][0] % len(shape), shape[given["dim"][0] % len(shape)]
    matrix = _matrix(size, given["normalization"], given["onesided"])
    bins = matrix.shape[1] // 2
    if axis == rank - 1 and (frames := _frames(given["self"])):
        return _of_frames(frames, matrix, importer)
    order = [index for index in range(rank) if index != axis]
    moved = x if axis == rank - 1 else emit(relax.op.permute_dims(x, [*order, axis]))
    moved = moved if rank > 1 else emit(relax.op.reshape(x, (1, size)))  # a dense layer multiplies rows
    product = emit(relax.op.matmul(moved, constant(matrix)))
    pairs = emit(relax.op.reshape(product, [*(shape[index] for index in order), bins, 2]))
    back = [*order, axis]
    return pairs if axis == rank - 1 else emit(relax.op.permute_dims(pairs, [*map(back.index, range(rank)), rank]))


def _matrix(size: int, normalization: int, onesided: bool) -> np.ndarray:
    """Return the transform of unit signals: float32[size, 2 * bins], a real and an imaginary column for each bin."""
    _check_length(size)
    bins = size // 2 + 1 if onesided else size
    found = np.fft.fft(np.eye(size))[:, :bins] * (1.0, size**-0.5, 1 / size)[normalization]
    return np.stack([found.real, found.imag], axis=-1).reshape(size, -1).astype(np.float32)


def _inverse_transform(node: Any, importer: Any) -> relax.Expr:
    """Convert the real numbers along one axis whose transform has the given bins."""
    given = arguments_of(node)
    x, size = importer.env[given["self"]], int(given["last_dim_size"])
    if len(given["dim"]) != 1 or str(x.ty.dtype) != "float32":
        raise Refused(f"an inverse transform along axes {list(given['dim'])}; transform float32 along one axis")
    rank = len(static_shape(x)) - 1
    axis = given["dim"][0] % rank
    bins = size // 2 + 1
    if static_shape(x)[axis] != bins:
        raise Refused(f"an inverse transform of {static_shape(x)[axis]} bins to {size} numbers; give {bins} bins")
    _check_length(size)
    unit = np.eye(bins)
    found = np.stack([np.fft.irfft(unit, size), np.fft.irfft(1j * unit, size)], axis=1).reshape(2 * bins, size)
    rows = _rows_of_pairs(importer, x, axis)
    product = _rows_times(importer, rows, found * (size, size**0.5, 1)[given["normalization"]])
    order = [index for index in range(rank) if index != axis] + [axis]
    return importer.block_builder.emit(relax.op.permute_dims(product, [order.index(index) for index in range(rank)]))


def _complex_transform(node: Any, importer: Any) -> relax.Expr:
    """Convert the transform of complex numbers along each of some axes, one after the other."""
    given, emit = arguments_of(node), importer.block_builder.emit
    x = importer.env[given["self"]]
    if str(x.ty.dtype) != "float32":
        raise Refused(f"a transform of {node.meta['val'].dtype}; transform complex64")
    rank = len(static_shape(x)) - 1
    transform = np.fft.fft if given["forward"] else np.fft.ifft
    axes = [axis % rank for axis in given["dim"]]
    # The factor of the normalization counts all elements, those along the last axis with the others.
    count = math.prod(static_shape(x)[axis] for axis in axes)
    factor = (1.0, count**-0.5, 1 / count)[given["normalization"]] * (1 if given["forward"] else count)
    for axis in axes:
        size = static_shape(x)[axis]
        _check_length(2 * size)
        found = transform(np.eye(size)) * (factor if axis == axes[-1] else 1)
        pairs = np.stack([found, 1j * found], axis=1).reshape(2 * size, size)
        rows = _rows_of_pairs(importer, x, axis)
        product = _rows_times(importer, rows, np.stack([pairs.real, pairs.imag], axis=-1).reshape(2 * size, 2 * size))
        order = [*(index for index in range(rank) if index != axis), axis]
        apart = emit(relax.op.reshape(product, [*(static_shape(x)[index] for index in order), 2]))
        x = emit(relax.op.permute_dims(apart, [*(order.index(index) for index in range(rank)), rank]))
    return x


def _rows_of_pairs(importer: Any, x: relax.Expr, axis: int) -> relax.Expr:
    """Return complex numbers with the parts of all numbers along an axis as the last axis."""
    emit, shape = importer.block_builder.emit, static_shape(x)
    order = [index for index in range(len(shape) - 1) if index != axis]
    moved = emit(relax.op.permute_dims(x, [*order, axis, len(shape) - 1]))
    return emit(relax.op.reshape(moved, [*(shape[index] for index in order), 2 * shape[axis]]))


def _rows_times(importer: Any, rows: relax.Expr, matrix: np.ndarray) -> relax.Expr:
    """Return rows multiplied by a constant matrix; a single row as well."""
    emit, (*others, size) = importer.block_builder.emit, static_shape(rows)
    rows = rows if others else emit(relax.op.reshape(rows, (1, size)))  # a dense layer multiplies rows
    product = emit(relax.op.matmul(rows, constant(matrix.astype(np.float32))))
    return product if others else emit(relax.op.reshape(product, (matrix.shape[1],)))


def _check_length(size: int) -> None:
    if 2 * size * size > _MOST_ELEMENTS:
        raise Refused(f"a transform of length {size} as a matrix; transform frames of at most 2,048 samples")


def _complex(node: Any, importer: Any) -> relax.Expr:
    """Convert complex numbers of real and imaginary parts."""
    given, emit = arguments_of(node), importer.block_builder.emit
    parts = [importer.env[given[name]] for name in ("real", "imag")]
    return emit(relax.op.stack(parts, len(static_shape(parts[0]))))


def _converted(node: Any, importer: Any) -> relax.Expr:
    """Convert a change of type; real numbers get imaginary parts of 0."""
    emit, source = importer.block_builder.emit, arguments_of(node)["self"]
    if not is_complex(node):
        return importer.create_convert_map()[node.target.__name__](node)
    x = importer.env[source]
    return emit(relax.op.stack([x, emit(relax.op.zeros_like(x))], len(static_shape(x))))


def _polar(node: Any, importer: Any) -> relax.Expr:
    """Convert complex numbers of magnitudes and angles."""
    given, emit = arguments_of(node), importer.block_builder.emit
    magnitude, angle = importer.env[given["abs"]], importer.env[given["angle"]]
    parts = [emit(relax.op.multiply(magnitude, emit(part(angle)))) for part in (relax.op.cos, relax.op.sin)]
    return emit(relax.op.stack(parts, len(static_shape(parts[0]))))


def _frames(node: Any) -> tuple[Any, Any] | None:
    """Return the windows along the last axis of a signal, and their constant factors or None, if a node is these."""
    if _is(node, "unfold.default"):
        windows, factors = node, None
    elif _is(node, "mul.Tensor") and all(hasattr(argument, "op") for argument in node.args):
        windows, factors = node.args if _is(node.args[0], "unfold.default") else reversed(node.args)
        is_window = _is_constant(factors) and factors.meta["val"].shape == node.meta["val"].shape[-1:]
        if not _is(windows, "unfold.default") or not is_window:
            return None
    else:
        return None
    signal = arguments_of(windows)["self"].meta["val"]
    along = arguments_of(windows)["dimension"] % signal.dim() == signal.dim() - 1
    return (windows, factors) if along and signal.dim() <= 2 else None


def _is(node: Any, name: str) -> bool:
    return node.op == "call_function" and node.target.__name__ == name


def _is_constant(node: Any) -> bool:
    """Return True for a node that depends on no input of the program."""
    if node.op == "placeholder":
        return str(node.name).startswith(_CONSTANTS)
    return all(map(_is_constant, node.all_input_nodes))


def _of_frames(frames: tuple[Any, Any], matrix: np.ndarray, importer: Any) -> relax.Expr:
    """Return the transforms of the windows of a signal, as a convolution with windowed bases."""
    (windows, factors), emit = frames, importer.block_builder.emit
    given = arguments_of(windows)
    signal = importer.env[given["self"]]
    *batch, extent = static_shape(signal)
    size, results = matrix.shape
    weight: relax.Expr = constant(np.ascontiguousarray(matrix.T[:, np.newaxis]))
    if factors is not None:
        weight = emit(relax.op.multiply(weight, emit(relax.op.reshape(importer.env[factors], (1, 1, size)))))
    row = emit(relax.op.reshape(signal, (math.prod(batch), 1, extent)))
    found = emit(relax.op.nn.conv1d(row, weight, strides=int(given["step"])))
    last = emit(relax.op.permute_dims(found, [0, 2, 1]))
    return emit(relax.op.reshape(last, [*batch, static_shape(found)[2], results // 2, 2]))


def _window(node: Any, importer: Any) -> relax.Expr:
    """Convert a window of constant length, which torch computes here."""
    if math.prod(node.meta["val"].shape) > _MOST_ELEMENTS:
        raise Refused(f"a window of {math.prod(node.meta['val'].shape):,} elements")
    return constant(node.target(*node.args, **node.kwargs).numpy())


def _parts(node: Any, importer: Any) -> relax.Expr:
    """Convert a view of complex numbers as real and imaginary parts, which they are here."""
    return importer.env[arguments_of(node)["self"]]


def _as_in_torch(node: Any, importer: Any, x: relax.Expr) -> relax.Expr:
    """Return x in the shape of the node's result, with the axes of x that come after those of its operand."""
    source, shape = arguments_of(node)["self"].meta["val"], node.meta["val"].shape
    more = static_shape(x)[source.dim() :]
    return importer.block_builder.emit(relax.op.reshape(x, [*map(int, shape), *more]))


def _permuted(node: Any, importer: Any, x: relax.Expr) -> relax.Expr:
    given = arguments_of(node)
    rank = len(given["dims"])
    axes = [axis % rank for axis in given["dims"]]
    return importer.block_builder.emit(relax.op.permute_dims(x, [*axes, *range(rank, len(static_shape(x)))]))


def _sliced(node: Any, importer: Any, x: relax.Expr) -> relax.Expr:
    given = arguments_of(node)
    axis = given.get("dim", 0) % arguments_of(node)["self"].meta["val"].dim()
    begin, end, step = slice(given.get("start"), given.get("end"), given.get("step", 1)).indices(static_shape(x)[axis])
    return importer.block_builder.emit(relax.op.strided_slice(x, [axis], [begin], [max(begin, end)], [step]))


def _selected(node: Any, importer: Any, x: relax.Expr) -> relax.Expr:
    given = arguments_of(node)
    axis = given["dim"] % given["self"].meta["val"].dim()
    index = given["index"] % static_shape(x)[axis]
    return importer.block_builder.emit(relax.op.take(x, relax.const(index, "int64"), axis))


_MOVES: dict[str, Callable[[Any, Any, relax.Expr], relax.Expr]] = {
    "permute.default": _permuted,
    "slice.Tensor": _sliced,
    "select.int": _selected,
    **dict.fromkeys(
        ("squeeze.default", "squeeze.dim", "squeeze.dims", "unsqueeze.default", "view.default", "clone.default"),
        _as_in_torch,
    ),
}
"""Operators that move numbers without changing them. Each function leaves axes after those of torch's operand alone."""


def _moved(name: str) -> Converter:
    def convert(node: Any, importer: Any) -> relax.Expr:
        """Convert a move of complex numbers; of real ones as without complex numbers."""
        source = arguments_of(node)["self"]
        if is_complex(source):
            return _MOVES[name](node, importer, importer.env[source])
        own = operators.CONVERTERS.get(name)
        return own(node, importer) if own else importer.create_convert_map()[name](node)

    return convert


def _magnitude(node: Any, importer: Any) -> relax.Expr:
    """Convert absolute values: of a complex number, the root of the sum of both squares."""
    source, emit = arguments_of(node)["self"], importer.block_builder.emit
    if not is_complex(source):
        return emit(relax.op.abs(importer.env[source]))
    # Half as many elements are moved if the parts of each number are added first.
    moves: list[Any] = []
    while source.op == "call_function" and source.target.__name__ in _MOVES:
        moves.append(source)
        source = arguments_of(source)["self"]
    x = importer.env[source]
    found = emit(relax.op.sqrt(emit(relax.op.sum(emit(relax.op.multiply(x, x)), axis=[-1]))))
    for move in reversed(moves):
        found = _MOVES[move.target.__name__](move, importer, found)
    return found


def _angle(node: Any, importer: Any) -> relax.Expr:
    """Convert angles of complex numbers."""
    source, emit = arguments_of(node)["self"], importer.block_builder.emit
    x = importer.env[source]
    if not is_complex(source):
        raise Refused("angles of real numbers; export comparisons of the numbers with 0 instead")
    real, imaginary = (emit(relax.op.take(x, relax.const(part, "int64"), len(static_shape(x)) - 1)) for part in (0, 1))
    return emit(relax.op.atan2(imaginary, real))


def is_complex(value: Any) -> bool:
    """Return True for a node of a complex tensor."""
    tensor = getattr(value, "meta", {}).get("val") if hasattr(value, "op") else None
    return bool(getattr(tensor, "is_complex", bool)())


_WINDOWS = (
    *(f"{name}_window.{kind}" for name in ("hann", "bartlett", "blackman") for kind in ("default", "periodic")),
    *(f"hamming_window.{kind}" for kind in ("default", "periodic", "periodic_alpha", "periodic_alpha_beta")),
    *(f"kaiser_window.{kind}" for kind in ("default", "periodic", "beta")),
)

ON_COMPLEX = frozenset(
    {"view_as_real.default", "view_as_complex.default", "abs.default", "angle.default", "_fft_c2r.default",
     "_fft_c2c.default", *_MOVES}
)  # fmt: skip
"""Operators with a converter for complex operands."""

CONVERTERS: dict[str, Converter] = {
    "unfold.default": _unfold,
    "_fft_r2c.default": _transform,
    "_fft_c2r.default": _inverse_transform,
    "_fft_c2c.default": _complex_transform,
    "complex.default": _complex,
    "polar.default": _polar,
    "_to_copy.default": _converted,
    "view_as_real.default": _parts,
    "view_as_complex.default": _parts,
    "abs.default": _magnitude,
    "angle.default": _angle,
    **{name: _moved(name) for name in _MOVES},
    **dict.fromkeys(_WINDOWS, _window),
}

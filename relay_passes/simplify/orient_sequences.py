"""Turn windows over one axis into windows over images of one column, or of one row, which kernels compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import (
    array_of,
    bindings,
    constant,
    infer,
    live,
    map_dataflow,
    number_of,
    op_name,
    operands,
    outputs,
    rebuild,
    static_shape,
    substitute,
    with_span,
)

TimeAxis = Literal["rows", "columns"]

_LAYOUTS = {"relax.nn.conv1d": "OIW", "relax.nn.conv1d_transpose": "IOW"}
"""Kernel layouts of convolutions over one axis."""
_POOLS = {
    "relax.nn.max_pool1d": relax.op.nn.max_pool2d, "relax.nn.avg_pool1d": relax.op.nn.avg_pool2d,
    "relax.nn.max_pool2d": relax.op.nn.max_pool2d, "relax.nn.avg_pool2d": relax.op.nn.avg_pool2d,
}  # fmt: skip
_CONVOLUTIONS = {
    "relax.nn.conv2d": relax.op.nn.conv2d, "relax.nn.conv2d_transpose": relax.op.nn.conv2d_transpose
}  # fmt: skip
_GRIDS = ("relax.quantize", "relax.dequantize")
_ELEMENTWISE = frozenset(
    f"relax.{name}"
    for name in "add subtract multiply divide maximum minimum power abs exp log negative sqrt rsqrt square sigmoid "
    "tanh clip nn.relu nn.leakyrelu nn.gelu nn.gelu_tanh nn.silu quantize dequantize".split()
)
_VIEWS = frozenset(f"relax.{name}" for name in ("expand_dims", "squeeze", "reshape"))
_REDUCTIONS = {f"relax.{name}": getattr(relax.op, name) for name in ("mean", "sum", "max", "min")}


@tvm.transform.module_pass(opt_level=0, name="OrientSequences")
class OrientSequences:
    """Turn each window over one axis into a window over images with a single column, or a single row.

    time_axis: "rows" gives images of one column, which the memory passes split by rows; "columns" gives images of one
    row.

    Rewrite:
        y = conv1d(x, w)     ->  y = squeeze(conv2d(expand_dims(x, 3), w of one column), 3)
        y = conv2d(x, w)     ->  y = reshape(conv2d(reshape(x), w turned)), for images that lie along the other axis
        z = relu(add(y, b))      and further operators ahead of the squeeze: element-wise operators, quantize and
                dequantize, pools, concat and reductions. Transposed convolutions and pools are rewritten alike, and
                reshapes between them disappear.
    Leaves alone: one-dimensional convolutions in layouts other than NCW with OIW or, transposed, IOW; convolutions
            whose kernel is not constant; images of more than one row and column.
    """

    def __init__(self, time_axis: TimeAxis = "rows") -> None:
        self.time_axis: TimeAxis = time_axis

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return map_dataflow(mod, lambda func: _Rewriter(func, self.time_axis).run())


@dataclass(frozen=True, kw_only=True)
class _Form:
    """Relation of a value to its image, which has four axes.

    rows, columns: axes of the image.
    has_both: whether the value has both of these axes as well, in exchanged order. A value without both has three axes,
    the last of which is time.
    """

    rows: int
    columns: int
    time_axis: TimeAxis
    has_both: bool

    @property
    def rank(self) -> int:
        return 4 if self.has_both else 3

    def axis(self, axis: int) -> int:
        """Return the axis of the image that corresponds to an axis of the value."""
        axis %= self.rank
        if self.has_both:
            return {self.rows: self.columns, self.columns: self.rows}.get(axis, axis)
        return axis if axis < 2 or self.time_axis == "rows" else 3

    def holds(self, shape: Sequence[int]) -> bool:
        """Return True if a value of this shape, which has all axes, has an image.

        A reshape exchanges rows and columns only where one of them has the extent 1, as every window in this form has.
        """
        return not self.has_both or shape[self.rows if self.time_axis == "rows" else self.columns] == 1

    def of(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the image of a value of this shape, or of a value that is broadcast to it."""
        whole = [1] * (self.rank - len(shape)) + [*shape]
        image = [1] * 4
        for axis, extent in enumerate(whole):
            image[self.axis(axis)] = extent
        return tuple(image)

    def turned(self, array: np.ndarray) -> np.ndarray:
        """Return the image of an array, which may have fewer axes than the values it is broadcast to."""
        return array.reshape(self.of(array.shape))

    def image(self, value: relax.Expr) -> relax.Call:
        if self.has_both:
            return infer(relax.op.reshape(value, self.of(static_shape(value))))
        return infer(relax.op.expand_dims(value, self._added))

    def value(self, image: relax.Expr, shape: Sequence[int]) -> relax.Call:
        """Return the value that an image stands for."""
        return infer(relax.op.reshape(image, shape) if self.has_both else relax.op.squeeze(image, [self._added]))

    @property
    def _added(self) -> int:
        return self.columns if self.time_axis == "rows" else self.rows


def _sequence(time_axis: TimeAxis) -> _Form:
    """Return the form of values [N, C, T]."""
    return _Form(rows=2, columns=3, time_axis=time_axis, has_both=False)


def _forms(time_axis: TimeAxis) -> Iterator[_Form]:
    """Yield the forms of values [N, C, T] and of images with channels first and channels last."""
    yield _sequence(time_axis)
    for rows in (2, 1):
        yield _Form(rows=rows, columns=rows + 1, time_axis=time_axis, has_both=True)


class _Rewriter:
    """A single walk over the bindings.

    images: the image of each value that has one, and its form.
    flat: values that are bound both as an image and in their own shape.
    """

    def __init__(self, func: relax.Function, time_axis: TimeAxis) -> None:
        self.func, self.time_axis = func, time_axis
        self.values: Mapping[relax.Var, relax.Expr] = {binding.var: binding.value for binding in bindings(func)}
        self.sequence: list[relax.VarBinding] = []
        self.images: dict[relax.Var, tuple[relax.Var, _Form]] = {}
        self.flat: set[relax.Var] = set()

    def run(self) -> relax.Function:
        for binding in bindings(self.func):
            if not any(rule(binding) for rule in self._rules()):
                self._demand(binding.value)
                self.sequence.append(binding)
        if not self.images:
            return self.func
        results = outputs(self.func)
        for result in results:
            self._demand(result)
        return rebuild(self.func, live(self.sequence, results))

    def _rules(self) -> tuple[Callable[[relax.VarBinding], bool], ...]:
        return self._window, self._elementwise, self._view, self._concat, self._reduction

    def _demand(self, value: relax.Expr) -> None:
        """Bind the operands of a value in their own shapes."""
        for leaf in operands(value):
            if leaf in self.images and leaf not in self.flat:
                self.flat.add(leaf)
                image, form = self.images[leaf]
                self.sequence.append(relax.VarBinding(leaf, form.value(image, static_shape(leaf))))

    def _window(self, binding: relax.VarBinding) -> bool:
        """Rewrite a convolution or a pool."""
        call, name = binding.value, op_name(binding.value) or ""
        if name in _LAYOUTS or name in _CONVOLUTIONS:
            form = self._form_of_convolution(call)
            weight = self._constant(call.args[1], _kernel_form(call, form)) if form else None
            image = self._image(call.args[0], form) if form and weight is not None else None
            if form is None or image is None or weight is None:
                return False
            self._bind(binding, form, _convolution(call, form, image, weight))
            return True
        form = self._form_of_pool(call) if name in _POOLS else None
        image = self._image(call.args[0], form) if form else None
        if form is None or image is None:
            return False
        self._bind(binding, form, _pool(call, form, image))
        return True

    def _form_of_convolution(self, call: relax.Call) -> _Form | None:
        name, attrs = op_name(call) or "", call.attrs
        if name in _LAYOUTS:
            is_known = (attrs.data_layout, attrs.kernel_layout) == ("NCW", _LAYOUTS[name])
            return _sequence(self.time_axis) if is_known else None
        kernel = attrs.kernel_layout
        taps = static_shape(call.args[1])[kernel.index("H")], static_shape(call.args[1])[kernel.index("W")]
        return self._form_of_image(call, attrs.data_layout, taps)

    def _form_of_pool(self, call: relax.Call) -> _Form | None:
        attrs = call.attrs
        if op_name(call) in ("relax.nn.max_pool1d", "relax.nn.avg_pool1d"):
            return _sequence(self.time_axis) if attrs.layout == "NCW" else None
        height, width = map(int, attrs.pool_size)
        return self._form_of_image(call, attrs.layout, (height, width))

    def _form_of_image(self, call: relax.Call, layout: str, taps: tuple[int, int]) -> _Form | None:
        """Return the form of images that lie along the other axis, or None where a window spans several rows and
        columns.
        """
        rows, columns = layout.index("H"), layout.index("W")
        narrow, wide = (rows, columns) if self.time_axis == "rows" else (columns, rows)
        before, after = static_shape(call.args[0]), static_shape(call)
        padding = [int(width) for width in call.attrs.padding]  # order: top, left, bottom, right
        axis = 0 if narrow == rows else 1
        is_narrow = before[narrow] == after[narrow] == taps[axis] == 1
        if not is_narrow or padding[axis] or padding[axis + 2] or before[wide] == 1:
            return None
        return _Form(rows=rows, columns=columns, time_axis=self.time_axis, has_both=True)

    def _elementwise(self, binding: relax.VarBinding) -> bool:
        call = binding.value
        if op_name(call) not in _ELEMENTWISE:
            return False
        form = self._form_of_operands(call)
        if form is None or (op_name(call) in _GRIDS and not _has_one_scale(call)):
            return False
        shape, images = static_shape(binding.var), dict[relax.Expr, relax.Expr]()
        if len(shape) != form.rank:
            return False
        for leaf in operands(call):
            image = self._operand(leaf, shape, form)
            if image is None:
                return False
            images[leaf] = image
        self._bind(binding, form, substitute(call, images))
        return True

    def _view(self, binding: relax.VarBinding) -> bool:
        """Reuse the image of a value for a reshape of the value, where the new shape also has a form."""
        if op_name(binding.value) not in _VIEWS or binding.value.args[0] not in self.images:
            return False
        image, _ = self.images[binding.value.args[0]]
        shape = static_shape(binding.var)
        forms = (form for form in _forms(self.time_axis) if form.rank == len(shape))
        form = next((form for form in forms if form.of(shape) == static_shape(image)), None)
        if form is None:
            return False
        self.images[binding.var] = image, form
        return True

    def _concat(self, binding: relax.VarBinding) -> bool:
        call = binding.value
        form = self._form_of_operands(call) if op_name(call) == "relax.concat" else None
        if form is None or call.attrs.axis is None:
            return False
        shape = static_shape(binding.var)
        if len(shape) != form.rank or not form.holds(shape):
            return False
        images = [self._image(leaf, form) for leaf in operands(call)]
        parts = [image for image in images if image is not None]
        if len(parts) < len(images):
            return False
        self._bind(binding, form, relax.op.concat(parts, axis=form.axis(int(call.attrs.axis))))
        return True

    def _reduction(self, binding: relax.VarBinding) -> bool:
        call = binding.value
        form = self._form_of_operands(call) if op_name(call) in _REDUCTIONS else None
        if form is None or call.attrs.axis is None:
            return False
        axes, image = {form.axis(int(axis)) for axis in call.attrs.axis}, self._image(call.args[0], form)
        reduce: Callable[..., relax.Expr] = _REDUCTIONS[op_name(call) or ""]
        spatial = {form.rows, form.columns}
        if axes & spatial:  # kernels average whole images, so the axis of extent 1 is reduced too
            axes |= spatial if form.has_both is False or axes >= spatial else set()
        if call.attrs.keepdims:
            self._bind(binding, form, reduce(image, sorted(axes), keepdims=True))
            return True
        reduced = infer(with_span(reduce(image, sorted(axes), keepdims=False), call.span))
        if static_shape(reduced) != static_shape(binding.var):
            return False
        self.sequence.append(relax.VarBinding(binding.var, reduced))
        return True

    def _form_of_operands(self, call: relax.Call) -> _Form | None:
        """Return the form that the images of all operands share, or None where no image exists or the forms differ."""
        forms = {self.images[leaf][1] for leaf in operands(call) if leaf in self.images}
        return next(iter(forms)) if len(forms) == 1 else None

    def _operand(self, value: relax.Expr, shape: tuple[int, ...], form: _Form) -> relax.Expr | None:
        """Return the image of an operand, or None for a variable of another shape. Constants may broadcast to the
        shape.
        """
        array = array_of(value)
        if not isinstance(value.ty, relax.TensorType) or (array is not None and array.size == 1):
            return value
        known = self._constant(value, form) if array is None or array.ndim <= len(shape) else None
        if known is not None:
            return known
        same = isinstance(value, relax.Var) and static_shape(value) == shape
        return self._image(value, form) if same else None

    def _image(self, value: relax.Expr, form: _Form) -> relax.Var | None:
        """Return the image of a variable, or None for anything else, where its image has another form, and for several
        rows and columns.
        """
        if not isinstance(value, relax.Var) or not form.holds(static_shape(value)):
            return None
        if value not in self.images:
            self.images[value] = self._bound(f"{value.name}.image", form.image(value)), form
            self.flat.add(value)
        image, known = self.images[value]
        return image if known == form else None

    def _constant(self, value: relax.Expr, form: _Form) -> relax.Expr | None:
        """Return the image of a constant or of a dequantized constant, or None for anything else."""
        array = array_of(value)
        if array is not None:
            return constant(form.turned(array))
        call = self.values.get(value)
        integers = array_of(call.args[0]) if op_name(call) == "relax.dequantize" else None
        if integers is None or integers.ndim > form.rank:
            return None
        num_axes = max(integers.ndim, 1)
        axis = form.axis(int(call.attrs.axis) % num_axes + form.rank - num_axes)
        scaled = relax.op.dequantize(
            constant(form.turned(integers)), *call.args[1:], axis=axis, out_dtype=call.attrs.out_dtype
        )
        return self._bound(f"{value.name}.image", with_span(infer(scaled), call.span))

    def _bind(self, binding: relax.VarBinding, form: _Form, call: relax.Expr) -> None:
        """Bind the image of a binding's value."""
        name = binding.var.name if binding.var.name.endswith(".image") else f"{binding.var.name}.image"
        self.images[binding.var] = self._bound(name, with_span(infer(call), binding.value.span)), form

    def _bound(self, name: str, call: relax.Call) -> relax.Var:
        var = relax.DataflowVar(name, call.ty)
        self.sequence.append(relax.VarBinding(var, call))
        return var


def _kernel_form(call: relax.Call, form: _Form) -> _Form:
    """Return the form of a convolution's kernel."""
    if not form.has_both:
        return form
    layout = call.attrs.kernel_layout
    return _Form(rows=layout.index("H"), columns=layout.index("W"), time_axis=form.time_axis, has_both=True)


def _convolution(call: relax.Call, form: _Form, image: relax.Expr, weight: relax.Expr) -> relax.Call:
    attrs, name = call.attrs, (op_name(call) or "").replace("conv1d", "conv2d")
    layouts = {"data_layout": attrs.data_layout, "kernel_layout": attrs.kernel_layout, "out_layout": attrs.out_layout}
    if not form.has_both:
        layouts = {"data_layout": "NCHW", "kernel_layout": attrs.kernel_layout.replace("W", "HW")}
    added = {"output_padding": _pair(attrs.output_padding, form, 0)} if name.endswith("_transpose") else {}
    return _CONVOLUTIONS[name](
        image, weight, strides=_pair(attrs.strides, form, 1), padding=_sides(attrs.padding, form),
        dilation=_pair(attrs.dilation, form, 1), groups=int(attrs.groups), out_dtype=attrs.out_dtype or None,
        **layouts, **added,
    )  # fmt: skip


def _pool(call: relax.Call, form: _Form, image: relax.Expr) -> relax.Call:
    attrs = call.attrs
    layouts = {"layout": attrs.layout, "out_layout": attrs.out_layout} if form.has_both else {"layout": "NCHW"}
    return _POOLS[op_name(call) or ""](
        image, pool_size=_pair(attrs.pool_size, form, 1), strides=_pair(attrs.strides, form, 1),
        padding=_sides(attrs.padding, form), dilation=_pair(attrs.dilation, form, 1), ceil_mode=attrs.ceil_mode,
        count_include_pad=attrs.count_include_pad, **layouts,
    )  # fmt: skip


def _pair(values: Sequence[int], form: _Form, other: int) -> tuple[int, int]:
    """Return the parameters of a window for rows and columns: as given along time, `other` along the other axis."""
    given = [int(value) for value in values]
    if form.has_both:
        return given[1], given[0]
    return (given[0], other) if form.time_axis == "rows" else (other, given[0])


def _sides(padding: Sequence[int], form: _Form) -> tuple[int, int, int, int]:
    """Return the padding at the top, the left, the bottom and the right."""
    given = [int(width) for width in padding]
    before, after = (given[:2], given[2:]) if form.has_both else (given[:1], given[-1:])
    (top, left), (bottom, right) = _pair(before, form, 0), _pair(after, form, 0)
    return top, left, bottom, right


def _has_one_scale(call: relax.Call) -> bool:
    return all(number_of(argument) is not None for argument in call.args[1:])

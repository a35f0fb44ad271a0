"""Change inputs to the form in which firmware has them: images with channels last, pixels of 8 bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import (
    bindings,
    build,
    is_dataflow,
    names_in,
    number_of,
    op_name,
    outputs,
    static_shape,
    users,
    with_main,
)
from tvm_ext.core.changed_inputs import ChangedInput
from tvm_ext.core.decisions.models import ChangedPorts, InputDemands, PortLayouts, PortNames, PortScales
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.input_forms import InputForm

_TO_FIRST, _TO_LAST = [0, 3, 1, 2], [0, 2, 3, 1]
_QUANTIZED = ("int8", "uint8")
_MOST_PIXEL = 255


@tvm.transform.module_pass(opt_level=0, name="ChangeInputs")
class ChangeInputs:
    """Give inputs the form in which firmware has them, and convert them to the model's own form first in each run.

    Rewrite:
        main(x: float32[1, 3, H, W])   ->   main(x: float32[1, H, W, 3]): x.1 = permute_dims(x, [0, 3, 1, 2])
        main(x: float32)               ->   main(x: uint8): x.1 = (dequantize(x) - mean) * (1 / std)
        main(x: int8)                  ->   main(x: uint8): x.1 = quantize(dequantize(x)), a table of 256 integers
        main(x: float32): q = quantize(x)
            ->   main(x: uint8): q = quantize((dequantize(x) - mean) * (1 / std)), a table: no float32 tensor is stored
        A permutation follows a quantize, because integers take fewer bytes.
    The module records the changes (`ChangedPorts`), so that the model file's own runtimes receive the original form.
    Leaves alone: other inputs, and a module whose inputs were changed before.
    Raises BadOptions for an input that does not exist or cannot have the form.
    """

    def __init__(self, forms: Mapping[str, InputForm]) -> None:
        self.forms = forms

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        names = PortNames.read(mod).inputs
        if not is_dataflow(mod["main"]) or ChangedPorts.read(mod).inputs is not None:
            return mod
        for name in self.forms:
            if name not in names:
                raise BadOptions(f"input {name}: the model has no such input; its inputs are {', '.join(names)}.")
        scales, layouts = PortScales.read(mod), PortLayouts.read(mod)
        changes = {
            name: _change(name, param, form, (scales.inputs or {}).get(name), (layouts.inputs or {}).get(name))
            for name, param in zip(names, mod["main"].params, strict=False)
            if (form := self.forms.get(name)) is not None
        }
        changed = with_main(mod, _Writer(mod["main"], dict(zip(names, mod["main"].params, strict=False))).run(changes))
        return _noted(changed, changes)


def _change(
    name: str, param: relax.Var, form: InputForm, scale: tuple[float, int] | None, layout: str | None
) -> ChangedInput:
    """Return the changes that a form makes to an input. Raises BadOptions."""
    dtype, rank = str(param.ty.dtype), len(static_shape(param))
    if form.nhwc and (rank != 4 or layout not in ("NCHW", "NHWC")):
        what = f"has {rank} axes" if rank != 4 else "is not read by a convolution or pooling as an image"
        raise BadOptions(f"input {name}=nhwc: {name} {what}, so it has no channels axis to move. Leave nhwc out.")
    if form.uint8 and dtype != "float32" and (dtype not in _QUANTIZED or (scale is None and form.is_scaled)):
        what = "whose integers are plain numbers" if dtype in _QUANTIZED else f"of {dtype}"
        raise BadOptions(
            f"input {name}=uint8: pixels become float32, or quantized int8 or uint8; {name} is an input {what}. Leave "
            "uint8 out."
        )
    is_same = dtype == "uint8" and not form.is_scaled
    known = scale if dtype in _QUANTIZED else None
    return ChangedInput(
        dtype=dtype, moved=form.nhwc and layout == "NCHW", pixels=form.uint8 and not is_same, mean=form.mean,
        std=form.std, scale=known[0] if known else None, zero_point=known[1] if known else None,
    )  # fmt: skip


def _noted(mod: tvm.IRModule, changes: Mapping[str, ChangedInput]) -> tvm.IRModule:
    """Return the module with its records of scales, layouts and ranges updated for the changed inputs."""
    scales, layouts, demands = PortScales.read(mod), PortLayouts.read(mod), InputDemands.read(mod)
    pixels = {name: change for name, change in changes.items() if change.pixels}
    kept = {name: scale for name, scale in (scales.inputs or {}).items() if name not in pixels}
    lifted = {
        name: (change.scale, change.zero_point + change.lifted)
        for name, change in pixels.items()
        if not change.is_scaled and change.scale is not None and change.zero_point is not None
    }
    moved = {name: "NHWC" for name, change in changes.items() if change.moved}
    ranges = {name: limits for name, limits in (demands.ranges or {}).items() if name not in pixels}
    mod = PortScales(inputs={**kept, **lifted} or None, outputs=scales.outputs).write(mod)
    mod = PortLayouts(inputs={**(layouts.inputs or {}), **moved} or None, outputs=layouts.outputs).write(mod)
    mod = InputDemands(ranges=ranges or None).write(mod)
    return ChangedPorts(inputs=changes, indexed=ChangedPorts.read(mod).indexed).write(mod)


class _Writer:
    """Writes a function whose inputs have other forms."""

    def __init__(self, main: relax.Function, params: Mapping[str, relax.Var]) -> None:
        self.main, self.params = main, params
        self.sequence = bindings(main)
        self.readers = users(self.sequence)
        self.returned = set(outputs(main))
        self.taken = names_in(main)
        self.first: list[relax.VarBinding] = []
        self.replaced: dict[relax.Var, list[relax.VarBinding]] = {}

    def run(self, changes: Mapping[str, ChangedInput]) -> relax.Function:
        given: dict[relax.Var, relax.Var] = {}
        values: dict[relax.Var, relax.Expr] = {}
        for name, change in changes.items():
            param = self.params[name]
            given[param] = _param(param, change)
            readers = self._quantizing(param)
            if readers:
                for reader in readers:
                    self.replaced[reader.var] = self._quantized(given[param], change, reader)
            else:
                values[param] = self._plain(given[param], change)
        sequence = [*self.first]
        for binding in self.sequence:
            sequence += self.replaced.get(binding.var, [binding])
        params = [given.get(param, param) for param in self.main.params]
        is_tuple = isinstance(self.main.body.body, relax.Tuple)
        return build(
            params, sequence, outputs(self.main), attrs=self.main.attrs, as_tuple=is_tuple, replace={**given, **values}
        )

    def _quantizing(self, param: relax.Var) -> Sequence[relax.VarBinding]:
        """Return the readers of a float input if all of them quantize it with single scales, or none otherwise."""
        readers = self.readers.get(param, [])
        are_quantizing = all(
            op_name(reader.value) == "relax.quantize" and reader.value.args[0].same_as(param)
            and all(number_of(one) is not None for one in reader.value.args[1:3])
            and str(reader.var.ty.dtype) in _QUANTIZED
            for reader in readers
        )  # fmt: skip
        return readers if are_quantizing and param not in self.returned else []

    def _quantized(self, given: relax.Var, change: ChangedInput, reader: relax.VarBinding) -> list[relax.VarBinding]:
        """Return a reader that works on the changed input, followed by the permutation."""
        written: list[relax.VarBinding] = []
        value = self._real(given, change, written) if change.pixels else given
        call = reader.value
        quantized = relax.op.quantize(self._bind(value, given, written), call.args[1], call.args[2], call.attrs.axis,
            str(reader.var.ty.dtype),
        )  # fmt: skip
        if change.moved:
            quantized = relax.op.permute_dims(self._bind(quantized, given, written), _TO_FIRST)
        written.append(relax.VarBinding(reader.var, relax.BlockBuilder().normalize(quantized)))
        return written

    def _plain(self, given: relax.Var, change: ChangedInput) -> relax.Expr:
        """Return the input in the model's own form."""
        value: relax.Expr = given
        if change.pixels and change.dtype == "float32":
            value = self._real(given, change, self.first)
        elif change.pixels and change.scale is not None and change.zero_point is not None:
            value = self._integers(given, change, change.scale, change.zero_point)
        elif change.pixels:
            value = self._integers(given, change, 1.0, 0 if change.dtype == "uint8" else -128)
        value = self._bind(value, given, self.first)
        return self._bind(relax.op.permute_dims(value, _TO_FIRST), given, self.first) if change.moved else value

    def _integers(self, given: relax.Var, change: ChangedInput, scale: float, zero_point: int) -> relax.Expr:
        """Convert pixels to the integers of a quantized input, with operators that later become a single table."""
        if change.is_scaled:
            a, b = change.steps
            value = self._bind(_dequantize(given, 1.0, 0), given, self.first)
            value = self._bind(relax.op.multiply(value, _number(a)), given, self.first)
            value = self._bind(relax.op.add(value, _number(b)), given, self.first)
            value = self._bind(relax.op.floor(value), given, self.first)
            value = self._bind(relax.op.multiply(value, _number(scale)), given, self.first)
        else:
            value = self._bind(_dequantize(given, scale, zero_point + change.lifted), given, self.first)
        return relax.op.quantize(value, _number(scale), relax.const(zero_point, change.dtype), -1, change.dtype)

    def _real(self, given: relax.Var, change: ChangedInput, written: list[relax.VarBinding]) -> relax.Expr:
        """Convert pixels to real numbers, in a single step where the mean is itself a pixel value."""
        if float(change.offset).is_integer() and 0 <= change.offset <= _MOST_PIXEL:
            return _dequantize(given, float(change.factor), int(change.offset))
        value = relax.op.subtract(self._bind(_dequantize(given, 1.0, 0), given, written), _number(change.offset))
        if change.factor == 1:
            return value
        return relax.op.multiply(self._bind(value, given, written), _number(change.factor))

    def _bind(self, value: relax.Expr, given: relax.Var, written: list[relax.VarBinding]) -> relax.Var:
        """Bind a value that is converted from an input, under the names `x.1`, `x.2`."""
        if isinstance(value, relax.Var):
            return value
        number = 1
        while f"{given.name}.{number}" in self.taken:
            number += 1
        self.taken.add(f"{given.name}.{number}")
        typed = relax.BlockBuilder().normalize(value)
        var = relax.DataflowVar(f"{given.name}.{number}", typed.ty)
        written.append(relax.VarBinding(var, typed))
        return var


def _param(param: relax.Var, change: ChangedInput) -> relax.Var:
    shape = static_shape(param)
    shape = tuple(shape[axis] for axis in _TO_LAST) if change.moved else shape
    return relax.Var(param.name, relax.TensorType(shape, "uint8" if change.pixels else str(param.ty.dtype)))


def _dequantize(value: relax.Var, scale: float, zero_point: int) -> relax.Expr:
    return relax.op.dequantize(value, _number(scale), relax.const(zero_point, "uint8"), -1, "float32")


def _number(value: float | np.floating) -> relax.Expr:
    return relax.const(np.float32(value), "float32")

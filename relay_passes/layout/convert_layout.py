"""Keep the channels of convolutions, pools and states last (NHWC).

Rewrite, for a composite over NCHW tensors of rank 4:
    y = conv(x)   ->   y = conv'(permute_dims(x, [0, 2, 3, 1])), and permute_dims(y, [0, 3, 1, 2]) where NCHW is read
    y = crop(x); z = conv(y)   ->   z = conv'(crop'(permute_dims(x, [0, 2, 3, 1]))), both in one composite
    Every permutation that meets its inverse disappears, and a permutation that moves only extents of 1 is a reshape.
    Composites without a window follow their inputs where they can. This includes the composites ahead of the first
    window of a model that permutes its NHWC input itself. Weights become [K, R, S, C], also in models that are already
    NHWC.
    A composite whose result is stored in another order carries `StorageLayout`, the model's axes as stored. A variable
    that holds a value of the model in another layout than the model's is named `y.nhwc` or `y.nchw`, and its composite
    carries the `ModelTensor` y.
    States that reach such composites are stored as NHWC, and `KeptStates` gives their initial values in that layout.
Leaves alone: composites of other ranks, operators without a rule, inputs and outputs of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import tvm
from tvm import relax

from relay_passes.composites import attributes, call_new, composite_of, is_composite
from relay_passes.dataflow import (
    bindings,
    build,
    infer,
    is_dataflow,
    live,
    op_name,
    operands,
    outputs,
    rebuild,
    static_shape,
    substitute,
    users,
)
from relay_passes.layout.channels_last import (
    NCHW_TO_NHWC,
    NHWC_TO_NCHW,
    channels_last,
    has_window,
    is_image,
    with_ohwi_kernels,
)
from tvm_ext.core.decisions.composites import ModelTensor, SourceNodes, StorageLayout
from tvm_ext.core.decisions.models import KeptStates
from tvm_ext.core.model_nodes import ModelState
from tvm_ext.core.names import identifier, unique


@tvm.transform.module_pass(opt_level=0, name="ConvertLayout")
class ConvertLayout:
    """Keep channels last inside the model, and the model's own layout at its inputs and outputs.

    moves_crops: whether a crop of an image is fused with the permutation that follows it. StreamPorts needs the two
    apart, because it permutes the crop and reads the rows of the input with their channels last.
    """

    def __init__(self, *, moves_crops: bool = True) -> None:
        self.moves_crops = moves_crops

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        return _Rewriter(mod, self.moves_crops).run() if is_dataflow(mod["main"]) else mod


class _Rewriter:
    """A single walk over the schedule.

    plain, last: the variables of a value in the model's layout and as NHWC; a value may have both.
    """

    def __init__(self, mod: tvm.IRModule, moves_crops: bool) -> None:
        self.moves_crops = moves_crops
        self.mod, self.func = mod, mod["main"]
        others = {var: func for var, func in mod.functions_items() if not is_composite(func)}
        self.module = tvm.IRModule(others, attrs=mod.attrs)
        self.taken = {var.name_hint for var in mod.get_global_vars()}
        self.returned = set(outputs(self.func))
        self.readers = users(bindings(self.func))
        self.turned: set[relax.Var] = set()
        """Images that the model itself permutes to NCHW, and whose NHWC form is available."""
        self.sequence: list[relax.VarBinding] = []
        self.states = states_as_images(mod)
        self.plain: dict[relax.Var, relax.Var] = {
            param: param for param in self.func.params if param not in self.states
        }
        self.last: dict[relax.Var, relax.Var] = dict(self.states)
        self.crops: dict[relax.Var, tuple[relax.Expr, relax.Function]] = {}
        """For each crop of an image in the model's layout: the image, and the composite that crops."""

    def run(self) -> tvm.IRModule:
        for binding in bindings(self.func):
            self._visit(binding)
        params, results = list(self.func.params), outputs(self.func)
        states = params[len(params) - len(KeptStates.read(self.mod).states) :]
        keeping = [None] * (len(results) - len(states)) + states
        results = [
            self._as_last(result) if param in self.states else self._as_plain(result)
            for param, result in zip(keeping, results, strict=True)
        ]
        func = self.func
        if self.states:
            func = relax.Function(
                [self.states.get(param, param) for param in params], func.body, func.ret_ty, func.is_pure, func.attrs
            )
        self.module.update_func(self.mod.get_global_var("main"), rebuild(func, live(self.sequence, results), results))
        return with_turned_states(self.module, params, self.states)

    def _visit(self, binding: relax.VarBinding) -> None:
        call, var = binding.value, binding.var
        composite = composite_of(self.mod, call)
        if composite is None or not (has_window(composite) or self._follows(binding)):
            self._keep(binding)
        elif (axes := _permutation(composite)) is not None:
            self._compose(binding, composite, axes)
        elif (converted := channels_last(composite)) is not None:
            arguments = [self._as_last(arg) if is_image(arg) else self._as_plain(arg) for arg in call.args]
            moved = is_image(var)
            converted = StorageLayout(axes=NCHW_TO_NHWC).write(converted) if moved else converted
            name = f"{var.name}.nhwc" if moved and var in self.returned else var.name
            converted = converted if name == var.name else ModelTensor(name=var.name).write(converted)
            value = call_new(self.module, call.op.name_hint, converted, arguments, call.span)
            (self.last if moved else self.plain)[var] = self._bind(name, value)
        else:
            self._keep(binding)

    def _follows(self, binding: relax.VarBinding) -> bool:
        """Return True if an input exists only as NHWC, or if this is the only reader of images that the model permutes.

        In the second case the model receives NHWC and permutes it, and a window reads it after a few other operators.
        """
        images = [arg for arg in binding.value.args if isinstance(arg, relax.Var) and is_image(arg)]
        if any(arg in self.last and arg not in self.plain for arg in images):
            return True
        are_turned = all(arg in self.turned and len(self.readers[arg]) == 1 for arg in images)
        return bool(images) and are_turned and binding.var not in self.returned

    def _compose(self, binding: relax.VarBinding, composite: relax.Function, axes: tuple[int, ...]) -> None:
        """Fuse the model's own permutation of a value that is stored as NHWC with the permutation back to NCHW."""
        var, source = binding.var, self._as_last(binding.value.args[0])
        composed = tuple(NHWC_TO_NCHW[axis] for axis in axes)
        if composed == (0, 1, 2, 3) and var not in self.returned:
            self.plain[var] = source
        else:
            self.plain[var] = self._permute(source, composed, var.name, nodes=SourceNodes.read(composite).nodes)

    def _keep(self, binding: relax.VarBinding) -> None:
        value, composite = binding.value, composite_of(self.mod, binding.value)
        if isinstance(value, relax.Call):
            arguments = [self._as_plain(arg) for arg in value.args]
            if composite is not None:
                kept = with_ohwi_kernels(composite) or composite
                value = call_new(self.module, value.op.name_hint, kept, arguments, value.span)
            else:
                value = relax.Call(value.op, arguments, value.attrs, value.ty_args, value.span)
        elif isinstance(value, relax.TupleGetItem):
            value = relax.TupleGetItem(self._as_plain(value.tuple_value), value.index, value.span)
        else:
            value = self._as_plain(value)
        self.plain[binding.var] = self._bind(binding.var.name, value)
        if self.moves_crops and composite is not None and _is_crop(composite):
            self.crops[binding.var] = (value.args[0], composite)
        if (source := self._channels_last_source(binding)) is not None:
            self.last[binding.var] = source
            self.turned |= {binding.var} - self.returned

    def _channels_last_source(self, binding: relax.VarBinding) -> relax.Var | None:
        """Return the value whose NCHW form this binding is, where the model itself permutes NHWC to NCHW."""
        composite = composite_of(self.mod, binding.value)
        if composite is None or _permutation(composite) != NHWC_TO_NCHW:
            return None
        return self.plain[binding.value.args[0]]

    def _as_plain(self, expr: relax.Expr) -> relax.Expr:
        """Return the value in the model's own layout."""
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self._as_plain(field) for field in expr.fields], expr.span)
        if not isinstance(expr, relax.Var):
            return expr
        if expr not in self.plain:
            name = expr.name if expr in self.returned else f"{expr.name}.nchw"
            self.plain[expr] = self._permute(self.last[expr], NHWC_TO_NCHW, name, tensor=expr.name)
        return self.plain[expr]

    def _as_last(self, var: relax.Var) -> relax.Var:
        """Return the image with its channels last."""
        if var in self.last:
            return self.last[var]
        if var in self.crops:
            self.last[var] = self._cropped(var, *self.crops[var])
        else:
            self.last[var] = self._permute(
                self.plain[var], NCHW_TO_NHWC, f"{var.name}.nhwc", tensor=var.name, layout=NCHW_TO_NHWC
            )
        return self.last[var]

    def _cropped(self, var: relax.Var, source: relax.Expr, composite: relax.Function) -> relax.Var:
        """Crop an image and move its channels last in a single composite, so that the crop is never stored as NCHW.

        Rows of the crop are computed when they are read, where a convolution runs by rows.
        """
        name, param = f"{var.name}.nhwc", relax.Var(source.name, source.ty)
        image = infer(relax.op.permute_dims(param, list(NCHW_TO_NHWC)))
        moved = relax.DataflowVar(f"{source.name}.nhwc", image.ty)
        (crop,) = bindings(channels_last(composite))
        part = infer(substitute(crop.value, {crop.value.args[0]: moved}))
        result = relax.Var(name, part.ty)
        sequence = [relax.VarBinding(moved, image), relax.VarBinding(result, part)]
        told = (StorageLayout(axes=NCHW_TO_NHWC), ModelTensor(name=var.name))
        attrs = attributes("permute_dims", SourceNodes.read(composite).nodes, *told)
        function = build([param], sequence, [result], attrs=attrs)
        kind = unique(identifier(f"permute_dims_{name}"), self.taken)
        return self._bind(name, call_new(self.module, kind, function, [source]))

    def _permute(
        self,
        var: relax.Var,
        axes: tuple[int, ...],
        name: str,
        *,
        tensor: str = "",
        nodes: Sequence[str] = (),
        layout: tuple[int, ...] = (),
    ) -> relax.Var:
        """Call a new composite that permutes, or that reshapes where only extents of 1 move.

        tensor: the model's name of the permuted value, where `name` is another.
        """
        param, shape = relax.Var(var.name, var.ty), static_shape(var)
        moved = [axis for axis in axes if shape[axis] > 1]
        if moved == sorted(moved):
            kind, value = "reshape", relax.op.reshape(param, [shape[axis] for axis in axes])
        else:
            kind, value = "permute_dims", relax.op.permute_dims(param, list(axes))
        result = relax.Var(name, infer(value).ty)
        binding = relax.VarBinding(result, infer(value))
        told = (StorageLayout(axes=layout), ModelTensor(name="" if tensor == name else tensor))
        function = build([param], [binding], [result], attrs=attributes(kind, nodes, *told))
        return self._bind(
            name, call_new(self.module, unique(identifier(f"{kind}_{name}"), self.taken), function, [var])
        )

    def _bind(self, name: str, value: relax.Expr) -> relax.Var:
        typed = relax.BlockBuilder().normalize(value)
        var = relax.DataflowVar(name, typed.ty)
        self.sequence.append(relax.VarBinding(var, typed))
        return var


def _is_crop(composite: relax.Function) -> bool:
    """Return True for a composite that only takes contiguous elements along each axis of an image."""
    sequence = bindings(composite)
    if len(sequence) != 1 or op_name(sequence[0].value) != "relax.strided_slice":
        return False
    strides = sequence[0].value.args[4:]
    is_run = all(int(step.value) == 1 for steps in strides for step in steps.fields)
    return is_run and channels_last(composite) is not None and is_image(sequence[0].var)


def _permutation(composite: relax.Function) -> tuple[int, ...] | None:
    """Return the axes of a composite that is a single permute_dims of rank 4, or None."""
    sequence = bindings(composite)
    if len(sequence) != 1 or op_name(sequence[0].value) != "relax.permute_dims" or not is_image(sequence[0].var):
        return None
    axes = sequence[0].value.attrs.axes
    return (3, 2, 1, 0) if axes is None else tuple(int(axis) % 4 for axis in axes)


def states_as_images(mod: tvm.IRModule) -> dict[relax.Var, relax.Var]:
    """Map the parameters of `main` that are states read by a window over NCHW images to their NHWC variables."""
    main, count = mod["main"], len(KeptStates.read(mod).states)
    found: dict[relax.Var, relax.Var] = {}
    for param in main.params[len(main.params) - count :]:
        if is_image(param) and _reaches_window(mod, param):
            shape = static_shape(param)
            found[param] = relax.Var(
                param.name, relax.TensorType([shape[axis] for axis in NCHW_TO_NHWC], str(param.ty.dtype))
            )
    return found


def with_turned_states(mod: tvm.IRModule, params: list[relax.Var], turned: dict[relax.Var, relax.Var]) -> tvm.IRModule:
    """Return the module with the initial values of permuted states permuted too.

    params: the parameters of `main` before the rewrite.
    """
    if not turned:
        return mod
    states = KeptStates.read(mod).states
    changed = [
        _turned(state) if param in turned else state
        for state, param in zip(states, params[len(params) - len(states) :], strict=True)
    ]
    return KeptStates(states=tuple(changed)).write(mod)


def _turned(state: ModelState) -> ModelState:
    moved = [axis for axis in NCHW_TO_NHWC if state.initial.shape[axis] > 1]
    return replace(
        state,
        initial=np.ascontiguousarray(state.initial.transpose(NCHW_TO_NHWC)),
        layout=() if moved == sorted(moved) else NCHW_TO_NHWC,
    )


def _reaches_window(mod: tvm.IRModule, param: relax.Var) -> bool:
    """Return True where a composite that slides a window reads a parameter, or an image computed from it."""
    reached = {param}
    for binding in bindings(mod["main"]):
        if reached.isdisjoint(operands(binding.value)):
            continue
        composite = composite_of(mod, binding.value)
        if composite is not None and has_window(composite):
            return True
        if is_image(binding.var):
            reached.add(binding.var)
    return False

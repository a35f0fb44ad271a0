"""Keep the channels of convolutions, pools and states last (NHWC).

Rewrite: for a composite over NCHW tensors of rank 4
    y = conv(x)   ->   y = conv'(permute_dims(x, [0, 2, 3, 1])), permute_dims(y, [0, 3, 1, 2]) where NCHW is asked for
    y = crop(x); z = conv(y)   ->   z = conv'(crop'(permute_dims(x, [0, 2, 3, 1]))), both in one composite
    Every permutation that meets its inverse is gone, one that moves only extents of 1 is a reshape. Composites
    without a window follow their inputs where they can, also those ahead of the first window of a model that turns
    its NHWC input itself. Weights become [K, R, S, C], those of models that are
    NHWC already too.
    A composite whose result is kept in another order says so: `StorageLayout`, the model's axes as stored. A variable
    that holds a value of the model in another form than the model's is `y.nhwc` or `y.nchw`, its composite a
    `ModelTensor` of y.
    States on their way to such composites are kept as NHWC; `KeptStates` says how they begin then.
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
    """Keeps channels last inside the model, and its own layout at its borders.

    moves_crops: a part of an image is taken in the permutation that follows it. StreamPorts needs the two apart: it
    turns the crop and reads the rows of the input with their channels last.
    """

    def __init__(self, *, moves_crops: bool = True) -> None:
        self.moves_crops = moves_crops

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        return _Rewriter(mod, self.moves_crops).run() if is_dataflow(mod["main"]) else mod


class _Rewriter:
    """Walks the schedule once; of each value it knows the model's form (`plain`), the NHWC form (`last`), or both."""

    def __init__(self, mod: tvm.IRModule, moves_crops: bool) -> None:
        self.moves_crops = moves_crops
        self.mod, self.func = mod, mod["main"]
        others = {var: func for var, func in mod.functions_items() if not is_composite(func)}
        self.module = tvm.IRModule(others, attrs=mod.attrs)
        self.taken = {var.name_hint for var in mod.get_global_vars()}
        self.returned = set(outputs(self.func))
        self.readers = users(bindings(self.func))
        self.turned: set[relax.Var] = set()
        """Images that the model itself turned to NCHW, of which the NHWC form is at hand."""
        self.sequence: list[relax.VarBinding] = []
        self.states = states_as_images(mod)
        self.plain: dict[relax.Var, relax.Var] = {
            param: param for param in self.func.params if param not in self.states
        }
        self.last: dict[relax.Var, relax.Var] = dict(self.states)
        self.crops: dict[relax.Var, tuple[relax.Expr, relax.Function]] = {}
        """Of a part of an image in the model's layout: the image, and the composite that takes the part."""

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
        """True if some input is at hand only with its channels last, or all images are turned for this reader alone.

        Then the model turned what is handed over as NHWC, and a window reads it as NHWC behind a few other operators.
        """
        images = [arg for arg in binding.value.args if isinstance(arg, relax.Var) and is_image(arg)]
        if any(arg in self.last and arg not in self.plain for arg in images):
            return True
        are_turned = all(arg in self.turned and len(self.readers[arg]) == 1 for arg in images)
        return bool(images) and are_turned and binding.var not in self.returned

    def _compose(self, binding: relax.VarBinding, composite: relax.Function, axes: tuple[int, ...]) -> None:
        """The model's own permutation of a value that is here as NHWC: one permutation instead of two."""
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
        """The value of which this binding is the NCHW form, if the model itself just moved channels to the front."""
        composite = composite_of(self.mod, binding.value)
        if composite is None or _permutation(composite) != NHWC_TO_NCHW:
            return None
        return self.plain[binding.value.args[0]]

    def _as_plain(self, expr: relax.Expr) -> relax.Expr:
        """The value in the model's own layout."""
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self._as_plain(field) for field in expr.fields], expr.span)
        if not isinstance(expr, relax.Var):
            return expr
        if expr not in self.plain:
            name = expr.name if expr in self.returned else f"{expr.name}.nchw"
            self.plain[expr] = self._permute(self.last[expr], NHWC_TO_NCHW, name, tensor=expr.name)
        return self.plain[expr]

    def _as_last(self, var: relax.Var) -> relax.Var:
        """The image with its channels last."""
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
        """A part of an image with its channels last, in one composite: the part is never kept in the model's layout.

        Rows of the part are computed as they are read, where a convolution runs by rows.
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
        """A call of a new composite that permutes, or only reshapes where nothing but extents of 1 moves.

        tensor: the model's name of what it permutes, where `name` is another.
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
    """True for a composite that takes a run of places along each axis of an image, and nothing else."""
    sequence = bindings(composite)
    if len(sequence) != 1 or op_name(sequence[0].value) != "relax.strided_slice":
        return False
    strides = sequence[0].value.args[4:]
    is_run = all(int(step.value) == 1 for steps in strides for step in steps.fields)
    return is_run and channels_last(composite) is not None and is_image(sequence[0].var)


def _permutation(composite: relax.Function) -> tuple[int, ...] | None:
    """The axes of a composite that is one permute_dims of rank 4."""
    sequence = bindings(composite)
    if len(sequence) != 1 or op_name(sequence[0].value) != "relax.permute_dims" or not is_image(sequence[0].var):
        return None
    axes = sequence[0].value.attrs.axes
    return (3, 2, 1, 0) if axes is None else tuple(int(axis) % 4 for axis in axes)


def states_as_images(mod: tvm.IRModule) -> dict[relax.Var, relax.Var]:
    """Parameters of `main` that are states on their way to a window over NCHW images -> the same, channels last."""
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
    """The module whose attribute says how turned states begin. params: of `main` before."""
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
    """True where a composite that slides a window reads a parameter, or an image made from it."""
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

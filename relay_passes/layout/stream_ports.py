"""Pass inputs and outputs through composites of their own, so that the application can exchange them by rows.

Rewrite:
    main(x): y = c(x); return y
      ->  main(x): x.rows = read(x); y.rows = c(x.rows); y = write(y.rows); return y
    read and write are composites of one permute_dims with a `StreamDirection`; a `ModelTensor` says that x.rows is x.
    An NCHW image of which only the NHWC form is read arrives as NHWC, pixel by pixel: the permutation becomes the
    read. Element-wise operators between the input and the permutation, a quantize or a normalization, are permuted
    too. The same holds for an output that is only the NCHW form of an image. The decision records whether rows of
    inputs may be requested more than once (`rereads`).
Leaves alone: inputs without readers, constant results, and states. The module computes the same values in TVM.
"""

from __future__ import annotations

import tvm
from tvm import relax

from relay_passes.composites import attributes, call_new, composite_of
from relay_passes.dataflow import (
    bindings,
    build,
    infer,
    is_dataflow,
    op_name,
    outputs,
    rebuild,
    static_shape,
    substitute,
)
from relay_passes.layout.channels_last import NCHW_TO_NHWC, NHWC_TO_NCHW, channels_last, has_window, is_image
from relay_passes.patterns import Dataflow
from tvm_ext.core.decisions.composites import ModelTensor, StorageLayout, StreamDirection
from tvm_ext.core.decisions.models import KeptStates
from tvm_ext.core.names import identifier, unique


@tvm.transform.module_pass(opt_level=0, name="StreamPorts")
class StreamPorts:
    """Give inputs and outputs composites of their own.

    The pass runs after ConvertLayout, and takes over its permutations.
    """

    def __init__(self, *, rereads: bool = False) -> None:
        self.rereads = rereads

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        return _Rewriter(mod, rereads=self.rereads).run() if is_dataflow(mod["main"]) else mod


class _Rewriter:
    def __init__(self, mod: tvm.IRModule, *, rereads: bool) -> None:
        self.mod, self.module, self.main, self.rereads = mod, mod.clone(), mod["main"], rereads
        self.taken = {var.name_hint for var in mod.get_global_vars()}
        self.results = outputs(self.main)
        self.flow = Dataflow(self.main)
        self.replace: dict[relax.Var, relax.Expr] = {}
        self.turned: set[relax.Var] = set()

    def run(self) -> tvm.IRModule:
        states = len(KeptStates.read(self.mod).states)
        inputs = self.main.params[: len(self.main.params) - states]
        given = self.results[: len(self.results) - states]
        kept = self.results[len(self.results) - states :]
        sequence = [binding for param in inputs for binding in self._read(param)]
        ends = {result: self._turns_back(result) for result in given if isinstance(result, relax.Var)}
        for binding in bindings(self.main):
            if binding.var in self.turned or ends.get(binding.var) is not None:
                continue
            var = binding.var
            if var in ends:
                var = relax.DataflowVar(f"{var.name}.rows", var.ty)
                self.replace[binding.var] = var
                self._name_tensor(binding.value, binding.var.name)
            sequence.append(relax.VarBinding(var, substitute(binding.value, self.replace)))
        results: list[relax.Expr] = []
        for result in given:
            if isinstance(result, relax.Var):
                sequence.append(self._write(result, ends[result], repeated=result in self.results[: len(results)]))
                result = sequence[-1].var
            results.append(result)
        results += [substitute(result, self.replace) for result in kept]
        self.module.update_func(self.mod.get_global_var("main"), rebuild(self.main, sequence, results))
        return self.module

    def _name_tensor(self, value: relax.Expr, name: str) -> None:
        """Record the model's name of a composite's result, because its variable gets another name."""
        composite = composite_of(self.module, value)
        if composite is not None:
            self.module.update_func(value.op, ModelTensor(name=name).write(composite))

    def _read(self, param: relax.Var) -> list[relax.VarBinding]:
        """Return the read of an input in the form that its readers need, and the permuted operators.

        Nothing for an input without readers.
        """
        if param not in self.flow.readers and param not in self.results:
            return []
        chain = self._until_turned(param)
        if not chain:
            read = self._moved(param, tuple(range(len(static_shape(param)))), f"{param.name}.rows", "read", param.name)
            self.replace[param] = read.var
            return [read]
        *between, turn = chain
        found = [self._moved(param, NCHW_TO_NHWC, f"{param.name}.nhwc", "read", param.name)]
        for binding in between:
            composite = composite_of(self.mod, binding.value)
            assert composite is not None, "only composites are turned"
            turned = channels_last(composite)
            assert turned is not None, "a rule was found before"
            name = unique(binding.value.op.name_hint, self.taken)
            call = call_new(
                self.module, name, StorageLayout(axes=NCHW_TO_NHWC).write(turned), [found[-1].var], binding.value.span
            )
            found.append(relax.VarBinding(relax.DataflowVar(binding.var.name, call.ty), call))
        self.turned |= {binding.var for binding in chain}
        self.replace[turn.var] = found[-1].var
        return found

    def _until_turned(self, param: relax.Var) -> list[relax.VarBinding]:
        """Return the readers of an input up to the permutation that moves its channels last, or none."""
        chain: list[relax.VarBinding] = []
        var = param
        while len(found := self.flow.readers.get(var, [])) == 1 and var not in self.results:
            chain.append(found[0])
            if self._permutes(found[0].value, NCHW_TO_NHWC):
                return chain
            composite, after = composite_of(self.mod, found[0].value), found[0].var
            if composite is None or len(composite.params) != 1 or has_window(composite):
                break
            if not is_image(after) or static_shape(after) != static_shape(var) or channels_last(composite) is None:
                break
            var = after
        return []

    def _turns_back(self, result: relax.Var) -> relax.Var | None:
        """Return the NHWC image whose NCHW form a result is, provided that the NCHW form has no other use."""
        made = self.flow.values.get(result)
        if result in self.flow.readers or made is None or not self._permutes(made, NHWC_TO_NCHW):
            return None
        source = made.args[0]
        return source if isinstance(source, relax.Var) else None

    def _write(self, result: relax.Var, image: relax.Var | None, *, repeated: bool) -> relax.VarBinding:
        name = f"{result.name}.copy" if repeated else result.name
        if image is not None:
            return self._moved(substitute(image, self.replace), NHWC_TO_NCHW, name, "write")
        source = substitute(result, self.replace)
        return self._moved(source, tuple(range(len(static_shape(source)))), name, "write")

    def _moved(
        self, source: relax.Var, axes: tuple[int, ...], name: str, stream: str, tensor: str = ""
    ) -> relax.VarBinding:
        """Call a new composite that permutes, and whose elements the application passes in or takes out.

        tensor: the model's name of the value, where `name` is another.
        """
        param = relax.Var(source.name, source.ty)
        value = infer(relax.op.permute_dims(param, list(axes)))
        result = relax.Var(name, value.ty)
        layout = axes if stream == "read" and axes == NCHW_TO_NHWC else ()
        direction = StreamDirection(direction=stream, rereads=self.rereads and stream == "read")
        told = (StorageLayout(axes=layout), ModelTensor(name=tensor), direction)
        attrs = attributes(f"{stream}_rows", [], *told)
        function = build([param], [relax.VarBinding(result, value)], [result], attrs=attrs)
        port = source.name if stream == "read" else name
        call = call_new(self.module, unique(f"{stream}_{identifier(port)}", self.taken), function, [source])
        return relax.VarBinding(relax.DataflowVar(name, call.ty), call)

    def _permutes(self, value: relax.Expr, axes: tuple[int, ...]) -> bool:
        """Return True if an expression calls a composite that only permutes the axes of an image in this order."""
        composite = composite_of(self.mod, value)
        if composite is None or len(composite.params) != 1:
            return False
        source, inner = composite.params[0], bindings(composite)
        if len(inner) != 1 or not is_image(source) or not is_image(inner[0].var) or static_shape(source)[0] != 1:
            return False
        call, shape = inner[0].value, static_shape(source)
        if op_name(call) == "relax.permute_dims":
            return call.attrs.axes is not None and tuple(int(axis) % 4 for axis in call.attrs.axes) == axes
        moved = [axis for axis in axes if shape[axis] > 1]
        is_reshape = op_name(call) == "relax.reshape" and moved == sorted(moved)
        return is_reshape and static_shape(inner[0].var) == tuple(shape[axis] for axis in axes)

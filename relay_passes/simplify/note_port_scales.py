"""Record the scales of inputs and outputs before other passes rewrite the operators that imply them."""

from __future__ import annotations

from collections.abc import Collection

import tvm
from tvm import relax

from relay_passes.dataflow import is_dataflow, number_of, op_name, operands, outputs
from relay_passes.patterns import Dataflow
from relay_passes.simplify.move_integers import MOVES
from tvm_ext.core.decisions.models import ModelOrigin, PortNames, PortScales

_SAME_SCALE = MOVES | {f"relax.{name}" for name in "split nn.max_pool1d nn.max_pool2d nn.max_pool3d clip".split()}
"""Operators that return elements of their operands."""
_FIRST_OPERAND_ONLY = frozenset({"relax.take", "relax.clip", "relax.nn.pad"})
"""Operators whose other operands are indices or numbers with another meaning."""
_MOVING_NODES = frozenset("MaxPool GlobalMaxPool DepthToSpace SpaceToDepth GatherElements GatherND".split())
"""ONNX operators that become a PrimFunc for integers, with the data as its first operand."""

Scale = tuple[float, int]


@tvm.transform.module_pass(opt_level=0, name="NotePortScales")
class NotePortScales:
    """Write scale and zero point of integer inputs and outputs into the module, as `PortScales`.

    Rewrite:
        main(x) with y = dequantize(move(x), s, z)   ->   the module says that the input x has scale s, zero point z
        return move(quantize(y, s, z))               ->   the module says that the output has scale s, zero point z
    Leaves alone: every function; scales that the model's file declares; parameters that differ by channel.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        main, names, declared = mod["main"], PortNames.read(mod), PortScales.read(mod)
        if not is_dataflow(main):
            return mod
        search = _Search(main, {node.name for node in ModelOrigin.read(mod).nodes if node.operator in _MOVING_NODES})
        # States are the last parameters and results, and have no names.
        inputs = {
            name: scale
            for name, param in zip(names.inputs, main.params, strict=False)
            if (scale := search.of_input(param)) is not None
        }
        outputs_found = {
            name: scale
            for name, result in zip(names.outputs, outputs(main), strict=False)
            if (scale := search.of_result(result)) is not None
        }
        found = PortScales(
            inputs={**inputs, **(declared.inputs or {})} or None,
            outputs={**outputs_found, **(declared.outputs or {})} or None,
        )
        return mod if found == declared else found.write(mod)


class _Search:
    """The scales that the calls of a function imply, traced along the values that share their elements."""

    def __init__(self, main: relax.Function, moving_nodes: Collection[str]) -> None:
        self.flow, self.params = Dataflow(main), set(main.params)
        self.moving_nodes = moving_nodes

    def of_input(self, value: relax.Var) -> Scale | None:
        """Return the scale of the first dequantize that reads the elements of `value`."""
        waiting, seen = [value], {value}
        while waiting:
            current = waiting.pop(0)
            for reader in self.flow.readers.get(current, ()):
                if op_name(reader.value) == "relax.dequantize" and reader.value.args[0].same_as(current):
                    if (scale := _scale_of(reader.value)) is not None:
                        return scale
                elif current in self._same_elements(reader.value) and reader.var not in seen:
                    seen.add(reader.var)
                    waiting.append(reader.var)
        return None

    def of_result(self, result: relax.Expr) -> Scale | None:
        """Return the scale of the quantize that computed the elements of `result`, or the scale of an input."""
        waiting, seen = [result], {result}
        while waiting:
            current = waiting.pop(0)
            value = self.flow.values.get(current)
            if current in self.params and (scale := self.of_input(current)) is not None:
                return scale
            if op_name(value) == "relax.quantize" and (scale := _scale_of(value)) is not None:
                return scale
            for source in self._same_elements(value):
                if source not in seen:
                    seen.add(source)
                    waiting.append(source)
        return None

    def _same_elements(self, value: relax.Expr | None) -> list[relax.Var]:
        """Return the variables whose elements a value consists of, or none where it computes new elements."""
        if isinstance(value, relax.Var):
            return [value]
        name = op_name(value)
        if name == "relax.call_tir" and value.span is not None and value.span.source_name.name in self.moving_nodes:
            read = value.args[1].fields[0]
        elif name in _SAME_SCALE:
            read = value.args[0] if name in _FIRST_OPERAND_ONLY else value
        elif isinstance(value, relax.TupleGetItem | relax.Tuple):
            read = value
        else:
            return []
        return [leaf for leaf in operands(read) if isinstance(leaf, relax.Var)]


def _scale_of(call: relax.Call) -> Scale | None:
    """Return the constant scale and zero point of a quantize or dequantize, or None where they are not single
    constants.
    """
    scale, zero_point = (number_of(argument) for argument in call.args[1:3])
    return None if scale is None or zero_point is None else (float(scale), int(zero_point))

"""Import a TensorFlow Lite graph as a Relax function that keeps the model's names.

A quantized operator becomes a dequantize, the operator on real numbers, and a quantize. The integers between operators
have the model's names. Operators that only move numbers stay on integers.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import tflite
import tvm
from tvm import relax
from tvm.relax.frontend.tflite.tflite_frontend import ExprTable, OperatorConverter, TensorWrapper

from relay_passes.dataflow import array_of, build, constant, dict_attrs, live, op_name, static_shape, substitute
from tvm_ext.core.decisions.composites import InputCount, Symbol
from tvm_ext.core.memory_exhausted import check_memory
from tvm_ext.frontends.loops import (
    DATA_DEPENDENT,
    LoopBody,
    LoopCondition,
    LoopState,
    NotRepeated,
    bound_of,
    ending_of,
    repeat,
    whole_number,
)
from tvm_ext.frontends.quiet import quiet
from tvm_ext.frontends.refusals import Refused, RefusedNode, summary, unsupported
from tvm_ext.frontends.shapes import ModelNotice
from tvm_ext.frontends.size_limits import ImportSizes
from tvm_ext.frontends.statements import Statements, name_variables
from tvm_ext.frontends.tflite import custom, mediapipe
from tvm_ext.frontends.tflite.check_model import CHOICE, WAY_OUT, bias_factor, refusal
from tvm_ext.frontends.tflite.integers.convert import integer_converter, unlike_litert
from tvm_ext.frontends.tflite.integers.node import IntegerNode, Meaning
from tvm_ext.frontends.tflite.layers import LAYERS, LayerInput, options_of, quantized
from tvm_ext.frontends.tflite.movement import MOVEMENTS, Moved, gather_nd, moves_here
from tvm_ext.frontends.tflite.read_file import ACTIVATIONS, TfliteFile, TfliteLoop, TfliteNode, TfliteTensor
from tvm_ext.frontends.tflite.rescale import rescaled_integers
from tvm_ext.frontends.tflite.resources import Variable
from tvm_ext.frontends.tflite.tensor_lists import (
    LIST_OPERATORS,
    RESERVE,
    SET_ITEM,
    LoopList,
    TensorList,
    is_list,
    reserved,
    written_lists,
)
from tvm_ext.frontends.tflite.variable_tensors import KEEPING

# Operators that move numbers, add none of their own, and mean the same on integers of a single scale.
_MOVES = frozenset(
    "RESHAPE SQUEEZE EXPAND_DIMS TRANSPOSE SLICE STRIDED_SLICE SPLIT SPLIT_V PACK UNPACK GATHER GATHER_ND TILE "
    "DEPTH_TO_SPACE SPACE_TO_DEPTH REVERSE_V2 RESIZE_NEAREST_NEIGHBOR CONCATENATION BROADCAST_TO MIRROR_PAD "
    "ARG_MAX ARG_MIN SPACE_TO_BATCH_ND BATCH_TO_SPACE_ND FILL EMBEDDING_LOOKUP DYNAMIC_UPDATE_SLICE "
    "ZEROS_LIKE SELECT SELECT_V2".split()
)
# The file declares their output. CAST also has options, which the runtimes do not read.
_CASTS = frozenset(["QUANTIZE", "DEQUANTIZE", "CAST"])


def import_graph(
    path: Path,
    file: TfliteFile,
    shapes: Mapping[str, tuple[int, ...]],
    sizes: ImportSizes,
    variables: Sequence[Variable] = (),
    rounding: Meaning = "tflite",
) -> tvm.IRModule:
    """Return a module with a function `main`, inputs of the given shapes, and constant weights.

    variables: parameters after the inputs, and results after the outputs. rounding: of integers, as in
    `QuantizedRounding`.
    Raises UnsupportedModel that lists every operator that cannot be translated.
    """
    return _Importer(path, file, shapes, sizes, variables, rounding).run()


class _Importer:
    """Import of a graph. An instance lives for a single model.

    Most operators on quantized tensors are written in QDQ form: their inputs are dequantized (`LayerInput.real`), the
    operator computes in float (`_computed`), and its result is quantized again (`_finished`). `FormComposites` later
    takes the three as one operator on integers. Operators for which `as_stored` is True are the exception.
    """

    def __init__(
        self,
        path: Path,
        file: TfliteFile,
        shapes: Mapping[str, tuple[int, ...]],
        sizes: ImportSizes,
        variables: Sequence[Variable],
        rounding: Meaning,
    ) -> None:
        self._rounding: Meaning = rounding
        self._path, self._file, self._shapes, self._variables = path, file, shapes, variables
        self._sizes, self._statements = sizes, Statements(sizes, folds=_folds)
        self._refused: list[RefusedNode] = []
        self._params: list[relax.Var] = []
        self._values: dict[int, relax.Expr] = {}
        self._lists: dict[int, TensorList] = {}
        self._in_loop = False
        # Shapes of inner tensors in the file hold only for its shapes of inputs.
        self._as_declared = all(shapes[file.tensors[i].name] == file.tensors[i].shape for i in file.inputs)

    def run(self) -> tvm.IRModule:
        for index in self._file.inputs:
            self._add_input(self._file.tensors[index], index, self._shapes[self._file.tensors[index].name])
        for variable in self._variables:
            self._add_input(self._file.tensors[variable.read], variable.read, variable.state.initial.shape)
        for index, tensor in enumerate(self._file.tensors):
            if tensor.data is not None:
                self._values[index] = constant(tensor.data)
        with quiet():
            for node in self._file.nodes:
                self._convert(node)
        for tensor in (self._file.tensors[index] for index in self._file.outputs):
            if is_list(tensor):
                reason = f"its element type {tensor.type_name} is not supported"
                self._refused.append(RefusedNode(operator="graph output", node=tensor.name, reason=reason))
        if self._refused:
            raise unsupported(self._path, self._refused, way_out=WAY_OUT)
        self._say_biases()
        return self._module()

    def _say_biases(self) -> None:
        """Warn of layers that add a bias in another scale than the file gives to it."""
        factors = {node.label: bias_factor(self._file, node) for node in self._file.nodes}
        changed = {label: factor for label, factor in factors.items() if factor != 1}
        if changed:
            label = max(changed, key=lambda label: abs(math.log(changed[label])))
            layers = "1 layer adds its bias" if len(changed) == 1 else f"{len(changed)} layers add their biases"
            warnings.warn(
                f"{self._path}: {layers} in another scale than the file gives to it, {label} by {changed[label]:.3g} "
                "times the number in the file: TensorFlow Lite does so too. Converters share a bias among the time "
                "steps of a recurrent layer that is unrolled; without unrolling they do not.",
                ModelNotice, stacklevel=2,
            )  # fmt: skip

    def _module(self) -> tvm.IRModule:
        tensors = self._file.tensors
        named = {tensors[index].name: value for index, value in self._values.items()}
        returned = [*self._file.outputs, *(variable.written for variable in self._variables)]
        output_names = [tensors[index].name for index in returned]
        sequence, renamed = name_variables(self._statements.list, named, output_names)
        results = [substitute(self._values[index], renamed) for index in returned]
        attrs = dict_attrs(Symbol(name="main"), InputCount(count=len(self._params)))
        main = build(self._params, live(sequence, results), results, attrs=attrs)
        return tvm.IRModule({tvm.ir.GlobalVar("main"): main, **self._statements.helpers(main)})

    def _add_input(self, tensor: TfliteTensor, index: int, shape: tuple[int, ...]) -> None:
        if tensor.dtype is None:
            reason = f"its element type {tensor.type_name} is not supported"
            raise unsupported(
                self._path, [RefusedNode(operator="graph input", node=tensor.name, reason=reason)], way_out=WAY_OUT
            )
        self._values[index] = relax.Var(tensor.name, relax.TensorType(shape, tensor.dtype))
        self._params.append(self._values[index])

    def _convert(self, node: TfliteNode) -> None:
        """Translate `node` and add its results. A failure is recorded, and its results stay unknown."""
        try:
            reason = refusal(self._file, node)
            if not reason and self._rounding == "litert":
                reason = unlike_litert(self._file, node)
            if reason:
                raise Refused(reason)
            if node.operator in LIST_OPERATORS:
                self._convert_list(node)
            elif node.loop is not None and node.loop.first in self._values:
                self._repeat(node, node.loop)
            elif all(index in self._values for index in node.inputs if index >= 0):
                self._values.update(zip(node.outputs, self._results(node), strict=True))
                self._learn_shapes(node)
        except Refused as error:
            self._refuse(node, str(error))
        except Exception as error:  # converters may raise anything, from KeyError to InternalError
            check_memory(error)
            self._refuse(node, f"TVM's importer fails: {summary(error)}")

    def _learn_shapes(self, node: TfliteNode) -> None:
        """Give the node's results that have no shape in the file the shape that they have here.

        The checks of the operators that read them need it. Resizes to a computed size leave such tensors after them.
        """
        tensors = self._file.tensors
        learned = {
            index: replace(tensors[index], shape=shape, dims=shape, is_unranked=False)
            for index in node.outputs
            if index >= 0 and tensors[index].is_unranked and (shape := static_shape(self._values[index]))
        }
        if learned:
            known = tuple(learned.get(index, tensor) for index, tensor in enumerate(tensors))
            self._file = replace(self._file, tensors=known)

    def _refuse(self, node: TfliteNode, reason: str) -> None:
        self._refused.append(RefusedNode(operator=node.operator, node=node.label, reason=reason))

    def _results(self, node: TfliteNode) -> list[relax.Expr]:
        wanted = [self._file.tensors[index] for index in node.outputs]

        def make(builder: relax.BlockBuilder) -> relax.Expr:
            # These read and return elements as the file stores them: nothing is dequantized or quantized around them.
            as_stored = (
                node.is_choice
                or self._moves(node)
                or node.is_custom
                or node.operator in KEEPING
                or self._computes_integers(node)
            )
            result = builder.normalize(self._computed(node, builder, as_stored))
            fields = self._fields(result, len(wanted), builder)
            finished = [
                self._finished(node, field, tensor, as_stored, builder)
                for field, tensor in zip(fields, wanted, strict=True)
            ]
            return finished[0] if len(finished) == 1 else relax.Tuple(finished)

        return self._statements.collect(make, operator=node.label, tensor=wanted[0].name)

    def _convert_list(self, node: TfliteNode) -> None:
        """Translate an operator on lists of TensorFlow."""
        if any(
            index not in (self._lists if is_list(self._file.tensors[index]) else self._values) for index in node.inputs
        ):
            return
        (output,) = node.outputs
        if node.operator == RESERVE:
            self._lists[output] = reserved(self._values[node.inputs[1]])
        elif node.operator == SET_ITEM:
            index = whole_number(self._values[node.inputs[1]])
            if index is None:
                raise Refused("the index of the element that it writes is not known; convert with unroll=True")
            self._lists[output] = self._lists[node.inputs[0]].with_element(index, self._values[node.inputs[2]])
        else:
            kept, tensor = self._lists[node.inputs[0]], self._file.tensors[output]
            (self._values[output],) = self._statements.collect(
                lambda builder: self._finished(node, kept.tensor(builder), tensor, True, builder),
                operator=node.label, tensor=tensor.name,
            )  # fmt: skip

    def _repeat(self, node: TfliteNode, loop: TfliteLoop) -> None:
        """Translate a WHILE as a step that runs in a loop. Raises Refused."""
        numbers = [place for place, index in enumerate(loop.values) if not is_list(self._file.tensors[index])]
        others = [place for place in range(len(loop.values)) if place not in numbers]
        if not all(node.inputs[place] in self._values for place in numbers):
            return  # the operators that do not give them are refused
        if not all(node.inputs[place] in self._lists for place in others):
            return
        first = array_of(self._values[loop.first])
        if first is not None and not first.all():
            self._values.update((node.outputs[place], self._values[node.inputs[place]]) for place in numbers)
            self._lists.update((node.outputs[place], self._lists[node.inputs[place]]) for place in others)
            return
        lists = written_lists(self._file, loop)
        unwritten = [place for place in others if all(place != one.place for one in lists)]
        for place in unwritten:
            if loop.results[place] != loop.values[place] or any(loop.values[place] in one.inputs for one in loop.nodes):
                name = self._file.tensors[node.inputs[place]].name
                raise Refused(f"its body does more with the list {name!r} than write one element an iteration")
            self._lists[node.outputs[place]] = self._lists[node.inputs[place]]
        found = self._found(node, loop, lists, numbers)
        self._values.update((node.outputs[place], value) for place, value in found.items() if place in numbers)
        for one in (one for one in lists if not one.is_tensor):
            before = self._lists[node.inputs[one.place]]
            if one.counter is None:
                after = before.with_element(one.index, found[one.place])
            else:
                after = replace(before, stacked=found[one.place])
            self._lists[node.outputs[one.place]] = after

    def _found(
        self, node: TfliteNode, loop: TfliteLoop, lists: Sequence[LoopList], numbers: Sequence[int]
    ) -> dict[int, relax.Expr]:
        """Return the values after a loop by their places, and of lists the elements that it writes.

        numbers: places of all values but lists of type VARIANT.
        """
        given = {place: self._values[node.inputs[place]] for place in numbers}
        stacked = [one for one in lists if one.counter is not None]
        last = [one for one in lists if one.counter is None]
        variables = {place: relax.Var(f"state{place}", value.ty) for place, value in given.items()}
        self._values.update((loop.values[place], variable) for place, variable in variables.items())
        around, self._statements = (self._statements, self._in_loop), Statements(self._sizes, folds=_folds)
        self._in_loop = True
        try:
            for inner in loop.nodes:
                if not any(inner is node for one in lists for node in one.nodes):
                    self._convert(inner)
            inside = self._statements
        finally:
            self._statements, self._in_loop = around
        kept = [place for place in numbers if all(place != one.place for one in lists)]
        made = [*(loop.results[place] for place in kept), loop.again, *(one.element for one in lists)]
        if not all(index in self._values for index in made):
            raise Refused("its body cannot be compiled")
        for place in kept:
            before, result = static_shape(given[place]), static_shape(self._values[loop.results[place]])
            if before != result:
                name = self._file.tensors[loop.values[place]].name
                raise Refused(f"an iteration changes {name!r} from {list(before)} to {list(result)}")
        states = [
            LoopState(variable=variables[place], before=given[place], after=self._values[loop.results[place]])
            for place in kept
        ]
        for one in last:
            element, before = self._values[one.element], self._lists[node.inputs[one.place]].elements.get(one.index)
            if before is None or static_shape(before) != static_shape(element):  # no iteration reads it
                before = constant(np.zeros(static_shape(element), str(element.ty.dtype)))
            states.append(LoopState(variable=relax.Var(f"list{one.place}", element.ty), before=before, after=element))
        body = LoopBody(
            statements=inside, states=tuple(states), stacked=tuple(self._values[one.element] for one in stacked),
        )  # fmt: skip
        places = (*kept, *(one.place for one in last), *(one.place for one in stacked))
        try:
            found = dict(zip(places, self._looped(node, loop, body), strict=True))
        except NotRepeated as reason:
            raise Refused(f"control flow that does not run as a step in a loop: {reason}") from None
        for one in stacked:
            found[one.place] = self._whole_list(node, one, given, found[one.place])
        return found

    def _whole_list(
        self, node: TfliteNode, one: LoopList, given: Mapping[int, relax.Expr], stacked: relax.Expr
    ) -> relax.Expr:
        """Return a list after a loop from the elements of all iterations. Raises Refused if they are not all of it."""
        assert one.counter is not None
        count, *extents = static_shape(stacked)
        if one.is_tensor:
            length, *wanted = static_shape(given[one.place])
            fits = extents == [1, *wanted]
        else:
            length, wanted, fits = self._lists[node.inputs[one.place]].count, extents, True
        if whole_number(given[one.counter]) != 0 or count != length or not fits:
            raise Refused(
                f"it writes {self._file.tensors[node.inputs[one.place]].name!r}, a list of {length} elements, not "
                "from the first to the last"
            )
        if not one.is_tensor:
            return stacked
        (whole,) = self._statements.collect(
            lambda builder: builder.emit(relax.op.reshape(stacked, (length, *wanted))),
            operator=node.label, tensor=self._file.tensors[node.outputs[one.place]].name,
        )  # fmt: skip
        return whole

    def _looped(self, node: TfliteNode, loop: TfliteLoop, body: LoopBody) -> list[relax.Expr]:
        """Return the values after a loop, then the stacked ones. It ends by its counter or, if data end it, by its
        condition, and then can stack nothing.
        """

        def emit(build: Callable[[relax.BlockBuilder], relax.Expr]) -> list[relax.Expr]:
            return self._statements.collect(build, operator=node.label, tensor=self._file.tensors[node.outputs[0]].name)

        first, again = self._values[loop.first], self._values[loop.again]
        ending, known = ending_of(body, again), array_of(first)
        if known is not None and ending is not None and ending.is_exact:
            found = repeat(body, ending.most, emit)
        elif body.stacked:
            raise Refused(f"{DATA_DEPENDENT}: the list that it writes has an element for each iteration that runs")
        else:
            missing = "its condition has no counter that it compares with a constant"
            bound = bound_of([ending.most] if ending else [], self._sizes.limits, node.label, missing)
            (begin,) = emit(lambda builder: builder.emit(relax.op.reshape(first, ())))
            (goes_on,) = body.statements.collect(
                lambda builder: builder.emit(relax.op.reshape(again, ())), operator=node.label, tensor=node.label
            )
            found = repeat(replace(body, condition=LoopCondition(first=begin, again=goes_on)), bound, emit)
        assert not any(value is None for value in found.states), "all values of a WHILE are wanted"
        return [*(value for value in found.states if value is not None), *found.stacked]

    def _fields(self, result: relax.Expr, count: int, builder: relax.BlockBuilder) -> list[relax.Expr]:
        if not isinstance(result.ty, relax.TupleType):
            fields = [result]
        elif isinstance(result, relax.Tuple):
            fields = list(result.fields)
        else:
            bound = builder.emit(result)
            fields = [relax.TupleGetItem(bound, index) for index in range(len(result.ty.fields))]
        if len(fields) != count:
            raise Refused(f"TVM's importer gives {len(fields)} of its {count} outputs")
        return fields

    def _moves(self, node: TfliteNode) -> bool:
        """Return True if the operator only moves elements, so that it runs on the integers themselves."""
        tensors = [self._file.tensors[index] for index in (*node.inputs, *node.outputs) if index >= 0]
        scaled = [tensor for tensor in tensors if tensor.scales is not None and tensor.dtype in ACTIVATIONS]
        same = all(scaled[0].scales.equals(tensor.scales) and scaled[0].dtype == tensor.dtype for tensor in scaled)
        return same and (node.operator in _MOVES or node.operator.startswith("PAD"))

    def _computed(self, node: TfliteNode, builder: relax.BlockBuilder, as_stored: bool) -> relax.Expr:
        if node.is_choice:
            return self._chosen(node, builder)
        if mediapipe.is_of_mediapipe(node):
            return mediapipe.convert(node, self._values)
        if node.is_custom:
            return custom.convert(self._file, node, self._values)
        given = [None if index < 0 else self._operand(index) for index in node.inputs]
        if node.operator in KEEPING:
            return KEEPING[node.operator].convert(self._file, node, self._values, builder)
        if node.operator == "TRANSPOSE_CONV" and array_of(self._values[node.inputs[0]]) is None:
            # TensorFlow Lite Micro uses the shape of the output in the file, whatever this input says.
            given[0] = LayerInput(value=constant(np.array(self._file.tensors[node.outputs[0]].shape, np.int32)))
        if (convert := integer_converter(self._file, node, in_loop=self._in_loop)) is not None:
            return convert(self._integer_node(node, builder))
        if node.operator in LAYERS:
            return LAYERS[node.operator](node.table, given)
        values = {
            index: operand.value if as_stored or operand.scales is None else builder.emit(operand.real())
            for index, operand in zip(node.inputs, given, strict=True)
            if operand is not None
        }
        if self._rescales(node):
            return self._rescaled(node, builder)
        if node.operator in _CASTS:
            return values[node.inputs[0]]
        if moves_here(node):
            scales = self._file.tensors[node.outputs[0]].scales
            zero = int(scales.zero_point[0]) if as_stored and scales is not None else 0
            inputs = tuple(values[index] for index in node.inputs)
            return MOVEMENTS[node.operator](Moved(table=node.table, values=inputs, zero=zero, builder=builder))
        if node.operator == "GATHER_ND":
            return gather_nd(values[node.inputs[0]], values[node.inputs[1]])
        if as_stored and node.operator.startswith("PAD"):
            return self._padded(node, values)
        if node.operator == "SOFTMAX":
            beta = options_of(node.table, tflite.SoftmaxOptions).Beta()
            data = values[node.inputs[0]]
            return relax.op.nn.softmax(data if beta == 1 else relax.op.multiply(data, relax.const(beta, "float32")), -1)
        # TVM takes constants for axes and shapes, in the file or computed here, if there is no value.
        constants = {i: data for i, value in values.items() if (data := array_of(value)) is not None}
        computed = {i: data for i, data in constants.items() if self._file.tensors[i].scales is None}
        known = {i: value for i, value in values.items() if i not in computed}
        as_real = frozenset() if as_stored else frozenset(i for i in node.inputs + node.outputs if self._is_scaled(i))
        own = dict(zip(node.own_tensors, node.inputs + node.outputs, strict=True))
        return FloatConverter(
            self._file.model, node.graph, builder, {i: known[now] for i, now in own.items() if now in known},
            {i: computed[now] for i, now in own.items() if now in computed},
            frozenset(i for i, now in own.items() if now in as_real),
        ).convert(node.operator, node.table)  # fmt: skip

    def _chosen(self, node: TfliteNode, builder: relax.BlockBuilder) -> relax.Expr:
        """Return the results of the branch that the condition takes. Raises Refused for branches of several shapes."""
        condition, *results = (self._values[index] for index in node.inputs)
        test, count = builder.emit(relax.op.reshape(condition, ())), len(node.outputs)
        found: list[relax.Expr] = []
        for yes, no in zip(results[:count], results[count:], strict=True):
            if static_shape(yes) != static_shape(no):
                raise Refused(f"{CHOICE}, which would give {list(static_shape(yes))} or {list(static_shape(no))}")
            found.append(builder.emit(relax.op.where(test, yes, no)))
        return found[0] if count == 1 else relax.Tuple(found)

    def _is_scaled(self, index: int) -> bool:
        return index >= 0 and self._file.tensors[index].scales is not None

    def _operand(self, index: int) -> LayerInput:
        tensor = self._file.tensors[index]
        is_quantized = tensor.scales is not None and (tensor.dtype in ACTIVATIONS or tensor.data is not None)
        return LayerInput(value=self._values[index], scales=tensor.scales if is_quantized else None)

    def _rescales(self, node: TfliteNode) -> bool:
        """Return True for a QUANTIZE between int32 and other integers, which float32 cannot represent."""
        types = [self._file.tensors[index].dtype for index in (*node.inputs, *node.outputs)]
        return node.operator == "QUANTIZE" and "int32" in types

    def _computes_integers(self, node: TfliteNode) -> bool:
        """Return True for an operator that is converted in the arithmetic of its integers."""
        return self._rescales(node) or integer_converter(self._file, node, in_loop=self._in_loop) is not None

    def _integer_node(self, node: TfliteNode, builder: relax.BlockBuilder) -> IntegerNode:
        return IntegerNode(
            table=node.table, inputs=tuple(self._file.tensors[index] for index in node.inputs),
            output=self._file.tensors[node.outputs[0]], values=tuple(self._values[index] for index in node.inputs),
            builder=builder, rounding=self._rounding,
        )  # fmt: skip

    def _rescaled(self, node: TfliteNode, builder: relax.BlockBuilder) -> relax.Expr:
        given, wanted = self._file.tensors[node.inputs[0]], self._file.tensors[node.outputs[0]]
        if given.scales is None or wanted.scales is None or wanted.dtype is None:
            raise Refused(f"quantizing {given.dtype} to {wanted.dtype} is not supported")
        return rescaled_integers(builder, self._values[node.inputs[0]], given.scales, wanted.scales, wanted.dtype)

    def _padded(self, node: TfliteNode, values: Mapping[int, relax.Expr]) -> relax.Expr:
        """Convert PAD and PADV2 on integers, with the zero point, or with the number that the model gives."""
        width, data = array_of(values[node.inputs[1]]), values[node.inputs[0]]
        if width is None:
            raise Refused("its padding depends on data")
        scales = self._file.tensors[node.inputs[0]].scales
        filled = 0 if scales is None else int(scales.zero_point[0])
        if len(node.inputs) == 3:
            number = array_of(values[node.inputs[2]])
            if number is None or number.size != 1:
                raise Refused("what it pads with depends on data")
            filled = number.item()
        return relax.op.nn.pad(data, [int(extent) for extent in width.ravel()], pad_value=filled)

    def _finished(
        self, node: TfliteNode, value: relax.Expr, tensor: TfliteTensor, as_stored: bool, builder: relax.BlockBuilder
    ) -> relax.Expr:
        """Return the result as the file declares it: quantized, with its element type and its shape.

        as_stored: the value has the file's elements already, and is not quantized again.
        The file decides about axes of extent 1, and about the rows of a dense layer.
        """
        assert tensor.dtype is not None, "refused before"
        value = builder.emit(value)
        if tensor.scales is not None and tensor.dtype in ACTIVATIONS and not as_stored:
            value = builder.emit(quantized(value, tensor.scales, tensor.dtype))
        elif str(value.ty.dtype) != tensor.dtype:
            value = builder.emit(relax.op.astype(value, tensor.dtype))
        takes_shape = node.is_custom and tensor.is_unranked
        if self._as_declared and not takes_shape and static_shape(value) != tensor.shape:
            extents = math.prod if node.operator == "FULLY_CONNECTED" else _without_ones
            if extents(static_shape(value)) != extents(tensor.shape):
                if None in tensor.dims or tensor.is_unranked:  # then the shape in the file is a placeholder
                    return value
                raise Refused(
                    f"its output is {list(tensor.shape)} in the file, {list(static_shape(value))} by its inputs"
                )
            value = builder.emit(relax.op.reshape(value, tensor.shape))
        return value


def _without_ones(shape: Sequence[int]) -> list[int]:
    return [extent for extent in shape if extent != 1]


def _folds(value: relax.Expr) -> bool:
    """Return True except for a dequantized weight, which is not folded because kernels use its integers."""
    return op_name(value) != "relax.dequantize"


class FloatConverter(OperatorConverter):
    """TVM's converter of an operator over real values. An instance lives for that operator.

    graph: number of the subgraph that contains the operator and the following tensors.
    values: the known inputs, by tensor, without the following constants.
    computed: constants without a scale, in the file or computed from others.
    as_real: tensors that are integers in the file, and float32 here.
    """

    def __init__(
        self,
        model: tflite.Model,
        graph: int,
        builder: relax.BlockBuilder,
        values: Mapping[int, relax.Expr],
        computed: Mapping[int, np.ndarray],
        as_real: frozenset[int],
    ) -> None:
        super().__init__(model, model.Subgraphs(graph), ExprTable(), builder)
        self._values, self._computed, self._as_real = values, computed, as_real

    def convert(self, operator: str, table: tflite.Operator) -> relax.Expr:
        """Return the operator's result, or a tuple of results. Raises Refused where TVM has no converter."""
        converter = self.convert_map.get(operator)
        if converter is None:
            raise Refused("there is no converter for it")
        result = converter(op=table)
        if result is None:
            raise Refused("TVM's importer gives no result for it")
        return result

    def get_expr(self, input_tensor_idx: int) -> relax.Expr:
        index = int(input_tensor_idx)
        return self._values[index] if index in self._values else constant(self._computed[index])

    def has_expr(self, input_tensor_idx: int) -> bool:
        return int(input_tensor_idx) in self._values

    def is_prefetched(self, input_tensor_idx: int) -> bool:
        return False

    def get_tensors(self, tensors_idx_list: np.ndarray) -> list[TensorWrapper]:
        found = []
        for index in self._indices_or_empty(tensors_idx_list):
            tensor = self.subgraph.Tensors(index) if index >= 0 else 0
            tensor = _RealTensor(tensor) if int(index) in self._as_real else tensor
            buffer = self.model.Buffers(tensor.Buffer()) if index >= 0 else 0
            found.append(TensorWrapper(int(index), tensor, buffer))
        return found

    def get_tensor_value(self, tensor_wrapper: TensorWrapper, is_sparse: bool = False) -> np.ndarray:
        """Return the numbers of a tensor, as computed during the import, or as in the file."""
        known = self._values.get(tensor_wrapper.tensor_idx)
        if isinstance(known, tvm.ir.GenericConst):
            return known.value.numpy()
        if tensor_wrapper.tensor_idx in self._computed:
            return self._computed[tensor_wrapper.tensor_idx]
        if known is not None:
            raise Refused("one of its parameters depends on data")
        return super().get_tensor_value(tensor_wrapper, is_sparse)

    def get_tensor_shape(self, tensor_wrapper: TensorWrapper) -> np.ndarray:
        known = self._values.get(tensor_wrapper.tensor_idx)
        if known is not None:
            return np.array(static_shape(known), np.int64)
        if tensor_wrapper.tensor_idx in self._computed:
            return np.array(self._computed[tensor_wrapper.tensor_idx].shape, np.int64)
        return super().get_tensor_shape(tensor_wrapper) if tensor_wrapper.tensor.ShapeLength() else np.array([], int)


class _RealTensor:
    """A tensor of the file that claims to be float32, with the interface of the flatbuffers library."""

    def __init__(self, tensor: tflite.Tensor) -> None:
        self._tensor = tensor

    def __getattr__(self, name: str) -> object:
        return getattr(self._tensor, name)

    def Type(self) -> int:
        return tflite.TensorType.FLOAT32

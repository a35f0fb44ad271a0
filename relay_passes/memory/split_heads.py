"""Tile attention head-wise, so that only the keys and values of the current heads are stored.

Rewrite:
    n = c1(x); q = dense_q(n); k = dense_k(n); v = dense_v(n); s = scores(q, k); p = softmax(s); y = sums(p, v)
      ->  n.again = c1_again(x); k.heads_0_1 = dense_k_heads_0_1(n.again)
          n.again_2 = c1_again(x); v.heads_0_1 = dense_v_heads_0_1(n.again_2)
          n.again_3 = c1_again(x); q.heads_0_1 = dense_q_heads_0_1(n.again_3)
          s.heads_0_1 = scores_heads_0_1(q.heads_0_1, k.heads_0_1); p.heads_0_1 = ...; y.heads_0_1 = ...
          n.again_4 = c1_again(x); k.heads_1_2 = dense_k_heads_1_2(n.again_4); ...
          y = concat(y.heads_0_1, y.heads_1_2, ...)
    A dense layer for some heads has their columns of its constants. The input of the dense layers is recomputed for
    each of them where the operands of that input stay alive anyway: then some of its rows suffice. main carries the
    `AttentionInParts`.
Leaves alone: attention whose heads are not a multiple of the parts, share keys, or are not contiguous, as with a
    mask; dense layers with two readers, or whose result is a result of the model. No bit of a result changes,
    because each element is computed as without the pass.
Never let TVM's EliminateCommonSubexpr run after this pass, because it would join the recomputations.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax
from tvm.relax.utils import copy_with_new_vars

from relay_passes.analysis.attention_heads import HEAD_AXIS, Attention, Projection, attentions
from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.analysis.output_channels import computing_channels
from relay_passes.backend import Backend
from relay_passes.composites import composite_of
from relay_passes.dataflow import bindings, build, infer, is_dataflow, live, operands, outputs, static_shape
from relay_passes.memory import strip_composites
from relay_passes.memory.main_writer import MainWriter
from tvm_ext.core.decisions.composites import ModelTensor, SourceNodes, StorageLayout
from tvm_ext.core.decisions.models import AttentionInParts
from tvm_ext.core.row_access import ColumnOperator, ColumnReader, Columns


@tvm.transform.module_pass(opt_level=0, name="SplitHeads")
class SplitHeads:
    """Tile each attention into a number of parts with equal numbers of heads."""

    def __init__(self, backend: Backend, parts: int) -> None:
        self.backend, self.parts = backend, parts

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        if not is_dataflow(mod["main"]) or self.parts < 2:
            return mod
        found = [one for one in attentions(mod, self.backend.elementwise) if one.heads % self.parts == 0]
        if not found:
            return mod
        module = mod.clone()
        rewriter = _Rewriter(module, OperatorGraph(mod, mod["main"], self.backend), self.parts)
        main = AttentionInParts(parts=self.parts).write(rewriter.run(found))
        module.update_func(module.get_global_var("main"), main)
        return module


class _Rewriter:
    """Writes main again, with the parts of attentions in their place.

    An instance lives for a single rewrite of a module.
    """

    def __init__(self, module: tvm.IRModule, operators: OperatorGraph, parts: int) -> None:
        self.module, self.operators, self.parts = module, operators, parts
        self.main = MainWriter(module, operators)
        self.sequence = bindings(operators.main)

    def run(self, found: Sequence[Attention]) -> relax.Function:
        replaced = {one.sums.var: one for one in found}
        inner = {binding.var for one in found for binding in one.inner}
        for step in self.operators.steps:
            for binding in step:
                if binding.var in replaced:
                    self._attention(replaced[binding.var])
                elif binding.var not in inner:
                    self.main.bound.append(binding)
        self.main.bound = live(self.main.bound, outputs(self.operators.main))
        return self.main.function()

    def _attention(self, attention: Attention) -> None:
        """Write all parts and the concatenation of their results."""
        each, sums = attention.heads // self.parts, attention.sums
        parts = [self._part(attention, (begin, begin + each)) for begin in range(0, attention.heads, each)]
        whole = self.module[sums.value.op]
        nodes, layout = SourceNodes.read(whole).nodes, StorageLayout.read(whole)
        function = strip_composites.joining(parts, nodes, layout, HEAD_AXIS)
        joined = self.main.call(f"join_{sums.value.op.name_hint}", function, parts, sums.value.span)
        self.main.bound.append(relax.VarBinding(sums.var, joined))

    def _part(self, attention: Attention, heads: Columns) -> relax.Var:
        keys, values, queries = (self._projected(one, heads) for one in attention.projections)
        scores = self._of_heads(attention.scores, heads, [queries, keys])
        shares = self._of_heads(attention.shares, heads, [scores])
        return self._of_heads(attention.sums, heads, [shares, values])

    def _projected(self, projection: Projection, heads: Columns) -> relax.Var:
        """Return the part of a dense layer's result that belongs to some heads, reshaped to heads."""
        dense, view = projection.dense, projection.view
        tokens, depth = (static_shape(view.var)[axis] for axis in (1, 3))
        function = computing_channels(self.module[dense.value.op], (heads[0] * depth, heads[1] * depth))
        assert function is not None, "whether it can was tried"
        part = self._call(dense, function, heads, [self._again(source) for source in dense.value.args])
        param = relax.Var(part.name, part.ty)
        shown = infer(relax.op.reshape(param, [1, tokens, heads[1] - heads[0], depth]))
        result = relax.Var("heads", shown.ty)
        attrs = self.module[view.value.op].attrs
        return self._call(view, build([param], [relax.VarBinding(result, shown)], [result], attrs=attrs), heads, [part])

    def _again(self, source: relax.Expr) -> relax.Expr:
        """Recompute a value where its operands are needed later anyway, or else return the value itself."""
        made = next((one for one in self.sequence if one.var.same_as(source)), None)
        composite = composite_of(self.module, made.value) if made else None
        if made is None or composite is None or not all(self._is_needed_later(arg, made) for arg in made.value.args):
            return source
        again = copy_with_new_vars(ModelTensor().write(composite))
        call = self.main.call(f"{made.value.op.name_hint}_again", again, made.value.args)
        return self.main.bind(f"{made.var.name}.again", call)

    def _is_needed_later(self, value: relax.Expr, made: relax.VarBinding) -> bool:
        """Return True for a value that is returned, or read after the last reader of a binding."""
        last = max(index for index, one in enumerate(self.sequence) if made.var in list(operands(one.value)))
        later = {leaf for one in self.sequence[last + 1 :] for leaf in operands(one.value)}
        return value in later or value in outputs(self.operators.main)

    def _of_heads(self, whole: relax.VarBinding, heads: Columns, arguments: Sequence[relax.Var]) -> relax.Var:
        """Call a composite of all heads for some heads. Each operand is read only at the same heads."""
        composite, count = self.module[whole.value.op], heads[1] - heads[0]
        reader = ColumnReader(input_columns=static_shape(whole.var)[HEAD_AXIS])
        operator = ColumnOperator(num_columns=reader.input_columns, readers=(reader,) * len(arguments))
        reads = [(0, count)] * len(arguments)
        function = strip_composites.computing(composite, operator, (0, count), reads, HEAD_AXIS)
        assert function is not None, "whether it can was tried"
        return self._call(whole, function, heads, arguments)

    def _call(
        self, whole: relax.VarBinding, function: relax.Function, heads: Columns, arguments: Sequence[relax.Expr]
    ) -> relax.Var:
        ending = f"heads_{heads[0]}_{heads[1]}"
        call = self.main.call(f"{whole.value.op.name_hint}_{ending}", function, arguments, whole.value.span)
        return self.main.bind(f"{whole.var.name}.{ending}", call)

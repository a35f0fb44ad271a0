"""A function of composites as numbers: the values that each operator reads and writes, their bytes, and the views."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from relay_passes.backend import Backend
from relay_passes.composites import composite_of
from relay_passes.dataflow import bindings, op_name, operands, outputs
from relay_passes.solvers.graph import Graph, Node
from tvm_ext.core.decisions.composites import StreamDirection
from tvm_ext.core.row_access import ColumnOperator
from tvm_ext.core.row_sequence import RowAccumulation, RowOperator

VIEWS = frozenset({"relax.reshape", "relax.expand_dims", "relax.squeeze", "relax.flatten"})


class OperatorGraph:
    """The operators of a function as a graph of numbers, for searches over orders and sequences of them.

    steps: a computing binding each, followed by the views of its results.
    first: views of parameters.
    instructions: the modelled instructions of each step.
    rows: how the rows of each step depend on its operands, None where it only runs whole.
    composites: the composite that each step calls.
    columns: like rows for columns, None where a step cannot be cut into column strips.
    accumulations: how each step adds up what it reads row by row, None where it does not.
    reading: steps through which streamed inputs arrive.
    reading_once: the steps among these whose rows arrive only once.
    """

    def __init__(self, mod: tvm.IRModule, main: relax.Function, backend: Backend) -> None:
        self.mod, self.main, self.backend = mod, main, backend
        self.sizes: list[int] = []
        self.values: dict[relax.Var, tuple[int, ...]] = {param: self._new(param) for param in main.params}
        self.num_params = len(self.sizes)
        self.first: list[relax.VarBinding] = []
        self.steps: list[list[relax.VarBinding]] = []
        self.nodes: list[Node] = []
        self.instructions: list[int] = []
        self.rows: list[RowOperator | None] = []
        self.columns: list[ColumnOperator | None] = []
        self.accumulations: list[RowAccumulation | None] = []
        self.composites: list[relax.Function | None] = []
        self.reading: list[int] = []
        self.reading_once: list[int] = []
        self.made_by: dict[int, int] = {}
        for binding in bindings(main):
            self._add(binding)

    def graph(self) -> Graph:
        results = {v for result in outputs(self.main) for leaf in operands(result) for v in self.values.get(leaf, ())}
        return Graph(
            nodes=tuple(self.nodes),
            sizes=tuple(self.sizes),
            inputs=frozenset(range(self.num_params)),
            outputs=frozenset(results),
        )

    def _new(self, var: relax.Var) -> tuple[int, ...]:
        """Return the numbers of new values, one for each tensor of a variable."""
        types = var.ty.fields if isinstance(var.ty, relax.TupleType) else [var.ty]
        first = len(self.sizes)
        self.sizes += [_num_bytes(ty) for ty in types]
        return tuple(range(first, len(self.sizes)))

    def _add(self, binding: relax.VarBinding) -> None:
        seen = self._view(binding.value)
        if seen is not None:
            self.values[binding.var] = seen
            makers = {self.made_by[value] for value in seen if value in self.made_by}
            (self.steps[max(makers)] if makers else self.first).append(binding)
            return
        reads = [self.values[leaf] for leaf in operands(binding.value) if isinstance(leaf, relax.Var)]
        writes = self.values[binding.var] = self._new(binding.var)
        composite = composite_of(self.mod, binding.value)
        footprint = self.backend.footprint(composite) if composite is not None else None
        shared = dict(footprint.shared_bytes) if footprint else {}
        decision = StreamDirection.read(composite)
        stream = decision.direction
        if stream:  # a tensor that the application holds takes and shares no bytes here
            held = writes if stream == "write" else [value for group in reads for value in group]
            self.sizes[:] = [0 if value in held else size for value, size in enumerate(self.sizes)]
            shared = {}
        self.reading += [len(self.nodes)] if stream == "read" else []
        self.reading_once += [len(self.nodes)] if stream == "read" and not decision.rereads else []
        self.nodes.append(
            Node(
                reads=tuple(value for group in reads for value in group),
                writes=writes,
                extra_bytes=footprint.scratch_bytes if footprint else 0,
                shared_bytes={group[0]: shared[i] for i, group in enumerate(reads) if i in shared and len(group) == 1},
            )
        )
        self.composites.append(composite)
        self.instructions.append(footprint.instructions if footprint else 0)
        self.rows.append(footprint.rows if footprint else None)
        self.columns.append(footprint.columns if footprint else None)
        self.accumulations.append(footprint.accumulation if footprint else None)
        self.made_by |= dict.fromkeys(writes, len(self.steps))
        self.steps.append([binding])

    def _view(self, value: relax.Expr) -> tuple[int, ...] | None:
        """Return the values that an expression only renames or reshapes, or None if it computes something."""
        if isinstance(value, relax.Var):
            return self.values[value]
        if isinstance(value, relax.TupleGetItem):
            return (self.values[value.tuple_value][value.index],)
        composite = composite_of(self.mod, value)
        if composite is not None:
            inner = bindings(composite)
            if len(inner) == 1 and op_name(inner[0].value) in VIEWS:
                return self.values[value.args[0]]
        return None


def _num_bytes(ty: relax.TensorType) -> int:
    shape = [int(dim) for dim in ty.shape.values]
    return int(np.prod(shape, dtype=np.int64)) * np.dtype(str(ty.dtype)).itemsize

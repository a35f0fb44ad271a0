"""Lower bound of all orders of a program's steps and all divisions of them into rows: the bytes that a step needs.

Whatever the order, a moment comes at which a kernel computes a row. At this moment memory holds the rows of its inputs
that the kernel reads at once, the row that it writes, and its scratch. Inputs of the model are all stored ahead of the
first step, so the first reader of an input needs the whole input, and outputs of the model are all stored after the
last step. States are stored all the time. A kernel that has no rows needs its whole operands, which may overlap as they
do in a plan.

Values that wait for other steps meanwhile are left out, so no plan may reach the bound. Strips of columns, patches,
attention heads one after another and other kernels for the same operators may need less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import numpy as np

from codegen_c.arena.bound import shared_bytes
from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.kernels.contract import Implementation, Spatial, StoredRows
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall
from tvm_ext.core.platform import STATE_MEMORY

ONE_ROW = StoredRows(at_once=1)


def least_bytes_by_rows(program: Program, plan: MemoryPlan) -> int:
    """Return bytes of RAM that no order of the steps, and no division of them into rows, can do without.

    Tensors in memory of the caller take no bytes. The program is the one that `plan_memory` returned with the plan.
    """
    needs = [_Needs(program, plan, call).least() for call in program.kernel_calls()]
    ports = [_stored(program, plan, names) for names in (program.inputs, program.outputs)]
    return plan.state_bytes + max([*needs, *ports], default=0)


def _stored(program: Program, plan: MemoryPlan, names: tuple[str, ...]) -> int:
    """Return the bytes of ports that are stored as a whole in arenas."""
    return sum(_port_bytes(program, plan, name) for name in dict.fromkeys(names))


def _port_bytes(program: Program, plan: MemoryPlan, name: str) -> int:
    tensor = program.tensors[name]
    return 0 if tensor.ring or tensor.part or not _is_placed(plan, name) else tensor.num_bytes


def _is_placed(plan: MemoryPlan, name: str) -> bool:
    """Return True for a tensor in an arena; states are counted apart."""
    place = plan.placements.get(name)
    return place is not None and place.memory != STATE_MEMORY


class _Needs:
    """The bytes that one call needs, computed whole or by rows."""

    def __init__(self, program: Program, plan: MemoryPlan, call: KernelCall) -> None:
        self.program, self.call = program, call
        self.inputs = {
            position: name
            for position, name in enumerate(call.inputs)
            if name not in call.inputs[:position] and _is_placed(plan, name)
        }
        self.outputs = [name for name in call.outputs if _is_placed(plan, name)]
        self.ports = {name for name in (*program.inputs, *program.outputs) if _port_bytes(program, plan, name)}

    def least(self) -> int:
        """Return the least bytes with any kernel that the call may have: whole, by rows, or adding up rows."""
        implementation = self.call.implementation
        found = [self._by_rows(one, one.spatial) for one in _by_rows(implementation) if one.spatial]
        found += [self._added_up(one, one.spatial) for one in _adding_up(implementation) if one.spatial]
        return min([self._whole(implementation), *found])

    def _whole(self, implementation: Implementation) -> int:
        """Return the bytes of whole operands, as far as the output cannot overlap inputs."""
        total = self._total({name: self._bytes(name) for name in (*self.inputs.values(), *self.outputs)})
        if self.call.outputs[:1] == tuple(self.outputs[:1]):
            inputs = [(position, self.program.tensors[name]) for position, name in self.inputs.items()]
            total -= shared_bytes(implementation, self.program.tensors[self.outputs[0]], inputs)
        return max(0, total) + implementation.scratch_bytes

    def _by_rows(self, implementation: Implementation, spatial: Spatial) -> int:
        """Return the bytes of the rows that the kernel reads at once, and of the row that it writes."""
        rows = {name: self._read_at_once(spatial, position) for position, name in self.inputs.items()}
        made = {name: self._bytes(name) // max(spatial.output_rows, 1) for name in self.outputs[:1]}
        own = [self._row_bytes(spatial, position) for position in implementation.in_place if position in self.inputs]
        shared = min(max(own, default=0), *made.values()) if made else 0
        scratch = implementation.keeping(ONE_ROW).scratch_bytes if implementation.keeping else 0
        return max(0, self._total({**rows, **made}) - shared) + min(scratch, implementation.scratch_bytes)

    def _added_up(self, implementation: Implementation, spatial: Spatial) -> int:
        """Return the bytes of a row of the input, and of outputs and accumulators, which are whole."""
        sums = implementation.sums if len(self.call.outputs) == 1 else None
        kept = prod(sums.shape) * np.dtype(sums.dtype).itemsize if sums else 0
        rows = {name: self._row_bytes(spatial, position) for position, name in self.inputs.items()}
        return self._total({**rows, **{name: self._bytes(name) for name in self.outputs}}) + kept

    def _read_at_once(self, spatial: Spatial, position: int) -> int:
        """Return the bytes of an input while an output row is computed: of all that is read of a port of the model."""
        if position >= len(spatial.inputs):
            return self._bytes(self.inputs[position])
        access, row = spatial.inputs[position], self._row_bytes(spatial, position)
        spans = [(begin, end) for begin, end in zip(access.begins, access.ends, strict=True) if begin < end]
        if not spans:
            return 0
        if self.inputs[position] in self.ports:
            return row * (max(end for _, end in spans) - min(begin for begin, _ in spans))
        return row * max(end - begin for begin, end in spans)

    def _row_bytes(self, spatial: Spatial, position: int) -> int:
        num_bytes = self._bytes(self.inputs[position])
        return num_bytes // max(spatial.inputs[position].input_rows, 1) if position < len(spatial.inputs) else num_bytes

    def _total(self, sizes: Mapping[str, int]) -> int:
        """Return the sum of sizes, where operands that are parts of one tensor count as the largest of them."""
        wholes: dict[str, int] = {}
        for name, num_bytes in sizes.items():
            part = self.program.tensors[name].part
            whole = part.tensor if part else name
            wholes[whole] = max(wholes.get(whole, 0), num_bytes)
        return sum(wholes.values())

    def _bytes(self, name: str) -> int:
        """Return the bytes of all rows of a tensor, of which a ring buffer stores fewer."""
        tensor = self.program.tensors[name]
        return prod(tensor.shape) * tensor.element_bytes


def _by_rows(implementation: Implementation) -> Iterator[Implementation]:
    """Yield the kernel if it has rows, and the kernel that computes the same operator by rows if there is one."""
    if implementation.spatial is not None and not implementation.spatial.accumulates:
        yield implementation
    if implementation.in_rows is not None:
        yield implementation.in_rows(ONE_ROW)


def _adding_up(implementation: Implementation) -> Iterator[Implementation]:
    """Yield the kernels that compute the same operator by rows of its input."""
    if implementation.spatial is not None and implementation.spatial.accumulates:
        yield implementation
    if implementation.accumulating is not None:
        yield implementation.accumulating.implement(max(implementation.accumulating.row_counts), ONE_ROW)

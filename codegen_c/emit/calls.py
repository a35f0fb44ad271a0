"""Emit calls of kernels with their operands, and functions that compute some rows of a layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap

from codegen_c.arena.memory_plan import MemoryPlan, scratch_name
from codegen_c.c_text.text import C_TYPES, block
from codegen_c.emit.memory import arena_pointer, place, union_name
from codegen_c.emit.pieces import Piece
from codegen_c.emit.sharing import ALONE, Sharing
from codegen_c.emit.stream import RowBounds, callback_lines
from codegen_c.program.interface import Interface, Port
from codegen_c.program.program import Program, drivers_of
from codegen_c.program.steps import AffineRow, Call, DriverWait, Guard, KernelCall, RowSteps, Transfer, Wait, WriteIndex
from tvm_ext.core.platform import STATE_MEMORY
from tvm_ext.core.row_sequence import RowCall, Schedule

MOVED_BYTES = 16
"""Bytes that tvm_ext_move_up copies per iteration."""


@dataclass(frozen=True, kw_only=True)
class Calls:
    """Writer of calls in C, which knows the addresses of operands and the names of functions.

    row_names: names of the functions that compute some rows (`row_functions`), by call. under_way: number of the last
    DMA transfer that may still be running; None if no transfer is running. layers: number of each call that has hooks
    around it.
    """

    program: Program
    plan: MemoryPlan
    interface: Interface
    names: Mapping[str, str]
    ports: Mapping[str, Port]
    row_names: Mapping[str, str]
    under_way: int | None = None
    sharing: Sharing = ALONE
    layers: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def model(self) -> str:
        return self.interface.model

    @property
    def always_ends(self) -> bool:
        """True if a run continues after an error, because other cores or accelerators wait for its signals."""
        return bool(self.interface.servers or drivers_of(self.program))

    def _function(self, call: KernelCall) -> str:
        """Return the C name of the function that computes a call."""
        return self.sharing.functions.get(call.implementation.function, f"{self.model}_{self.names[call.name]}")

    def _constant(self, name: str) -> str:
        constant = self.program.constants[name]
        held = constant.layer or name
        symbol = self.sharing.constants.get(held, f"{self.model}_{held}")
        return f"{symbol}.{constant.member}" if constant.layer else symbol

    def lines(self, call: Call, step_name: str, bounds: RowBounds | None = None) -> list[str]:
        """Return the lines of a call. bounds: the rows that the kernel computes; by default all of its rows."""
        if isinstance(call, Wait):
            last = max(transfer.number or 0 for transfer in call.transfers)
            return [f"tvm_ext_dma_wait({last}u); /* {', '.join(t.target for t in call.transfers)} */"]
        if isinstance(call, Transfer):
            return [self._transfer(call)]
        if isinstance(call, DriverWait):
            driver = call.call.implementation.driver
            assert driver is not None, "it waits for an accelerator"
            return [f"tvm_ext_offload_done(&status, {driver.wait}()); /* {call.call.name} is done */"]
        if call.implementation.callback:
            return self._callback(call, bounds)
        arguments = ", ".join(self._arguments(call, step_name, bounds))
        return wrapped(f"{self._function(call)}({arguments});")

    def row_lines(self, call: KernelCall, step_name: str, bounds: RowBounds) -> list[str]:
        """Return the lines of a call that computes some rows in a sequence."""
        if call.name not in self.row_names:
            return self.lines(call, step_name, bounds)
        handed_in = [*self.arenas_handed_in(call, step_name), *self.handed_in(call)]
        arguments = ", ".join([*handed_in, bounds.begin, bounds.end])
        return wrapped(f"{self.model}_{self.row_names[call.name]}({arguments});")

    def arenas_handed_in(self, call: Call, step_name: str) -> list[str]:
        """Return the memories whose arenas a function for some rows takes as arguments:

        those of the caller's instance.
        """
        return self.memories(call, step_name) if self.interface.holds_context else []

    def handed_in(self, call: KernelCall) -> list[str]:
        """Return the tensors of a call that lie in memory of the caller."""
        tensors = self.program.tensors
        homes = [part.tensor if (part := tensors[name].part) else name for name in (*call.inputs, *call.outputs)]
        return list(dict.fromkeys(name for name in homes if name not in self.plan.placements))

    def memories(self, call: Call, step_name: str) -> list[str]:
        """Return the memories whose arenas a call refers to."""
        if isinstance(call, Wait | DriverWait):
            return []
        if isinstance(call, Transfer):
            names = [call.target, *([] if call.source_is_constant else [call.source])]
        else:
            names = [*call.inputs, *call.outputs, *(tensor for _, tensor in call.prefetched)]
            names += [guard.condition for guard in call.guards]
            roles = {parameter.role for parameter in call.implementation.function.parameters}
            names += [scratch_name(step_name)] if "scratch" in roles else []
        placements = self.plan.placements
        turns = (
            [STATE_MEMORY]
            if isinstance(call, KernelCall) and any(isinstance(r, WriteIndex) for r in call.rings)
            else []
        )
        return list(dict.fromkeys([*(placements[name].memory for name in names if name in placements), *turns]))

    def _transfer(self, step: Transfer) -> str:
        target = place(self.program, self.plan, step.target)
        source = self._constant(step.source) if step.source_is_constant else self._place(step.source)
        if step.source_is_constant and self.program.constants[step.source].members:
            target, source = f"&{target}", f"&{source}"
        operands = f"{target}, {source}, {self.program.tensors[step.target].num_bytes}u"
        if step.number is not None:
            return f"tvm_ext_dma_start({step.number}u, {operands});"
        if step in self.program.moves():
            return f"tvm_ext_dma_copy({operands});"
        return f"{self._copies(step)}({operands});"

    def _copies(self, step: Transfer) -> str:
        """Return the name of the C function that copies; source and target may overlap if they lie in one tensor."""
        parts = [self.program.tensors[name].part for name in (step.source, step.target) if not step.source_is_constant]
        if len({part.tensor for part in parts if part}) != 1 or not all(parts):
            return "memcpy"
        source, target = self.plan.placements[step.source].offset, self.plan.placements[step.target].offset
        words = all(number % 4 == 0 for number in (source, target, self.program.tensors[step.target].num_bytes))
        return "tvm_ext_move_up" if words and source - target >= MOVED_BYTES else "memmove"

    def _callback(self, call: KernelCall, bounds: RowBounds | None) -> list[str]:
        callback = call.implementation.callback
        assert callback is not None, "the call is one of the application's functions"
        outside, inside = call.inputs[0], call.outputs[0]
        if callback.direction == "write":
            outside, inside = inside, outside
        rows = bounds or RowBounds(begin="0", end=str(callback.rows), count=callback.rows, first=0)
        tensor = self.program.tensors[inside]
        return callback_lines(
            call, self.ports[outside], tensor, self._place(inside), rows, self.under_way, goes_on=self.always_ends,
            failed=self.interface.as_status("status"),
        )  # fmt: skip

    def _arguments(self, call: KernelCall, step_name: str, bounds: RowBounds | None) -> list[str]:
        inputs, outputs, constants = iter(call.inputs), iter(call.outputs), iter(call.constants)
        prefetched = dict(call.prefetched)
        rows, rings = iter((bounds.begin, bounds.end) if bounds else _row_bounds(call)), iter(call.rings)
        arguments: list[str] = []
        for parameter in call.implementation.function.parameters:
            if parameter.role == "input":
                arguments.append(self._place(next(inputs)))
            elif parameter.role == "output":
                arguments.append(self._place(next(outputs)))
            elif parameter.role == "constant":
                name = next(constants)
                member = self.program.constants[name].member
                copy = f"{self._place(prefetched[name])}{f'.{member}' if member else ''}" if name in prefetched else ""
                arguments.append(copy or self._constant(name))
            elif parameter.role == "scratch":
                arguments.append(self._place(scratch_name(step_name)))
            elif parameter.role == "ring":
                arguments.append(f"{_ring(next(rings))} /* {parameter.name} */")
            else:
                arguments.append(next(rows))
        return arguments

    def holds(self, guards: Sequence[Guard]) -> str:
        """Return a C expression that is true if all guards let their step run."""
        places = [self._place(guard.condition) for guard in guards]
        values = [text[1:] if text.startswith("&") else f"{text}[0]" for text in places]
        return " && ".join(f"{'' if g.holds else '!'}{value}" for g, value in zip(guards, values, strict=True))

    def _place(self, name: str) -> str:
        return place(self.program, self.plan, name)


def _ring(value: int | WriteIndex) -> str:
    """Return the C expression of an argument that describes a ring."""
    if isinstance(value, int):
        return str(value)
    return f"(int32_t){STATE_MEMORY}->{value.tensor}[0]{f' + {value.shift}' if value.shift else ''}"


def wrapped(text: str) -> list[str]:
    """Return a statement as lines of at most 104 columns."""
    return wrap(text, 104, subsequent_indent="    ", break_long_words=False)


def _row_bounds(call: KernelCall) -> tuple[str, str]:
    if call.rows:
        return _affine(call.rows.begin), _affine(call.rows.end)
    spatial = call.implementation.spatial
    return "0", str(spatial.output_rows if spatial else 1)


def _affine(value: AffineRow) -> str:
    if not value.step:
        return str(value.base)
    scaled = "i" if abs(value.step) == 1 else f"i * {abs(value.step)}"
    if value.step < 0:
        return f"{value.base} - {scaled}"
    return f"{value.base} + {scaled}" if value.base else scaled


BOUNDS = RowBounds(begin="row_begin", end="row_end", count=0)


def row_function_names(program: Program) -> dict[str, str]:
    """Return the names of functions that compute some rows, for kernels that a sequence calls several times."""
    taken = {call.name for call in program.kernel_calls()}
    found: dict[str, str] = {}
    for step in program.steps:
        if not isinstance(step, RowSteps):
            continue
        places = Counter(_operators(step.schedule))
        for index, call in enumerate(step.body):
            if places[index] > 1 and not call.implementation.callback:
                name = f"rows_of_{call.name}"
                while name in taken:
                    name += "_"
                taken.add(name)
                found[call.name] = name
    return found


def _operators(schedule: Schedule) -> Iterator[int]:
    """Yield the operator of each call in the order of the C text."""
    for entry in schedule:
        if isinstance(entry, RowCall):
            yield entry.operator
        else:
            yield from _operators(entry.body)


def row_functions(written: Calls) -> list[Piece]:
    """Return the definitions of the functions that `row_function_names` names."""
    return [
        Piece(
            text=_definition(written, call, step.name), kind="function",
            name=f"{written.model}_{written.row_names[call.name]}", steps=(call.name,),
        )
        for step in written.program.steps
        if isinstance(step, RowSteps)
        for call in step.body
        if call.name in written.row_names
    ]  # fmt: skip


def _definition(written: Calls, call: KernelCall, step_name: str) -> str:
    model, tensors = written.model, written.program.tensors
    given = written.arenas_handed_in(call, step_name)
    parameters = [f"union {union_name(model, memory)} *{memory}" for memory in given]
    parameters += [
        f"{'' if name in call.outputs else 'const '}{C_TYPES[tensors[name].dtype]} *{name}"
        for name in written.handed_in(call)
    ]
    head = f"TVM_EXT_STEP void {model}_{written.row_names[call.name]}("
    lines = [
        *(
            f"{arena_pointer(written.interface, memory, written.sharing.arenas)};"
            for memory in written.memories(call, step_name)
            if memory not in given
        ),
        *written.lines(call, step_name, BOUNDS),
    ]
    rows = ", ".join([*parameters, "int32_t row_begin", "int32_t row_end"])
    note = f"/* {call.name} for some rows, in {step_name}. */"
    return "\n".join([note, *wrapped(f"{head}{rows})"), "{", block(lines), "}", ""])

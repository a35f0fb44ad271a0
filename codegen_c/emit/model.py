"""Emit `<model>.c`: one function per step, and `run`, which reads as the schedule.

For several processors, a file contains the steps of one or more of them, and a function that runs each per-core
schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod

from codegen_c.arena.memory_plan import MemoryPlan, runs_backward
from codegen_c.c_text.text import Compound, block, comment_block, folded, loop, plus, times
from codegen_c.emit.banner import Origin, banner, user_headers
from codegen_c.emit.calls import Calls, row_function_names, row_functions
from codegen_c.emit.functions import definition, function_comment, function_names
from codegen_c.emit.inspection import hooked, profile_definition, profile_header, profiled_layers
from codegen_c.emit.lists import WrittenList, run_begins, run_ends, whole_list
from codegen_c.emit.memory import arena_pointer, instance_pointer
from codegen_c.emit.pieces import Piece
from codegen_c.emit.sharing import ALONE, Sharing
from codegen_c.emit.stream import RowBounds, streamed
from codegen_c.program.guards import guards_of
from codegen_c.program.interface import Interface
from codegen_c.program.program import Program, drivers_of
from codegen_c.program.sequences import spatial_of
from codegen_c.program.steps import (
    Call,
    DriverWait,
    Guard,
    KernelCall,
    Loop,
    RowSteps,
    Step,
    Transfer,
    Wait,
    calls,
    reads,
)
from tvm_ext.core.platform import STATE_MEMORY
from tvm_ext.core.row_sequence import RowCall, RowLoop, in_turn

RUNTIME_HEADER = "tvm_ext_kernels.h"
DMA_HEADER = "tvm_ext_dma.h"
COPY_HEADER = "tvm_ext_copy.h"


def model_pieces(
    program: Program,
    plan: MemoryPlan,
    interface: Interface,
    origin: Origin,
    *,
    after_step: bool = False,
    sharing: Sharing = ALONE,
    lists: Sequence[WrittenList] = (),
) -> list[Piece]:
    """Return the pieces of `<model>.c`: the head, a function for one or more steps, and the steps of the run.

    after_step: call the function pointer `<model>_after_step` after each step (for tests). lists: per-core schedules
    with all steps of the program; by default one schedule of one processor.
    """
    model = interface.model
    hook = f"void (*{model}_after_step)(int32_t step);" if after_step else ""
    includes = [f'#include "{model}.h"', f'#include "{model}_memory.h"', f'#include "{model}_weights.h"']
    includes += [f'#include "{model}_signals.h"'] if lists else []
    includes += [
        f'#include "{name}"' if name.startswith("tvm_ext_") else f"#include <{name}>" for name in headers(program)
    ]
    includes += [f'#include "{name}"' for name in user_headers(program)]
    includes += [f'#include "{name}"' for name in dict.fromkeys(one.header for one in drivers_of(program).values())]
    includes += [f'#include "{profile_header(model)}"'] if interface.has_hooks else []
    if sharing.arenas:
        includes.insert(1, f'#include "{sharing.bundle}_memory.h"')
    if any(call.implementation.function in sharing.functions for call in program.kernel_calls()):
        includes.insert(1, f'#include "{sharing.bundle}_kernels.h"')
    names = function_names(program)
    users: dict[str, list[KernelCall]] = {name: [] for name in names.values()}
    for call in program.kernel_calls():
        if call.name in names:
            users[names[call.name]].append(call)
    own = {name: same for name, same in users.items() if same[0].implementation.function not in sharing.functions}
    functions = _functions(program, model, own, origin.operators)
    on = dict.fromkeys(one.processor for one in lists)
    processors = f" of {' and '.join(on)}" if lists else ""
    head = [
        banner(origin, f"{model}: layers{processors}, and run(), which calls them in order."),
        "\n".join(includes),
        "",
        *([f"extern {hook}", hook, ""] if hook else []),
        *([profile_definition(model)] if interface.has_hooks and (not lists or any(o.begins for o in lists)) else []),
    ]
    ports = {port.name: port for port in (*interface.inputs, *interface.outputs)}
    written = Calls(
        program=program, plan=plan, interface=interface, names=names, ports=ports,
        row_names={} if interface.is_pipeline else row_function_names(program), sharing=sharing,
        layers=profiled_layers(program) if interface.has_hooks else {},
    )  # fmt: skip
    listed = lists or [whole_list(program, interface)]
    runs = [piece for one in listed for piece in _run(written, interface, one, after_step)]
    pieces = [*(Piece(text=text) for text in head), *functions, *row_functions(written), *runs]
    return [replace(piece, text=folded(piece.text)) for piece in pieces]


def _functions(
    program: Program, model: str, users: Mapping[str, Sequence[KernelCall]], operators: Mapping[str, str]
) -> list[Piece]:
    """Return the functions with their helpers; shared helpers stand before the first function that uses them."""
    sharing: dict[str, list[str]] = {}
    for name, same in users.items():
        if helpers := same[0].implementation.function.helpers:
            sharing.setdefault(helpers, []).append(name)
    pieces: list[Piece] = []
    for name, same in users.items():
        function = same[0].implementation.function
        owner, *others = sharing.get(function.helpers, [name])
        if others and owner == name:
            served = tuple(call.name for user in (owner, *others) for call in users[user])
            note = f"/* Helpers of {', '.join((owner, *others[:2]))}{' and others' if others[2:] else ''}. */"
            text = f"{note}\n{function.helpers.replace('$', f'{model}_{name}')}"
            pieces.append(Piece(text=text, kind="function", name=f"{model}_{name}", steps=served))
        text = definition(function, f"{model}_{name}", f"{model}_{owner}" if others else "")
        pieces.append(
            Piece(
                text=f"{function_comment(program, same, operators)}\n{text}", kind="function", name=f"{model}_{name}",
                steps=tuple(call.name for call in same),
            )
        )  # fmt: skip
    return pieces


def headers(program: Program) -> list[str]:
    """Return the headers that the steps need: headers of the runtime and of C."""
    used = {name for call in program.kernel_calls() for name in call.implementation.function.includes}
    return sorted({RUNTIME_HEADER, *used, *([DMA_HEADER] if program.moves() else [])})


def _run(written: Calls, interface: Interface, schedule: WrittenList, after_step: bool) -> list[Piece]:
    """Return the function that runs a schedule: the caller's `run`, or another processor's function."""
    program = written.program
    named = [
        memory
        for step in schedule.steps
        for call in calls(step)
        for memory in written.memories(call, step.name)
        if interface.holds_context or call.name not in written.row_names
    ]
    knows_states = bool(program.states) and (schedule.begins or (schedule.over and bool(program.warmed_up)))
    used = dict.fromkeys([*named, STATE_MEMORY] if knows_states else named)
    lines = [
        *(instance_pointer(interface) if used else []),
        *(f"{arena_pointer(interface, name, written.sharing.arenas)};" for name in used),
    ]
    fails_late = schedule.begins and written.always_ends and bool(streamed(interface))
    has_status = fails_late or any(isinstance(step, DriverWait) for step in schedule.steps)
    lines += ["int32_t status = 0;"] if has_status or (schedule.begins and streamed(interface)) else []
    lines += [""] if lines else []
    if schedule.begins and interface.checks_alignment:
        check = f"if ((uintptr_t)context % {interface.context_alignment_name} != 0u) {{"
        lines += [check, block(f"return {interface.misaligned};"), "}"]
    if schedule.begins:
        lines += _begins(written, interface, schedule, uses_context=bool(used))
    lines += schedule.before
    pieces = [Piece(text="\n".join([f"{schedule.signature}\n{{", *([block(lines)] if lines else [])]))]
    phases = [_entries(written, interface, entries, after_step) for entries in schedule.phases]
    differ = any(phase != phases[0] for phase in phases)
    for number, phase in enumerate(phases if differ else phases[:1]):
        if differ:
            condition = f"if ({schedule.phase} == {number}u) " if number < len(phases) - 1 else ""
            pieces.append(Piece(text=block(f"{'} else ' if number else ''}{condition}{{")))
        pieces += [replace(piece, text=block(piece.text)) for piece in phase] if differ else phase
    lines = [*(["}"] if differ else []), *schedule.behind]
    if not schedule.ends:
        return [*pieces, Piece(text="\n".join([*([block(lines)] if lines else []), "}\n"]))]
    ends = run_ends(program, interface) if schedule.over else []
    status = interface.as_status("status")
    lines += ["if (status != 0) {", block(f"return {status};"), "}"] if has_status and ends else []
    lines += [*ends, f"return {status};" if has_status else f"return {interface.ok};"]
    return [*pieces, Piece(text=f"{block(lines)}\n}}\n")]


def _entries(written: Calls, interface: Interface, entries: Sequence[Step | str], after_step: bool) -> list[Piece]:
    """Return steps and signals in order, with the steps of a branch inside an `if`.

    after_step: the hook is called after each step, and every step runs, so that tests see the results of all steps.
    """
    pieces: list[Piece] = []
    before: tuple[Guard, ...] = ()
    for index, entry in enumerate(entries):
        guards = () if after_step or isinstance(entry, str) else guards_of(entry)
        pieces += [Piece(text=block(line)) for line in _between(written, before, guards)]
        before = guards
        if isinstance(entry, str):
            pieces.append(Piece(text=block(entry)))
            continue
        lines = _step(written, entry, columns=8 if guards else 4)
        written = replace(written, under_way=_under_way(entry, written.under_way))
        if after_step:
            hook = f"{interface.model}_after_step"
            lines += [f"if ({hook}) {{", block(f"{hook}({index});"), "}"]
        names = tuple(call.name for call in calls(entry))
        text = block([block(lines)]) if guards else block(lines)
        pieces.append(Piece(text=text, kind="step", name=entry.name, steps=names))
    return [*pieces, Piece(text=block("}"))] if before else pieces


def _between(written: Calls, before: tuple[Guard, ...], guards: tuple[Guard, ...]) -> list[str]:
    """Return the lines that end the `if` of one step and begin the `if` of the next step."""
    if guards == before:
        return []
    if len(before) == 1 and guards == (replace(before[0], holds=not before[0].holds),):
        return ["} else {"]
    return [*(["}"] if before else []), *([f"if ({written.holds(guards)}) {{"] if guards else [])]


def _begins(written: Calls, interface: Interface, schedule: WrittenList, *, uses_context: bool) -> list[str]:
    """Return the lines of a run before its first step."""
    lines = run_begins(written.program, written.plan, interface)
    read = {name for step in schedule.all_steps for name in reads(step)}
    unread = [port.name for port in interface.inputs if port.name not in read]
    lines += [f"(void){name}; /* no step reads it */" for name in unread if interface.io == "caller"]
    if interface.holds_context and not uses_context:
        lines.append("(void)context; /* no step uses it */")
    return lines


def _under_way(step: Step, before: int | None) -> int | None:
    """Return the number of the last transfer that may still be running after a step.

    Transfers end in the order of their numbers.
    """
    if isinstance(step, Transfer) and step.number is not None:
        return step.number
    waits = [wait for _, wait in step.awaited] if isinstance(step, RowSteps) else [step]
    ended = [t.number or 0 for wait in waits if isinstance(wait, Wait) for t in wait.transfers]
    return None if before is not None and ended and before <= max(ended) else before


_BACKWARD = (
    "Rows run from the last to the first, because the output begins where its input begins or at a higher address. In "
    "this order no row is written before the rows of the input that lie there have been read."
)


def _step(written: Calls, step: Step, columns: int = 4) -> list[str]:
    """Return the lines of a step. columns: their indentation."""
    if isinstance(step, Loop):
        body = [line for inner in step.body for line in _timed(written, inner, step.name)]
        if step.count == 1:
            return [f"/* {len(step.body)} calls that do not depend on each other. */", *body]
        note = [comment_block([_BACKWARD], columns=columns)] if runs_backward(step) else []
        return [*note, f"for (int32_t i = 0; i < {step.count}; ++i) {{", block(body), "}"]
    if isinstance(step, RowSteps):
        return sequence_lines(
            step,
            lambda call, rows: hooked(call, written.row_lines(call, step.name, rows), written.layers, written.model),
            lambda wait: written.lines(wait, step.name),
        )
    return _timed(written, step, step.name)


def _timed(written: Calls, call: Call, step_name: str) -> list[str]:
    """Return the lines of a call, between hooks if the call has hooks."""
    lines = written.lines(call, step_name)
    return hooked(call, lines, written.layers, written.model) if isinstance(call, KernelCall) else lines


COUNTERS = "hijklmn"
"""Counters of nested loops. The outermost counts rows of its last operator if the others' rows are multiples."""


CallLines = Callable[[KernelCall, RowBounds], Sequence[str]]
"""Function that returns the lines of a call for some rows."""


@dataclass(frozen=True, kw_only=True)
class _Counter:
    """The counter of a loop, which starts at `first`. advances: rows of each operator in an iteration."""

    name: str
    first: int
    step: int
    advances: dict[int, int]

    def factor(self, operator: int) -> int:
        return self.advances[operator] // self.step


def sequence_lines(step: RowSteps, call_lines: CallLines, wait_lines: Callable[[Wait], Sequence[str]]) -> list[str]:
    """Return a block that computes all rows of a sequence's last kernel, and the rows of others that these need."""
    first, last, unit = step.body[0].name, step.body[-1].name, _unit(step)
    lines: list[str] = []
    said = ""
    for is_loop, group in groupby(enumerate(step.schedule), lambda pair: isinstance(pair[1], RowLoop)):
        for entries in [[pair] for pair in group] if is_loop else [list(group)]:
            described = _described(step, [entry for _, entry in entries])
            lines += [f"/* {described} */"] if described != said else []
            for index, entry in entries:
                lines += [line for wait in step.waits.get(index, ()) for line in wait_lines(wait)]
                lines += _sequence_entries(step, [entry], (), call_lines)
            said = described
    return [
        f"/* {len(step.body)} steps in series, {first} to {last}: each computes {unit} as late as the steps after it",
        f" * allow, and only the last few {unit} between two steps are kept, in a ring buffer. */",
        *lines,
    ]


def _described(step: RowSteps, entries: Sequence[RowCall | RowLoop]) -> str:
    """Return the comment on some calls: the rows of the last kernel that they lead to."""
    last, unit = len(step.body) - 1, _unit(step)
    made = [call for call in in_turn(tuple(entries)) if call.operator == last]
    if not made:
        return f"{unit.capitalize()} that {step.body[last].name} needs first."
    name, adds_up = step.body[last].name, spatial_of(step.body[last]).accumulates
    does = f"that {name} adds up" if adds_up else f"of {name}"
    rows = f"{unit.capitalize()} [{made[0].begin}, {made[-1].end}) {does}"
    turn = [entry.advances.get(last, 0) for entry in entries if isinstance(entry, RowLoop)]
    return f"{rows}, {turn[0]} per iteration." if turn else f"{rows}."


def _sequence_entries(
    step: RowSteps, entries: Sequence[RowCall | RowLoop], around: tuple[_Counter, ...], call_lines: CallLines
) -> list[str]:
    lines: list[str] = []
    for entry in entries:
        if isinstance(entry, RowCall):
            lines += call_lines(step.body[entry.operator], _bounds(entry, around))
            continue
        counter = _counter(entry, len(around))
        name, end = counter.name, counter.first + entry.count * counter.step
        body = _sequence_entries(step, entry.body, (*around, counter), call_lines)
        lines += loop(name, end, body, begin=counter.first, step=counter.step)
    return lines


def _counter(loop: RowLoop, depth: int) -> _Counter:
    """Return the counter of a loop: rows of the loop's last operator if possible, else iterations."""
    last = max(loop.advances)
    step, name = loop.advances[last], COUNTERS[depth % len(COUNTERS)]
    if depth == 0 and not any(rows % step for rows in loop.advances.values()):
        first = next(call.begin for call in in_turn(loop.body) if call.operator == last)
        return _Counter(name=name, first=first, step=step, advances=loop.advances)
    return _Counter(name=name, first=0, step=1, advances=loop.advances)


def _bounds(call: RowCall, around: tuple[_Counter, ...]) -> RowBounds:
    terms = [times(counter.name, counter.factor(call.operator)) for counter in around]
    first = call.begin - sum(counter.first * counter.factor(call.operator) for counter in around)
    count = call.end - call.begin
    known = None if around else first
    return RowBounds(begin=_sum(terms, first), end=_sum(terms, first + count), count=count, first=known)


def _sum(terms: Sequence[str], number: int) -> str:
    if not terms:
        return str(number)
    total = Compound(" + ".join(terms)) if len(terms) > 1 else terms[0]
    return plus(total, number) if number >= 0 else Compound(f"{total} - {-number}")


def _unit(step: RowSteps) -> str:
    """Return the unit of a sequence: `rows`, or for vectors `runs of channels`."""
    are_vectors = all(len(call.input_shapes[0]) != 4 and prod(call.input_shapes[0][:-1]) == 1 for call in step.body)
    return "runs of channels" if are_vectors else "rows"

"""`<model>.c`: one function a step, and `run`, which reads as the schedule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from textwrap import wrap

from codegen_c.arena.memory_plan import MemoryPlan, scratch_name
from codegen_c.c_text.text import block, comment
from codegen_c.emit.banner import Origin, banner
from codegen_c.emit.functions import definition
from codegen_c.emit.header import signature
from codegen_c.emit.memory import place, union_name
from codegen_c.emit.pieces import Piece, joined
from codegen_c.emit.sequence import sequence_lines
from codegen_c.emit.stream import callback_lines, streamed
from codegen_c.kernels.contract import CFunction
from codegen_c.program.interface import Interface, Port
from codegen_c.program.program import (
    Affine,
    Call,
    KernelCall,
    Loop,
    Program,
    Sequence,
    Step,
    Tensor,
    Transfer,
    Wait,
    calls,
    reads,
)

RUNTIME_HEADER = "tvm_ext_kernels.h"
DMA_HEADER = "tvm_ext_dma.h"


def emit_model(
    program: Program, plan: MemoryPlan, interface: Interface, origin: Origin, *, after_step: bool = False
) -> str:
    """Text of `<model>.c`. after_step: call the function pointer `<model>_after_step` behind each step (for tests)."""
    return joined(model_pieces(program, plan, interface, origin, after_step=after_step))


def model_pieces(
    program: Program, plan: MemoryPlan, interface: Interface, origin: Origin, *, after_step: bool = False
) -> list[Piece]:
    """`<model>.c` in pieces: what stands above, a function for one or more steps, the steps of the run."""
    model = interface.model
    hook = f"void (*{model}_after_step)(int32_t step);" if after_step else ""
    includes = [f'#include "{model}.h"', f'#include "{model}_memory.h"', f'#include "{model}_weights.h"']
    includes += [
        f'#include "{name}"' if name.startswith("tvm_ext_") else f"#include <{name}>" for name in headers(program)
    ]
    names = _function_names(program)
    users = {name: [call for call in program.kernel_calls() if names.get(call.name) == name] for name in names.values()}
    functions = [
        Piece(
            text=f"{_comment(program, same)}\n{definition(same[0].implementation.function, f'{model}_{name}')}",
            kind="function", name=f"{model}_{name}", steps=tuple(call.name for call in same),
        )
        for name, same in users.items()
    ]  # fmt: skip
    head = [
        banner(origin, f"{model}: layers, and the run that calls them in order."),
        "\n".join(includes),
        "",
        *([f"extern {hook}", hook, ""] if hook else []),
    ]
    return [*(Piece(text=text) for text in head), *functions, *_run(program, plan, interface, after_step)]


def headers(program: Program) -> list[str]:
    """Headers the steps need: runtime headers of ours and C's own."""
    used = {name for call in program.kernel_calls() for name in call.implementation.function.includes}
    return sorted({RUNTIME_HEADER, *used, *([DMA_HEADER] if program.moves() else [])})


def _function_names(program: Program) -> dict[str, str]:
    """Of each kernel call, the first one with the same function: layers of one shape share their code.

    Calls of the application's functions have none.
    """
    first: dict[CFunction, str] = {}
    return {
        call.name: first.setdefault(call.implementation.function, call.name)
        for call in program.kernel_calls()
        if not call.implementation.callback
    }


def _comment(program: Program, users: list[KernelCall]) -> str:
    """Which of the model's operators a function computes, and on what; a line for each layer that uses it."""
    lines: list[str] = []
    for call in users:
        nodes = comment(", ".join(call.source_nodes) or call.name)
        inputs = ", ".join(_describe(program.tensors[name]) for name in call.inputs)
        outputs = ", ".join(_describe(program.tensors[name]) for name in call.outputs)
        lines.append(f"{nodes}: {inputs} -> {outputs}; {call.implementation.kernel}")
    return "/* " + "\n * ".join(dict.fromkeys(lines)) + " */"


def _describe(tensor: Tensor) -> str:
    return f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"


def _run(program: Program, plan: MemoryPlan, interface: Interface, after_step: bool) -> list[Piece]:
    model = interface.model
    used = dict.fromkeys(p.memory for p in plan.placements.values())
    lines = [f"union {union_name(model, memory)} *const {memory} = &{union_name(model, memory)};" for memory in used]
    lines += ["int32_t status = 0;"] if streamed(interface) else []
    lines += [""] if lines else []
    read = {name for step in program.steps for name in reads(step)}
    unread = [port.name for port in interface.inputs if port.name not in read]
    lines += [f"(void){name}; /* no step reads it */" for name in unread if interface.io == "caller"]
    ports = {port.name: port for port in (*interface.inputs, *interface.outputs)}
    written = _Calls(program=program, plan=plan, model=model, names=_function_names(program), ports=ports)
    pieces = [Piece(text="\n".join([f"{signature(interface)}\n{{", *([block(lines)] if lines else [])]))]
    for index, step in enumerate(program.steps):
        lines = _step(written, step)
        written = replace(written, under_way=_under_way(step, written.under_way))
        if after_step:
            lines += [f"if ({model}_after_step) {{", block(f"{model}_after_step({index});"), "}"]
        names = tuple(call.name for call in calls(step))
        pieces.append(Piece(text=block(lines), kind="step", name=step.name, steps=names))
    return [*pieces, Piece(text="    return 0;\n}\n")]


@dataclass(frozen=True, kw_only=True)
class _Calls:
    """What a call needs to be written: where its operands lie, and under which name its function stands.

    under_way: number of the last transfer that a DMA may still be at; None where it is at none.
    """

    program: Program
    plan: MemoryPlan
    model: str
    names: dict[str, str]
    ports: dict[str, Port]
    under_way: int | None = None


def _under_way(step: Step, before: int | None) -> int | None:
    """Number of the last transfer that may go on behind a step. They end in the order of their numbers."""
    if isinstance(step, Transfer) and step.number is not None:
        return step.number
    if isinstance(step, Wait) and before is not None and before <= max(t.number or 0 for t in step.transfers):
        return None
    return before


def _step(calls: _Calls, step: Step) -> list[str]:
    if isinstance(step, Wait):
        last = max(transfer.number or 0 for transfer in step.transfers)
        return [f"tvm_ext_dma_wait({last}u); /* {', '.join(transfer.target for transfer in step.transfers)} */"]
    if isinstance(step, Transfer):
        return [_transfer(calls, step)]
    if isinstance(step, Loop):
        body = [line for inner in step.body for line in _call_lines(calls, inner, step.name)]
        if step.count == 1:
            return [f"/* {len(step.body)} calls that do not depend on each other. */", *body]
        return [f"for (int32_t i = 0; i < {step.count}; ++i) {{", block(body), "}"]
    if isinstance(step, Sequence):
        return sequence_lines(step, lambda call, rows: _call_lines(calls, call, step.name, rows))
    return _call_lines(calls, step, step.name)


def _transfer(calls: _Calls, step: Transfer) -> str:
    program, plan = calls.program, calls.plan
    target = place(program, plan, step.target)
    source = f"{calls.model}_{step.source}" if step.source_is_constant else place(program, plan, step.source)
    operands = f"{target}, {source}, {program.tensors[step.target].num_bytes}u"
    if step.number is not None:
        return f"tvm_ext_dma_start({step.number}u, {operands});"
    return f"tvm_ext_dma_copy({operands});" if step in program.moves() else f"memcpy({operands});"


def _call_lines(calls: _Calls, call: Call, step_name: str, bounds: tuple[str, str] | None = None) -> list[str]:
    """A call of a kernel's function. bounds: C expressions of the rows it computes; by default its own."""
    if not isinstance(call, KernelCall):
        return _step(calls, call)
    program, plan, model = calls.program, calls.plan, calls.model
    if callback := call.implementation.callback:
        outside, inside = call.inputs[0], call.outputs[0]
        if callback.direction == "write":
            outside, inside = inside, outside
        rows = bounds or ("0", str(callback.rows))
        where = place(program, plan, inside)
        return callback_lines(call, calls.ports[outside], program.tensors[inside], where, rows, calls.under_way)
    inputs, outputs, constants = iter(call.inputs), iter(call.outputs), iter(call.constants)
    fetched = dict(call.fetched)
    rows = iter(bounds or _row_bounds(call))
    arguments: list[str] = []
    for parameter in call.implementation.function.parameters:
        if parameter.role == "input":
            arguments.append(place(program, plan, next(inputs)))
        elif parameter.role == "output":
            arguments.append(place(program, plan, next(outputs)))
        elif parameter.role == "constant":
            name = next(constants)
            arguments.append(place(program, plan, fetched[name]) if name in fetched else f"{model}_{name}")
        elif parameter.role == "scratch":
            arguments.append(place(program, plan, scratch_name(step_name)))
        else:
            arguments.append(next(rows))
    text = f"{model}_{calls.names[call.name]}({', '.join(arguments)});"
    return wrap(text, 104, subsequent_indent="    ", break_long_words=False)


def _row_bounds(call: KernelCall) -> tuple[str, str]:
    if call.rows:
        return _affine(call.rows.begin), _affine(call.rows.end)
    spatial = call.implementation.spatial
    return "0", str(spatial.output_rows if spatial else 1)


def _affine(value: Affine) -> str:
    if not value.step:
        return str(value.base)
    scaled = "i" if abs(value.step) == 1 else f"i * {abs(value.step)}"
    if value.step < 0:
        return f"{value.base} - {scaled}"
    return f"{value.base} + {scaled}" if value.base else scaled

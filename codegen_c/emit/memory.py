"""Emit `<model>_memory.h` and `.c`: one union per memory, with every tensor at its offset.

The unions are static objects, or members of an instance that the caller holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from codegen_c.arena.memory_plan import MemoryPlan, Placement
from codegen_c.c_text.text import C_TYPES, MOST_COLUMNS, block, comment, comment_block
from codegen_c.emit.banner import Origin, banner
from codegen_c.emit.header import accessor_signature, describe
from codegen_c.emit.lists import flow_name
from codegen_c.program.interface import Interface, KeptValue
from codegen_c.program.program import Program
from codegen_c.program.steps import Transfer, calls
from codegen_c.program.tensors import Constant
from tvm_ext.core.alignment import ALIGNMENT_BYTES, aligned
from tvm_ext.core.platform import Memory, Platform
from tvm_ext.core.platform_checks import zeroed_by_name

INSTANCE = "instance"
"""Name of the instance in generated functions; the name of its type is the model's name and this one."""
BEGIN_FOR_CPLUSPLUS = """\
/* Anonymous structs are not standard C++, but its compilers support them. */
#ifdef __cplusplus
#pragma GCC system_header
#include "tvm_ext_kernels.h"
extern "C" {
#endif
"""
END_FOR_CPLUSPLUS = """\
#ifdef __cplusplus
}
#endif
"""
_ON_ANOTHER_MACHINE = (
    "#if !(defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M') && !(defined(__riscv) && __riscv_xlen == 32)"
)
_MEMBER_COLUMNS = 4
"""Indentation of a union's members, in columns."""


def union_name(model: str, memory: str) -> str:
    """Return the tag of a memory's union, which is also the name of the only object of that type."""
    return f"{model}_{memory}"


def arena_object(interface: Interface, memory: str, shared: Mapping[str, str]) -> str:
    """Return the C expression of a memory's arena. shared: memory -> the bundle's object for it."""
    if interface.holds_context:
        return f"{INSTANCE}->{memory}"
    return shared.get(memory, union_name(interface.model, memory))


def arena_pointer(interface: Interface, memory: str, shared: Mapping[str, str]) -> str:
    """Return the declaration, without a semicolon, of a pointer to a memory's arena that is named after the memory."""
    tag = union_name(interface.model, memory)
    return f"union {tag} *const {memory} = &{arena_object(interface, memory, shared)}"


def instance_pointer(interface: Interface, *, const: bool = False) -> list[str]:
    """Return the lines that convert the caller's block to an instance; no lines if arenas are static."""
    if not interface.holds_context:
        return []
    qualifier = "const " if const else ""
    return [f"{qualifier}struct {interface.model}_{INSTANCE} *const {INSTANCE} = ({qualifier}void *)context->bytes;"]


def context_bytes(plan: MemoryPlan) -> int:
    """Return the bytes of an instance with all arenas and states of a plan; at least one aligned block, for C."""
    most = max((arena.alignment_bytes for arena in plan.arenas), default=ALIGNMENT_BYTES)
    end = 0
    for arena in plan.arenas:
        end = aligned(end, arena.alignment_bytes) + aligned(arena.num_bytes, arena.alignment_bytes)
    return max(aligned(end, most), most)


def section_macro(model: str, memory: str) -> str:
    return f"{model}_section_{memory}".upper()


def define_section(model: str, memory: Memory, *, zeroed: bool) -> str:
    """Return the definition of the macro that puts an object into a memory's section.

    Firmware may define the macro beforehand, also as empty. Only a build for the board's processor has the section: on
    a host the name could mean anything. zeroed: the object is a variable without an initial value, so the image must
    not contain its bytes. GCC derives the type of a section from its name alone; for a name that GCC does not know,
    flags and type are written out, and the rest of GCC's directive becomes a comment.
    """
    macro = section_macro(model, memory.name)
    if not memory.section:
        return f"#ifndef {macro}\n#define {macro}\n#endif\n"
    attribute = f'__attribute__((section("{memory.section}")))'
    lines = [f"/* Memory {memory.name}: a section of the board; a build for another machine does not have it. */"]
    lines += [f"#ifndef {macro}", _ON_ANOTHER_MACHINE, f"#define {macro}"]
    if zeroed and not zeroed_by_name(memory.section):
        lines += ["#elif defined(__clang__)", f'#define {macro} _Pragma("clang section bss=\\"{memory.section}\\"")']
        lines += ["#elif defined(__riscv)", f"#define {macro} {_zeroed_attribute(memory.section, '#')}"]
        attribute = _zeroed_attribute(memory.section, "@")
    return "\n".join([*lines, "#else", f"#define {macro} {attribute}", "#endif", "#endif", ""])


def _zeroed_attribute(section: str, begins_comment: str) -> str:
    """Return the attribute of a section without bytes in the image.

    begins_comment: the assembler's comment character.
    """
    return f'__attribute__((section("{section},\\"aw\\",%nobits {begins_comment}")))'


def emit_memory(
    program: Program,
    plan: MemoryPlan,
    interface: Interface,
    origin: Origin,
    platform: Platform,
    shared: Mapping[str, str] | None = None,
    bundle: str = "",
    copies: Mapping[str, Sequence[str]] = MappingProxyType({}),
    constants: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Return the texts of `<model>_memory.h` and `<model>_memory.c`.

    shared: memory -> the arena's object in the bundle's memory. copies: names of the tensors that have an offset for
    each phase of a pipeline. constants: symbols of the constants that the bundle holds, by name.
    """
    model, shared = interface.model, shared or {}
    guard = f"{model.upper()}_MEMORY_H"
    memories = [arena.memory for arena in plan.arenas if arena.num_bytes]
    layers = {
        name: f"struct {constants.get(one.name, f'{model}_{one.name}')}" for name, one in _layer_copies(program).items()
    }
    homes = {arena.memory: arena.inside for arena in plan.arenas}
    header = [
        banner(origin, f"{model}: the arenas, with every tensor at its planned offset."),
        f"#ifndef {guard}\n#define {guard}\n",
        "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n",
        *([f'#include "{model}_weights.h"\n'] if layers else []),
        BEGIN_FOR_CPLUSPLUS,
        *(
            _union(program, plan, model, memory, layers, is_own=not interface.holds_context and memory not in shared)
            for memory in memories
        ),
        *([_instance(interface, memories)] if interface.holds_context else []),
        END_FOR_CPLUSPLUS,
        "#endif\n",
    ]
    source = [
        banner(origin, f"{model}: the arenas."),
        f'#include "{model}_memory.h"\n#include "{model}.h"\n',
        *([f'#include "{bundle}_memory.h"\n'] if shared else []),
        *([f'#include "{model}_signals.h"\n'] if interface.is_pipeline else []),
        *(
            [f'_Static_assert(sizeof(struct {model}_{INSTANCE}) == sizeof({interface.context_type}), "instance");\n']
            if interface.holds_context
            else [
                arena_definition(model, memory, platform.memory(homes[memory]))
                for memory in memories
                if memory not in shared
            ]
        ),
        *(_accessors(plan, interface, shared, copies) if interface.io == "arena" else ()),
        *kept_functions(
            interface, lambda memory: arena_object(interface, memory, shared), instance_pointer(interface, const=True)
        ),
    ]
    return {f"{model}_memory.h": "\n".join(header), f"{model}_memory.c": "\n".join(source)}


def place(program: Program, plan: MemoryPlan, name: str) -> str:
    """Return the C expression of a tensor's first element, in its arena or through the caller's pointer."""
    placement = plan.placements.get(name)
    if placement and placement.part_of and program.has_moving_offset(name):
        whole = program.tensors[placement.part_of]
        ring = whole.ring
        assert ring is not None, "what turns is a ring"
        row = f"{placement.memory}->{ring.write_index}[0] * {whole.num_elements // ring.rows}u"
        return f"&{placement.memory}->{whole.name}[{row}]"
    if placement:
        return f"{placement.memory}->{name}"
    part = program.tensors[name].part
    return f"&{part.tensor}[{part.first}]" if part else name


def _instance(interface: Interface, memories: Sequence[str]) -> str:
    """Return the struct of all memory that one instance writes to."""
    members = [f"union {union_name(interface.model, memory)} {memory};" for memory in memories]
    most = interface.context_alignment_bytes
    unused = f"_Alignas({most}) uint8_t unused[{most}];"
    note = "/* An instance, which the caller holds. */"
    return f"{note}\nstruct {interface.model}_{INSTANCE} {{\n{block(members or [unused])}\n}};\n"


def _layer_copies(program: Program) -> dict[str, Constant]:
    """Return the tensors to which a transfer copies all constants of a layer, with the object that it copies."""
    found = (call for step in program.steps for call in calls(step) if isinstance(call, Transfer))
    copied = {call.target: program.constants[call.source] for call in found if call.source_is_constant}
    return {name: constant for name, constant in copied.items() if constant.members}


def _union(
    program: Program, plan: MemoryPlan, model: str, memory: str, layers: Mapping[str, str], *, is_own: bool
) -> str:
    """Return the union of a memory's arena. layers: C types of the copies of a layer's constants, by name."""
    arena = next(arena for arena in plan.arenas if arena.memory == memory)
    placements = sorted((p for p in plan.placements.values() if p.memory == memory), key=lambda p: (p.begin, p.offset))
    tag = union_name(model, memory)
    members = [f"_Alignas({arena.alignment_bytes}) uint8_t bytes[{arena.num_bytes}];"]
    named = [
        placement for placement in placements if not (placement.part_of and program.has_moving_offset(placement.name))
    ]
    members += [line for placement in named for line in _member(program, placement, layers.get(placement.name, ""))]
    asserts = [
        f'_Static_assert(offsetof(union {tag}, {p.name}) == {p.offset}u, "{p.name}");' for p in named if p.offset
    ]
    asserts.append(
        f'_Static_assert(sizeof(union {tag}) == {aligned(arena.num_bytes, arena.alignment_bytes)}u, "{tag}");'
    )
    peak = program.steps[arena.peak_step].name if program.steps else model
    bound = arena.lower_bound_bytes
    note = f"/* {arena.num_bytes} B; no plan of these lifetimes needs fewer than {bound} B (at {peak}). */"
    declared = [f"extern union {tag} {tag};"] if is_own else []
    return "\n".join([note, f"union {tag} {{", block(members), "};", *declared, *asserts, ""])


def _member(program: Program, placement: Placement, layer: str = "") -> list[str]:
    tensor = program.tensors.get(placement.name)
    if tensor:
        shape = ", ".join(map(str, tensor.shape))
        ctype, count = C_TYPES[tensor.dtype], max(tensor.stored_elements, 1)
        kept = f", {tensor.ring.stored} of {tensor.ring.rows} rows" if tensor.ring else ""
        part = f", part of {placement.part_of}" if placement.part_of else ""
        if tensor.part and tensor.part.pitch:
            part += f", a {'pixel' if tensor.part.run_axes == 1 else 'row'} every {tensor.part.pitch}"
        note = f"{tensor.dtype}[{shape}]{kept}, {comment(tensor.source)}{part}"
    else:
        ctype, count, note = "uint8_t", placement.num_bytes, "scratch"
    gap = [f"uint8_t GAP_{placement.name}[{placement.offset}];"] if placement.offset else []
    alive = (
        f"step {placement.begin}"
        if placement.end == placement.begin + 1
        else f"steps {placement.begin} to {placement.end - 1}"
    )
    members = [*gap, f"{layer} {placement.name};" if layer else f"{ctype} {placement.name}[{count}];"]
    one_line = f"struct {{ {' '.join(members)} }};"
    struct = [one_line] if len(one_line) <= MOST_COLUMNS - _MEMBER_COLUMNS else ["struct {", block(members), "};"]
    alive = "kept" if tensor and tensor.role == "state" else alive
    return [*comment_block([f"{note}; {alive}"], columns=_MEMBER_COLUMNS).split("\n"), *struct]


def arena_definition(model: str, arena: str, memory: Memory) -> str:
    """Return the definition of the arena's object, in the section of its memory."""
    tag = union_name(model, arena)
    text = f"{define_section(model, memory, zeroed=True)}{section_macro(model, memory.name)} union {tag} {tag};\n"
    if memory.section and not zeroed_by_name(memory.section):
        text += '#ifdef __clang__\n#pragma clang section bss=""\n#endif\n'
    return text


def _accessors(
    plan: MemoryPlan, interface: Interface, shared: Mapping[str, str], copies: Mapping[str, Sequence[str]]
) -> list[str]:
    texts: list[str] = []
    for port in (*interface.inputs, *interface.outputs):
        memory = plan.placements[port.name].memory
        where = arena_object(interface, memory, shared)
        lines = [*instance_pointer(interface, const=port in interface.outputs), f"return {where}.{port.name};"]
        if names := copies.get(port.name):
            is_output = port in interface.outputs
            places = ", ".join(f"{where}.{name}" for name in names)
            kind = f"{'const ' if is_output else ''}{port.c_type} *const places[{len(names)}]"
            lines = [
                f"{kind} = {{{places}}};",
                f"return places[{flow_name(interface.model)}.{'taken' if is_output else 'put'}];",
            ]
        texts.append(f"{accessor_signature(interface, port)}\n{{\n{block(lines)}\n}}\n")
    return texts


def kept_api(interface: Interface) -> str:
    """Return the declarations of kept values for `<model>.h`, each after a comment on its contents and address."""
    head = (
        "Values inside the model. Read them after a run: no other tensor uses their bytes, and the next run "
        "overwrites them."
    )
    texts = [f"{comment_block([_described(value)])}\n{_signature(interface, value)};\n" for value in interface.kept]
    sizes = [f"#define {_elements(interface, value)}" for value in interface.kept]
    return "\n".join([comment_block([head]), *sizes, "", *texts])


def kept_functions(interface: Interface, object_of: Callable[[str], str], instance: list[str]) -> list[str]:
    """Return the definitions for `<model>_memory.c`.

    object_of: C expression of a memory's arena; instance: lines that declare the instance.
    """
    return [
        f"{_signature(interface, value)}\n{{\n"
        f"{block([*instance, f'return {object_of(value.memory)}.{value.port.name};'])}\n}}\n"
        for value in interface.kept
    ]


def _signature(interface: Interface, value: KeptValue) -> str:
    parameters = f"const {interface.context_type} *context" if interface.holds_context else "void"
    return f"const {value.port.c_type} *{interface.kept_accessor(value)}({parameters})"


def _elements(interface: Interface, value: KeptValue) -> str:
    """Return the name and the value of the macro with the number of stored elements."""
    num_elements = value.num_bytes // np.dtype(value.port.dtype).itemsize
    return f"{interface.model.upper()}_KEPT_{value.port.name.upper()}_ELEMENTS {num_elements}"


def _described(value: KeptValue) -> str:
    """Return the description of a kept value: type, layout, rows, pitch, and its offset in the arena."""
    axes = f", whose axes stand in the order {', '.join(map(str, value.layout))}" if value.layout else ""
    rows = (
        f", the last {value.rows_stored} of {value.rows} rows: row h at h % {value.rows_stored}" if value.rows else ""
    )
    pitch = f", a pixel every {value.pitch} elements" if value.pitch else ""
    place = f"{value.num_bytes} B at offset {value.offset} of the arena in {value.memory}"
    return f"{describe(value.port)}{axes}{rows}{pitch}; {place}."

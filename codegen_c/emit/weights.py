"""`<model>_weights.h` and `.c`: constants in the layout of the kernels, each with a comment that names its layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from codegen_c.c_text.text import C_TYPES, comment, comment_block, filled, folded, literal
from codegen_c.emit.banner import Origin, banner
from codegen_c.emit.functions import layer_names
from codegen_c.emit.memory import define_section, section_macro
from codegen_c.emit.pieces import Piece, joined
from codegen_c.emit.sharing import ALONE, Sharing
from codegen_c.program.program import Program
from codegen_c.program.tensors import Constant
from tvm_ext.core.alignment import ALIGNMENT_BYTES, aligned
from tvm_ext.core.platform import Platform

_LINE_LENGTH = 108


def emit_weights(
    program: Program, model: str, origin: Origin, pieces: Sequence[Piece], sharing: Sharing = ALONE
) -> dict[str, str]:
    """Return the texts of `<model>_weights.h` and `<model>_weights.c`. pieces: from `weights_pieces`."""
    symbols = {
        sharing.constants.get(constant.name, f"{model}_{constant.name}"): (constant.name, constant)
        for constant in program.constant_objects
    }
    guard = f"{model.upper()}_WEIGHTS_H"
    header = [
        banner(origin, f"{model}: weights."),
        f"#ifndef {guard}\n#define {guard}\n",
        "#include <stdbool.h>\n#include <stdint.h>\n",
        *(
            f"{layer_type(constant, symbol, shared=name in sharing.constants)}extern {declaration(constant, symbol)};"
            for symbol, (name, constant) in symbols.items()
        ),
        "\n#endif\n",
    ]
    return {f"{model}_weights.h": folded("\n".join(header)), f"{model}_weights.c": joined(pieces)}


def weights_pieces(
    program: Program, model: str, origin: Origin, platform: Platform, sharing: Sharing = ALONE
) -> list[Piece]:
    """Return the pieces of `<model>_weights.c`: the head, then each constant that the bundle does not share."""
    own = [constant for constant in program.constant_objects if constant.name not in sharing.constants]
    memories = dict.fromkeys(constant.memory for constant in own)
    stddef = "#include <stddef.h>\n" if any(constant.members for constant in own) else ""
    head = [
        banner(origin, f"{model}: weights."),
        f'#include "{model}_weights.h"\n\n#include <math.h>\n{stddef}',
        *(define_section(model, platform.memory(memory), zeroed=False) for memory in memories),
    ]
    readers: dict[str, list[str]] = {constant.name: [] for constant in program.constant_objects}
    owners: dict[str, str] = {}
    for call in program.kernel_calls():
        for name in dict.fromkeys(program.constants[one].layer or one for one in call.constants):
            readers[name].append(call.name)
            owners.setdefault(name, layer_names(call, origin.operators))
    constants = [
        Piece(
            text=folded(constant_definition(constant, f"{model}_{constant.name}",
                section_macro(model, constant.memory), owners.get(constant.name, constant.name))), kind="constant",
            name=f"{model}_{constant.name}", steps=tuple(readers[constant.name]),
        )
        for constant in own
    ]  # fmt: skip
    return [*(Piece(text=folded(text)) for text in head), *constants]


def declaration(constant: Constant, symbol: str) -> str:
    """Return `const float <symbol>[n]`, or for a layer's object `const struct <symbol> <symbol>`."""
    if constant.members:
        return f"const struct {symbol} {symbol}"
    ctype = C_TYPES[str(constant.data.dtype)]
    return f"const {ctype} {symbol}[{max(constant.data.size, 1)}]"


def constant_definition(constant: Constant, symbol: str, section: str, layers: str) -> str:
    """Return the definition of a constant. section: the macro of its section."""
    values = _layer_lines(constant) if constant.members else _lines(constant.data.reshape(-1))
    note = comment_block([comment(f"{layers}: {constant.note}, {constant.data.nbytes} B")])
    head = f"{section} _Alignas({ALIGNMENT_BYTES}) {declaration(constant, symbol)} = {{"
    return "\n".join([note, head, *(f"    {line}" for line in values), "};", *_layer_places(constant, symbol), ""])


def layer_type(constant: Constant, symbol: str, *, shared: bool) -> str:
    """Return the struct of a layer's object; empty for other constants. shared: several headers may define it."""
    if not constant.members:
        return ""
    lines: list[str] = []
    for one in constant.members:
        lines.append(f"    {C_TYPES[str(one.data.dtype)]} {one.member}[{one.data.size}];")
        gap = aligned(one.data.nbytes) - one.data.nbytes
        lines += [f"    uint8_t GAP_{one.member}[{gap}];"] if gap else []
    guard = f"{symbol.upper()}_TYPE"
    head, tail = ([f"#ifndef {guard}", f"#define {guard}"], ["#endif"]) if shared else ([], [])
    return "\n".join([*head, f"struct {symbol} {{", *lines, "};", *tail, ""])


def _layer_lines(constant: Constant) -> list[str]:
    """Return the initializers of the members of a layer's object."""
    lines: list[str] = []
    for one in constant.members:
        lines += [f".{one.member} = {{ /* {comment(one.note)} */"]
        lines += [*(f"    {line}" for line in _lines(one.data.reshape(-1))), "},"]
    return lines


def _layer_places(constant: Constant, symbol: str) -> list[str]:
    """Return assertions on the offsets of the members of a layer's object, on which copies of the object rely."""
    sizes = [aligned(one.data.nbytes) for one in constant.members]
    places = [
        f'_Static_assert(offsetof(struct {symbol}, {one.member}) == {first}u, "{one.member}");'
        for one, first in zip(constant.members, accumulate(sizes, initial=0), strict=False)
        if first
    ]
    whole = f'_Static_assert(sizeof(struct {symbol}) == {sum(sizes)}u, "{constant.name}");'
    return [*places, whole] if constant.members else []


def _lines(array: np.ndarray) -> Sequence[str]:
    return filled(literal(array) or ["0"], _LINE_LENGTH)

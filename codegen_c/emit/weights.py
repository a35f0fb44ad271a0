"""`<model>_weights.h` and `.c`: constants in the layout of the kernels, each with a comment that names its layers.

The constants of a large model are in several C files, whole layers in each. Compilers work on the files at the same
time, and a change of one layer compiles its file only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby

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
FILE_BYTES = 256 << 10
"""Limit of the constants in a C file, except for a layer with more. GCC takes about 1 s per MiB of int8."""


def emit_weights(
    program: Program, model: str, origin: Origin, pieces: Mapping[str, Sequence[Piece]], sharing: Sharing = ALONE
) -> dict[str, str]:
    """Return the texts of `<model>_weights.h` and of the C files of constants. pieces: from `weights_pieces`."""
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
    return {f"{model}_weights.h": folded("\n".join(header)), **{file: joined(own) for file, own in pieces.items()}}


def is_weights_file(name: str, model: str) -> bool:
    """Return True for the name of a C file or an object with constants of the model, which contains no code."""
    return re.fullmatch(rf"{re.escape(model)}_weights(_\d+)?\.[co]", name) is not None


def weights_pieces(
    program: Program, model: str, origin: Origin, platform: Platform, sharing: Sharing = ALONE
) -> dict[str, list[Piece]]:
    """Return the pieces of each C file of constants: the head, then constants that the bundle does not share.

    The files are `<model>_weights.c`, `<model>_weights_2.c`, and so on.
    """
    readers: dict[str, list[str]] = {constant.name: [] for constant in program.constant_objects}
    owners: dict[str, str] = {}
    for call in program.kernel_calls():
        for name in dict.fromkeys(program.constants[one].layer or one for one in call.constants):
            readers[name].append(call.name)
            owners.setdefault(name, layer_names(call, origin.operators))
    own = [constant for constant in program.constant_objects if constant.name not in sharing.constants]

    def piece(constant: Constant) -> Piece:
        symbol, section = f"{model}_{constant.name}", section_macro(model, constant.memory)
        text = constant_definition(constant, symbol, section, owners.get(constant.name, constant.name))
        return Piece(text=folded(text), kind="constant", name=symbol, steps=tuple(readers[constant.name]))

    files: dict[str, list[Piece]] = {}
    for number, constants in enumerate(_by_file(own, owners), 1):
        name = f"{model}_weights.c" if number == 1 else f"{model}_weights_{number}.c"
        files[name] = [*_head(constants, model, origin, platform), *map(piece, constants)]
    return files


def _by_file(constants: Sequence[Constant], owners: Mapping[str, str]) -> Iterator[list[Constant]]:
    """Yield the constants of each file, in order; one empty file if there are none.

    The sizes of the constants decide, not their values: with other weights, each layer is in the same file again.
    owners: name of the layer that reads a constant first.
    """
    together: list[Constant] = []
    for _, group in groupby(constants, key=lambda one: owners.get(one.name, one.name)):
        layer = list(group)
        if together and _num_bytes([*together, *layer]) > FILE_BYTES:
            yield together
            together = []
        together += layer
    yield together


def _num_bytes(constants: Sequence[Constant]) -> int:
    return sum(constant.data.nbytes for constant in constants)


def _head(constants: Sequence[Constant], model: str, origin: Origin, platform: Platform) -> list[Piece]:
    """Return the pieces of a C file ahead of its constants."""
    memories = dict.fromkeys(constant.memory for constant in constants)
    stddef = "#include <stddef.h>\n" if any(constant.members for constant in constants) else ""
    head = [
        banner(origin, f"{model}: weights."),
        f'#include "{model}_weights.h"\n\n#include <math.h>\n{stddef}',
        *(define_section(model, platform.memory(memory), zeroed=False) for memory in memories),
    ]
    return [Piece(text=folded(text)) for text in head]


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

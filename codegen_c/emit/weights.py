"""`<model>_weights.h` and `.c`: constants as kernels read them, each under a comment that says whose they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codegen_c.c_text.lines import comment_block, folded
from codegen_c.c_text.text import C_TYPES, comment, filled, literal
from codegen_c.emit.banner import Origin, banner
from codegen_c.emit.layers import layer_names
from codegen_c.emit.memory import define_section, section_macro
from codegen_c.emit.pieces import Piece, joined
from codegen_c.emit.sharing import ALONE, Sharing
from codegen_c.program.program import Program
from codegen_c.program.tensors import Constant
from tvm_ext.core.alignment import ALIGNMENT_BYTES
from tvm_ext.core.platform import Platform

_LINE_LENGTH = 108


def emit_weights(
    program: Program, model: str, origin: Origin, pieces: Sequence[Piece], sharing: Sharing = ALONE
) -> dict[str, str]:
    """Texts of `<model>_weights.h` and `<model>_weights.c`. pieces: `weights_pieces`."""
    constants = list(program.constants.values())
    guard = f"{model.upper()}_WEIGHTS_H"
    header = [
        banner(origin, f"{model}: weights."),
        f"#ifndef {guard}\n#define {guard}\n",
        "#include <stdbool.h>\n#include <stdint.h>\n",
        *(
            f"extern {declaration(constant, symbol)};"
            for symbol, constant in {
                sharing.constants.get(constant.name, f"{model}_{constant.name}"): constant for constant in constants
            }.items()
        ),
        "\n#endif\n",
    ]
    return {f"{model}_weights.h": folded("\n".join(header)), f"{model}_weights.c": joined(pieces)}


def weights_pieces(
    program: Program, model: str, origin: Origin, platform: Platform, sharing: Sharing = ALONE
) -> list[Piece]:
    """`<model>_weights.c` in pieces: what stands above, then each constant that no bundle has for several models."""
    own = [constant for constant in program.constants.values() if constant.name not in sharing.constants]
    memories = dict.fromkeys(constant.memory for constant in own)
    head = [
        banner(origin, f"{model}: weights."),
        f'#include "{model}_weights.h"\n\n#include <math.h>\n',
        *(define_section(model, platform.memory(memory), zeroed=False) for memory in memories),
    ]
    readers: dict[str, list[str]] = {name: [] for name in program.constants}
    owners: dict[str, str] = {}
    for call in program.kernel_calls():
        for name in call.constants:
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
    """`const float <symbol>[n]`."""
    ctype = C_TYPES[str(constant.data.dtype)]
    return f"const {ctype} {symbol}[{max(constant.data.size, 1)}]"


def constant_definition(constant: Constant, symbol: str, section: str, layers: str) -> str:
    """A constant under `symbol`. section: macro that says where it lies."""
    values = _lines(constant.data.reshape(-1))
    note = comment_block([comment(f"{layers}: {constant.note}, {constant.data.nbytes} B")])
    head = f"{section} _Alignas({ALIGNMENT_BYTES}) {declaration(constant, symbol)} = {{"
    return "\n".join([note, head, *(f"    {line}" for line in values), "};", ""])


def _lines(array: np.ndarray) -> Sequence[str]:
    return filled(literal(array) or ["0"], _LINE_LENGTH)

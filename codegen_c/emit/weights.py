"""`<model>_weights.h` and `.c`: constants as kernels read them, each under a comment that says whose they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codegen_c.c_text.lines import comment_block, folded
from codegen_c.c_text.text import C_TYPES, block, comment, filled, literal
from codegen_c.emit.banner import Origin, banner
from codegen_c.emit.layers import layer_names
from codegen_c.emit.memory import define_section, section_macro
from codegen_c.emit.pieces import Piece, joined
from codegen_c.program.program import Constant, Program
from tvm_ext.core.alignment import ALIGNMENT_BYTES
from tvm_ext.core.platform import Platform

_LINE_LENGTH = 108


def emit_weights(program: Program, model: str, origin: Origin, platform: Platform) -> dict[str, str]:
    """Texts of `<model>_weights.h` and `<model>_weights.c`."""
    constants = list(program.constants.values())
    guard = f"{model.upper()}_WEIGHTS_H"
    header = [
        banner(origin, f"{model}: weights."),
        f"#ifndef {guard}\n#define {guard}\n",
        "#include <stdbool.h>\n#include <stdint.h>\n",
        *(f"extern {declaration(constant, model)};" for constant in constants),
        "\n#endif\n",
    ]
    source = joined(weights_pieces(program, model, origin, platform))
    return {f"{model}_weights.h": "\n".join(header), f"{model}_weights.c": source}


def weights_pieces(program: Program, model: str, origin: Origin, platform: Platform) -> list[Piece]:
    """`<model>_weights.c` in pieces: what stands above, then each constant."""
    memories = dict.fromkeys(constant.memory for constant in program.constants.values())
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
            text=folded(_definition(constant, model, owners.get(constant.name, constant.name))), kind="constant",
            name=f"{model}_{constant.name}", steps=tuple(readers[constant.name]),
        )
        for constant in program.constants.values()
    ]  # fmt: skip
    return [*(Piece(text=text) for text in head), *constants]


def declaration(constant: Constant, model: str) -> str:
    """`const float <model>_<name>[n]`."""
    ctype = C_TYPES[str(constant.data.dtype)]
    return f"const {ctype} {model}_{constant.name}[{max(constant.data.size, 1)}]"


def _definition(constant: Constant, model: str, layers: str) -> str:
    values = _lines(constant.data.reshape(-1))
    note = comment_block([comment(f"{layers}: {constant.note}, {constant.data.nbytes} B")])
    head = f"{section_macro(model, constant.memory)} _Alignas({ALIGNMENT_BYTES}) {declaration(constant, model)} = {{"
    return "\n".join([note, head, block(values), "};", ""])


def _lines(array: np.ndarray) -> Sequence[str]:
    return filled(literal(array) or ["0"], _LINE_LENGTH)

"""Functions and constants that several models of a bundle have in common, as pieces of the files they stand in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codegen_c.c_text.lines import comment_block, folded
from codegen_c.c_text.text import comment
from codegen_c.emit.banner import Origin, banner
from codegen_c.emit.functions import definition
from codegen_c.emit.layers import layer_names
from codegen_c.emit.memory import define_section, section_macro
from codegen_c.emit.model import RUNTIME_HEADER
from codegen_c.emit.pieces import Piece, PieceKind
from codegen_c.emit.sharing import Member, SharedConstant, SharedFunction
from codegen_c.emit.weights import constant_definition, layer_type
from codegen_c.emit.weights import declaration as constant_declaration
from codegen_c.program.steps import KernelCall
from tvm_ext.core.options import Optimize
from tvm_ext.core.platform import Platform

LINKAGE = "TVM_EXT_APART"

ModelCall = tuple[str, KernelCall]


@dataclass(frozen=True, kw_only=True)
class CommonPiece:
    """Lines of a file of a bundle. name: of the function or constant; calls: of models, that they are for."""

    text: str
    kind: PieceKind = "text"
    name: str = ""
    calls: tuple[ModelCall, ...] = ()

    def of(self, model: str) -> Piece:
        """The piece as one model sees it: mere text where it is for others alone."""
        steps = tuple(call.name for owner, call in self.calls if owner == model)
        return Piece(text=self.text, kind=self.kind, name=self.name, steps=steps) if steps else Piece(text=self.text)


def kernels_file(bundle: str, optimize: Optimize) -> str:
    """Name of the file of the functions that are shared among models optimized for one aim."""
    return f"{bundle}_kernels_{optimize}.c"


def kernels_title(bundle: str) -> str:
    return f"{bundle}: functions that several of its models call."


def common_functions(
    bundle: str, functions: Sequence[SharedFunction], origin: Origin, origins: Mapping[str, Origin]
) -> dict[str, list[CommonPiece]]:
    """File name -> its pieces: a file for each aim that functions are optimized for."""
    files: dict[str, list[CommonPiece]] = {}
    aims: list[Optimize] = [one.optimize for one in functions]
    for optimize in dict.fromkeys(aims):
        same = [one for one in functions if one.optimize == optimize]
        used = sorted({header for one in same for header in one.function.includes} - {RUNTIME_HEADER})
        includes = [f'#include "{bundle}_kernels.h"']
        includes += [f'#include "{one}"' if one.startswith("tvm_ext_") else f"#include <{one}>" for one in used]
        includes += [f'#include "{name}"' for name in sorted({n for one in same for n, _ in one.function.headers})]
        head = "\n".join([banner(origin, kernels_title(bundle)), *includes, ""])
        files[kernels_file(bundle, optimize)] = _folded([CommonPiece(text=head), *_definitions(same, origins)])
    return files


def _definitions(functions: Sequence[SharedFunction], origins: Mapping[str, Origin]) -> list[CommonPiece]:
    """Functions with their helpers, those that several have in common before the first of them."""
    owners: dict[str, str] = {}
    users: dict[str, list[SharedFunction]] = {}
    for one in functions:
        users.setdefault(one.function.helpers, []).append(one)
    pieces: list[CommonPiece] = []
    for one in functions:
        helpers, helpers_of = one.function.helpers, ""
        if helpers and len(users[helpers]) > 1:
            if helpers not in owners:
                owners[helpers] = one.symbol
                calls = tuple(call for user in users[helpers] for call in user.calls)
                text = helpers.replace("$", one.symbol)
                pieces.append(CommonPiece(text=text, kind="function", name=one.symbol, calls=calls))
            helpers_of = owners[helpers]
        layers = {model: dict.fromkeys(layer_names(c, origins[model].operators) for m, c in one.calls if m == model)
                  for model in one.models}  # fmt: skip
        kernel = one.calls[0][1].implementation.kernel
        notes = [f"Kernel {kernel}.", *(comment(f"{model}: {', '.join(names)}.") for model, names in layers.items())]
        text = f"{comment_block(notes)}\n{definition(one.function, one.symbol, helpers_of, LINKAGE)}"
        pieces.append(CommonPiece(text=text, kind="function", name=one.symbol, calls=one.calls))
    return pieces


def common_constants(
    bundle: str,
    members: Sequence[Member],
    constants: Sequence[SharedConstant],
    origin: Origin,
    origins: Mapping[str, Origin],
    platform: Platform,
) -> dict[str, list[CommonPiece]]:
    """File name -> its pieces; no file where there is nothing in common."""
    if not constants:
        return {}
    memories = dict.fromkeys(one.constant.memory for one in constants)
    stddef = "#include <stddef.h>\n" if any(one.constant.members for one in constants) else ""
    head = [
        banner(origin, f"{bundle}: weights that several of its models read."),
        f"#include <stdbool.h>\n#include <stdint.h>\n#include <math.h>\n{stddef}",
        *(define_section(bundle, platform.memory(memory), zeroed=False) for memory in memories),
    ]
    pieces = [CommonPiece(text="\n".join(head))]
    for one in constants:
        section, readers = section_macro(bundle, one.constant.memory), _readers(members, one)
        declared = layer_type(one.constant, one.symbol, shared=True)
        declared += f"extern {constant_declaration(one.constant, one.symbol)};"
        defined = constant_definition(one.constant, one.symbol, section, _layers(readers, origins))
        pieces.append(CommonPiece(text=f"{declared}\n{defined}", kind="constant", name=one.symbol, calls=readers))
    return {f"{bundle}_weights.c": _folded(pieces)}


def _readers(members: Sequence[Member], one: SharedConstant) -> tuple[ModelCall, ...]:
    """Calls that read a constant."""
    found: list[ModelCall] = []
    for member in members:
        names = {name for model, name in one.users if model == member.model}
        calls = member.program.kernel_calls()
        found += [(member.model, call) for call in calls if names.intersection(call.constants)]
    return tuple(found)


def _layers(readers: Sequence[ModelCall], origins: Mapping[str, Origin]) -> str:
    """Models, each with the layers that are in its calls."""
    layers: dict[str, dict[str, None]] = {}
    for model, call in readers:
        layers.setdefault(model, {})[layer_names(call, origins[model].operators)] = None
    return "; ".join(f"{model}: {', '.join(names)}" for model, names in layers.items())


def _folded(pieces: Sequence[CommonPiece]) -> list[CommonPiece]:
    return [CommonPiece(text=folded(p.text), kind=p.kind, name=p.name, calls=p.calls) for p in pieces]

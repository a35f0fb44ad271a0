"""Emit the parts that the models of a bundle share: overlaid arenas, functions and constants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from codegen_c.arena.overlay import Overlay, overlay_of
from codegen_c.c_text.text import block, comment, comment_block, folded
from codegen_c.emit.banner import Origin, banner
from codegen_c.emit.functions import declaration, definition, layer_names
from codegen_c.emit.links import ModelLink, emit_links
from codegen_c.emit.memory import (
    BEGIN_FOR_CPLUSPLUS,
    END_FOR_CPLUSPLUS,
    arena_definition,
    define_section,
    section_macro,
    union_name,
)
from codegen_c.emit.model import RUNTIME_HEADER
from codegen_c.emit.pieces import Piece, PieceKind
from codegen_c.emit.rounds import emit_rounds
from codegen_c.emit.sharing import (
    Member,
    SharedConstant,
    SharedFunction,
    Sharing,
    shared_constants,
    shared_functions,
    sharing_of,
)
from codegen_c.emit.variants import VariantGroup, emit_variants
from codegen_c.emit.weights import constant_definition, layer_type
from codegen_c.emit.weights import declaration as constant_declaration
from codegen_c.program.rounds import Round
from codegen_c.program.steps import KernelCall
from tvm_ext.core.alignment import ALIGNMENT_BYTES
from tvm_ext.core.options import CompileFor
from tvm_ext.core.platform import STATE_MEMORY, Platform


@dataclass(frozen=True, kw_only=True, eq=False)
class Bundle:
    """The models of one package, and the objects that they share.

    at_once: groups of models that may run at the same time. round: the models that run together; None for no round.
    """

    name: str
    members: tuple[Member, ...]
    overlays: tuple[Overlay, ...]
    functions: tuple[SharedFunction, ...]
    constants: tuple[SharedConstant, ...]
    at_once: tuple[frozenset[str], ...] = ()
    links: tuple[ModelLink, ...] = ()
    variants: tuple[VariantGroup, ...] = ()
    round: Round | None = None

    def member(self, model: str) -> Member:
        return next(member for member in self.members if member.model == model)

    @property
    def other_cores(self) -> tuple[str, ...]:
        """The processors beside the first that run models or parts of them."""
        return tuple(dict.fromkeys(name for member in self.members for name in member.other_cores))

    def sharing(self, member: Member) -> Sharing:
        group = self.group_of(member.model)
        states_in = group.name if group and member.interface.state_bytes else ""
        return sharing_of(self.name, member, self.functions, self.constants, states_in)

    def group_of(self, model: str) -> VariantGroup | None:
        """Return the group of variants that contains a model; None if the model is no variant."""
        return next((group for group in self.variants if model in [one.model for one in group.models]), None)

    @property
    def state_overlays(self) -> dict[str, Overlay]:
        """Overlay of the states of each group of variants that has states, by the group's name."""
        sizes = {
            group.name: {one.model: one.state_bytes for one in group.models if one.state_bytes}
            for group in self.variants
        }
        alignment = _alignment_bytes(self.members, STATE_MEMORY)
        return {name: overlay_of(STATE_MEMORY, states, (), alignment) for name, states in sizes.items() if states}

    @property
    def weights_bytes(self) -> int:
        """Bytes of all constants; each shared constant counts once."""
        return sum(member.program.weights_bytes for member in self.members) - sum(c.saved_bytes for c in self.constants)


def _alignment_bytes(members: Sequence[Member], memory: str) -> int:
    """Return the largest alignment, in bytes, of the members' arenas in a memory."""
    found = (arena.alignment_bytes for one in members for arena in one.plan.arenas if arena.memory == memory)
    return max(found, default=ALIGNMENT_BYTES)


def bundle_of(name: str, members: Sequence[Member], at_once: Iterable[Iterable[str]]) -> Bundle:
    """Return a bundle with its arenas at their offsets, and its shared functions and constants.

    at_once: groups of models that may run at the same time.
    """
    memories = dict.fromkeys(memory for member in members for memory in member.overlaid)
    groups = tuple(frozenset(group) for group in at_once)
    overlays = [
        overlay_of(
            memory,
            {m.model: m.overlaid[memory] for m in members if memory in m.overlaid},
            groups,
            _alignment_bytes(members, memory),
        )
        for memory in memories
    ]
    return Bundle(
        name=name, members=tuple(members), overlays=tuple(overlays), at_once=groups,
        functions=tuple(shared_functions(name, members)), constants=tuple(shared_constants(name, members)),
    )  # fmt: skip


def emit_bundle(bundle: Bundle, origin: Origin, origins: Mapping[str, Origin], platform: Platform) -> dict[str, str]:
    """Return the texts of the files that belong to the bundle as a whole, by name. origins: origin of each model."""
    texts = {f"{bundle.name}.h": _header(bundle, origin)}
    texts |= emit_variants(bundle.name, bundle.variants, origin)
    if bundle.overlays or bundle.state_overlays:
        texts |= _memory(bundle, origin, platform)
    if bundle.functions:
        texts[f"{bundle.name}_kernels.h"] = _kernels_header(bundle, origin)
    texts |= emit_links(bundle.name, bundle.links, origin)
    texts |= emit_rounds(bundle.name, bundle.members, bundle.links, bundle.round, origin, platform)
    pieces = common_pieces(bundle, origin, origins, platform)
    common = {name: "\n".join(piece.text for piece in found) for name, found in pieces.items()}
    return {name: folded(text) for name, text in texts.items()} | common


def _header(bundle: Bundle, origin: Origin) -> str:
    names = [member.model for member in bundle.members]
    notes = [f"Models of one package: {', '.join(names)}. Each is called by the functions of its own header."]
    overlaid = [one for overlay in bundle.overlays for one in overlay.arenas if len(overlay.arenas) > 1]
    if overlaid:
        notes += [
            f"Arenas of {', '.join(dict.fromkeys(overlaid))} share bytes: fill a model's inputs, run it, and read its "
            f"outputs before the next one's inputs are filled. States are {_sharing_of_states(bundle)}."
        ]
    guard = f"{bundle.name.upper()}_H"
    includes = "\n".join(f'#include "{name}.h"' for name in names)
    includes += f'\n#include "{bundle.name}_links.h"' if bundle.links else ""
    includes += f'\n#include "{bundle.name}_variants.h"' if bundle.variants else ""
    includes += f'\n#include "{bundle.name}_round.h"' if bundle.round or bundle.other_cores else ""
    head = banner(origin, f"{bundle.name}: all its models.")
    return f"{head}\n#ifndef {guard}\n#define {guard}\n\n{comment_block(notes)}\n{includes}\n\n#endif\n"


def _sharing_of_states(bundle: Bundle) -> str:
    groups = [", ".join(overlay.arenas) for overlay in bundle.state_overlays.values() if len(overlay.arenas) > 1]
    return f"shared by variants alone: {'; '.join(groups)}" if groups else "never shared"


def _memory(bundle: Bundle, origin: Origin, platform: Platform) -> dict[str, str]:
    name, guard = bundle.name, f"{bundle.name.upper()}_MEMORY_H"
    states = bundle.state_overlays
    owners = dict.fromkeys(model for overlay in (*bundle.overlays, *states.values()) for model in overlay.arenas)
    header = [
        banner(origin, f"{name}: the arenas of its models, over each other where they never run at once."),
        f"#ifndef {guard}\n#define {guard}\n",
        "#include <stddef.h>\n#include <stdint.h>\n",
        *(f'#include "{model}_memory.h"' for model in owners),
        "",
        BEGIN_FOR_CPLUSPLUS,
        *(_union(name, overlay) for overlay in bundle.overlays),
        *(_union(group, overlay) for group, overlay in states.items()),
        END_FOR_CPLUSPLUS,
        "#endif\n",
    ]
    source = [
        banner(origin, f"{name}: the arenas of its models."),
        f'#include "{name}_memory.h"\n',
        *(arena_definition(name, overlay.memory, platform.memory(overlay.memory)) for overlay in bundle.overlays),
        *(arena_definition(group, STATE_MEMORY, platform.memory(platform.states)) for group in states),
    ]
    return {f"{name}_memory.h": "\n".join(header), f"{name}_memory.c": "\n".join(source)}


def _union(bundle: str, overlay: Overlay) -> str:
    tag = union_name(bundle, overlay.memory)
    members = [f"_Alignas({overlay.alignment_bytes}) uint8_t bytes[{overlay.num_bytes}];"]
    asserts: list[str] = []
    for model, offset in overlay.offsets.items():
        own = f"union {union_name(model, overlay.memory)} {model};"
        members.append(f"struct {{ uint8_t GAP_{model}[{offset}]; {own} }};" if offset else own)
        asserts.append(f'_Static_assert(offsetof(union {tag}, {model}) == {offset}u, "{model}");')
    asserts.append(f'_Static_assert(sizeof(union {tag}) == {overlay.num_bytes}u, "{tag}");')
    note = f"/* {overlay.num_bytes} B; the models' own arenas have {overlay.alone_bytes} B in all. */"
    return "\n".join([note, f"union {tag} {{", block(members), "};", f"extern union {tag} {tag};", *asserts, ""])


def _kernels_header(bundle: Bundle, origin: Origin) -> str:
    name, guard = bundle.name, f"{bundle.name.upper()}_KERNELS_H"
    declared = [f"{declaration(one.function, one.symbol, LINKAGE)};" for one in bundle.functions]
    lines = [
        banner(origin, kernels_title(name)),
        f"#ifndef {guard}\n#define {guard}\n",
        f'#include "{RUNTIME_HEADER}"\n',
        *declared,
        "\n#endif\n",
    ]
    return "\n".join(lines)


def common_pieces(
    bundle: Bundle, origin: Origin, origins: Mapping[str, Origin], platform: Platform
) -> dict[str, list[CommonPiece]]:
    """Return the pieces of the files of shared functions and constants, by file name."""
    constants = common_constants(bundle.name, bundle.members, bundle.constants, origin, origins, platform)
    return common_functions(bundle.name, bundle.functions, origin, origins) | constants


LINKAGE = "TVM_EXT_APART"

ModelCall = tuple[str, KernelCall]


@dataclass(frozen=True, kw_only=True)
class CommonPiece:
    """Lines of a file of a bundle. name: of the function or constant; calls: the models' calls that use it."""

    text: str
    kind: PieceKind = "text"
    name: str = ""
    calls: tuple[ModelCall, ...] = ()

    def of(self, model: str) -> Piece:
        """Return the piece from the view of one model: plain text without steps if only other models use it."""
        steps = tuple(call.name for owner, call in self.calls if owner == model)
        return Piece(text=self.text, kind=self.kind, name=self.name, steps=steps) if steps else Piece(text=self.text)


def kernels_file(bundle: str, optimize: CompileFor, compiled_as: str = "") -> str:
    """Return the name of the file with the shared functions of all models that are compiled with the same flags.

    compiled_as: processor whose code it is; empty for the platform's first.
    """
    return f"{bundle}_kernels_{optimize}{f'_{compiled_as}' if compiled_as else ''}.c"


def kernels_title(bundle: str) -> str:
    return f"{bundle}: functions that several of its models call."


def common_functions(
    bundle: str, functions: Sequence[SharedFunction], origin: Origin, origins: Mapping[str, Origin]
) -> dict[str, list[CommonPiece]]:
    """Return the pieces of the files of shared functions, by file name: one file for each set of compiler flags."""
    files: dict[str, list[CommonPiece]] = {}
    kinds: list[tuple[CompileFor, str]] = [(one.optimize, one.compiled_as) for one in functions]
    for flags in dict.fromkeys(kinds):
        same = [one for one in functions if (one.optimize, one.compiled_as) == flags]
        used = sorted({header for one in same for header in one.function.includes} - {RUNTIME_HEADER})
        includes = [f'#include "{bundle}_kernels.h"']
        includes += [f'#include "{one}"' if one.startswith("tvm_ext_") else f"#include <{one}>" for one in used]
        includes += [f'#include "{name}"' for name in sorted({n for one in same for n, _ in one.function.headers})]
        head = "\n".join([banner(origin, kernels_title(bundle)), *includes, ""])
        files[kernels_file(bundle, *flags)] = _folded([CommonPiece(text=head), *_definitions(same, origins)])
    return files


def _definitions(functions: Sequence[SharedFunction], origins: Mapping[str, Origin]) -> list[CommonPiece]:
    """Return the functions after their helpers; shared helpers stand before the first function that uses them."""
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
    """Return the pieces of the file of shared constants, by its name; no file without shared constants."""
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
    """Return the calls that read a constant."""
    found: list[ModelCall] = []
    for member in members:
        names = {name for model, name in one.users if model == member.model}
        calls = member.program.kernel_calls()
        found += [(member.model, call) for call in calls if names.intersection(call.constants)]
    return tuple(found)


def _layers(readers: Sequence[ModelCall], origins: Mapping[str, Origin]) -> str:
    """Return a text that lists the models, each with the layers that its calls compute."""
    layers: dict[str, dict[str, None]] = {}
    for model, call in readers:
        layers.setdefault(model, {})[layer_names(call, origins[model].operators)] = None
    return "; ".join(f"{model}: {', '.join(names)}" for model, names in layers.items())


def _folded(pieces: Sequence[CommonPiece]) -> list[CommonPiece]:
    return [CommonPiece(text=folded(p.text), kind=p.kind, name=p.name, calls=p.calls) for p in pieces]

"""`<bundle>_variants.*`: functions that choose and switch among models for one task, by a table in flash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Literal

from codegen_c.c_text.text import block
from codegen_c.emit.banner import Origin, banner
from codegen_c.program.interface import Interface
from codegen_c.program.variants import Needs, edge_cases, select

Switch = Literal["keep", "reset"]


@dataclass(frozen=True, kw_only=True, eq=False)
class VariantGroup:
    """Models for one task, the best first.

    table: thresholds of each model, without and with hysteresis. name: C prefix.
    """

    name: str
    models: tuple[Interface, ...]
    table: tuple[tuple[Needs, Needs], ...]
    switch: Switch

    @property
    def has_states(self) -> bool:
        return any(model.state_bytes for model in self.models)


def emit_variants(bundle: str, groups: Sequence[VariantGroup], origin: Origin) -> dict[str, str]:
    """Return the texts of `<bundle>_variants.h` and `.c`; no files without variants."""
    if not groups:
        return {}
    guard, title = f"{bundle.upper()}_VARIANTS_H", f"{bundle}: choice among models for one task."
    header = [
        banner(origin, title),
        f"#ifndef {guard}\n#define {guard}\n\n#include <stdint.h>\n",
        '#ifdef __cplusplus\nextern "C" {\n#endif\n',
        *(_declared(group) for group in groups),
        "#ifdef __cplusplus\n}\n#endif\n\n#endif\n",
    ]
    models = dict.fromkeys(model.model for group in groups for model in group.models if model.state_bytes)
    includes = [f'#include "{bundle}_variants.h"', *(f'#include "{model}.h"' for model in models), ""]
    source = [banner(origin, title), *includes, *(_defined(group) for group in groups)]
    return {f"{bundle}_variants.h": "\n".join(header), f"{bundle}_variants.c": "\n".join(source)}


def _declared(group: VariantGroup) -> str:
    name = group.name
    numbers = ", ".join(f"{name}_{model.model} = {index}" for index, model in enumerate(group.models))
    changed = (
        "the state is kept, because all variants share it." if group.switch == "keep" else "the new variant is reset."
    )
    return (
        f"/* Variants of {name}, the best first. */\n"
        f"enum {{ {name}_none = -1, {numbers} }};\n\n"
        "/* Resources that are available now. current: the variant in use. */\n"
        "typedef struct {\n"
        "    uint32_t cycles;     /* available for one run */\n"
        "    uint32_t free_bytes; /* RAM for the arena and the state of a variant */\n"
        "    int32_t battery_percent;\n"
        "    int32_t temperature_c;\n"
        "    int32_t current;\n"
        f"}} {name}_resources;\n\n"
        f"/* Return the best variant that the resources allow, or {name}_none. A better variant than the current\n"
        "   one needs an additional margin (hysteresis), which prevents switching back and forth. */\n"
        f"int32_t {name}_select(const {name}_resources *resources);\n\n"
        f"/* Call this after each change of the variant in use: {changed} */\n"
        f"void {name}_switch(int32_t from, int32_t to);\n"
    )


def _defined(group: VariantGroup) -> str:
    name, count = group.name, len(group.models)
    rows = [
        f"{{{', '.join(_needs(needs) for needs in pair)}}}, /* {model.model} */"
        for model, pair in zip(group.models, group.table, strict=True)
    ]
    table = (
        f"typedef struct {{\n    uint32_t cycles;\n    uint32_t free_bytes;\n    int32_t battery_percent;\n"
        f"    int32_t temperature_c;\n}} {name}_needs;\n\n"
        "/* Thresholds (predicted cycles, planned bytes, declared limits), without and with hysteresis. */\n"
        f"static const {name}_needs {name}_table[{count}][2] = {{\n{block(rows)}\n}};\n"
    )
    body = [
        f"const int32_t none = resources->current < 0 || resources->current >= {count};",
        f"const int32_t current = none ? {count} : resources->current;",
        f"for (int32_t i = 0; i < {count}; ++i) {{",
        block(
            [
                f"const {name}_needs *const needs = &{name}_table[i][i < current ? 1 : 0];",
                "if (resources->cycles >= needs->cycles && resources->free_bytes >= needs->free_bytes &&",
                "    resources->battery_percent >= needs->battery_percent &&",
                "    resources->temperature_c <= needs->temperature_c) {",
                block("return i;"),
                "}",
            ]
        ),
        "}",
        f"return {name}_none;",
    ]
    select_text = f"int32_t {name}_select(const {name}_resources *resources)\n{{\n{block(body)}\n}}\n"
    return "\n".join([table, select_text, _switch(group)])


def _switch(group: VariantGroup) -> str:
    name = group.name
    head = f"void {name}_switch(int32_t from, int32_t to)\n{{\n"
    if group.switch == "keep" or not group.has_states:
        # Variants that keep their state share it: only the first one to run must reset it.
        resets = [f"{model.reset}();" for model in group.models[:1] if model.state_bytes]
        lines = [f"if (from == {name}_none) {{", block(resets), "}"] if resets else ["(void)from;"]
        return f"{head}{block([*lines, '(void)to;'])}\n}}\n"
    lines = ["if (from == to) {", block("return;"), "}"]
    for index, model in enumerate(group.models):
        if model.state_bytes:
            lines += [f"if (to == {index}) {{", block(f"{model.reset}();"), "}"]
    return f"{head}{block(lines)}\n}}\n"


def _needs(needs: Needs) -> str:
    return f"{{{needs.cycles}u, {needs.free_bytes}u, {needs.battery_percent}, {needs.temperature_c}}}"


def select_cases(group: VariantGroup) -> list[str]:
    """Return rows for the self-test: resources and the variant that must be chosen, at each edge of the table."""
    return [
        f"{{{{{case.cycles}u, {case.free_bytes}u, {case.battery_percent}, {case.temperature_c}, {case.current}}}, "
        f"{select(group.table, case)}}},"
        for case in edge_cases(group.table)
        if all(value < 1 << 32 for value in astuple(case))
    ]

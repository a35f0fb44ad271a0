"""Names of a model's classes: `<model>_labels.c`, and their declaration in the header."""

from __future__ import annotations

from codegen_c.c_text.text import block, string_literal
from codegen_c.emit.banner import Origin, banner
from codegen_c.program.interface import Interface


def labels_api(interface: Interface) -> str:
    """Declaration for the header."""
    return (
        "/* Names of the classes, in the order of the output's last axis: UTF-8. */\n"
        f"#define {interface.num_labels_macro} {len(interface.labels)}\n"
        f"extern const char *const {interface.labels_name}[{interface.num_labels_macro}];\n"
    )


def emit_labels(interface: Interface, origin: Origin) -> dict[str, str]:
    """Text of `<model>_labels.c`; no file without labels."""
    if not interface.labels:
        return {}
    model = interface.model
    lines = [f"{string_literal(label)}," for label in interface.labels]
    text = "\n".join(
        [
            banner(origin, f"{model}: names of the classes."),
            f'#include "{model}.h"\n',
            f"const char *const {interface.labels_name}[{interface.num_labels_macro}] = {{\n{block(lines)}\n}};\n",
        ]
    )
    return {f"{model}_labels.c": text}

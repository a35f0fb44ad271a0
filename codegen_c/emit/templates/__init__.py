"""Text of generated files that are mostly fixed: one template per file, in the language of that file."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from codegen_c.c_text.text import comment, folded


def render(template: str, **values: object) -> str:
    """Fill a template of this folder. Names it lacks raise jinja2.UndefinedError."""
    text = _environment().get_template(template).render(comment=comment, **values)
    return folded(text) if template.endswith((".c.j2", ".h.j2")) else text


@cache
def _environment() -> Environment:
    """Templates, each compiled once in a process: to compile them took a quarter of a second in each build."""
    return Environment(
        loader=PackageLoader("codegen_c.emit", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # C and make, not HTML; model-supplied text passes through `comment`
    )

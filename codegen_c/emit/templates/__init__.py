"""Generated files whose text is mostly fixed: one template per file, in the language of that file."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from codegen_c.c_text.text import comment, folded
from tvm_ext.core.files.compiled_templates import remember_compiled


def render(template: str, **values: object) -> str:
    """Fill a template of this folder. Raises jinja2.UndefinedError if a name is missing."""
    text = _environment().get_template(template).render(comment=comment, **values)
    return folded(text) if template.endswith((".c.j2", ".h.j2")) else text


@cache
def _environment() -> Environment:
    """Return the templates of this folder."""
    environment = Environment(
        loader=PackageLoader("codegen_c.emit", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # C and make, not HTML; model-supplied text passes through `comment`
    )
    return remember_compiled(environment)

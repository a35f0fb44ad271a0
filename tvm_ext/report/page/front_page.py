"""pareto.html: the picture of a trade-off, and its points as a table."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from tvm_ext.core.printable import printable_lines
from tvm_ext.report.page.grids import grids_of
from tvm_ext.report.page.page import digest, environment, style_text


def front_page(title: str, picture: str, tables: Sequence[RenderableType]) -> str:
    """Return a page of one file. picture: an SVG. tables: of the points; a text after a table is its note."""
    style = style_text()
    shown = base64.b64encode(picture.encode()).decode()
    grids = grids_of([Text(one) if isinstance(one, str) else one for one in tables])
    return environment().get_template("pareto.html.j2").render(
        title=printable_lines(title), picture=f"data:image/svg+xml;base64,{shown}", grids=grids, style=style,
        style_hash=digest(style),
    )  # fmt: skip

"""Conversion of docstrings to markdown: `name: text` entries become a list of parameters, keys or options."""

from __future__ import annotations

import re

_ENTRY = re.compile(r"^(?P<name>[a-z_][\w.]*(?:, [a-z_][\w.]*)*): (?=\S)")


def with_lists(text: str) -> str:
    """Return the text with its entries as a list. An entry continues until a blank line or a line with `Raises`."""
    lines: list[str] = []
    in_list = False
    for line in text.splitlines():
        found = _ENTRY.match(line)
        if (found and not in_list and lines and lines[-1]) or (in_list and line.startswith("Raises ")):
            lines.append("")
        names = ", ".join(f"`{name}`" for name in found["name"].split(", ")) if found else ""
        lines.append(f"- {names}: {line[found.end() :]}" if found else line)
        in_list = bool(found) or (in_list and bool(line) and not line.startswith("Raises "))
    return "\n".join(lines)

"""Tables of HTML that notebooks show in place of a value: names in them are text only, no script, no style sheet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape as html_escape

from tvm_ext.core.printable import printable

_LEFT, _RIGHT = 'style="text-align:left"', 'style="text-align:right"'


def escape(text: str) -> str:
    """The text for HTML: no markup, and nothing that would show it in another order."""
    return html_escape(printable(text))


def facts_html(title: str, facts: Iterable[tuple[str, str]]) -> str:
    """A title, and one row for each fact: what it is, and its value."""
    rows = "".join(f"<tr><th {_LEFT}>{escape(name)}</th><td {_LEFT}>{escape(value)}</td></tr>" for name, value in facts)
    return f"<table><caption {_LEFT}><b>{escape(title)}</b></caption><tbody>{rows}</tbody></table>"


def rows_html(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]], *, most: int = 20) -> str:
    """A title and a table of at most so many rows; it says how many there are beside. None is shown as a dash."""
    every = list(rows)
    head = "".join(f"<th {_LEFT}>{escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in every[:most])
    more = f'<tr><td colspan="{len(headings)}" {_LEFT}>and {len(every) - most:,} more</td></tr>'
    return (
        f"<table><caption {_LEFT}><b>{escape(title)}</b></caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}{more if len(every) > most else ''}</tbody></table>"
    )


def _cell(value: object) -> str:
    """A cell; numbers to the right, with thousands apart."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"<td {_RIGHT}>{f'{value:,}' if isinstance(value, int) else f'{value:,.4g}'}</td>"
    return f"<td {_LEFT}>{'-' if value is None else escape(str(value))}</td>"

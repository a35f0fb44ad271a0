"""Tables of HTML that notebooks show in place of a value.

Names in them are only text, without scripts or style sheets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape as html_escape

from tvm_ext.core.printable import printable

_MOST_LETTERS = 28
_BAR = "#6f9bf0"
"""A blue between those of the report page's light and dark styles, because notebooks may have either."""
_LEFT, _RIGHT = 'style="text-align:left"', 'style="text-align:right"'


def escape(text: str) -> str:
    """Escape text for HTML, including characters that would change the order of display."""
    return html_escape(printable(text))


def facts_html(title: str, facts: Iterable[tuple[str, str]]) -> str:
    """Return a title, and a row for each fact with its name and value."""
    rows = "".join(f"<tr><th {_LEFT}>{escape(name)}</th><td {_LEFT}>{escape(value)}</td></tr>" for name, value in facts)
    return f"<table><caption {_LEFT}><b>{escape(title)}</b></caption><tbody>{rows}</tbody></table>"


def rows_html(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]], *, most: int = 20) -> str:
    """Return a title and a table of at most `most` rows, with the number of rows left out. None is shown as a dash."""
    every = list(rows)
    head = "".join(f"<th {_LEFT}>{escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in every[:most])
    more = f'<tr><td colspan="{len(headings)}" {_LEFT}>and {len(every) - most:,} more</td></tr>'
    return (
        f"<table><caption {_LEFT}><b>{escape(title)}</b></caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}{more if len(every) > most else ''}</tbody></table>"
    )


def bars_html(title: str, bars: Iterable[tuple[str, float, str]], *, most: int = 40) -> str:
    """Return a title and horizontal bars with a name, a length and a text each."""
    every = list(bars)
    shown, longest = every[:most], max((value for _, value, _ in every), default=0) or 1
    lengths = [300 * value / longest for _, value, _ in shown]
    rows = "".join(_bar(22 * index, shown[index], length) for index, length in enumerate(lengths))
    more = f"<p>and {len(every) - most:,} more</p>" if len(every) > most else ""
    return (
        f"<p><b>{escape(title)}</b></p>"
        f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{22 * len(shown) + 6}" font-size="12" '
        f'font-family="system-ui, sans-serif" role="img" aria-label="{escape(title)}">{rows}</svg>{more}'
    )


def _bar(y: float, bar: tuple[str, float, str], width: float) -> str:
    name, _, text = bar
    short = name if len(name) <= _MOST_LETTERS else f"{name[: _MOST_LETTERS - 3]}..."
    return (
        f'<text x="190" y="{y + 15}" text-anchor="end" fill="currentColor">{escape(short)}</text>'
        f'<rect x="198" y="{y + 4}" width="{width:.1f}" height="14" rx="2" fill="{_BAR}" />'
        f'<text x="{204 + width:.1f}" y="{y + 15}" fill="currentColor">{escape(text)}</text>'
    )


def _cell(value: object) -> str:
    """A cell; numbers are right-aligned, with thousands separators."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"<td {_RIGHT}>{f'{value:,}' if isinstance(value, int) else f'{value:,.4g}'}</td>"
    return f"<td {_LEFT}>{'-' if value is None else escape(str(value))}</td>"

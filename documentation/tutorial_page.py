"""Conversion of a tutorial script to a page: text cells as markdown, code cells as code. The code is not run."""

from __future__ import annotations

import re

_CELL = re.compile(r"^# %%(?P<kind>.*)\n", re.MULTILINE)


def tutorial_page(script: str, path: str) -> str:
    """Return the markdown of a script with cells `# %% [markdown]` and `# %%`.

    path: of the script in the repository, shown below the title. Raises ValueError for a script without cells, or with
    code before the first cell.
    """
    before, *rest = _CELL.split(script)
    if before.strip() or not rest:
        raise ValueError(f"{path}: a tutorial begins with a cell, `# %% [markdown]`.")
    parts = [_part(kind.strip(), body.strip("\n")) for kind, body in zip(rest[::2], rest[1::2], strict=True)]
    title, _, text = parts[0].partition("\n")
    return "\n\n".join([title, f"[{path}](../source/{path}) is this page as a script.", text, *parts[1:]])


def _part(kind: str, body: str) -> str:
    if kind != "[markdown]":
        return f"```python\n{body}\n```"
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in body.splitlines())

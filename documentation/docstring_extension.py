"""Extension of mkdocstrings that shows the `name: text` entries of docstrings as lists."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from documentation.docstring_lists import with_lists


class DocstringLists(griffe.Extension):
    """Rewrites the docstring of every object that is shown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = with_lists(obj.docstring.value)

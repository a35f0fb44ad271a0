"""`tvm-ext explain`: what an error means, and what to do about it."""

from __future__ import annotations

import inspect
import re
from difflib import get_close_matches
from typing import Annotated

import typer

from tvm_ext.command_line.option_types import AsJson, Debug
from tvm_ext.command_line.show import errors_shown, print_json, stdout
from tvm_ext.core import errors
from tvm_ext.core.errors import BadOptions, TvmExtError

_LINK = re.compile(r"\[([^]]+)\]\(([^)]+)\)")


def explain_command(
    error: Annotated[str, typer.Argument(metavar="ERROR", help="The word that a message begins with, as DoesNotFit.")],
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Say what an error means, and what to do about it."""
    with errors_shown(as_json, debug):
        found = _kinds().get(error)
        if found is None:
            near = get_close_matches(error, _kinds(), n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise BadOptions(f"{error}: there is no such error.{hint} There are {', '.join(sorted(_kinds()))}.")
        pages = [f"docs/{page}" for _, page in _LINK.findall(found.way_out)]
        pages.append(f"docs/reference/errors.md#{error.lower()}")
        meaning, way_out = inspect.cleandoc(found.__doc__ or "").split("\n\n")[0], _LINK.sub(r"\1", found.way_out)
        if as_json:
            print_json({"error": error, "meaning": meaning, "way_out": way_out, "pages": pages})
            return
        for text in (meaning, f"Way out: {way_out}", "Pages:\n" + "\n".join(f"  {page}" for page in pages)):
            stdout.print(text, highlight=False, markup=False, soft_wrap=True)


def _kinds() -> dict[str, type[TvmExtError]]:
    """Errors by name."""
    classes = [entry for _, entry in inspect.getmembers(errors, inspect.isclass)]
    return {entry.__name__: entry for entry in classes if issubclass(entry, TvmExtError) and entry.way_out}

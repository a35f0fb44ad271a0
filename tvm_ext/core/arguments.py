"""Arguments that callers of Python pass, checked for their kind before anything is done with them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from tvm_ext.core.errors import BadOptions, TvmExtError


def path_of(value: object, name: str, refusal: type[TvmExtError] = BadOptions) -> Path:
    """A path that was given as a text or as an os.PathLike. Raises `refusal`."""
    if not isinstance(value, str | os.PathLike):
        raise refusal(f"{name} is {_told(value)}; a path is needed, str or os.PathLike.")
    return Path(cast("str | os.PathLike[str]", value))


def check_mapping(value: object, name: str, example: str) -> None:
    """Raises BadOptions for what is neither a mapping nor None. example: of one, for the error."""
    if value is not None and not isinstance(value, Mapping):
        raise BadOptions(f"{name} is {_told(value)}; a dict is needed, such as {example}.")


def check_kind(value: object, name: str, kind: type, example: str) -> None:
    """Raises BadOptions for what is neither of a kind nor None; a bool is no number."""
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise BadOptions(f"{name} is {_told(value)}; {example} is needed.")


def _told(value: object) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"

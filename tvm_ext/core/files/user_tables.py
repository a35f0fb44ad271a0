"""Tables that users write in TOML files: read them within limits, and explain what is wrong with their keys."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from tvm_ext.core.errors import TvmExtError
from tvm_ext.core.files.read_file import read_file

if TYPE_CHECKING:
    from pydantic import ValidationError

_MOST_BYTES = 1 << 20
_MOST_CHARACTERS = 200
_LONG_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){16}""")
_TYPE = re.compile(r"(function-|constrained-|dict\[)")
"""Part of pydantic's location that is not a key, but an alternative of a union type."""

Location = tuple[int | str, ...]
"""Keys and indices that lead to a value."""


def read_table(path: Path, kind: str, refusal: type[TvmExtError]) -> dict[str, object]:
    """Return the table of a TOML file.

    kind: what it describes, such as a platform.
    Raises `refusal`.
    """
    try:
        text = read_file(path, most_bytes=_MOST_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise refusal(f"{path}: cannot be read: {error.strerror}; give the path of a {kind}'s .toml file.") from None
    except UnicodeDecodeError:
        raise refusal(f"{path}: is not UTF-8 text; a {kind} is a TOML file.") from None
    if _LONG_KEY.search(text):
        raise refusal(f"{path}: holds a key of more than 16 parts; a {kind} has no such key.")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise refusal(f"{path}: is not valid TOML: {shortened(error)}.") from None


def shortened(error: Exception) -> str:
    """Return an error's text, cut to a line or two."""
    return " ".join(str(error).split())[:_MOST_CHARACTERS]


def explained(
    error: ValidationError, allowed: Callable[[Location], Iterable[str]], renamed: Mapping[str, str] | None = None
) -> str:
    """Explain the first problem found: the key, its value, and what is allowed.

    allowed: keys of the table at a location.
    renamed: present names of keys by their former names.
    """
    problems = error.errors(include_url=False)
    unknown = [one for one in problems if one["type"] in ("unexpected_keyword_argument", "extra_forbidden")]
    first = (unknown or problems)[0]
    parts = [str(part) for part in first["loc"] if not _TYPE.match(str(part))]
    key = re.sub(r"\.(\d+)", r"[\1]", ".".join(parts))
    if unknown:
        keys, last = [*allowed(first["loc"])], parts[-1] if parts else ""
        now = (renamed or {}).get(last)
        near = [now] if now in keys else get_close_matches(last, keys, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return f"{key}: unknown key; allowed here: {', '.join(keys)}.{hint}"
    if first["type"] in ("missing", "missing_argument"):
        return f"{key}: is missing."
    is_ours = first["type"] == "value_error"
    text = first["msg"].removeprefix("Value error, ") if is_ours else first["msg"]
    message = text[0].lower() + text[1:].rstrip(".")
    unit = next((unit for unit in ("bytes", "hz", "cycles") if key.endswith(f"_{unit}")), None)
    suffix = f" (a plain number of {unit})" if unit and not is_ours else ""
    value = repr(first["input"])
    shown = value if len(value) < _MOST_CHARACTERS else value[:_MOST_CHARACTERS] + " ..."
    return f"{key} = {shown}: {message}{suffix}."

"""The page of the keys of a platform file, from the dataclasses that read the file."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from documentation.docstring_lists import with_lists
from documentation.markdown import documented, page, table
from tvm_ext.core import platform_parts
from tvm_ext.core.platform_parts import PlatformTables

PATH = "docs/reference/platform_keys.md"
_FILE = PlatformTables.__name__
_PLACES = {
    _FILE: "",
    "Processor": "`[[processors]]`",
    "Memory": "`[[memories]]`",
    "Link": "`[[links]]`",
    "Signal": "`[[signals]]`",
    "Toolchain": "`[toolchain]`",
    "Board": "`[board]`",
    "MachineMemory": "`[board.memories]`",
    "Offload": "`[processors.offload]`",
    "OffloadOperator": "`[[processors.offload.operators]]`",
    "TvmBackend": "`[processors.tvm]`",
    "OperatorRate": "`[[processors.tvm.rates]]`",
}
_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
}
_LENGTHS = {"minItems": "at least {} of them", "maxItems": "at most {} of them", "maxLength": "at most {} letters"}


def platform_keys_page() -> str:
    """Return the page. Raises ValueError for a table of the schema that is missing in `_PLACES`."""
    schema = TypeAdapter(PlatformTables).json_schema()
    tables = {_FILE: schema, **schema["$defs"]}
    if unplaced := [name for name in tables if name not in _PLACES]:
        raise ValueError(f"{', '.join(unplaced)}: say in documentation/platform_keys.py where a file has them.")
    intro = (
        "A platform is one TOML file. Keys that are not here are refused, as are values outside of what is allowed; "
        "the error names the key. Units stand in names; counts are plain integers, `65536` or `0x10000`. "
        "[Your own board](../howto/board.md) goes through one from the top."
    )
    return page("Keys of a platform", intro, *(_table(name, tables[name]) for name in _PLACES if name in tables))


def _table(name: str, schema: dict[str, Any]) -> str:
    needed = schema.get("required", [])
    rows = [
        (f"`{key}`", _kind(entry), "must be given" if key in needed else _default(entry))
        for key, entry in schema["properties"].items()
    ]
    text = with_lists(documented(getattr(platform_parts, name)))
    title = "The file itself" if name == _FILE else f"{name}, {_PLACES[name]}"
    return f"## {title}\n\n{text}\n\n{table(('key', 'allowed', 'default'), rows)}"


def _kind(entry: dict[str, Any]) -> str:
    """Return the type and the bounds of a key in words."""
    if "$ref" in entry:
        name = entry["$ref"].rpartition("/")[2]
        return f"table {name}"
    if "anyOf" in entry:
        return " or ".join(_kind(choice) for choice in entry["anyOf"] if choice.get("type") != "null")
    if "enum" in entry or "const" in entry:
        return ", ".join(f"`{value}`" for value in entry.get("enum", [entry.get("const")]))
    if entry["type"] == "array":
        items = entry.get("items") or entry["prefixItems"][0]
        return "; ".join([f"list of: {_kind(items)}", *_said(entry, _LENGTHS)])
    if entry["type"] == "object":
        (pattern, values), *_ = entry["patternProperties"].items()
        return f"table of names matching `{pattern}`: {_kind(values)}"
    pattern = [f"matching `{entry['pattern']}`"] if "pattern" in entry else []
    words = {"integer": "integer", "number": "number", "string": "text", "boolean": "`true` or `false`"}
    return ", ".join([words[entry["type"]], *_said(entry, _BOUNDS), *_said(entry, _LENGTHS), *pattern])


def _said(entry: dict[str, Any], words: dict[str, str]) -> list[str]:
    return [text.format(entry[key]) for key, text in words.items() if key in entry]


def _default(entry: dict[str, Any]) -> str:
    value = entry.get("default")
    return "" if value in (None, [], "") else f"`{str(value).lower() if isinstance(value, bool) else value}`"

"""Bundles of small models, written to a folder as a user has them: a BUNDLE.toml and model files beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import onnx

from tests.support.onnx_models import saved

Entry = Mapping[str, object]


def written(folder: Path, models: Mapping[str, onnx.ModelProto], entries: Mapping[str, Entry], **keys: object) -> Path:
    """Path of a BUNDLE.toml. models: by file name. entries: tables of the models by their name; keys: above them."""
    for name, model in models.items():
        saved(model, folder, name)
    lines = [f"{key} = {_value(value)}" for key, value in {"name": "door", **keys}.items()]
    for name, entry in entries.items():
        lines += ["[[models]]", f"name = {_value(name)}", *(f"{key} = {_value(value)}" for key, value in entry.items())]
    path = folder / "BUNDLE.toml"
    path.write_text("\n".join([*lines, ""]))
    return path


def _value(value: object) -> str:
    """A value of Python's as TOML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_value(key)} = {_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value)

"""Damage to command lines and to what they read: option strings, arrays, packages, platform files as text."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.fuzzing.mutate_archive import mutate_archive
from benchmarks.fuzzing.mutate_bytes import mutate_bytes
from benchmarks.fuzzing.mutate_tree import STRINGS, mutate_tree
from benchmarks.fuzzing.random_options import PLATFORMS, shipped
from benchmarks.fuzzing.specimen import CommandSpecimen
from benchmarks.fuzzing.toml_text import toml_text

_VALUES: Mapping[str, tuple[str, ...]] = {
    "-p": ("host", "cortex_m4", "always_on", "cortex_m5", "x.toml", "..", "host.toml"),
    "--shape": ("x=1,4", "x=", "=1", "x=0", "x=1,99999999999", "y=1", "x=-1,4", "x=1;4", "x=1,٤"),
    "--optimize": ("speed", "size", "fast"),
    "--io": ("arena", "caller", "stream", "none"),
    "--pin": ("x=0", "x=16", "x=8", "x=-16", "x=0x10", "y=99999999999999", "=0", "x", "nothing=0", "x=0xfffffffffff0"),
    "--keep": ("x", "y", "nothing", ""),
    "--ram": ("64KiB", "1", "0", "-1", "64", "sram=64", "nothing=64", "1e3", "9" * 30, "ram=64KiB", "=4", "64 KiB"),
    "--quantize": ("none", "int8", "auto", "int4"),
    "--calibration": ("data.npz", "nothing.npz", "."),
    "--memories": ("all", "default", "some"),
    "--io-type": ("int8", "float32"),
    "--min-snr": ("10", "nan", "inf", "-1e400", "0", "x"),
    "--name": ("model", "run", "while", "Model", "a" * 49, "string", "math", "_x", "é", "stdint", "x-y", "main"),
    "--verify": ("none", "none", "host,host", "nobody", ""),
}  # fmt: skip


def random_command(model: bytes, calibration: bytes, rng: random.Random) -> CommandSpecimen:
    """`compile` with options whose values are right, nearly right, or anything."""
    arguments = [
        "compile",
        "model.onnx",
        "-p",
        rng.choice(("host", "cortex_m4", "always_on")),
        "-o",
        "out",
        "--verify",
        "none",
    ]
    for _ in range(rng.choice((1, 2, 3, 4))):
        option = rng.choice(list(_VALUES))
        value = rng.choice(_VALUES[option]) if rng.random() < 0.75 else rng.choice(STRINGS).replace("\0", "")
        arguments += [option, value]
    if rng.random() < 0.1:
        arguments.insert(rng.randrange(len(arguments) + 1), rng.choice(STRINGS).replace("\0", ""))
    if rng.random() < 0.1:
        arguments.append("--json")
    return CommandSpecimen(arguments=tuple(arguments), files={"model.onnx": model, "data.npz": calibration})


def damaged_package(command: CommandSpecimen, rng: random.Random) -> CommandSpecimen:
    """A run of a package, or a look at its report, whose JSON or arrays were changed."""
    name = rng.choice([name for name in command.files if name.endswith((".json", ".npz"))] + ["package/report.json"])
    content = command.files[name]
    if name.endswith(".npz"):
        content = mutate_archive(content, rng)
    elif rng.random() < 0.8:
        content = _json(mutate_tree(json.loads(content), rng))
    else:
        content = mutate_bytes(content, rng)
    arguments = command.arguments if rng.random() < 0.8 else ("report", "package")
    return replace(command, files={**command.files, name: content}, arguments=arguments)


def _json(tree: Any) -> bytes:
    """The value as text; where it is nested deeper than can be written, other text that is."""
    try:
        return json.dumps(tree).encode("utf-8", "surrogatepass")
    except RecursionError:
        return b"[" * 5000 + b"]" * 5000


_BUNDLE: Mapping[str, Any] = {
    "name": "door", "at_once": [["one", "two"]],
    "models": [
        {"name": "one", "file": "one.onnx", "options": {"optimize": "size", "ram": "64KiB"}},
        {"name": "two", "file": "two.onnx", "shapes": {"x": [1, 4]}, "options": {"quantize": "int8"},
         "calibration": "data.npz"},
    ],
}  # fmt: skip
_SWEEP: Mapping[str, Any] = {
    "models": ["*.onnx", "one.onnx"], "platforms": ["cortex_m4", "host"], "tier": "estimate", "shapes": {"x": [1, 4]},
    "calibration": "data.npz",
    "options": {"default": {}, "small": {"optimize": "size", "ram": 32768, "pin": {"x": 16}}},
}  # fmt: skip


def damaged_bundle(model: bytes, calibration: bytes, rng: random.Random) -> CommandSpecimen:
    """`bundle` of two models, with a damaged file, or a damaged model or array beside it."""
    files = {"one.onnx": model, "two.onnx": model, "data.npz": calibration, "BUNDLE.toml": _damaged_table(_BUNDLE, rng)}
    if rng.random() < 0.1:
        name = rng.choice(("one.onnx", "data.npz"))
        files[name] = mutate_bytes(files[name], rng)
    arguments = ("bundle", "BUNDLE.toml", "-p", rng.choice(("host", "cortex_m4")), "-o", "out", "--verify", "none")
    return CommandSpecimen(arguments=arguments, files=files)


def damaged_sweep(model: bytes, calibration: bytes, rng: random.Random) -> CommandSpecimen:
    """`sweep` with a damaged file; it is read up to the jobs of its candidates."""
    files = {"one.onnx": model, "data.npz": calibration, "SWEEP.toml": _damaged_table(_SWEEP, rng)}
    return CommandSpecimen(arguments=("sweep", "SWEEP.toml", "-o", "out"), files=files)


def _damaged_table(table: Mapping[str, Any], rng: random.Random) -> bytes:
    if rng.random() < 0.85:
        try:
            return toml_text(mutate_tree(dict(table), rng)).encode("utf-8", "surrogatepass")
        except (RecursionError, AttributeError):
            return b"name = " + b"[" * 5000 + b"]" * 5000
    return mutate_bytes(toml_text(table).encode(), rng)


def damaged_platform(rng: random.Random) -> bytes:
    """A platform file with values at edges, keys that are not there, or text that is no TOML."""
    content = shipped(rng.choice(PLATFORMS))
    if rng.random() < 0.75:
        try:
            return toml_text(mutate_tree(content, rng)).encode("utf-8", "surrogatepass")
        except RecursionError:
            return b"name = " + b"[" * 5000 + b"]" * 5000
    text = toml_text(content)
    lines = text.splitlines()
    at = rng.randrange(len(lines))
    way = rng.randrange(5)
    if way == 0:
        lines[at] = (
            lines[at].partition("=")[0]
            + "= "
            + rng.choice(("9" * 5000, "[" * 4000, "1e400", "-0", "'''", '"\\u0000"', "1979-05-27"))
        )
    elif way == 1:
        lines.insert(at, rng.choice(lines))
    elif way == 2:
        del lines[at]
    elif way == 3:
        lines[at] = f"[{rng.choice(STRINGS)}]".replace("\0", "")
    else:
        return mutate_bytes(text.encode(), rng)
    return "\n".join(lines).encode("utf-8", "surrogatepass")

"""The page that runs a package in a browser: one HTML file with the WebAssembly module, which needs no network."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from codegen_c.program.interface import Interface, Port
from codegen_c.program.status import NOT_READY
from tvm_ext.browser.forms import FormKind, PageInput, forms_of, needs_features
from tvm_ext.browser.webassembly import PLATFORM, BrowserModule, webassembly
from tvm_ext.core.errors import BadInput, BadPackage
from tvm_ext.execution.batches import Inputs, batch_of
from tvm_ext.packages.package import Package
from tvm_ext.report.page.drawing import bytes_text, layer_kind
from tvm_ext.report.page.memory_picture import WORDS, arenas_of, memory_picture, things_of
from tvm_ext.report.page.page import digest, environment, script_text, style_text, verdict, visible
from tvm_ext.report.read_report import Report

_MACHINE = "machine.js"
"""The script of the worker that runs the model; the page contains it once, and runs it, too."""
_SCRIPTS = ("worker.js", "inside.js", "output.js", "drawing.js", "picture.js", "sound.js", "page.js")
_TITLES: Mapping[FormKind, str] = {
    "draw": "Draw", "picture": "Picture", "sound": "Sound", "values": "Values", "vectors": "Test vectors",
}  # fmt: skip
RANGES: Mapping[tuple[float, float], str] = {
    (0.0, 1.0): "0 to 1", (-1.0, 1.0): "-1 to 1", (0.0, 255.0): "0 to 255", (-128.0, 127.0): "-128 to 127",
}  # fmt: skip
"""Names of the ranges of pixels, which the script picture.js knows."""
_AWAITED: Mapping[FormKind, str] = {
    "draw": "Draw something, and the outputs appear here.",
    "picture": "Choose a picture, and the outputs appear here.",
    "sound": "Play or record sound, and the outputs appear here.",
}  # fmt: skip
_MOST_SAMPLE_BYTES = 16 << 20
_MEAN_AND_DEVIATION = "ImageNet mean and deviation"
_NO_FEATURES = (
    "How they are computed from a picture or a sound is not part of the package, so this page cannot compute them from "
    "a camera or a microphone."
)


def demo_page(package: Package, samples: Inputs | None = None) -> str:
    """Return a page that runs a package as WebAssembly.

    samples: inputs that the page contains, as `Package.run` takes a batch.
    Raises RunFailed for a package that one processor cannot run alone, BadPackage, BadInput, MissingTool, BuildFailed.
    """
    stored = [] if samples is None else _stored(package.interface, samples)
    module = webassembly(package)
    report = visible(package.report)
    try:
        return _page(package.interface, report, module, stored)
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise BadPackage(f"report.json: is damaged at {error}. Compile the model again.") from None


def _page(interface: Interface, report: Report, module: BrowserModule, samples: Sequence[Sequence[str]]) -> str:
    forms = forms_of(interface)
    style, machine, script = _texts()
    name, model = report["model"]["name"], report["model"]
    return (
        environment(Path(__file__).parent)
        .get_template("demo.html.j2")
        .render(
            name=name, platform=report["platform"], source=model.get("source", model["format"]),
            code_size=bytes_text(len(module.code)), ram=bytes_text(report["arena_bytes"]), verified=verdict(report),
            forms=forms, form_titles={**_TITLES, "vectors": "Samples"} if samples else _TITLES,
            awaited=_AWAITED.get(forms[0].kind, ""), ranges=[*RANGES.values(), _MEAN_AND_DEVIATION],
            has_samples=bool(samples),
            form_range={form.kind: RANGES.get((form.low, form.high)) for form in forms},
            has_states=interface.state_bytes > 0, needs_features=needs_features(forms), features=_NO_FEATURES,
            inputs=[_described(port) for port in interface.inputs],
            outputs=[_described(port) for port in interface.outputs],
            steps=_steps(report), memories=_memories(report, module), selftest=_selftest(report),
            speed=_speed(report), words=WORDS, data=_data(interface, report, module, forms, samples),
            maps=[
                memory_picture(arena, [one for one in things_of(report) if one.memory == arena.memory], report["steps"])
                for arena in arenas_of(report)
            ],
            style=style, machine=machine, script=script,
            style_hash=digest(style), machine_hash=digest(machine), script_hash=digest(script),
        )
    )  # fmt: skip


def _stored(interface: Interface, inputs: Inputs) -> list[list[str]]:
    """Return the bytes of each input of each sample, in the order in which the C reads them. Raises BadInput."""
    batch = batch_of(interface, inputs)
    num_bytes = len(batch.samples) * sum(port.num_bytes for port in interface.inputs)
    if num_bytes > _MOST_SAMPLE_BYTES:
        raise BadInput(
            f"samples: {len(batch.samples)} samples are {num_bytes} B, and a page takes at most {_MOST_SAMPLE_BYTES} "
            "B. Give fewer samples."
        )
    return [
        [base64.b64encode(port.handed_over(sample[port.source]).tobytes()).decode() for port in interface.inputs]
        for sample in batch.samples
    ]


def _described(port: Port) -> dict[str, Any]:
    shape = ", ".join(map(str, port.shape))
    return {"source": port.source, "size": port.num_elements, "described": f"{port.dtype}[{shape}] {port.source}"}


def _steps(report: Report) -> list[dict[str, Any]]:
    """Return the rows of layers. part: modelled instructions relative to the layer with the most."""
    amounts = [step.get("modelled_instructions") or 0 for step in report["steps"]]
    most = max(amounts, default=0) or 1
    return [
        {"name": step["name"], "kind": layer_kind(step["kernel"]), "part": round(amount / most, 4)}
        for step, amount in zip(report["steps"], amounts, strict=True)
    ]


def _memories(report: Report, module: BrowserModule) -> list[dict[str, Any]]:
    """Return the memories that the module reports, in the order of their numbers."""
    sizes = {arena["memory"]: int(arena["num_bytes"]) for arena in report["arenas"]}
    return [{"name": name, "bytes": sizes[name]} for name in module.memories]


def _selftest(report: Report) -> str:
    counts: Report = report.get("selftest") or {}
    stored, drawn = int(counts.get("stored_vectors") or 1), int(counts.get("drawn_vectors") or 0)
    runs = f"{stored + drawn:,} test vectors" if stored + drawn > 1 else "1 test vector"
    return f"{runs}, {drawn:,} of them drawn at random" if drawn else runs


def _speed(report: Report) -> str:
    faster = "" if report["platform"] == PLATFORM else f" A package for -p {PLATFORM} uses the browser's vectors."
    return f"Times are of this browser.{faster} The bars are modelled instructions until you measure."


def _data(
    interface: Interface, report: Report, module: BrowserModule, forms: Sequence[PageInput],
    samples: Sequence[Sequence[str]],
) -> str:  # fmt: skip
    """Return what the script reads, as JSON that can stand inside of an HTML element."""
    numbers = {name: number for number, name in enumerate(module.memories)}
    arenas = [arena.memory for arena in arenas_of(report)]
    data = {
        "inputs": [_port(port) for port in interface.inputs],
        "outputs": [{**_port(port), "probabilities": _are_probabilities(port, report)} for port in interface.outputs],
        "forms": [asdict(form) for form in forms],
        "labels": [str(label) for label in report["options"].get("labels") or ()],
        "rounding": interface.rounding,
        "has_states": interface.state_bytes > 0,
        "not_ready": NOT_READY,
        "selftest": _selftest(report),
        "memories": _memories(report, module),
        "steps": [_step(step, numbers) for step in report["steps"]],
        "tensors": [
            {
                "name": thing.c_name, "kind": thing.kind, "memory": numbers.get(thing.memory),
                "map": arenas.index(thing.memory) if thing.memory in arenas else None,
                "offset": thing.offset, "bytes": thing.num_bytes, "begin": thing.begin, "end": thing.end,
            }
            for thing in things_of(report)
        ],
        "samples": samples,
        "code": base64.b64encode(module.code).decode(),
    }  # fmt: skip
    # In a script element only `<` can end the text or begin a comment; without `&` the page is XML up to its script.
    return json.dumps(data, ensure_ascii=True, allow_nan=False).replace("<", "\\u003c").replace("&", "\\u0026")


def _port(port: Port) -> dict[str, Any]:
    low, high = _bounds(port.dtype)
    order = port.stream.layout if port.stream else tuple(range(len(port.shape)))
    strides, step = [0] * len(port.shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= port.shape[axis]
    return {
        "name": port.source, "shape": port.shape, "dtype": port.dtype, "size": port.num_elements, "strides": strides,
        "layout": port.layout, "scale": port.quantization.scale if port.quantization else None,
        "zero_point": port.quantization.zero_point if port.quantization else None, "low": low, "high": high,
    }  # fmt: skip


def _are_probabilities(port: Port, report: Report) -> bool:
    """Return True for an output of a softmax or a sigmoid: its values are from 0 to 1."""
    writers = [step for step in report["steps"] if port.name in [out["c_name"] for out in step["outputs"]]]
    return bool(writers) and any(word in writers[-1]["kernel"] for word in ("softmax", "sigmoid", "logistic"))


def _bounds(dtype: str) -> tuple[int, int]:
    """Return the least and the greatest integer of a type; those of bool are 0 and 1, and floats have none."""
    if dtype == "bool" or "float" in dtype:
        return 0, 1
    info = np.iinfo(dtype)
    return max(int(info.min), -(1 << 53)), min(int(info.max), 1 << 53)


def _step(step: Report, numbers: Mapping[str, int]) -> dict[str, Any]:
    outputs = [
        {
            "name": out["c_name"], "dtype": out["dtype"], "shape": [int(extent) for extent in out["shape"]],
            "size": int(np.prod([int(extent) for extent in out["shape"]], dtype=np.int64)),
            "memory": numbers.get(out["memory"]), "offset": int(out["offset"] or 0), "whole": bool(out["whole"]),
            "scale": out["scale"], "zero_point": out["zero_point"],
        }
        for out in step["outputs"]
    ]  # fmt: skip
    writes = ", ".join(f"{out['name']} {out['dtype']}[{', '.join(map(str, out['shape']))}]" for out in outputs)
    return {"name": step["name"], "kernel": step["kernel"], "outputs": outputs, "writes": writes}


@cache
def _texts() -> tuple[str, str, str]:
    """Return the page's style, the script of its worker, and its own script."""
    folder = Path(__file__).parent
    style, machine, *scripts = (
        (folder / name).read_text(encoding="utf-8") for name in ("demo.css", _MACHINE, *_SCRIPTS)
    )
    return style_text() + style, machine, "".join([*scripts, script_text()])

"""Reports of small models, compiled to a plan alone; and pages as parsed documents."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx

from tests.golden import models
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.decisions.models import ModelOrigin
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.frontends.load import load
from tvm_ext.report.report import make_report

PASSED = {
    "passed": True, "max_abs_error": 0.0, "max_rel_error": 0.0, "elements": 10, "reference": "onnxruntime",
    "own_reading": None,
}  # fmt: skip
Document = ElementTree.Element


def report_of(name: str, platform: str = "cortex_m4", **options: Any) -> dict[str, Any]:
    """A fresh copy of the report of a model of `tests.golden.models`, verified on the host as it says."""
    return json.loads(_report_text(name, platform, tuple(sorted(options.items()))))


@cache
def _report_text(name: str, platform: str, options: tuple[tuple[str, Any], ...]) -> str:
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        onnx.save(getattr(models, name)(), path)
        mod, chosen = load(path), BuildOptions(**dict(options))
        compiled = compile_module(mod, Platform.load(platform), chosen)
        report = make_report(
            compiled, chosen, ModelOrigin.read(mod), code_bytes=1000, stack_bytes=None,
            artifacts={"library": "lib.a", "elf": None}, verify={"host": PASSED, "qemu": None},
        )  # fmt: skip
    return json.dumps(report)


def parsed(page: str) -> Document:
    """A page, which is well-formed XML, too."""
    return ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>\n"))


def words(part: Document) -> str:
    """All text of a part of a page."""
    return " ".join(" ".join(part.itertext()).split())

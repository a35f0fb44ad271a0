"""The registry of forms, which finds them by their files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from codegen_c.emit.forms.form import Form, PackageParts

_HERE = "codegen_c.emit.forms"


@cache
def forms() -> tuple[Form, ...]:
    """Return the FORM of every module in this folder, ordered by file name."""
    names = sorted(info.name for info in iter_modules(import_module(_HERE).__path__, f"{_HERE}."))
    found = [getattr(import_module(name), "FORM", None) for name in names]
    return tuple(form for form in found if form is not None)


def emit_forms(parts: PackageParts) -> dict[str, str]:
    """Return the texts of all forms by relative name."""
    return {name: text for form in forms() for name, text in form.files(parts).items()}


def cmake_of_forms(parts: PackageParts) -> str:
    """Return the lines that forms add to the package's CMakeLists.txt, before its project."""
    return "".join(form.in_cmake(parts) for form in forms())


def usages(name: str) -> Mapping[str, str]:
    """Return the lines that a user types, by the name of the build system."""
    return {form.title: form.usage.replace("{name}", name) for form in forms()}

"""The page of Python names: every public name, for which mkdocstrings inserts the docstring."""

from __future__ import annotations

import tvm_ext
from documentation.markdown import page
from tvm_ext import custom

PATH = "docs/reference/python.md"


def python_page() -> str:
    homes = tvm_ext._HOMES
    functions = [name for name in tvm_ext.__all__ if name[0].islower() and name not in ("custom", "errors")]
    classes = [name for name in tvm_ext.__all__ if name[0].isupper()]
    intro = (
        "Names of `tvm_ext`, each with what its docstring says; those of `tvm_ext.custom` last. Errors have "
        "[a page of their own](errors.md)."
    )
    names = [f"{homes[name]}.{name}" for name in (*functions, *classes)]
    own = [f"{getattr(custom, name).__module__}.{name}" for name in custom.__all__]
    return page("Python", intro, *(f"::: {name}" for name in (*names, *own)))

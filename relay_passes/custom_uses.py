"""Calls of operators that the user brought, in a module."""

from __future__ import annotations

import tvm
from tvm import relax

from tvm_ext.core.decisions.custom import CustomUse


def custom_use(value: relax.Expr) -> CustomUse | None:
    """The use of a custom operator that an expression is, None for everything else."""
    if not isinstance(value, relax.Call) or not isinstance(value.attrs, tvm.ir.DictAttrs):
        return None
    use = CustomUse.read(value)
    return use if use.operator else None

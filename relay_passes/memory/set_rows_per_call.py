"""Gives sequences of operators that run row by row another number of rows per call, such as one that measured better.

Rewrite:
    c1, c2 carry RowSplit(sequence="sequence_0", rows_per_call=1)  ->  RowSplit(sequence="sequence_0", rows_per_call=4)
Leaves alone: sequences that nothing is said of; what runs whole; the order of operators, and what each one computes.
More rows a call keep more rows alive: whether these fit is seen when memory is planned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import tvm
from tvm import relax

from tvm_ext.core.decisions.composites import RowSplit


@tvm.transform.module_pass(opt_level=0, name="SetRowsPerCall")
class SetRowsPerCall:
    """Sets rows per call. rows: by the name of a sequence."""

    def __init__(self, rows: Mapping[str, int]) -> None:
        self.rows = rows

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        changed = {
            name: replace(split, rows_per_call=rows)
            for name, function in mod.functions_items()
            if isinstance(function, relax.Function)
            and (split := RowSplit.read(function)).sequence
            and (rows := self.rows.get(split.sequence, split.rows_per_call)) != split.rows_per_call
        }
        if not changed:
            return mod
        module = mod.clone()
        for name, split in changed.items():
            module.update_func(name, split.write(mod[name]))
        return module

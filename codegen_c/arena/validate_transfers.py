"""Replays transfers over bytes that know their owner; part of the validator.

Bytes that a transfer still fills carry a number of their own, so that no step can take them for the tensor's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from codegen_c.program.program import Program
from codegen_c.program.steps import Transfer, calls
from tvm_ext.core.errors import PlanRejected

FIRST_FLIGHT_NUMBER = -(1 << 30)
"""Bytes of targets in flight carry numbers from here up: rings of rows have some just below 0."""


class Flights:
    """The transfers under way. bytes_of: owners of a tensor's bytes, None of one that the caller holds."""

    def __init__(self, bytes_of: Callable[[str], np.ndarray | None]) -> None:
        self.bytes_of = bytes_of
        self.started = 0
        self.under_way: dict[int, Transfer] = {}

    def start(self, transfer: Transfer, where: str) -> None:
        """Raises PlanRejected for a number out of turn: transfers end in the order in which they start."""
        if transfer.number != self.started:
            raise PlanRejected(f"{where}: transfer {transfer.number} starts when {self.started} is next.")
        self.under_way[self.started] = transfer
        self._mark(transfer, FIRST_FLIGHT_NUMBER + self.started)
        self.started += 1

    def wait(self, transfer: Transfer, number: int, where: str) -> None:
        """Ends a transfer: its target's bytes become its own.

        Raises PlanRejected where it never began, or something was written over its target.
        """
        if transfer.number is None or self.under_way.pop(transfer.number, None) != transfer:
            raise PlanRejected(f"{where}: waits for {transfer.name}, which is not under way.")
        target = self.bytes_of(transfer.target)
        if target is not None and (target != FIRST_FLIGHT_NUMBER + transfer.number).any():
            raise PlanRejected(f"{where}: {transfer.target} was written to while {transfer.name} filled it.")
        self._mark(transfer, number)

    def finish(self) -> None:
        """Raises PlanRejected for transfers that no step waited for."""
        if self.under_way:
            names = ", ".join(transfer.name for transfer in self.under_way.values())
            raise PlanRejected(f"the end: nothing waits for {names}.")

    def _mark(self, transfer: Transfer, number: int) -> None:
        target = self.bytes_of(transfer.target)
        if target is not None:
            target[:] = number


def check_copies(program: Program) -> None:
    """Raises PlanRejected where a transfer's ends differ in bytes, or a kernel's constants were never copied there."""
    copied: set[tuple[str, str]] = set()
    for index, step in enumerate(program.steps):
        for inner in calls(step):
            where = f"step {index} ({step.name})"
            if isinstance(inner, Transfer):
                constant = program.constants[inner.source] if inner.source_is_constant else None
                size = constant.data.nbytes if constant else program.tensors[inner.source].num_bytes
                if size != program.tensors[inner.target].num_bytes:
                    raise PlanRejected(f"{where}: {inner.source} and {inner.target} differ in bytes.")
                if constant:
                    copied.add((inner.source, inner.target))
            for constant, tensor in getattr(inner, "fetched", ()):
                held = program.constants[constant].layer or constant
                if (held, tensor) not in copied:
                    raise PlanRejected(f"{where}: {constant} is read from {tensor} and was never copied there.")

"""The host with back ends of TVM's beside our C, as a user's platform file says them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm_ext.core.platform import Platform, Processor
from tvm_ext.core.platform_parts import OperatorRate, TvmBackend


def mixed(*backends: tuple[str, TvmBackend], **more: Any) -> Platform:
    """The host's core, and a processor for each (name, back end). more: other values of the platform."""
    host = Platform.load("host")
    others = [Processor(name=name, isa="host", clock_hz=10**9, kind="tvm", tvm=made_by) for name, made_by in backends]
    return replace(host, name="mixed", processors=(host.processor, *others), **more)


def llvm(*fast: str, slow: float = 1e6, **more: Any) -> tuple[str, TvmBackend]:
    """TVM's own code, much faster than our C at operators of these kinds, and much slower at others."""
    rates = tuple(OperatorRate(operator=kind, macs_per_second=1e15, bytes_per_second=1e15) for kind in fast)
    made_by = TvmBackend(
        target="llvm", rates=rates, macs_per_second=slow, bytes_per_second=slow, seconds_per_call=0, **more
    )
    return "llvm", made_by


def toy(rate: float = 1e15) -> tuple[str, TvmBackend]:
    """The back end of `tests/support/toy_byoc.py`, at some rate."""
    return "npu", TvmBackend(codegen="toy", macs_per_second=rate, bytes_per_second=rate, seconds_per_call=0)

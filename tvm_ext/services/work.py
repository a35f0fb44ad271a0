"""Entry points of workers, which child processes and executors call: run the function of a job by its name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from tvm_ext.services.contents import KeptInputs, Sent
from tvm_ext.services.import_tvm import import_tvm_alone
from tvm_ext.services.job import answer_with

_KEPT = KeptInputs()


def prepare() -> None:
    """Import what all jobs need, before the first job."""
    import_tvm_alone()


def run(function: str, *inputs: bytes) -> bytes:
    """Run the function of a job and return the answer: the hash of this process's code, and the result."""
    module, _, name = function.rpartition(".")
    return answer_with(getattr(import_module(module), name)(*inputs))


def run_named(function: str, *inputs: Sent, ask: Callable[[str], bytes]) -> bytes:
    """Run a job whose large inputs are named by their hashes. ask: returns an input that this process does not keep."""
    return run(function, *_KEPT.received(inputs, ask))


def run_alone(function: str, *inputs: Sent, ask: Callable[[str], bytes]) -> bytes:
    """Run a job in a process that runs only our code, so that tvm can be imported without PyTorch."""
    import_tvm_alone()
    return run_named(function, *inputs, ask=ask)

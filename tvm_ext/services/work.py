"""The work of a service: calls one function by name. It is the module that children and executors are handed."""

from __future__ import annotations

from importlib import import_module

from tvm_ext.services.import_tvm import import_tvm_alone
from tvm_ext.services.job import answer_with


def run(function: str, *inputs: bytes) -> bytes:
    """The answer to a job: the code of this process, and the result of the job's function."""
    module, _, name = function.rpartition(".")
    return answer_with(getattr(import_module(module), name)(*inputs))


def run_alone(function: str, *inputs: bytes) -> bytes:
    """The same in a process that is ours alone, where tvm does not have to bring PyTorch."""
    import_tvm_alone()
    return run(function, *inputs)

"""`keep`: values inside a model that stay readable behind a run, by name, by pattern, or all of them."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from codegen_c.backend.ports import kept_values
from tests.support.onnx_models import saved
from tests.support.packages import sample
from tests.support.random_models import random_model
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions, Package, Platform
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.platform import QUICK_TOOLCHAIN
from tvm_ext.execution.host_model import host_library
from tvm_ext.verification.reference_runtimes.ask import ask

WAYS = (BuildOptions(verify=()), BuildOptions(verify=(), io="caller"), BuildOptions(verify=(), context="caller"))


def kept_behind_a_run(package: Package, inputs: dict[str, np.ndarray], folder: Path) -> dict[str, np.ndarray]:
    """Values as the functions of the header give them behind one run of the C, under the model's names and axes."""
    interface = package.interface
    library = ctypes.CDLL(str(host_library(package.folder, interface, folder, toolchain=QUICK_TOOLCHAIN)))
    block = np.zeros(interface.context_bytes + 64, np.uint8)
    context = [ctypes.c_void_p(-(-block.ctypes.data // 64) * 64)] if interface.holds_context else []
    run = getattr(library, interface.run)
    if interface.io == "caller":
        arrays = [np.ascontiguousarray(inputs[port.source]) for port in interface.inputs]
        arrays += [np.zeros(port.shape, port.dtype) for port in interface.outputs]
        assert run(*context, *(ctypes.c_void_p(array.ctypes.data) for array in arrays)) == 0
    else:
        for port in interface.inputs:
            array = np.ascontiguousarray(inputs[port.source])
            ctypes.memmove(address(library, interface.accessor(port), context), array.ctypes.data, array.nbytes)
        assert run(*context) == 0
    found = {}
    for value in package.report["kept"]:
        place = address(library, f"{interface.model}_kept_{value['c_name']}", context)
        stored = np.frombuffer(ctypes.string_at(place, value["num_bytes"]), value["dtype"]).reshape(value["shape"])
        found[value["name"]] = stored.transpose(np.argsort(value["layout"])) if value["layout"] else stored
    return found


def address(library: ctypes.CDLL, name: str, context: list[ctypes.c_void_p]) -> int:
    function = getattr(library, name)
    function.restype = ctypes.c_void_p
    return function(*context)


@pytest.mark.parametrize("options", WAYS, ids=("arena", "caller", "context"))
@pytest.mark.parametrize("seed", some_of([1], sweep=range(6)))
def test_all_values_are_there_behind_a_run(seed: int, options: BuildOptions, tmp_path: Path) -> None:
    module = tvm_ext.load(saved(random_model(seed), tmp_path))
    package = tvm_ext.build(module, "host", tmp_path / "kept", replace(options, keep=("all",)))
    inputs = sample(package)
    found = kept_behind_a_run(package, inputs, tmp_path / "library")
    known = ask(module, [inputs], list(found), quantized_here=False).inner[0]
    compared = [name for name in found if name in known]
    assert len(compared) >= 3
    for name in compared:
        np.testing.assert_allclose(found[name], known[name], rtol=0, atol=1e-4 * np.abs(known[name]).max(initial=1e-9))


def test_patterns_and_names_choose(tmp_path: Path) -> None:
    module = tvm_ext.load(saved(random_model(1), tmp_path))
    host = Platform.load("host")
    every = compile_module(module, host, BuildOptions(keep=("all",))).interface.kept
    names = [value.port.source for value in every]
    head = names[0][:4]
    chosen = compile_module(module, host, BuildOptions(keep=(f"{head}*", names[-1]))).interface.kept
    assert [value.port.source for value in chosen] == [n for n in names if n.startswith(head)] + [
        name for name in names[-1:] if not name.startswith(head)
    ]
    by_c_name = compile_module(module, host, BuildOptions(keep=(every[0].port.name,))).interface.kept
    assert [value.port.source for value in by_c_name] == names[:1]


def test_a_pipeline_has_no_one_place_for_a_value(tmp_path: Path) -> None:
    built = compile_module(tvm_ext.load(saved(random_model(1), tmp_path)), Platform.load("host"), BuildOptions())
    inside = [name for name in built.plan.placements if name in built.program.tensors]
    with pytest.raises(BadOptions, match="a pipeline works on 2 inputs at once"):
        kept_values(built.program, built.plan, inside, in_flight=2)
    ports = (*built.program.inputs, *built.program.outputs)
    assert kept_values(built.program, built.plan, ports, in_flight=2) == ()


def test_a_wrong_name_is_answered_with_the_names_there_are_near_ones_first(tmp_path: Path) -> None:
    module = tvm_ext.load(saved(random_model(1), tmp_path))
    host = Platform.load("host")
    names = [value.port.source for value in compile_module(module, host, BuildOptions(keep=("all",))).interface.kept]
    wrong = f"{names[-1]}x"
    with pytest.raises(BadOptions) as error:
        compile_module(module, host, BuildOptions(keep=(wrong,)))
    listed = str(error.value).split("Similar names first, it has: ")[1].rstrip(".").split(", ")
    assert str(error.value).startswith(f"'{wrong}' is not a tensor of the compiled model")
    assert listed[0] == names[-1] and {*names, "image"} <= {*listed}
    with pytest.raises(BadOptions, match="'nothing_\\*' is not a tensor of the compiled model"):
        compile_module(module, host, BuildOptions(keep=("nothing_*",)))

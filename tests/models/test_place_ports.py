"""Inputs and outputs in memories of the user's choice or of the search's: the plan, the C, bits; and what cannot be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm

import tvm_ext
from codegen_c.backend.build import Compiled
from tests.support.onnx_models import image_in_and_out, saved
from tvm_ext import BuildOptions, Platform
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.errors import BadOptions, DoesNotFit

BOARD = Platform.load("always_on")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> tvm.IRModule:
    return tvm_ext.load(saved(image_in_and_out(), tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def ports(network: tvm.IRModule) -> tuple[str, str]:
    """The model's own names of its input and its output."""
    interface = compile_module(network, BOARD, BuildOptions()).interface
    return interface.inputs[0].source, interface.outputs[0].source


def memories_of(compiled: Compiled) -> tuple[str, str]:
    interface, placements = compiled.interface, compiled.plan.placements
    return placements[interface.inputs[0].name].memory, placements[interface.outputs[0].name].memory


@pytest.mark.parametrize("memories", ["all", "default"])
def test_ports_lie_where_they_are_wanted(network: tvm.IRModule, ports: tuple[str, str], memories: str) -> None:
    source, target = ports
    options = {"memories": memories}
    assert memories_of(compile_module(network, BOARD, BuildOptions(**options)))[0] == "sram"  # type: ignore[arg-type]
    placed = compile_module(network, BOARD, BuildOptions(place_port={source: "dtcm"}, **options))  # type: ignore[arg-type]
    assert memories_of(placed)[0] == "dtcm"
    both = compile_module(network, BOARD, BuildOptions(place_port={source: "dtcm", target: "dtcm"}, **options))  # type: ignore[arg-type]
    assert memories_of(both) == ("dtcm", "dtcm")
    text = both.sources()[f"{both.interface.model}_memory.c"]
    assert text.count(f"return {both.interface.model}_dtcm.") == 2


def test_the_search_places_ports_that_are_left_to_it(network: tvm.IRModule, ports: tuple[str, str]) -> None:
    """In the fast memory where it has room, and each by itself."""
    source, target = ports
    whole = compile_module(network, BOARD, BuildOptions(place_port={source: "auto", target: "auto"}))
    assert memories_of(whole) == ("dtcm", "dtcm")
    assert all(move.source_is_constant for move in whole.program.moves()), "the input is not copied"
    one = compile_module(network, BOARD, BuildOptions(place_port={source: "auto"}))
    assert memories_of(one) == ("dtcm", "sram")
    full = compile_module(network, BOARD, BuildOptions(place_port={source: "auto"}, ram={"dtcm": 64}))
    assert memories_of(full)[0] == "sram"
    alone = compile_module(network, BOARD, BuildOptions(place_port={source: "auto"}, memories="default"))
    assert memories_of(alone)[0] == "sram"


def test_no_bit_of_a_package_changes(network: tvm.IRModule, ports: tuple[str, str], tmp_path: Path) -> None:
    found = []
    for index, places in enumerate((None, {ports[0]: "dtcm", ports[1]: "sram"}, {ports[0]: "auto", ports[1]: "auto"})):
        options = BuildOptions(place_port=places, verify=() if places else ("host",))
        package = tvm_ext.build(network, BOARD, tmp_path / str(index), options)
        inputs = {ports[0]: np.linspace(-1, 1, np.prod(package.inputs[ports[0]].shape), dtype=np.float32)}
        inputs = {name: value.reshape(package.inputs[name].shape) for name, value in inputs.items()}
        found.append(package.run(inputs)[ports[1]].tobytes())
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"place_port": {"nothing": "dtcm"}}, "place_port: the model has no input or output 'nothing'; it has "),
        (
            {"place_port": {"INPUT": "flash"}},
            "place_port .*=flash: always_on has no memory 'flash' for tensors; it has dtcm",
        ),
        ({"place_port": {"INPUT": "dtcm"}, "io": "caller"}, "place_port: with io = 'caller'"),
        ({"place_port": {"INPUT": "dtcm"}, "context": "caller"}, "place_port: with context = 'caller'"),
        ({"place_port": {"INPUT": 3}}, "place_port = .*: give {input or output: memory}"),
        ({"place_port": ["x=dtcm"]}, "place_port = .*: give {input or output: memory}"),
    ],
)
def test_places_that_cannot_be(
    network: tvm.IRModule, ports: tuple[str, str], options: dict[str, object], message: str
) -> None:
    said = options["place_port"]
    if isinstance(said, dict):
        options = {**options, "place_port": {ports[0] if n == "INPUT" else n: m for n, m in said.items()}}
    with pytest.raises(BadOptions, match=message):
        compile_module(network, BOARD, BuildOptions(**options))  # type: ignore[arg-type]


def test_a_core_that_does_not_reach_it(network: tvm.IRModule, ports: tuple[str, str]) -> None:
    shipped = Platform.load("dual_m33_equal")
    near = replace(shipped.memory("sram"), name="near", address=0x2000_0000, section=".near", capacity_bytes=4096)
    link = replace(shipped.links[0], target="near")
    platform = replace(shipped, memories=(*shipped.memories, near), links=(*shipped.links, link))
    with pytest.raises(BadOptions, match=r"=near: cpu1 of dual_m33_equal does not reach near; choose another memory"):
        compile_module(network, platform, BuildOptions(place_port={ports[0]: "near"}))


def test_a_memory_that_is_too_small(network: tvm.IRModule, ports: tuple[str, str]) -> None:
    options = BuildOptions(place_port={ports[0]: "dtcm"}, ram={"dtcm": 64})
    with pytest.raises(DoesNotFit, match="dtcm of always_on may give 64 B"):
        compile_module(network, BOARD, options)

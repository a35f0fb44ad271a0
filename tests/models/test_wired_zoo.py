"""Searched, randomly wired, U-shaped and dense networks: size, wiring, small ones on the host, orders of large ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import onnx
import pytest

import tvm_ext
from benchmarks import order, zoo
from benchmarks.hmcos import hmcos
from benchmarks.networks.searched import AMOEBANET_A, DARTS, NASNET_A, Family, searched
from benchmarks.networks.wired import dense_block, randwire, unet, watts_strogatz
from relay_passes.solvers.schedule.search import schedule
from tests.support.onnx_models import saved
from tests.support.packages import Packages
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions, Platform
from tvm_ext.compilation.pipeline import compile_module


def small(name: str, family: Family) -> onnx.ModelProto:
    """One normal cell, one reduction cell, one more normal cell."""
    return searched(name, family, cells=1, channels=4, size=8, stacks=2)


SMALL: dict[str, Callable[[str], onnx.ModelProto]] = {
    "darts_small": partial(small, family=DARTS),
    "nasnet_small": partial(small, family=NASNET_A),
    "amoebanet_small": partial(small, family=AMOEBANET_A),
    "randwire_small": partial(randwire, seed=0, stages=(6,), channels=4, size=8),
    "unet_small": partial(unet, channels=4, depth=2, size=16),
    "dense_small": partial(dense_block, layers=3, growth=4, size=8),
}


@pytest.mark.parametrize("name", some_of([*SMALL][::3], sweep=[name for index, name in enumerate(SMALL) if index % 3]))
def test_small_ones_are_verified(packages: Packages, name: str) -> None:
    package = packages.small(name, partial(SMALL[name], name))
    assert package.report["verify"]["host"]["passed"]
    assert (package.folder / "report.html").is_file()
    assert "(report.html)" in (package.folder / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["darts_cifar_6_36", "nasnet_a_cifar_6_32", "amoebanet_a_cifar_6_36"])
def test_searched_networks_have_as_many_operators_as_published(name: str) -> None:
    assert 600 <= len(zoo.build(f"{name}_fp32").graph.node) <= 900


def test_small_world_graphs_keep_their_edges_and_repeat() -> None:
    edges = watts_strogatz(32, 4, 0.75, 0)
    assert len(edges) == len(set(edges)) == 64 and all(u < v for u, v in edges)
    assert edges == watts_strogatz(32, 4, 0.75, 0) != watts_strogatz(32, 4, 0.75, 1)
    assert watts_strogatz(8, 2, 0.0, 0) == sorted([*((n, n + 1) for n in range(7)), (0, 7)])


@pytest.mark.parametrize("name", some_of([*zoo.WIRED][:1], sweep=[*zoo.WIRED][1:]))
def test_orders_are_proved_and_no_worse_than_the_hierarchical_ones(name: str) -> None:
    graph = order.plain_graph(zoo.build(f"{name}_fp32"))
    ours, (theirs, their_peak) = schedule(graph), hmcos(graph)
    given = order.peak_bytes(graph, range(len(graph.nodes)))
    assert order.peak_bytes(graph, ours.order) == ours.peak_bytes
    assert order.peak_bytes(graph, theirs) == their_peak
    assert ours.proved and ours.peak_bytes <= their_peak <= given


@pytest.mark.parametrize(
    "name",
    some_of(
        ["unet_16_fp32", "dense_block_12_fp32", "dense_block_12_int8"],
        sweep=["unet_16_int8", "amoebanet_a_cifar_6_36_fp32"],
    ),
)
def test_arenas_are_as_small_as_the_most_that_is_alive(name: str, tmp_path: Path) -> None:
    """Where things lie costs nothing: the arena has no more bytes than the order asks for, fewer where copies go."""
    module = tvm_ext.load(saved(zoo.build(name), tmp_path, name))
    compiled = compile_module(module, Platform.load("host"), BuildOptions())
    (arena,) = compiled.plan.arenas
    assert arena.proved and arena.num_bytes <= (compiled.schedule_peak_bytes or 0)
    assert arena.num_bytes == -(-arena.lower_bound_bytes // arena.alignment_bytes) * arena.alignment_bytes

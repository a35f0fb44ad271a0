"""ScheduleOperators and the search behind it: orders against brute force, Before and Expected for the pass."""

from __future__ import annotations

from itertools import permutations

import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.dataflow import bindings
from relay_passes.memory.schedule_operators import ScheduleOperators
from relay_passes.regions.form_composites import FormComposites
from relay_passes.solvers.graph import Graph, Node
from relay_passes.solvers.schedule import search as schedule_search
from relay_passes.solvers.schedule.search import schedule
from tests.passes.modules import without_spans
from tests.passes.stub_backend import StubBackend
from tvm_ext.core.time_model import Footprint


def peak(graph: Graph, order: tuple[int, ...]) -> int | None:
    """The definition, counted anew at every step; None where an operator reads what is not there yet."""
    there, most = set(graph.inputs), sum(graph.sizes[value] for value in graph.inputs)
    for place, index in enumerate(order):
        node = graph.nodes[index]
        if not set(node.reads) <= there:
            return None
        later = {value for other in order[place + 1 :] for value in graph.nodes[other].reads} | graph.outputs
        there |= set(node.writes)
        shared = max((node.shared_bytes.get(value, 0) for value in set(node.reads) - later), default=0)
        most = max(most, sum(graph.sizes[value] for value in there) + node.extra_bytes - shared)
        # An input no one reads stays: nothing ever ends its life.
        there -= {*node.reads, *node.writes} - later
    return most


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    num_inputs = draw(st.integers(1, 2))
    sizes = [draw(st.integers(1, 9)) for _ in range(num_inputs)]
    nodes: list[Node] = []
    for _ in range(draw(st.integers(1, 6))):
        reads = tuple(draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=3)))
        writes = tuple(range(len(sizes), len(sizes) + draw(st.integers(1, 2))))
        sizes += [draw(st.integers(0, 9)) for _ in writes]
        shared = {v: draw(st.integers(0, min(sizes[v], sizes[writes[0]]))) for v in reads if draw(st.booleans())}
        nodes.append(Node(reads=reads, writes=writes, extra_bytes=draw(st.integers(0, 4)), shared_bytes=shared))
    outputs = draw(st.sets(st.integers(0, len(sizes) - 1), max_size=3))
    return Graph(
        nodes=tuple(nodes), sizes=tuple(sizes), inputs=frozenset(range(num_inputs)), outputs=frozenset(outputs)
    )


@settings(max_examples=300, deadline=None)
@given(graphs())
def test_the_peak_is_the_least_of_all_orders(graph: Graph) -> None:
    found = schedule(graph)
    peaks = [p for order in permutations(range(len(graph.nodes))) if (p := peak(graph, order)) is not None]
    assert peak(graph, found.order) == found.peak_bytes == min(peaks)
    assert found.proved and found.bound_bytes == found.peak_bytes


@settings(max_examples=100, deadline=None)
@given(graphs(), st.integers(0, 30))
def test_a_search_cut_short_claims_nothing_false(graph: Graph, steps: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule_search, "BEAM", 1)
        patch.setattr(schedule_search, "MOST_STEPS", steps)
        found = schedule(graph)
    peaks = [p for order in permutations(range(len(graph.nodes))) if (p := peak(graph, order)) is not None]
    in_order = peak(graph, tuple(range(len(graph.nodes))))
    assert in_order is not None
    assert found.bound_bytes <= min(peaks) <= found.peak_bytes <= in_order
    assert peak(graph, found.order) == found.peak_bytes
    assert not found.proved or found.peak_bytes == min(peaks)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(graphs(), st.integers(0, 40))
def test_a_narrower_beam_gives_a_valid_order(graph: Graph, steps: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule_search, "MOST_BEAM_STEPS", steps)
        found = schedule(graph)
    assert peak(graph, found.order) == found.peak_bytes
    assert found.bound_bytes <= schedule(graph).peak_bytes <= found.peak_bytes


def test_no_nodes() -> None:
    found = schedule(Graph(nodes=(), sizes=(7,), inputs=frozenset({0}), outputs=frozenset({0})))
    assert (found.order, found.peak_bytes, found.proved) == ((), 7, True)


def test_an_order_no_other_beats_stays() -> None:
    nodes = tuple(Node(reads=(i,), writes=(i + 1,), shared_bytes={}) for i in range(5))
    graph = Graph(nodes=nodes, sizes=(1, 5, 2, 2, 5, 1), inputs=frozenset({0}), outputs=frozenset({5}))
    assert schedule(graph).order == (0, 1, 2, 3, 4)


class MeasuringBackend(StubBackend):
    """One operator per composite, without scratch."""

    def footprint(self, _composite: relax.Function) -> Footprint:
        return Footprint(instructions=1)


@I.ir_module
class Wide:
    """Two branches that grow and shrink: given breadth first, better depth first."""

    @R.function
    def main(x: R.Tensor((1, 16), "float32"), w: R.Tensor((16, 64), "float32"), v: R.Tensor((64, 4), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.matmul(x, w)
            c = R.matmul(a, v)
            d = R.matmul(b, v)
            y = R.matmul(R.permute_dims(c), d)
            R.output(y)
        return y


@I.ir_module
class Chain:
    @R.function
    def main(x: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.exp(a)
            R.output(b)
        return b


def scheduled(module: tvm.IRModule) -> tuple[tvm.IRModule, tvm.IRModule]:
    formed = FormComposites(MeasuringBackend(max_operators=1))(without_spans(module))
    return formed, ScheduleOperators(MeasuringBackend())(formed)


def names(module: tvm.IRModule) -> list[str]:
    return [binding.var.name for binding in bindings(module["main"])]


def test_a_branch_is_finished_before_the_next_begins() -> None:
    before, after = scheduled(Wide)
    assert names(before)[:4] == ["a", "b", "c", "d"]
    order = names(after)
    assert sorted(order) == sorted(names(before))
    first, second = ("a", "c"), ("b", "d")
    assert not (order.index(first[0]) < order.index(second[0]) < order.index(first[1]))
    assert not (order.index(second[0]) < order.index(first[0]) < order.index(second[1]))
    assert after["main"].attrs["schedule_proved"]
    assert int(after["main"].attrs["schedule_peak_bytes"]) == 4 * (16 + 16 * 64 + 64 * 4 + 64 + 4)


def test_a_chain_is_left_alone() -> None:
    before, after = scheduled(Chain)
    attributes = {"schedule_peak_bytes": 128, "schedule_proved": True}
    expected = before.clone()
    expected.update_func(before.get_global_var("main"), before["main"].with_attrs(attributes))
    tvm.ir.assert_structural_equal(after, expected)


def test_a_module_with_control_flow_is_left_alone() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([4], "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.nn.relu(x)))
    module = builder.get()
    tvm.ir.assert_structural_equal(ScheduleOperators(MeasuringBackend())(module), module)

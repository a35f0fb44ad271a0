"""Peaks of live bytes of operator orders: the order given, ours, and that of a published hierarchical algorithm.

    python benchmarks/order.py --output benchmarks/results/order.json

The model is plain: float32 values as the ONNX file has them, an operator holds its inputs and outputs, nothing shares
memory. A peak is proved where no order has a lower one; otherwise the bound says how far off it may be.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import zoo  # noqa: E402
from benchmarks.hmcos import hmcos  # noqa: E402
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from benchmarks.networks.wired import randwire  # noqa: E402
from relay_passes.solvers.graph import Graph, Node  # noqa: E402
from relay_passes.solvers.schedule.search import schedule  # noqa: E402

NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    **{name: (lambda name=name: zoo.build(f"{name}_fp32")) for name in zoo.WIRED},
    **{f"randwire_seed_{seed}": (lambda seed=seed: randwire("randwire", seed=seed)) for seed in (1, 2)},
}


def plain_graph(model: onnx.ModelProto) -> Graph:
    """The graph of a model's activations: shapes as onnx infers them, four bytes per element; constants left out."""
    graph = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    constants = {tensor.name for tensor in graph.initializer}
    elements: dict[str, int] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        elements[value.name] = 1
        for dim in value.type.tensor_type.shape.dim:
            elements[value.name] *= dim.dim_value
    names = [port.name for port in graph.input] + [name for node in graph.node for name in node.output]
    numbers = {name: number for number, name in enumerate(names)}
    nodes = [
        Node(
            reads=tuple(numbers[name] for name in node.input if name and name not in constants),
            writes=tuple(numbers[name] for name in node.output),
            shared_bytes={},
        )
        for node in graph.node
    ]
    return Graph(
        nodes=tuple(nodes),
        sizes=tuple(4 * elements[name] for name in names),
        inputs=frozenset(numbers[port.name] for port in graph.input),
        outputs=frozenset(numbers[port.name] for port in graph.output),
    )


def peak_bytes(graph: Graph, order: Sequence[int]) -> int:
    """The most bytes alive while nodes run in an order, counted from lifetimes alone.

    Raises ValueError if a node runs before what it reads is there, or not exactly once.
    """
    if sorted(order) != list(range(len(graph.nodes))):
        raise ValueError("not every node runs exactly once")
    end = {value: -1 for value in graph.inputs}
    begin = dict.fromkeys(graph.inputs, 0)
    for step, index in enumerate(order):
        for value in graph.nodes[index].reads:
            if value not in begin:
                raise ValueError(f"node {index} reads value {value} before it is there")
            end[value] = step
        for value in graph.nodes[index].writes:
            begin[value] = end[value] = step
    end |= dict.fromkeys(graph.outputs, len(order))
    changes = [0] * (len(order) + 2)
    for value, first in begin.items():
        changes[first] += graph.sizes[value]
        changes[max(end[value], 0) + 1] -= graph.sizes[value]
    live = most = 0
    for change in changes:
        live += change
        most = max(most, live)
    return most


def measure(model: onnx.ModelProto) -> dict[str, object]:
    """The figures of one network: nodes, peaks in bytes, seconds of CPU."""
    graph = plain_graph(model)
    begin = time.process_time()
    ours = schedule(graph)
    middle = time.process_time()
    theirs, _ = hmcos(graph)
    return {
        "nodes": len(graph.nodes),
        "given_bytes": peak_bytes(graph, range(len(graph.nodes))),
        "hmcos_bytes": peak_bytes(graph, theirs),
        "ours_bytes": peak_bytes(graph, ours.order),
        "bound_bytes": ours.bound_bytes,
        "proved": ours.proved,
        "ours_seconds": round(middle - begin, 2),
        "hmcos_seconds": round(time.process_time() - middle, 2),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table, and write the figures where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(NETWORKS), help="default: all")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    results = {}
    print(
        "| network | nodes | given KiB | HMCOS KiB | ours KiB | bound KiB | ours s | HMCOS s |\n|---"
        + "|---:" * 7
        + "|"
    )
    for name in options.names:
        row = results[name] = measure(NETWORKS[name]())
        sizes = [f"{int(str(row[f'{key}_bytes'])) / 1024:.0f}" for key in ("given", "hmcos", "ours", "bound")]
        cells = [name, row["nodes"], *sizes, row["ours_seconds"], row["hmcos_seconds"]]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    if options.output:
        write_result(options.output, stamped({"networks": results}))


if __name__ == "__main__":
    main()

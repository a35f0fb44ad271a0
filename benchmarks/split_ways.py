"""Would splits into channels need fewer bytes than rows? Arithmetic over the zoo's int8 networks; nothing is compiled.

    python benchmarks/split_ways.py --output benchmarks/results/split_ways.json

Each network is cut into segments whose rows run in series, as `--ram` asks for the fewest bytes. One more way is priced
beside that, in its favour: of `1x1 -> (depthwise ->) 1x1`, all rows of CHANNELS expanded channels at a time, added to
int32 sums of the last one's output, which lie where the output does. Such a segment needs what is alive around it and
what it reads, the expanded channels once, the sums, and no scratch. The search for the cut is offered it beside rows.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import onnx
import tvm

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks import zoo  # noqa: E402
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from codegen_c.backend.byoc import CodegenBackend  # noqa: E402
from codegen_c.composites.lower_operator import Lowered, lower_operator  # noqa: E402
from codegen_c.operators.kinds import Window  # noqa: E402
from codegen_c.targets.registry import target_of  # noqa: E402
from relay_passes.analysis.operator_graph import OperatorGraph  # noqa: E402
from relay_passes.searched import row_facts  # noqa: E402
from relay_passes.solvers.graph import Graph  # noqa: E402
from relay_passes.solvers.split.search import Split, cheapest_cut  # noqa: E402
from relay_passes.solvers.split.segment import Ending, Segment  # noqa: E402
from relay_passes.solvers.split.segments import RowFacts, Segments  # noqa: E402
from tvm_ext.compilation.stages import passes  # noqa: E402
from tvm_ext.core.platform import Platform  # noqa: E402

NETWORKS = (
    "ds_cnn_int8", "resnet8_int8", "mobilenet_v1_025_96_int8", "mcunet_5fps_vww_int8", "mcunet_320k_int8",
    "mobilenet_v2_035_96_int8", "mobilenet_v2_035_144_int8", "mobilenet_v2_100_224_int8",
)  # fmt: skip
CHANNELS = 16


@dataclass(frozen=True, kw_only=True)
class Layer:
    """An operator with a window: its output's shape as stored, its window, whether each channel is apart."""

    shape: tuple[int, ...]
    window: Window
    is_depthwise: bool


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    results: dict[str, Any] = stamped({"networks": {}})
    for network in options.networks:
        results["networks"][network] = {"held": compared(network, "arena"), "streamed": compared(network, "stream")}
        print(network, json.dumps(results["networks"][network]), flush=True)
        write_result(options.output, results)
    return 0


def compared(network: str, io: Literal["arena", "stream"]) -> dict[str, Any]:
    """Least bytes of a network by rows, and by rows and channels."""
    operators = _operators(network, io)
    graph, facts, layers = operators.graph(), row_facts(operators), _layers(operators)
    by_rows = Segments(graph, facts)
    least = _least(graph, by_rows)
    channels = _WithChannels(graph, facts, layers)
    blocks = [_block(channels, begin, end) for begin, end in channels.blocks]
    return {
        "rows_bytes": least.peak_bytes,
        "with_channels_bytes": _least(graph, channels).peak_bytes,
        "blocks": len(blocks),
        "blocks_smaller_by_channels": [found for found in blocks if found["channels_bytes"] < found["rows_bytes"]],
    }


def _least(graph: Graph, segments: Segments) -> Split:
    """The cut of fewest bytes, each segment of the fewest there are."""
    count = len(graph.nodes)
    return cheapest_cut(count, segments, lambda e: (e.num_bytes, e.num_bytes * (e.end - e.begins)))


class _WithChannels(Segments):
    """Segments by rows, and blocks a few expanded channels at a time."""

    def __init__(self, graph: Graph, facts: RowFacts, layers: Sequence[Layer | None]) -> None:
        super().__init__(graph, facts)
        self.by_rows, self.layers = Segments(graph, facts), layers
        spans = [(begin, begin + size) for size in (2, 3) for begin in range(len(layers) - size + 1)]
        self.blocks = [(begin, end) for begin, end in spans if self._is_block(begin, end)]

    def _ending(self, end: int) -> Ending:
        by_channels = [
            Segment(begin=begin, end=end, rows_per_call=1, num_bytes=self.by_channels(begin, end), cost=1)
            for begin, last in self.blocks
            if last == end
        ]
        return Ending.of(end, [*super()._ending(end).segments, *by_channels])

    def by_channels(self, begin: int, end: int) -> int:
        first, *_, last = (layer for layer in self.layers[begin:end] if layer)
        expanded = prod(first.shape[1:3]) * CHANNELS
        return self.held(begin) + expanded + 4 * prod(last.shape)

    def _is_block(self, begin: int, end: int) -> bool:
        """True for pointwise, perhaps depthwise, pointwise operators, each read only by the next."""
        block = [layer for layer in self.layers[begin:end] if layer]
        if len(block) < end - begin or len(block[0].shape) != 4:
            return False
        pointwise = all(one.window.kernel == (1, 1) and not one.is_depthwise for one in (block[0], block[-1]))
        chained = all(
            len(self.graph.nodes[i + 1].reads) == 1 and self.last[self.graph.nodes[i].writes[0]] == i + 1
            and self.graph.nodes[i + 1].reads == self.graph.nodes[i].writes
            for i in range(begin, end - 1)
        )  # fmt: skip
        return pointwise and chained and all(one.is_depthwise for one in block[1:-1])


def _block(segments: _WithChannels, begin: int, end: int) -> dict[str, Any]:
    """One block alone by both ways; rows also where the middle is a segment of its own."""
    rows = min(
        (max(first.num_bytes, second.num_bytes) if second else first.num_bytes)
        for middle in range(begin + 1, end + 1)
        for first in segments.by_rows.of(begin, middle)
        for second in (segments.by_rows.of(middle, end) if middle < end else (None,))
    )
    first, last = segments.layers[begin], segments.layers[end - 1]
    assert first and last, "blocks are of layers"
    return {
        "expanded": list(first.shape[1:]), "output": list(last.shape[1:]), "rows_bytes": rows,
        "channels_bytes": segments.by_channels(begin, end),
    }  # fmt: skip


def _operators(network: str, io: Literal["arena", "stream"]) -> OperatorGraph:
    """A network as the memory passes see it."""
    platform, options = Platform.load("cortex_m4"), tvm_ext.BuildOptions(io=io)
    with TemporaryDirectory(prefix="split_ways_") as folder:
        path = Path(folder) / f"{network}.onnx"
        onnx.save(zoo.build(network), path)
        module = tvm_ext.load(path)
    *stages, _ = passes(platform, options, "net")  # the last one makes regions
    module = tvm.transform.Sequential(stages)(module)
    return OperatorGraph(module, module["main"], CodegenBackend(target=target_of(platform.processor)))


def _layers(operators: OperatorGraph) -> list[Layer | None]:
    return [_layer(composite, operators.backend) if composite else None for composite in operators.composites]


def _layer(composite: tvm.relax.Function, backend: Any) -> Layer | None:
    lowered = lower_operator(composite, backend.target)
    if not isinstance(lowered, Lowered) or lowered.implementation is None or lowered.implementation.spatial is None:
        return None
    spatial, output = lowered.implementation.spatial, lowered.operator.output
    return Layer(
        shape=output.shape,
        window=spatial.window or Window(kernel=(1, 1)),
        is_depthwise=getattr(lowered.operator, "groups", 1) > 1,
    )


if __name__ == "__main__":
    sys.exit(main())

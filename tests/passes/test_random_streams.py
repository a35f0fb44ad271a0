"""Two hundred random chains and graphs over time: each hop answers as the whole window, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from relay_passes.dataflow import bindings, op_name
from relay_passes.streams.stream_windows import StreamWindows
from tests.passes.time_graphs import CHANNELS, FRAMES, random_graph, values_of
from tvm_ext.core.decisions.models import KeptStates, WarmUp
from tvm_ext.core.errors import UnsupportedModel

PER_TEST, TESTS = 10, 20


def hops_equal_windows(seed: int) -> bool:
    """False where nothing of the graph is over time."""
    random, hop, window = np.random.default_rng(seed), seed % 4 + 1, random_graph(seed)
    try:
        stream = StreamWindows("x", hop, 1)(window)
    except UnsupportedModel:
        return False
    relax.analysis.well_formed(stream)
    warm_up, states = WarmUp.read(stream).runs, [state.initial for state in KeptStates.read(stream).states]
    frames = random.integers(-3, 4, (1, FRAMES + 6 * hop, 1, CHANNELS)).astype("float32")
    compared = 0
    for end in range(hop, frames.shape[1] + 1, hop):
        found = values_of(stream["main"], [frames[:, end - hop : end], *states])
        answers, states = found[: len(found) - len(states)], found[len(found) - len(states) :]
        if end // hop <= warm_up:
            continue
        wanted = values_of(window["main"], [frames[:, end - FRAMES : end]])
        for answer, other in zip(answers, wanted, strict=True):
            np.testing.assert_array_equal(answer, other, err_msg=f"seed {seed}, frames up to {end}")
        compared += 1
    assert compared >= 5
    return True


@pytest.mark.parametrize("first", range(0, PER_TEST * TESTS, PER_TEST))
def test_hops_of_random_graphs(first: int) -> None:
    assert all([hops_equal_windows(seed) for seed in range(first, first + PER_TEST)])


def test_graphs_have_every_operator_and_joins() -> None:
    """The graphs above are not all alike."""
    names: dict[str, int] = {}
    for seed in range(PER_TEST * TESTS):
        for name in {op_name(binding.value) for binding in bindings(random_graph(seed)["main"])}:
            names[str(name)] = names.get(str(name), 0) + 1
    assert {name for name, count in names.items() if count >= 10} >= {
        "relax.nn.conv2d", "relax.nn.max_pool2d", "relax.nn.avg_pool2d", "relax.nn.pad", "relax.strided_slice",
        "relax.add", "relax.concat", "relax.nn.relu",
    }  # fmt: skip

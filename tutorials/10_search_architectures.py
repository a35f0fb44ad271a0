# %% [markdown]
# # Search over architectures
#
# This tutorial tries two hundred networks and finds those with the best score for their RAM. Each candidate is
# compiled up to its memory plan, which takes a fraction of a second and needs no C compiler. RAM and constants equal
# those of a build byte for byte; instructions are predicted from the costs of the kernels.

# %%
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tvm_ext

folder = Path(tempfile.mkdtemp())

# %% [markdown]
# The networks have three parameters: the number of pixels of the image, the number of channels of the first layer, and
# the number of blocks, each with a depthwise and a pointwise convolution.


# %%
def network(pixels: int, channels: int, blocks: int) -> onnx.ModelProto:
    random = np.random.default_rng(0)
    nodes, weights = [], []

    def convolve(source: str, target: str, shape: tuple[int, ...], stride: int, groups: int) -> None:
        kernel = random.normal(size=shape).astype(np.float32) / np.float32(np.sqrt(np.prod(shape[1:])))
        weights.append(numpy_helper.from_array(kernel, f"{target}_weights"))
        window = {"kernel_shape": shape[2:], "strides": [stride] * 2, "pads": [shape[2] // 2] * 4, "group": groups}
        nodes.append(helper.make_node("Conv", [source, f"{target}_weights"], [f"{target}_sum"], **window))
        nodes.append(helper.make_node("Relu", [f"{target}_sum"], [target]))

    convolve("image", "stem", (channels, 3, 3, 3), 2, 1)
    last = "stem"
    for block in range(blocks):
        convolve(last, f"depthwise_{block}", (channels, 1, 3, 3), 2 if block == 0 else 1, channels)
        convolve(f"depthwise_{block}", f"pointwise_{block}", (channels, channels, 1, 1), 1, 1)
        last = f"pointwise_{block}"
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["y"]))
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, pixels, pixels])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, channels, 1, 1])
    graph = helper.make_graph(nodes, "candidate", [image], [result], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


# %% [markdown]
# Candidates come from an iterator. The sweep requests the next candidate when a process is free; a real search would
# look at the rows so far. You can add columns of your own to the table: here a score that replaces the accuracy after
# a training. A network that was already computed is read from the cache. `jobs=2` would use two cores.

# %%
COUNT = 200
random = np.random.default_rng(1)


def candidates() -> Iterator[tvm_ext.SweepModel]:
    for _ in range(COUNT):
        pixels, channels = int(random.choice([16, 24, 32, 48])), int(random.choice([4, 8, 16, 24]))
        blocks = int(random.integers(1, 4))
        path = folder / f"candidate_{pixels}_{channels}_{blocks}.onnx"
        onnx.save(network(pixels, channels, blocks), path)
        score = round(float(np.log(pixels) + np.log(channels) + 0.5 * np.log(1 + blocks)), 3)
        labels = {"pixels": pixels, "channels": channels, "blocks": blocks, "score": score}
        yield tvm_ext.SweepModel(source=path, labels=labels)


table = tvm_ext.sweep(candidates(), ["cortex_m4"], cache=folder / "cache")
print(f"{len(table.rows)} candidates, {sum(row['error'] is not None for row in table.rows)} with an error")

# %% [markdown]
# The front contains the candidates that no other candidate with at most the same RAM beats in score. The minus in
# `-score` means that more is better.

# %%
for row in table.front("ram_bytes", "-score"):
    costs = f"{row['ram_bytes']:>7,} B RAM, {row['predicted_instructions']:>11,} instructions"
    print(f"score {row['score']:.2f}: {costs}, {row['pixels']} pixels, {row['channels']} channels")

# %% [markdown]
# The table is written to a file, and a picture shows all candidates and the front: `sweep.svg` opens in a browser, and
# shows the name of the candidate under the pointer.

# %%
from tvm_ext.sweeps.picture import picture  # noqa: E402

table.write(folder / "sweep.csv")
(folder / "sweep.svg").write_text(picture(table, "ram_bytes", "-score"), encoding="utf-8")
print((folder / "sweep.csv").read_text().splitlines()[0])

# %% [markdown]
# One candidate on the front is built, and needs the same number of bytes. A second search reads all results from the
# cache.

# %%
chosen = table.front("ram_bytes", "-score")[-1]
module = tvm_ext.load(folder / f"{chosen['model']}.onnx")
package = tvm_ext.build(module, "cortex_m4", folder / "chosen", tvm_ext.BuildOptions(verify=()))
print(f"planned {chosen['ram_bytes']:,} B, built {package.report['arena_bytes']:,} B")
random = np.random.default_rng(1)
again = tvm_ext.sweep(candidates(), ["cortex_m4"], cache=folder / "cache")
print(f"the same table: {list(again.rows) == list(table.rows)}")

# %% [markdown]
# # Search over architectures
#
# A search tries many networks and keeps those that cost least for what they do. Each candidate is compiled up to its
# memory plan, which takes a fraction of a second and no C compiler: RAM and constants are those of a build to the byte,
# instructions are predicted by the kernels' own costs.

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
# A family of networks with three numbers to choose: pixels of the image, channels of the first layer, and blocks of a
# depthwise and a pointwise convolution behind it.


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
# Candidates come from an iterator, which is asked for the next one when a process is free; a real search would look at
# the rows so far. Columns of its own go into the table: here a score that stands in for the accuracy that a training
# would give. A network that the search comes back to is not computed again. `jobs=2` uses two cores.

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
print(f"{len(table.rows)} candidates, {sum(row['error'] is not None for row in table.rows)} came to nothing")

# %% [markdown]
# The front: candidates of which none is beaten in score by one that takes no more RAM. A minus: more is better.

# %%
for row in table.front("ram_bytes", "-score"):
    figures = f"{row['ram_bytes']:>7,} B RAM, {row['predicted_instructions']:>11,} instructions"
    print(f"score {row['score']:.2f}: {figures}, {row['pixels']} pixels, {row['channels']} channels")

# %% [markdown]
# The table goes to a file, and the picture shows all candidates with the front among them: `sweep.svg` opens in a
# browser, and names each candidate under the pointer.

# %%
from tvm_ext.sweeps.picture import picture  # noqa: E402

table.write(folder / "sweep.csv")
(folder / "sweep.svg").write_text(picture(table, "ram_bytes", "-score"), encoding="utf-8")
print((folder / "sweep.csv").read_text().splitlines()[0])

# %% [markdown]
# One of those on the front is built, and comes to the same bytes. The search again takes everything from the cache.

# %%
chosen = table.front("ram_bytes", "-score")[-1]
module = tvm_ext.load(folder / f"{chosen['model']}.onnx")
package = tvm_ext.build(module, "cortex_m4", folder / "chosen", tvm_ext.BuildOptions(verify=()))
print(f"planned {chosen['ram_bytes']:,} B, built {package.report['arena_bytes']:,} B")
random = np.random.default_rng(1)
again = tvm_ext.sweep(candidates(), ["cortex_m4"], cache=folder / "cache")
print(f"the same table: {list(again.rows) == list(table.rows)}")

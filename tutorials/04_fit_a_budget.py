# %% [markdown]
# # Fit a network into 64 KB
#
# This tutorial compiles a network whose tensors are larger than the available memory. The compiler runs several layers
# row by row in series, and keeps only the last few rows between two layers in a ring buffer. Nothing is computed
# twice, and no bit of the result changes. The cost is a larger number of calls, which this tutorial measures.

# %%
import json
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tvm_ext

folder = Path(tempfile.mkdtemp())
random = np.random.default_rng(0)

# %% [markdown]
# The network is a small vision network in float32. Two of its tensors have 48 x 48 pixels of 16 channels, 144 KB each.

# %%
LAYERS = [("image", "a", 3, 16, 1), ("a", "b", 16, 16, 1), ("b", "c", 16, 16, 2), ("c", "d", 16, 32, 2)]
nodes, weights = [], []
for source, target, c_in, c_out, stride in LAYERS:
    window = {"kernel_shape": [3, 3], "strides": [stride, stride], "pads": [1, 1, 1, 1]}
    kernel = random.normal(size=(c_out, c_in, 3, 3)).astype(np.float32) * 0.2
    weights.append(numpy_helper.from_array(kernel, f"{target}_weights"))
    nodes.append(helper.make_node("Conv", [source, f"{target}_weights"], [f"{target}_sum"], **window))
    nodes.append(helper.make_node("Relu", [f"{target}_sum"], [target]))
nodes.append(helper.make_node("GlobalAveragePool", ["d"], ["y"]))
image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 48, 48])
result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32, 1, 1])
graph = helper.make_graph(nodes, "vision", [image], [result], weights)
path = folder / "vision.onnx"
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)

# %% [markdown]
# As a whole it needs more than 64 KB, although operators have the best order and tensors overlap.

# %%
module = tvm_ext.load(path)
whole = tvm_ext.build(module, "cortex_m4", folder / "whole")
print(f"whole: {whole.report['arena_bytes']:,} B")

# %% [markdown]
# With a budget, the compiler splits the network. The report lists the methods that were tried, the bytes that each
# needs, and its cost.

# %%
options = tvm_ext.BuildOptions(ram=64 * 1024)
small = tvm_ext.build(module, "cortex_m4", folder / "small", options)
print(f"split: {small.report['arena_bytes']:,} B")
print(json.dumps(small.report["fit"], indent=2))

# %% [markdown]
# The outputs have the same bits. If QEMU is installed, the cost is measured in executed instructions.

# %%
x = {"image": random.normal(size=(1, 3, 48, 48)).astype(np.float32)}
same = np.array_equal(whole.run(x)["y"].view(np.uint32), small.run(x)["y"].view(np.uint32))
print(f"the same bits: {same}")
boards = [package.report["verify"]["qemu"] for package in (whole, small)]
if all(boards):
    before, after = (board["instructions"] for board in boards)
    print(f"instructions: {before:,} whole, {after:,} split, ratio {after / before:.3f}")

# %% [markdown]
# `small/vision.c` shows the result: one loop, in which each layer computes its next rows when the following layer needs
# them. If running row by row is not enough for a budget, some results are computed twice: in strips of columns that run
# one after the other, or again at the operators that read them. `tvm-ext pareto vision.onnx -p cortex_m4 -o out/pareto`
# shows all choices between bytes and instructions.

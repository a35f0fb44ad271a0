# %% [markdown]
# # Two memories
#
# Many boards have a small memory close to the processor and a larger, slower memory. This tutorial describes such a
# board and shows where tensors, scratch and weights are stored, which tensors are spilled from the fast memory and
# copied back, and which weights are prefetched before the layer that reads them.

# %%
import re
import shutil
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tvm_ext
from tvm_ext import BuildOptions, Platform

folder = Path(tempfile.mkdtemp())
random = np.random.default_rng(0)
has_board = bool(shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm"))

# %% [markdown]
# ## The board
#
# `always_on` is such a board: a Cortex-M55 with 64 KiB of DTCM, 2 MiB of SRAM on the bus, weights in flash, and a DMA.
# We change its description to 24 KiB of DTCM. The compiler decides by the `capacity_bytes`, the bytes per cycle and
# the `latency_cycles` of each memory, and by the links between two memories that are a `dma`. `activations` names the
# default memory: it stores inputs and outputs, and everything that would gain nothing in another memory.

# %%
text = (Path(tvm_ext.__file__).parent / "platforms" / "always_on.toml").read_text()
path = folder / "small_fast_memory.toml"
path.write_text(
    text.replace("capacity_bytes = 0x1_0000", "capacity_bytes = 0x6000").replace("always_on", "two_memories")
)
platform = Platform.load(path)
for memory in platform.memories:
    print(f"{memory.name}: {memory.capacity_bytes:,} B, reads {memory.read_bytes_per_cycle:g} B per cycle")

# %% [markdown]
# ## A network
#
# The network is a small U-Net. Its last layer reads the result of the first layer, so this result occupies memory
# during the whole run.

# %%
LAYERS = [
    ("image", "wide", 1, 8, 1),
    ("wide", "half", 8, 16, 2),
    ("half", "deep", 16, 32, 2),
    ("deep", "same", 32, 32, 1),
]
nodes, weights = [], []


def convolution(source: str, target: str, c_in: int, c_out: int, stride: int) -> None:
    """Append a 3x3 convolution with a ReLU."""
    kernel = (random.normal(size=(c_out, c_in, 3, 3)) * 0.2).astype(np.float32)
    weights.append(numpy_helper.from_array(kernel, f"{target}_weights"))
    window = {"kernel_shape": [3, 3], "strides": [stride, stride], "pads": [1, 1, 1, 1]}
    nodes.append(helper.make_node("Conv", [source, f"{target}_weights"], [f"{target}_sum"], **window))
    nodes.append(helper.make_node("Relu", [f"{target}_sum"], [target]))


for layer in LAYERS:
    convolution(*layer)
weights.append(numpy_helper.from_array(np.array([1, 1, 4, 4], np.float32), "scales"))
nodes.append(helper.make_node("Resize", ["same", "", "scales"], ["up"], mode="nearest"))
convolution("up", "narrow", 32, 8, 1)
nodes.append(helper.make_node("Add", ["narrow", "wide"], ["joined"]))
convolution("joined", "mask", 8, 1, 1)
image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 16, 16])
mask = helper.make_tensor_value_info("mask", TensorProto.FLOAT, [1, 1, 16, 16])
graph = helper.make_graph(nodes, "unet", [image], [mask], weights)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "unet.onnx")
module = tvm_ext.load(folder / "unet.onnx")

# %% [markdown]
# ## In one memory, and in both
#
# With `memories="default"` all tensors are in the default memory of the platform; otherwise all memories are used.
# Cycles are predicted from modelled instructions and the speeds in the file, because QEMU models no memory timing.

# %%
verify = ("host", "qemu") if has_board else ("host",) if shutil.which("arm-none-eabi-gcc") else ()
one = tvm_ext.build(module, platform, folder / "one", BuildOptions(verify=verify, memories="default"))
both = tvm_ext.build(module, platform, folder / "both", BuildOptions(verify=verify))
cycles = [package.report["prediction"]["cycles"] for package in (one, both)]
print(
    f"predicted cycles: {cycles[0]:,} in one memory, {cycles[1]:,} in both, {cycles[0] / cycles[1]:.2f} times as fast"
)
for row in both.report["prediction"]["moved"]:
    print(f"{row['bytes']:,} B from {row['source']} to {row['target']}")

# %% [markdown]
# The board counts the same number of copied bytes, and the outputs have the same bits.

# %%
if has_board:
    assert both.report["verify"]["qemu"]["moved"] == both.report["prediction"]["moved"]
    x = {"image": random.normal(size=(1, 1, 16, 16)).astype(np.float32)}
    same = np.array_equal(one.run(x, on="qemu")["mask"].view(np.uint32), both.run(x, on="qemu")["mask"].view(np.uint32))
    print("the same bits:", same)
    assert same

# %% [markdown]
# ## The schedule of copies
#
# `unet.c` reads as the schedule. `tvm_ext_dma_start` begins a copy, and the next steps run meanwhile.
# `tvm_ext_dma_wait` is directly before the first step that needs the copy. By default these functions use `memcpy`. A
# board with a DMA defines its own functions, and `tvm_ext_dma.h` specifies them.

# %%
run = (folder / "both" / "unet.c").read_text().partition("unet_status unet_run(void)")[2]
for line in run.splitlines():
    if re.match(r" +(tvm_ext_dma|unet_)", line):
        print(line.strip())

# %% [markdown]
# `both/report.html` shows every memory: look for a tensor that leaves one memory and continues in the other. The
# decisions are also in the module: `relay_passes/memory/assign_memories.py` writes them as the attributes `memory` and
# `weights_memory` of operators and as calls of `tvm_ext.move`, and `mod.script()` prints them.

# %%
picture = (folder / "both" / "report.html").read_text()
print([memory for memory in ("dtcm", "sram") if f"<h3>{memory}</h3>" in picture])
shutil.rmtree(folder)

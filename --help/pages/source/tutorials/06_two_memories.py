# %% [markdown]
# # Two memories
#
# Many boards have a small memory close to the processor and a larger one that is slower. We describe such a board, and
# watch what moves when: where tensors, scratch and weights live, what is spilled from the fast memory and fetched back,
# and which weights are copied ahead of the layer that reads them.

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
# `always_on` is such a board: a Cortex-M55 with 64 KiB of DTCM, 2 MiB of SRAM behind the bus, weights in flash, and a
# DMA. We write its description anew with 24 KiB of DTCM. What decides are, of each memory, `capacity_bytes`, the bytes
# a cycle and `latency_cycles`; and of each link between two memories, whether it is a `dma`. `activations` names the
# memory where inputs and outputs are, and everything else that nothing is gained by moving.

# %%
text = (Path(tvm_ext.__file__).parent / "platforms" / "always_on.toml").read_text()
path = folder / "small_fast_memory.toml"
path.write_text(
    text.replace("capacity_bytes = 0x1_0000", "capacity_bytes = 0x6000").replace("always_on", "two_memories")
)
platform = Platform.load(path)
for memory in platform.memories:
    print(f"{memory.name}: {memory.capacity_bytes:,} B, reads {memory.read_bytes_per_cycle:g} B a cycle")

# %% [markdown]
# ## A network
#
# A small U-Net: what the first layer makes is wanted again by the last one, and is in the way until then.

# %%
LAYERS = [
    ("image", "wide", 1, 8, 1),
    ("wide", "half", 8, 16, 2),
    ("half", "deep", 16, 32, 2),
    ("deep", "same", 32, 32, 1),
]
nodes, weights = [], []


def convolution(source: str, target: str, c_in: int, c_out: int, stride: int) -> None:
    """3x3, with a ReLU."""
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
# `memories="default"` keeps everything in the platform's default memory; otherwise all are used. Cycles are predicted,
# from modelled instructions and the speeds in the file: QEMU models no memory timing.

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
# The board counts the same bytes, and the outputs are the same bits.

# %%
if has_board:
    assert both.report["verify"]["qemu"]["moved"] == both.report["prediction"]["moved"]
    x = {"image": random.normal(size=(1, 1, 16, 16)).astype(np.float32)}
    same = np.array_equal(one.run(x, on="qemu")["mask"].view(np.uint32), both.run(x, on="qemu")["mask"].view(np.uint32))
    print("the same bits:", same)
    assert same

# %% [markdown]
# ## What moves when
#
# `unet.c` reads as the schedule. `tvm_ext_dma_start` begins a copy, the steps behind it run meanwhile, and
# `tvm_ext_dma_wait` stands in front of the first step that needs it. By default these functions copy with `memcpy`; a
# board with a DMA defines its own, and `tvm_ext_dma.h` says what they have to do.

# %%
run = (folder / "both" / "unet.c").read_text().partition("unet_status unet_run(void)")[2]
for line in run.splitlines():
    if re.match(r" +(tvm_ext_dma|unet_)", line):
        print(line.strip())

# %% [markdown]
# `both/report.html` shows every memory: look for a tensor that ends in one and goes on in the other. The decisions
# stand in the module too: `relay_passes/memory/assign_memories.py` writes them as attributes `memory` and
# `weights_memory` of operators and as calls of `tvm_ext.move`, and `mod.script()` prints them.

# %%
picture = (folder / "both" / "report.html").read_text()
print([memory for memory in ("dtcm", "sram") if f"<h3>{memory}</h3>" in picture])
shutil.rmtree(folder)

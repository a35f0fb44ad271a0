# %% [markdown]
# # Two cores at once
#
# On microcontrollers with two cores, one core is usually idle while a network runs on the other. This tutorial uses
# both: each operator runs on the core that is best for the whole network, large layers are cut so that each core
# computes some of their rows, and the generated C makes a core wait where it needs a value from the other core. There
# is no runtime and no operating system.

# %%
import shutil
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

import tvm_ext

folder = Path(tempfile.mkdtemp())
random = np.random.default_rng(11)

# %% [markdown]
# The network has two branches, which could run at the same time, and layers that are large enough to be cut.

# %%
shapes = {"stem": (8, 3, 3, 3), "edges": (8, 8, 3, 3), "shades": (8, 8, 1, 1), "head": (10, 16)}
weights = {name: random.normal(size=shape) / np.sqrt(np.prod(shape[1:])) for name, shape in shapes.items()}
text = """network (float[1, 3, 32, 32] image) => (float[1, 10] scores) {
    first = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (image, stem)
    seen = Relu (first)
    left = Conv <pads = [1, 1, 1, 1]> (seen, edges)
    right = Conv (seen, shades)
    both = Concat <axis = 1> (left, right)
    bent = Relu (both)
    mean = GlobalAveragePool (bent)
    flat = Flatten (mean)
    scores = Gemm <transB = 1> (flat, head)
}"""
model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 17]> {text}')
model.graph.initializer.extend(numpy_helper.from_array(array.astype(np.float32), key) for key, array in weights.items())
onnx.save(model, folder / "network.onnx")

# %% [markdown]
# ## The platform
#
# `dual_m33_equal` describes Arm's Musca-B1, with two Cortex-M33 that share all memory. `[[signals]]` in its file
# describes how one core tells the other core that a step is done, and how long this takes.

# %%
platform = tvm_ext.Platform.load("dual_m33_equal")
for core in platform.processors:
    print(f"{core.name}: {core.clock_hz:,} Hz, SIMD {core.simd}, FPU {core.fpu}")
for signal in platform.signals:
    print(f"{signal.source} signals {signal.target} with an {signal.kind}, in {signal.latency_cycles} cycles")

# %% [markdown]
# ## Build
#
# Verification runs both cores in QEMU and compares the outputs with those of onnxruntime. Without `arm-none-eabi-gcc`
# and `qemu-system-arm` it runs the lists of steps of both cores as threads on this machine.

# %%
has_board = bool(shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm"))
verify = ("qemu",) if has_board else ("host",)
module = tvm_ext.load(folder / "network.onnx")
package = tvm_ext.build(module, platform, folder / "package", tvm_ext.BuildOptions(verify=verify))
report = package.report
for target, result in report["verify"].items():
    print(target, result)

# %% [markdown]
# ## The placement
#
# The placement is predicted from the costs of the kernels. `bound` is a lower bound of the time for every placement of
# these parts.

# %%
placement = report["placement"]
alone, bound = placement["single_processor"]["makespan_cycles"], placement["bound"]["makespan_cycles"]
print(f"predicted: {placement['makespan_cycles']:,} cycles; {alone:,} on one core; bound {bound:,}")
for core in placement["processors"]:
    print(f"{core['name']}: {core['operators']} operators, {core['parts']} parts, {core['busy_cycles']:,} cycles busy")

# %% [markdown]
# ## The steps of each core
#
# `network_run` is the list of steps of the caller's core. The other core calls `network_serve_cpu1` in an endless loop.
# Signals are between the steps.

# %%
source = (folder / "package" / "network.c").read_text()
for name in ("network_run", "network_serve_cpu1"):
    print(source[source.rindex(f"{name}(") :].partition("\n}\n")[0])

# %% [markdown]
# ## Executed instructions
#
# A plugin for QEMU counts the instructions of each core at every signal. From these counts follows the time from begin
# to end, including waits. For comparison, the same network is also built for one core and counted.

# %%
if report["makespan_instructions"] is not None:
    for core in report["processors"]:
        print(f"{core['name']}: {len(core['steps'])} steps, {core['instructions']:,} instructions")
    both, one = report["makespan_instructions"], report["single_processor_instructions"]
    print(f"{report['signals']} signals; {both:,} instructions from begin to end, {one:,} on one core")
    print(f"{one / both:.2f} times as fast")
    assert both < one
else:
    print("not counted: this needs a board in QEMU, and QEMU's plugins")

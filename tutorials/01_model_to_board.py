# %% [markdown]
# # From a model to a board
#
# This tutorial compiles a trained network from an ONNX file to C for a Cortex-M4, runs it there (in QEMU), and shows
# the generated files. Run it as a script, `python tutorials/01_model_to_board.py`, or cell by cell in an editor that
# knows `# %%`. The board needs `arm-none-eabi-gcc` and `qemu-system-arm`, which `make boards` installs on Debian and
# Ubuntu. Without them the tutorial compiles for this machine instead.

# %%
import shutil
import tempfile
from pathlib import Path

import numpy as np

import tvm_ext

here = Path(__file__).parent
output = Path(tempfile.mkdtemp()) / "digits"
has_board = bool(shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm"))

# %% [markdown]
# ## A platform
#
# A platform describes the processors and memories of a device. Included platforms have a name; your own platform is a
# TOML file: `Platform.load("my_board.toml")`.

# %%
platform = tvm_ext.Platform.load("cortex_m4" if has_board else "host")
for memory in platform.memories:
    print(f"{memory.name}: {memory.kind}, {memory.capacity_bytes} B")

# %% [markdown]
# ## A model
#
# `load` reads the file into an `IRModule` of Relax, TVM's graph language, with bound weights and static shapes. It is a
# plain module: you can print it, or run passes of your own on it before you build it.

# %%
module = tvm_ext.load(here / "digits" / "digits.onnx")
print(module["main"].params, "->", module["main"].ret_ty)

# %% [markdown]
# ## Build
#
# `build` chooses a kernel for each operator, plans the offset of every tensor, writes the C and compiles it. By
# default it also runs the C on this machine, and on the board if possible, and compares its outputs with those of
# onnxruntime.

# %%
package = tvm_ext.build(module, platform, output)
for target, result in package.report["verify"].items():
    print(target, result)

# %% [markdown]
# ## The generated files
#
# The folder contains everything that the firmware needs; nothing in it refers to TVM or to Python. `digits.h` is the
# interface, `digits.c` has the layers and the schedule, `digits_memory.*` the arena, and `digits_weights.c` the
# constants.

# %%
for file in sorted(path.relative_to(output) for path in output.rglob("*") if path.is_file()):
    print(file)
print((output / "digits.h").read_text())

# %% [markdown]
# `report.json` contains decisions and measurements. The lower bound is the largest number of bytes that are live at any
# one step; the arena can never be smaller. `tvm-ext report FOLDER` shows the whole report as tables.

# %%
report = package.report
print(f"arena {report['arena_bytes']} B, lower bound {report['lower_bound_bytes']} B")
print(f"weights {report['weights_bytes']} B, {report['macs']} multiply-accumulates")
for step in report["steps"]:
    print(step["index"], step["name"], step["kernel"], step["source_nodes"])

# %% [markdown]
# ## Run it
#
# Inputs and outputs are numpy arrays under the names in the model. The held-out images have grey levels from 0 to 16;
# the network was trained on images divided by 16.

# %%
held_out = np.load(here / "digits" / "digits_test.npz")
image = (held_out["images"][0] / 16).astype(np.float32).reshape(1, 1, 8, 8)
on_host = package.run({"image": image}, on="host")["probabilities"]
print("label", held_out["labels"][0], "classified as", on_host.argmax(), "with probability", on_host.max())
assert on_host.argmax() == held_out["labels"][0]

# %% [markdown]
# Now run the same image on the board. Its multiply-adds are fused, and its C library has its own `expf`, so the outputs
# agree up to rounding.

# %%
if has_board:
    on_board = package.run({"image": image}, on="qemu")["probabilities"]
    print("largest difference between board and host:", np.abs(on_board - on_host).max())
    print("executed instructions of one inference:", report["verify"]["qemu"]["instructions"])
    np.testing.assert_allclose(on_board, on_host, rtol=0, atol=1e-5)
else:
    print("Not run on the board: no cross compiler or no QEMU; `make boards` installs both.")

# %% [markdown]
# ## Find the layers that take the time
#
# A profile counts the instructions and memory accesses of each layer in QEMU, and estimates cycles with a table of the
# core. `tvm-ext profile FOLDER` prints the profile and writes a page with a flame graph. `docs/profile.md` explains
# how to measure the same layers on a device.

# %%
if has_board:
    profile = package.profile({"image": image})
    for layer in profile.layers:
        share = layer.cycles / profile.cycles
        print(f"{layer.name:30} {layer.num_instructions:8,} instructions, {layer.cycles:8,.0f} cycles, {share:.1%}")
    assert profile.num_instructions == package.run_board([{"image": image}]).instructions

# %% [markdown]
# # From a model to a board
#
# We take a trained network as an ONNX file, compile it to C for a Cortex-M4, run it there (in QEMU), and look at
# what was made. Run it as a script, `python tutorials/01_model_to_board.py`, or cell by cell in an editor that
# knows `# %%`. The board needs `arm-none-eabi-gcc` and `qemu-system-arm`, which `make boards` installs on Debian and
# Ubuntu; without them the same is done for this machine.

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
# A platform says which processors and memories there are. Those that ship have a name; one of your own is a TOML
# file: `Platform.load("my_board.toml")`.

# %%
platform = tvm_ext.Platform.load("cortex_m4" if has_board else "host")
for memory in platform.memories:
    print(f"{memory.name}: {memory.kind}, {memory.capacity_bytes} B")

# %% [markdown]
# ## A model
#
# `load` reads the file into an `IRModule` of Relax, TVM's graph language: weights bound, every shape static. Since
# it is a plain module, you can print it, or run passes of your own on it before it is built.

# %%
module = tvm_ext.load(here / "digits" / "digits.onnx")
print(module["main"].params, "->", module["main"].ret_ty)

# %% [markdown]
# ## Build
#
# `build` chooses a kernel for each operator, plans where every tensor lies, writes the C, compiles it, and, unless
# told otherwise, runs it and compares its outputs with onnxruntime's: on this machine, and on the board if it can.

# %%
package = tvm_ext.build(module, platform, output)
for target, result in package.report["verify"].items():
    print(target, result)

# %% [markdown]
# ## What came out
#
# The folder holds everything the firmware needs; nothing in it refers to TVM or to Python. `digits.h` is the
# interface, `digits.c` the layers and the schedule, `digits_memory.*` the arena, `digits_weights.c` the constants.

# %%
for file in sorted(path.relative_to(output) for path in output.rglob("*") if path.is_file()):
    print(file)
print((output / "digits.h").read_text())

# %% [markdown]
# `report.json` says what was decided and measured. The arena can never be smaller than the most bytes alive at any
# one step, the lower bound. `tvm-ext report FOLDER` shows all of it as tables.

# %%
report = package.report
print(f"arena {report['arena_bytes']} B, lower bound {report['lower_bound_bytes']} B")
print(f"weights {report['weights_bytes']} B, {report['macs']} multiply-accumulates")
for step in report["steps"]:
    print(step["index"], step["name"], step["kernel"], step["source_nodes"])

# %% [markdown]
# ## Run it
#
# Inputs and outputs are numpy arrays under the model's own names. The held-out images have grey levels from 0 to 16;
# the network was trained on sixteenths.

# %%
held_out = np.load(here / "digits" / "digits_test.npz")
image = (held_out["images"][0] / 16).astype(np.float32).reshape(1, 1, 8, 8)
on_host = package.run({"image": image}, on="host")["probabilities"]
print("a", held_out["labels"][0], "taken for a", on_host.argmax(), "with probability", on_host.max())
assert on_host.argmax() == held_out["labels"][0]

# %% [markdown]
# The same on the board. Its multiply-adds are fused and its C library has an `expf` of its own, so the two agree to
# rounding.

# %%
if has_board:
    on_board = package.run({"image": image}, on="qemu")["probabilities"]
    print("largest difference between board and host:", np.abs(on_board - on_host).max())
    print("executed instructions of one inference:", report["verify"]["qemu"]["instructions"])
    np.testing.assert_allclose(on_board, on_host, rtol=0, atol=1e-5)
else:
    print("Not run on the board: no cross compiler or no QEMU; `make boards` installs both.")

# %% [markdown]
# ## Where the time goes
#
# A profile counts instructions and memory accesses of each layer in QEMU, and estimates cycles by a table of the core.
# `tvm-ext profile FOLDER` prints it and writes a page with a flame graph; `docs/profile.md` says how to measure the
# same layers on a device.

# %%
if has_board:
    profile = package.profile({"image": image})
    for layer in profile.layers:
        share = layer.cycles / profile.cycles
        print(f"{layer.name:30} {layer.num_instructions:8,} instructions, {layer.cycles:8,.0f} cycles, {share:.1%}")
    assert profile.num_instructions == package.run_board([{"image": image}]).instructions

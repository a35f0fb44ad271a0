# %% [markdown]
# # Describe a board of your own
#
# This tutorial describes a board in a TOML file: an invented Cortex-M4 with less RAM than the digits network needs.
# The compiler refuses the network before it writes anything, and names the layer that does not fit. Then the board
# gets more RAM, and the network runs on it. Run this as a script, `python tutorials/02_describe_a_board.py`, or cell
# by cell in an editor that knows `# %%`. Without `arm-none-eabi-gcc` and `qemu-system-arm` (`make boards` installs
# both) the last step is skipped.

# %%
import shutil
import tempfile
from pathlib import Path

import numpy as np

import tvm_ext
from tvm_ext import BuildOptions, Platform, errors

here = Path(__file__).parent
work = Path(tempfile.mkdtemp())
has_board = bool(shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm"))

# %% [markdown]
# ## The file
#
# - `[[processors]]`: the cores that run kernels. `isa`, `simd` and `fpu` decide which kernels are chosen.
# - `[[memories]]`: `ram` stores tensors, `rom` stores code and weights. Capacities are bytes, and speeds are bytes per
#   cycle; `latency_cycles` is the delay before an access. `section` names a linker section of your own; without it the
#   linker's default section is used.
# - `[[links]]`: the memories that each processor can access, and the speed of the access.
# - `activations` and `weights`: the memories for tensors and for constants.
# - `[toolchain]`: the prefix of the compiler and the flags for this processor.
# - `[board]` is optional: the QEMU machine that replaces the hardware, its timer, which counts executed instructions,
#   and the memories for code, stack and variables. This example uses the machine of `cortex_m4`. The machine has more
#   RAM, but the linker script is generated from this file, so the firmware uses only the memories that we describe.

# %%
BOARD = """
name = "tiny_board"
description = "An invented board: Cortex-M4F, little RAM."
activations = "tensors"
weights = "flash"

[[processors]]
name = "cpu"
isa = "armv7e-m"
clock_hz = 16_000_000
simd = "dsp"
fpu = "single"

[[memories]]
name = "flash"
kind = "rom"
capacity_bytes = 0x4_0000
read_bytes_per_cycle = 2
write_bytes_per_cycle = 0
latency_cycles = 2
address = 0x0000_0000

[[memories]]
name = "system"
kind = "ram"
capacity_bytes = 0x8000
read_bytes_per_cycle = 4
write_bytes_per_cycle = 4
address = 0x2000_0000

[[memories]]
name = "tensors"
kind = "ram"
capacity_bytes = {tensor_bytes}
read_bytes_per_cycle = 4
write_bytes_per_cycle = 4
section = ".bss.tensors"
address = 0x2000_8000

[[links]]
source = "cpu"
target = "flash"
bytes_per_cycle = 2
latency_cycles = 2

[[links]]
source = "cpu"
target = "system"
bytes_per_cycle = 4

[[links]]
source = "cpu"
target = "tensors"
bytes_per_cycle = 4

[toolchain]
prefix = "arm-none-eabi-"
flags = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"]

[board]
qemu_machine = "mps2-an386"
timer = "cmsdk"
timer_address = 0x4000_0000
timer_hz = 25_000_000
code_memory = "flash"
data_memory = "system"
stack_bytes = 0x2000
"""


def describe(tensor_bytes: int) -> Platform:
    """Write the file of a board with `tensor_bytes` of memory for tensors, and load it."""
    path = work / "tiny_board.toml"
    path.write_text(BOARD.format(tensor_bytes=tensor_bytes))
    return Platform.load(path)


# %% [markdown]
# ## Mistakes
#
# The whole file is checked: unknown keys, values out of range, and memories that no processor can access.

# %%
(work / "typo.toml").write_text(BOARD.format(tensor_bytes='"2KB"'))
try:
    Platform.load(work / "typo.toml")
except errors.BadPlatform as error:
    print(str(error).replace(str(work), "..."))
else:
    raise AssertionError("a capacity is a number")

# %% [markdown]
# ## Too small
#
# 256 B are enough for the image and for no other tensor. By default the compiler would put the other tensors into
# `system`, the second RAM; `memories="default"` allows only the memory that `activations` names. The message names the
# step with the most live bytes, its tensors and their bytes, and the memory. Nothing is written.

# %%
module = tvm_ext.load(here / "digits" / "digits.onnx")
output = work / "digits"
try:
    tvm_ext.build(module, describe(256), output, BuildOptions(memories="default", verify=()))
except errors.DoesNotFit as error:
    print(error)
else:
    raise AssertionError("256 B are too little")
assert not output.exists()

# %% [markdown]
# ## Large enough
#
# To find the number of bytes that are needed, build for any platform with the same processor, such as `cortex_m4`, and
# read the size of its arena. Without a cross compiler, use the host.

# %%
probe = tvm_ext.build(module, "cortex_m4" if has_board else "host", work / "probe", BuildOptions(verify=()))
needed = probe.report["arena_bytes"]
print(f"the arena takes {needed} B")

# %% [markdown]
# A board with exactly this number of bytes runs the network. The build compares its outputs with those of onnxruntime
# on this machine and on the board. Tensors are in the section that we named, at 0x20008000 as the file says.

# %%
if has_board:
    package = tvm_ext.build(module, describe(needed), output, BuildOptions(verify=("host", "qemu")))
    for memory in package.report["memories"]:
        print(f"{memory['name']}: {memory['used_bytes']} of {memory['capacity_bytes']} B")
    verified = package.report["verify"]["qemu"]
    print("agrees with onnxruntime:", verified["passed"], "- executed instructions:", verified["instructions"])
    held_out = np.load(here / "digits" / "digits_test.npz")
    image = (held_out["images"][0] / 16).astype(np.float32).reshape(1, 1, 8, 8)
    probabilities = package.run({"image": image}, on="qemu")["probabilities"]
    print("label", held_out["labels"][0], "classified as", probabilities.argmax())
    assert verified["passed"] and probabilities.argmax() == held_out["labels"][0]
else:
    print("Not built for the board: no cross compiler or no QEMU; `make boards` installs both.")

# %%
shutil.rmtree(work)

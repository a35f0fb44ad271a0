# %% [markdown]
# # Describe a board of your own
#
# A platform is one TOML file. We describe a board that nobody sells: a Cortex-M4 with less RAM than the digits network
# needs. The compiler says so before it writes anything, and says where. Then the board gets more RAM, and the network
# runs on it. Run this as a script, `python tutorials/02_describe_a_board.py`, or cell by cell in
# an editor that knows `# %%`. Without `arm-none-eabi-gcc` and `qemu-system-arm` (`make boards` installs both) the
# last step is left out.

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
# - `[[processors]]`: what runs kernels. `isa`, `simd` and `fpu` decide which kernels are chosen.
# - `[[memories]]`: `ram` holds tensors, `rom` code and weights. Capacities are plain bytes; speeds are bytes a cycle,
#   `latency_cycles` is what an access waits first. `section` names a linker section of your own; without it the
#   linker's default is used.
# - `[[links]]`: which processor reaches which memory, and how fast.
# - `activations` and `weights`: the memories that tensors and constants go to.
# - `[toolchain]`: the compiler's prefix and the flags for this processor.
# - `[board]`, if there is one: the QEMU machine that stands in for the hardware, its timer for counting executed
#   instructions, and where code, stack and variables lie. Here it is the machine of `cortex_m4`: QEMU has more RAM
#   there, but the linker script is made from this file, so firmware sees only what we describe.

# %%
BOARD = """
name = "tiny_board"
description = "A board nobody sells: Cortex-M4F, little RAM."
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
    """The board with that much memory for tensors, written to a file and read back."""
    path = work / "tiny_board.toml"
    path.write_text(BOARD.format(tensor_bytes=tensor_bytes))
    return Platform.load(path)


# %% [markdown]
# ## Mistakes
#
# The file is checked as a whole: keys that do not exist, values out of range, memories that nothing reaches.

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
# With 256 B for tensors, there is room for the image and for nothing else. Left to itself the compiler would put the
# rest into `system`, the other RAM; `memories="default"` keeps tensors to the memory named for them. The message names
# the step where most is alive, the tensors and their bytes, and the memory. Nothing is written.

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
# The bytes that are enough are the arena of a build for any platform with the same processor, as `cortex_m4`. Without a
# cross compiler, the host's serves.

# %%
probe = tvm_ext.build(module, "cortex_m4" if has_board else "host", work / "probe", BuildOptions(verify=()))
needed = probe.report["arena_bytes"]
print(f"the arena takes {needed} B")

# %% [markdown]
# A board with exactly that much runs it. The build compares its outputs with onnxruntime's on this machine and on the
# board. Tensors lie in the section we named, so they are where the file says: from 0x20008000.

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
    print("a", held_out["labels"][0], "taken for a", probabilities.argmax())
    assert verified["passed"] and probabilities.argmax() == held_out["labels"][0]
else:
    print("Not built for the board: no cross compiler or no QEMU; `make boards` installs both.")

# %%
shutil.rmtree(work)

# %% [markdown]
# # From float to int8
#
# A microcontroller computes int8 faster than float, and weights take a quarter of the room. Here the digits network is
# quantized with a hundred sample images, no training. We look at what each layer loses, compare accuracy, and read the
# C of one layer. Run it as a script, `python tutorials/03_quantize.py`, or cell by cell.

# %%
import tempfile
from pathlib import Path

import numpy as np

import tvm_ext

here = Path(__file__).parent
output = Path(tempfile.mkdtemp())

# %% [markdown]
# ## Calibration data
#
# Samples of what the network will see, prepared as for the float network: an .npz file with one array `[N, ...]` for
# each input under its name, here `image`. `labels` are not needed; with them, accuracy is measured on these samples.
# They are training images: those that we judge the result by later are not among them.

# %%
calibration = here / "digits" / "digits_calibration.npz"
with np.load(calibration, allow_pickle=False) as arrays:
    for name in arrays.files:
        print(name, arrays[name].dtype, arrays[name].shape)

# %% [markdown]
# ## Build both
#
# On the command line: `tvm-ext compile digits.onnx -p host -o out --quantize int8 --calibration FILE.npz`. The range of
# each tensor is chosen from percentiles of what it holds on the samples, by the least mean squared error; weights get
# one scale for each output channel; then biases are corrected for the mean error the rounding leaves.

# %%
module = tvm_ext.load(here / "digits" / "digits.onnx")
in_float = tvm_ext.build(module, "host", output / "float")
in_int8 = tvm_ext.build(module, "host", output / "int8", tvm_ext.BuildOptions(quantize="int8"), calibration=calibration)
for key in ("weights_bytes", "arena_bytes"):
    print(f"{key}: {in_float.report[key]} -> {in_int8.report[key]}")

# %% [markdown]
# ## Error of each layer
#
# The ratio of signal to noise compares each layer of the quantized network with the same layer in float, on the
# calibration samples: 20 dB is an error of a tenth, 40 dB of a hundredth. Errors of earlier layers are in it. Should an
# output fall below `min_snr_db`, the operators that do most harm are left in float, and listed with the reason.

# %%
quantization = in_int8.report["quantization"]
for operator in quantization["operators"]:
    print(f"{operator['name']:26}{operator['dtype']:8}{operator['snr_db']:7.2f} dB")
print("left in float:", quantization["left_float"] or "nothing")
print("accuracy on the calibration samples:", quantization["accuracy_float"], "->", quantization["accuracy_int8"])

# %% [markdown]
# ## Accuracy on held-out images
#
# The quantized network takes and gives int8: `real = scale * (value - zero_point)`. On a device that conversion often
# is a table, or nothing at all when a sensor gives bytes anyway. Here grey level 16 becomes 127, and 0 becomes -128.
# (`BuildOptions(io_type="float32")` keeps float inputs and outputs.)

# %%
image = in_int8.inputs["image"]
print(image)
with np.load(here / "digits" / "digits_test.npz") as held_out:
    images, labels = held_out["images"], held_out["labels"]
real = (images / 16).astype(np.float32).reshape(-1, 1, 1, 8, 8)
steps = np.clip(np.rint(real / image.scale) + image.zero_point, -128, 127).astype(np.int8)
accuracy = {}
for kind, package, inputs in (("float", in_float, real), ("int8", in_int8, steps)):
    with package.session() as model:  # compiled once, run often
        guesses = [model.run({"image": x})["probabilities"].argmax() for x in inputs]
    accuracy[kind] = np.mean(guesses == labels)
    print(f"{kind}: {accuracy[kind]:.2%} of {len(labels)} held-out images")
assert accuracy["int8"] >= accuracy["float"] - 0.005

# %% [markdown]
# ## The C
#
# One function per layer. Products of bytes are summed in int32; the zero point of the input is folded into the bias.
# Each sum is scaled by an integer multiplication and a shift, rounded once, and clamped: the clamp is the relu.

# %%
source = (output / "int8" / "digits.c").read_text()
begin = source.index("dense_gemm(")
print(source[source.rindex("\n\n", 0, begin) : source.index("\n}\n", begin) + 3])
for step in in_int8.report["steps"]:
    print(f"{step['name']:26}{step['kernel']}")

# %% [markdown]
# # From float to int8
#
# A microcontroller computes int8 faster than float, and int8 weights need a quarter of the memory. This tutorial
# quantizes the digits network with a hundred sample images and without training. It shows the error of each layer,
# compares the accuracy, and prints the C of one layer. Run it as a script, `python tutorials/03_quantize.py`, or cell
# by cell.

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
# Calibration data are typical inputs of the network, prepared as for the float network: an .npz file with one array
# `[N, ...]` for each input under its name, here `image`. `labels` are optional; with them, accuracy is measured on
# these samples. The samples are training images. The images that measure the accuracy of the result are not among
# them.

# %%
calibration = here / "digits" / "digits_calibration.npz"
with np.load(calibration, allow_pickle=False) as arrays:
    for name in arrays.files:
        print(name, arrays[name].dtype, arrays[name].shape)

# %% [markdown]
# ## Build both
#
# On the command line: `tvm-ext compile digits.onnx -p host -o out --quantize int8 --calibration FILE.npz`. The range
# of each tensor is chosen among percentiles of its values on the samples, for the least mean squared error. Weights
# get one scale for each output channel. Finally, biases are corrected for the mean rounding error.

# %%
module = tvm_ext.load(here / "digits" / "digits.onnx")
in_float = tvm_ext.build(module, "host", output / "float")
in_int8 = tvm_ext.build(module, "host", output / "int8", tvm_ext.BuildOptions(quantize="int8"), calibration=calibration)
for key in ("weights_bytes", "arena_bytes"):
    print(f"{key}: {in_float.report[key]} -> {in_int8.report[key]}")

# %% [markdown]
# ## Error of each layer
#
# The signal-to-noise ratio compares each layer of the quantized network with the same layer in float, on the
# calibration samples. 20 dB is an error of a tenth, and 40 dB an error of a hundredth. The ratio includes the errors
# of earlier layers. If an output fell below `min_snr_db`, the operators that cause the largest error would stay in
# float, and the report would list them with the reason.

# %%
quantization = in_int8.report["quantization"]
for operator in quantization["operators"]:
    print(f"{operator['name']:26}{operator['dtype']:8}{operator['snr_db']:7.2f} dB")
print("operators that stay in float:", quantization["left_float"] or "none")
print("accuracy on the calibration samples:", quantization["accuracy_float"], "->", quantization["accuracy_int8"])

# %% [markdown]
# ## Accuracy on held-out images
#
# The quantized network has int8 inputs and outputs: `real = scale * (value - zero_point)`. On a device this conversion
# is often a table, or is not necessary because a sensor delivers bytes. Here grey level 16 becomes 127, and 0 becomes
# -128. (`BuildOptions(io_type="float32")` keeps float inputs and outputs.)

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
# Each layer is one function. Products of int8 values are added in int32, and the bias includes the zero point of the
# input. Each accumulator is multiplied by an integer, shifted, rounded once, and clamped; the clamp is the relu.

# %%
source = (output / "int8" / "digits.c").read_text()
begin = source.index("dense_gemm(")
print(source[source.rindex("\n\n", 0, begin) : source.index("\n}\n", begin) + 3])
for step in in_int8.report["steps"]:
    print(f"{step['name']:26}{step['kernel']}")

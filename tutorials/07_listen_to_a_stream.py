# %% [markdown]
# # Listen all day: a window over time becomes a stream
#
# This tutorial builds a detector that looks at the last 32 frames of a signal, each with eight frequency bands. If an
# application called it for every new frame, it would process 31 old frames again each time. With `new_frames`, the
# compiler writes C that takes one new frame and keeps the results of earlier frames that it needs. Its outputs equal
# those of the whole window bit for bit.

# %%
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tvm_ext
from tvm_ext import BuildOptions
from tvm_ext.core.errors import NotReady

work = Path(tempfile.mkdtemp())
FRAMES, BANDS, STEPS = 32, 8, 8

# %% [markdown]
# The detector has two filters over eight frames: one matches a tone that rises through the bands, the other a falling
# tone. The best match in the window counts. The weights are written by hand instead of trained.

# %%
rising = np.eye(STEPS, BANDS, dtype=np.float32) - 1 / BANDS
weights = {
    "filters": np.stack([rising, rising[::-1]])[:, None],
    "scale": np.array([[1, -1], [-1, 1]], np.float32),
    "bias": np.zeros(2, np.float32),
}
graph = helper.make_graph(
    [
        helper.make_node("Conv", ["frames", "filters"], ["matches"]),
        helper.make_node("Relu", ["matches"], ["found"]),
        helper.make_node("GlobalMaxPool", ["found"], ["best"]),
        helper.make_node("Flatten", ["best"], ["pair"]),
        helper.make_node("Gemm", ["pair", "scale", "bias"], ["scores"]),
    ],
    "chirp",
    [helper.make_tensor_value_info("frames", TensorProto.FLOAT, [1, 1, FRAMES, BANDS])],
    [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 2])],
    [numpy_helper.from_array(array, name) for name, array in weights.items()],
)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), work / "chirp.onnx")

# %% [markdown]
# Time is axis 2 of the input. The same model is built twice: for whole windows, and for one new frame per run.

# %%
module = tvm_ext.load(work / "chirp.onnx")
window = tvm_ext.build(module, "host", work / "window", BuildOptions(verify=("host",)))
options = BuildOptions(new_frames={"frames": 1}, time_axis={"frames": 2}, verify=("host",))
stream = tvm_ext.build(module, "host", work / "chirp", options)
print(f"multiply-adds: {window.report['macs']} per window, {stream.report['macs']} per frame")
print(f"bytes kept from frame to frame: {stream.report['state_bytes']}")
for state in stream.report["states"]:
    print(f"    {state['name']}: {state['shape']}, {state['update']}")

# %% [markdown]
# The test signal is noise in which a tone rises once. A session keeps the state between runs. Until the window is
# full, a run raises `NotReady`.

# %%
random = np.random.default_rng(0)
signal = 0.1 * random.standard_normal((100, BANDS)).astype(np.float32)
signal[60 : 60 + STEPS] += np.eye(STEPS, BANDS, dtype=np.float32)
scores: dict[int, np.ndarray] = {}
with stream.session() as session:
    for time, frame in enumerate(signal):
        try:
            scores[time] = session.run({"frames": frame.reshape(1, 1, 1, BANDS)})["scores"]
        except NotReady:
            assert time < FRAMES - 1
heard = [time for time, score in scores.items() if score[0, 0] > 3]
print(f"the tone ends at frame {60 + STEPS - 1}; it is in the window from frame {heard[0]} to {heard[-1]}")

# %% [markdown]
# Every output equals that of the whole window, bit for bit.

# %%
for time, score in scores.items():
    whole = window.run({"frames": signal[time - FRAMES + 1 : time + 1].reshape(1, 1, FRAMES, BANDS)})["scores"]
    np.testing.assert_array_equal(score, whole)
    if time > FRAMES + 3:
        break

# %% [markdown]
# The application in C is a loop that waits for a frame and sleeps in between. The state between runs is one struct. If
# the memory loses its contents during sleep, save and restore the struct with one `memcpy` each.

# %%
numbers = ",\n".join("    {" + ", ".join(f"{value:.9g}f" for value in frame) + "}" for frame in signal)
application = f"""\
#include <stdio.h>
#include <string.h>

#include "chirp.h"

static const float signal[{len(signal)}][{BANDS}] = {{
{numbers}
}};

int main(void)
{{
    static unsigned char saved[chirp_state_bytes];
    chirp_reset();
    for (int time = 0; time < {len(signal)}; ++time) {{
        memcpy(chirp_frames(), signal[time], sizeof signal[time]);
        const int32_t status = chirp_run();
        if (status != 0 && status != chirp_not_ready) {{
            return (int)status;
        }}
        if (status == 0 && chirp_scores()[0] > 3.0f) {{
            printf("heard at %d\\n", time);
            return 0;
        }}
        memcpy(saved, chirp_state_place(), sizeof saved); /* before sleep: save the state */
        memset(chirp_state_place(), 0, sizeof saved);     /* sleep: the RAM loses its contents */
        memcpy(chirp_state_place(), saved, sizeof saved); /* after sleep: restore the state */
    }}
    return 1;
}}
"""
(work / "application.c").write_text(application)
parts = ("", "_memory", "_weights", "_state")
sources = [work / "application.c", *(work / "chirp" / f"chirp{part}.c" for part in parts)]
program = work / "application"
flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", f"-I{work / 'chirp'}"]
subprocess.run(["gcc", *flags, *(source for source in sources if source.exists()), "-lm", "-o", program], check=True)
printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
print(printed)

# %%
assert printed == f"heard at {heard[0]}\n" and 60 + STEPS - 2 <= heard[0] <= 60 + STEPS
assert stream.report["macs"] * 10 < window.report["macs"]

# %% [markdown]
# # Classify a frame that is never stored
#
# A camera delivers a frame line by line. With `io="stream"` the generated code requests lines from the application
# when its first layers need them, and keeps a few lines in a ring buffer, so no memory stores the whole frame. In this
# tutorial a C program simulates the camera; on a device, the same function waits for the DMA of a line.

# %%
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import tvm_ext
from tvm_ext import BuildOptions

digits = Path(__file__).resolve().parent / "digits"
work = Path(tempfile.mkdtemp())
held_out = np.load(digits / "digits_test.npz")
image = (held_out["images"][0] / 16).astype(np.float32).reshape(1, 1, 8, 8)

# %% [markdown]
# The report lists the streamed inputs and the number of their rows that are stored at a time. With a budget, the plan
# becomes as small as necessary. Without a budget, it is the cheapest plan that does not store the whole frame.

# %%
module = tvm_ext.load(digits / "digits.onnx")
package = tvm_ext.build(module, "host", work / "digits", BuildOptions(io="stream", ram=7000, verify=("host",)))
stream = package.report["inputs"][0]["stream"]
print(f"image: {stream['rows_kept']} of {stream['rows']} rows are stored")
print((work / "digits" / "digits.h").read_text().partition("typedef struct {")[2].partition("digits_run")[0])

# %% [markdown]
# `Package.run` delivers the rows itself, so nothing changes when you try the model in Python.

# %%
probabilities = package.run({"image": image})["probabilities"]
print("label", held_out["labels"][0], "classified as", probabilities.argmax())

# %% [markdown]
# The next cell is the application in C. A row of an image consists of its pixels with channels innermost, as cameras
# deliver them, even if the model has another layout. Every row is requested once, in order. If the function returns a
# value other than 0, the run ends and returns this value.

# %%
lines = ",\n".join("    {" + ", ".join(f"{value}f" for value in row) + "}" for row in image[0, 0])
application = f"""\
#include <stdio.h>
#include <string.h>

#include "digits.h"

static const float frame[DIGITS_IMAGE_ROWS][DIGITS_IMAGE_ROW_SIZE] = {{
{lines}
}};

/* Simulates the driver: waits for a line, and returns the address where its DMA stored it. */
static const float *wait_for_line(int32_t row)
{{
    printf("line %d\\n", (int)row);
    return frame[row];
}}

static int32_t read_image(void *context, float *rows, int32_t row_begin, int32_t row_end)
{{
    (void)context;
    for (int32_t row = row_begin; row < row_end; ++row) {{
        const float *const line = wait_for_line(row);
        memcpy(&rows[(row - row_begin) * DIGITS_IMAGE_ROW_SIZE], line, DIGITS_IMAGE_ROW_SIZE * sizeof *rows);
    }}
    return 0;
}}

static int32_t write_probabilities(void *context, const float *rows, int32_t row_begin, int32_t row_end)
{{
    (void)row_begin;
    (void)row_end;
    memcpy(context, rows, DIGITS_PROBABILITIES_SIZE * sizeof *rows);
    return 0;
}}

int main(void)
{{
    float probabilities[DIGITS_PROBABILITIES_SIZE];
    const digits_io io = {{
        .context = probabilities,
        .read_image = read_image,
        .write_probabilities = write_probabilities,
    }};
    const int32_t status = digits_run(&io);
    int best = 0;
    for (int digit = 1; digit < DIGITS_PROBABILITIES_SIZE; ++digit) {{
        best = probabilities[digit] > probabilities[best] ? digit : best;
    }}
    printf("classified as %d\\n", best);
    return (int)status;
}}
"""
(work / "application.c").write_text(application)
sources = [work / "application.c", *(work / "digits" / f"digits{part}.c" for part in ("", "_memory", "_weights"))]
program = work / "application"
flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", f"-I{work / 'digits'}"]
subprocess.run(["gcc", *flags, *sources, "-lm", "-o", program], check=True)
printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
print(printed)

# %%
assert [line for line in printed.splitlines() if line.startswith("line")] == [f"line {row}" for row in range(8)]
assert f"classified as {probabilities.argmax()}" in printed and stream["rows_kept"] < stream["rows"]

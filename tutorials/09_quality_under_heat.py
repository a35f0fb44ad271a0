# %% [markdown]
# # A filter that gives up detail before it gets too hot
#
# This tutorial builds a camera filter that draws pictures with a pen: edges become strokes of blue ink on paper. A
# device that gets hot has to compute less, and a drawing with less detail is better than no drawing. One package
# therefore contains three networks for the task, and generated C chooses a network for each frame. Each frame is
# blended with the previous drawing, so that strokes do not flicker. The previous drawing is a state, which remains
# when another network takes over.

# %%
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import tvm_ext

work = Path(tempfile.mkdtemp())
SIZE, FRAMES, INK = 24, 80, np.array([1.0, 0.8, 0.4])  # pixels per side; red, green and blue that ink absorbs
random = np.random.default_rng(9)

# %% [markdown]
# The networks compute differences between the neighbours of a pixel in several directions, keep their positive parts,
# and draw the sum on paper. `large` uses eight directions, `medium` four, and `small` four at half the resolution. The
# previous drawing is an input and an output of all three networks, and the last convolution blends it in. The state
# must have the same layout in all three networks, which the build checks.


# %%
def save(name: str, directions: int, shrink: int) -> Path:
    angles = 2 * np.pi * np.arange(directions) / directions
    across, down = np.meshgrid([-1, 0, 1], [-1, 0, 1])
    slopes = np.cos(angles)[:, None, None] * across + np.sin(angles)[:, None, None] * down
    weights = {
        "slopes": np.repeat(slopes[:, None], 3, axis=1) / 9,
        "ink": -INK[:, None, None, None] * np.full((3, directions, 3, 3), 1 / directions),
        "paper": np.array([1, 0.95, 0.85]),
        "blend": np.concatenate([np.eye(3), np.eye(3)], axis=1)[:, :, None, None] / 2,
    }
    port = f"float[1, 3, {SIZE}, {SIZE}]"
    smaller = f"AveragePool <kernel_shape = [{shrink}, {shrink}], strides = [{shrink}, {shrink}]> (image)"
    larger = 'Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">'
    text = f"""{name} ({port} image, {port} before) => ({port} drawing, {port} kept) {{
        seen = {smaller if shrink > 1 else "Identity (image)"}
        sides = Conv <pads = [1, 1, 1, 1]> (seen, slopes)
        edges = Relu (sides)
        strokes = Conv <pads = [1, 1, 1, 1]> (edges, ink, paper)
        whole = {larger + "(strokes, , factors)" if shrink > 1 else "Identity (strokes)"}
        both = Concat <axis = 1> (whole, before)
        drawing = Conv (both, blend)
        kept = Identity (drawing)
    }}"""
    weights |= {"factors": np.array([1, 1, shrink, shrink])} if shrink > 1 else {}
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 17]> {text}')
    constants = [numpy_helper.from_array(np.asarray(array, np.float32), key) for key, array in weights.items()]
    model.graph.initializer.extend(constants)
    onnx.save(model, work / f"{name}.onnx")
    return work / f"{name}.onnx"


networks = {"large": save("large", 8, 1), "medium": save("medium", 4, 1), "small": save("small", 4, 2)}

# %% [markdown]
# `order` lists the networks, the best first. Above 60 degrees `large` is not allowed, and above 70 degrees `medium` is
# not allowed. `temperature_margin_c` adds hysteresis: a network returns only when the temperature is five degrees
# below its limit. With `switch = "keep"`, a new network continues with the current drawing.

# %%
entries = [f'[[models]]\nname = "{name}"\nfile = "{name}.onnx"\nstates = {{ before = "kept" }}' for name in networks]
(work / "BUNDLE.toml").write_text(
    "\n".join(['name = "pen"', *entries])
    + """
[[variants]]
name = "style"
order = ["large", "medium", "small"]
switch = "keep"
limits = { large = { temperature_c = 60 }, medium = { temperature_c = 70 } }
"""
)
bundle = tvm_ext.bundle(work / "BUNDLE.toml", "host", work / "pen", verify=("host",))
report = bundle.report
((arenas,), (group,)) = report["arenas"], report["variants"]
for name, needs in zip(group["models"], group["needs"], strict=True):
    print(f"{name}: {needs['cycles']} cycles predicted, {needs['free_bytes']} B of RAM")
print(f"arenas of all three networks: {arenas['num_bytes']} B, their shared state: {group['state_bytes']} B")

# %% [markdown]
# The next cell is the application in C. For each frame it fills in the available resources, uses the network that
# `style_select` returns, and calls `style_switch` if the network changes. The temperature rises and falls again, and
# the sensor has an error of up to two degrees.

# %%
course = np.concatenate([np.linspace(50, 80, FRAMES // 2), np.linspace(80, 50, FRAMES // 2)])
temperatures = np.rint(course + random.uniform(-2, 2, FRAMES)).astype(int)
rows = ",\n".join(f'    {{"{name}", {name}_image, {name}_run, {name}_drawing}}' for name in networks)
(work / "application.c").write_text(f"""\
#include <stdio.h>

#include "pen.h"

static const int32_t temperatures[{FRAMES}] = {{
    {", ".join(map(str, temperatures))}
}};

static const struct {{
    const char *name;
    float *(*image)(void);
    int32_t (*run)(void);
    const float *(*drawing)(void);
}} networks[] = {{
{rows}
}};

int main(int argc, char **argv)
{{
    FILE *const drawings = argc == 2 ? fopen(argv[1], "wb") : NULL;
    style_resources now = {{.cycles = 10000000, .free_bytes = 100000, .battery_percent = 80, .current = style_none}};
    for (int frame = 0; drawings && frame < {FRAMES}; ++frame) {{
        now.temperature_c = temperatures[frame];
        const int32_t chosen = style_select(&now);
        if (chosen == style_none) {{
            return 1;
        }}
        if (chosen != now.current) {{
            style_switch(now.current, chosen);
            now.current = chosen;
        }}
        if (fread(networks[chosen].image(), sizeof(float), LARGE_IMAGE_SIZE, stdin) != LARGE_IMAGE_SIZE ||
            networks[chosen].run() != 0) {{
            return 2;
        }}
        fwrite(networks[chosen].drawing(), sizeof(float), LARGE_DRAWING_SIZE, drawings);
        printf("%d %s\\n", (int)now.temperature_c, networks[chosen].name);
    }}
    return drawings && fclose(drawings) == 0 ? 0 : 3;
}}
""")
program = work / "application"
flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", f"-I{bundle.folder}"]
sources = [work / "application.c", bundle.folder / report["artifacts"]["library"]]
subprocess.run(["gcc", *flags, *sources, "-lm", "-o", program], check=True)

# %% [markdown]
# The camera sees a bright ball that moves over a darker background.

# %%
down, across = np.mgrid[0:SIZE, 0:SIZE]
frames = np.empty((FRAMES, 1, 3, SIZE, SIZE), np.float32)
for number in range(FRAMES):
    distance = np.hypot(down - SIZE / 2, across - SIZE / 4 - SIZE / 2 * number / FRAMES)
    frames[number] = 0.3 + 0.6 / (1 + np.exp(distance - SIZE / 5)) + 0.02 * random.standard_normal((3, SIZE, SIZE))
command = [program, work / "drawings"]
printed = subprocess.run(command, check=True, capture_output=True, input=frames.tobytes()).stdout.decode()
chosen = [line.split()[1] for line in printed.splitlines()]
drawings = np.fromfile(work / "drawings", np.float32).reshape(frames.shape)
changes = [frame for frame in range(1, FRAMES) if chosen[frame] != chosen[frame - 1]]
for frame in [0, *changes]:
    print(f"frame {frame}, {temperatures[frame]} degrees: {chosen[frame]}")

# %% [markdown]
# The last cell computes the same in numpy. It also shows two alternatives: without hysteresis, the sensor's errors
# would change the network more often; without the kept state, the first drawing of each network would differ more from
# the previous drawing.

# %%
evaluators = {name: ReferenceEvaluator(str(path)) for name, path in networks.items()}
blank = before = np.zeros_like(frames[0])
with_margin, jumps, jumps_anew, current = [], [], [], 0
for frame, image, temperature in zip(range(FRAMES), frames, temperatures, strict=True):
    bare = int(temperature > 60) + int(temperature > 70)
    current = max(bare, min(current, int(temperature > 55) + int(temperature > 65)))
    with_margin.append(list(networks)[current])
    drawing, kept = evaluators[chosen[frame]].run(None, {"image": image, "before": before})
    np.testing.assert_allclose(drawings[frame], drawing, atol=1e-4)
    if frame in changes:
        anew, _ = evaluators[chosen[frame]].run(None, {"image": image, "before": blank})
        jumps.append(np.abs(drawing - drawings[frame - 1]).mean())
        jumps_anew.append(np.abs(anew - drawings[frame - 1]).mean())
    before = kept
bare = (temperatures > 60).astype(int) + (temperatures > 70)
print(f"changes of the network: {len(changes)}, without hysteresis {np.count_nonzero(np.diff(bare))}")
print(f"mean difference at a change: {np.mean(jumps):.3f}, with a blank state {np.mean(jumps_anew):.3f}")
assert chosen == with_margin and [chosen[frame] for frame in changes] == ["medium", "small", "medium", "large"]
assert np.count_nonzero(np.diff(bare)) > len(changes) and max(jumps) < min(jumps_anew)
cycles = [needs["cycles"] for needs in group["needs"]]
assert cycles == sorted(cycles, reverse=True)
assert arenas["num_bytes"] == max(one["num_bytes"] for one in arenas["arenas"])
assert group["state_bytes"] == max(one["num_bytes"] for one in report["states"])
assert all(model["verify"]["host"]["passed"] for model in report["models"].values())

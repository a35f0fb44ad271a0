# %% [markdown]
# # A small network that wakes a larger network
#
# A device listens all day, and sounds are rare. In this tutorial a small detector processes every frame of sound and
# measures only its loudness. When a sound has ended, the detector wakes a classifier, which decides if the sound rose,
# fell or was steady. Both networks are in one package: their arenas share bytes, weights that both have exist once,
# and a link passes the loudness from the detector to the classifier.

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
SAMPLES, BANDS, SOUND, REST = 64, 8, 8, 2  # samples per frame, bands of its spectrum; frames of a sound, of the rest
WINDOW, FILTERS, LABELS = SOUND + REST, 24, ["rising", "falling", "steady"]
NOISE, LOUD_DB, REST_DB = 0.002, -50, 12  # a sound is louder than LOUD_DB; the rest is quieter by REST_DB at least
random = np.random.default_rng(8)


def save(text: str, weights: dict[str, np.ndarray]) -> Path:
    """Write a model from its graph in ONNX's textual notation and the arrays of its constants."""
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 17]> {text}')
    constants = [numpy_helper.from_array(np.asarray(array, np.float32), name) for name, array in weights.items()]
    model.graph.initializer.extend(constants)
    onnx.save(model, work / f"{model.graph.name}.onnx")
    return work / f"{model.graph.name}.onnx"


# %% [markdown]
# Both networks begin with the same filter bank: for each band a sine and a cosine, squared and added. The detector
# averages these energies over the frames of a sound and over the two frames of rest after it, in decibels.

# %%
phases = 2 * np.pi * np.outer(3 * np.arange(1, BANDS + 1), np.arange(SAMPLES)) / SAMPLES
waves = np.concatenate([np.cos(phases), np.sin(phases)]) * np.hanning(SAMPLES) * 4 / SAMPLES
spectrum = {
    "bank": waves.reshape(2 * BANDS, 1, 1, SAMPLES),
    "pairs": np.concatenate([np.eye(BANDS), np.eye(BANDS)], axis=1).reshape(BANDS, 2 * BANDS, 1, 1),
    "floor": np.array(1e-7),
}
to_energies = "waves = Conv (frames, bank) squares = Mul (waves, waves) energies = Conv (squares, pairs)"
averages = np.zeros((2, BANDS, WINDOW, 1))
averages[0, :, :SOUND], averages[1, :, SOUND:] = 1 / (BANDS * SOUND), 1 / (BANDS * REST)
detector = save(
    f"""detector (float[1, 1, {WINDOW}, {SAMPLES}] frames) => (float[1, 1] loudness, float[1, 1] rest) {{
        {to_energies} means = Conv (energies, averages) pair = Flatten (means)
        above = Add (pair, floor) logarithms = Log (above) both = Mul (logarithms, decibels)
        loudness, rest = Split <axis = 1> (both)
    }}""",
    {**spectrum, "averages": averages, "decibels": np.array(10 / np.log(10))},
)

# %% [markdown]
# The classifier takes the frames of the sound, and its level, which it adds to the logarithm of each energy. A whistle
# nearby and a whistle far away therefore have the same features. The filters over time are random; the last layer is
# fitted by least squares to whistles that this tutorial generates.

# %%
inputs = f"(float[1, 1, {SOUND}, {SAMPLES}] frames, float[1, 1] level)"
to_features = f"""
    {to_energies} above = Add (energies, floor) logarithms = Log (above) levelled = Add (logarithms, level)
    filtered = Conv (levelled, filters) bent = Relu (filtered) features = Flatten (bent)
"""
weights = {**spectrum, "filters": random.standard_normal((FILTERS, BANDS, 3, 1)) / 5}
TO_LEVEL = -np.log(10) / 10  # loudness in decibels -> the natural logarithm that cancels it


def whistle(label: str) -> np.ndarray:
    """Return a tone of eight frames, up to 24 dB below full scale."""
    low, high, steady = random.uniform(3, 6), random.uniform(21, 24), random.uniform(5, 22)  # cycles per frame
    ends = {"rising": (low, high), "falling": (high, low), "steady": (steady, steady)}[label]
    phase = np.cumsum(np.linspace(*ends, SOUND * SAMPLES)) * 2 * np.pi / SAMPLES
    return 10 ** -random.uniform(0, 1.2) * np.sin(phase + random.uniform(0, 6))


def windows_of(signal: np.ndarray) -> np.ndarray:
    """Return all windows of the signal as a batch."""
    frames = signal.astype(np.float32).reshape(-1, SAMPLES)
    return np.stack([frames[end - WINDOW : end] for end in range(WINDOW, len(frames) + 1)])[:, None]


examples, wanted = [], np.arange(600) % len(LABELS)
for label in wanted:
    signal = NOISE * random.standard_normal((WINDOW + 1) * SAMPLES)
    begin = random.integers(0, SAMPLES + SAMPLES // 4)  # the window begins at frame 1 and may miss the first samples
    signal[begin : begin + SOUND * SAMPLES] += whistle(LABELS[label])
    examples.append(windows_of(signal)[1])
loudness, _ = ReferenceEvaluator(str(detector)).run(None, {"frames": np.stack(examples)})
sounds = {"frames": np.stack(examples)[:, :, :SOUND], "level": np.float32(TO_LEVEL) * loudness[..., None, None]}
features_of = save(f"features_of {inputs} => (float[1, {FILTERS * (SOUND - 2)}] features) {{{to_features}}}", weights)
(features,) = ReferenceEvaluator(str(features_of)).run(None, sounds)
features = np.concatenate([features, np.ones((len(features), 1))], axis=1)
fitted = np.linalg.lstsq(features, np.eye(len(LABELS))[wanted], rcond=1e-4)[0]
classifier = save(
    f"classifier {inputs} => (float[1, 3] scores) {{{to_features} scores = Gemm (features, fitted, bias)}}",
    {**weights, "fitted": fitted[:-1], "bias": fitted[-1]},
)

# %% [markdown]
# One file names both models. The detector takes one new frame per run, and keeps the results of earlier frames that it
# needs. The link converts decibels to the level.

# %%
(work / "BUNDLE.toml").write_text(f"""\
name = "ears"
[[models]]
name = "detector"
file = "detector.onnx"
options = {{ new_frames = {{ frames = 1 }}, time_axis = {{ frames = 2 }} }}
[[models]]
name = "classifier"
file = "classifier.onnx"
[[links]]
source = "detector.loudness"
target = "classifier.level"
scale = {TO_LEVEL}
""")
bundle = tvm_ext.bundle(work / "BUNDLE.toml", "host", work / "ears", verify=("host",))
report, models = bundle.report, bundle.report["models"]
(arenas,) = report["arenas"]
print(*(f"{one['model']}: {one['num_bytes']} B of RAM from byte {one['offset']}" for one in arenas["arenas"]), sep="\n")
print(f"together {arenas['num_bytes']} B, {arenas['saved_bytes']} B fewer than two separate arenas")
print(f"in addition: state {report['states'][0]['num_bytes']} B, level {report['linked_inputs'][0]['num_bytes']} B")
twice = sum(constant["saved_bytes"] for constant in report["shared_constants"])
print(f"{report['weights_bytes']} B of weights, {twice} B fewer than in two packages")

# %% [markdown]
# The next cell is the application in C. `ears_run_detector` runs the detector and passes its loudness on to the
# classifier. The arenas share their bytes, so the application reads the outputs of the detector before it writes the
# input of the classifier.

# %%
(work / "application.c").write_text(f"""\
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "ears.h"

enum {{ SAMPLES = {SAMPLES}, SOUND = {SOUND} * SAMPLES, WINDOW = {WINDOW} * SAMPLES }};
static const char *const labels[] = {{"{'", "'.join(LABELS)}"}};
static float last[WINDOW]; /* the window, with the newest frame at its end */

int main(void)
{{
    float *const newest = &last[WINDOW - SAMPLES];
    bool was_over = false;
    detector_reset();
    for (int time = 0; fread(newest, sizeof *last, SAMPLES, stdin) == SAMPLES; ++time) {{ /* waits for a frame */
        memcpy(detector_frames(), newest, SAMPLES * sizeof *last);
        int32_t status = ears_run_detector();
        const float loudness = detector_loudness()[0], rest = detector_rest()[0];
        const bool is_over = status == 0 && loudness > {LOUD_DB}.0f && loudness - rest > {REST_DB}.0f;
        if (is_over && !was_over) {{
            memcpy(classifier_frames(), last, SOUND * sizeof *last);
            status = classifier_run();
            const float *const scores = classifier_scores();
            int best = 0;
            printf("%d %.9g", time, (double)loudness);
            for (int label = 0; label < CLASSIFIER_SCORES_SIZE; ++label) {{
                best = scores[label] > scores[best] ? label : best;
                printf(" %.9g", (double)scores[label]);
            }}
            printf(" %s\\n", labels[best]);
        }}
        if (status != 0 && status != detector_not_ready) {{
            return (int)status;
        }}
        was_over = is_over;
        memmove(last, &last[SAMPLES], (WINDOW - SAMPLES) * sizeof *last);
    }}
    return 0;
}}
""")
program = work / "application"
flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", f"-I{bundle.folder}"]
sources = [work / "application.c", bundle.folder / report["artifacts"]["library"]]
subprocess.run(["gcc", *flags, *sources, "-lm", "-o", program], check=True)

# %% [markdown]
# The test signal is noise with twelve new whistles, which the program reads frame by frame.

# %%
signal, whistled = NOISE * random.standard_normal(400 * SAMPLES), random.permutation(LABELS * 4).tolist()
for number, label in enumerate(whistled):
    begin = (10 + 32 * number) * SAMPLES + random.integers(0, 10 * SAMPLES)
    signal[begin : begin + SOUND * SAMPLES] += whistle(label)
printed = subprocess.run([program], check=True, capture_output=True, input=np.float32(signal).tobytes()).stdout.decode()
heard = [line.split() for line in printed.splitlines()]
for time, level, *_, label in heard:
    print(f"frame {time}: {label}, at {float(level):.0f} dB")
macs = {name: model["macs"] for name, model in models.items()}
spent = macs["detector"] * 400 + macs["classifier"] * len(heard)
print(f"multiply-adds per frame: {spent / 400:.0f}; without the detector: {macs['classifier']}")

# %% [markdown]
# The last cell computes the same in numpy, with the reference evaluator of ONNX, over every whole window of the signal.

# %%
windows = windows_of(signal)
loudness, rest = ReferenceEvaluator(str(detector)).run(None, {"frames": windows})
is_over = ((loudness > LOUD_DB) & (loudness - rest > REST_DB)).reshape(-1)
woken = np.flatnonzero(is_over & ~np.concatenate([[False], is_over[:-1]]))
sounds = {"frames": windows[woken, :, :SOUND], "level": np.float32(TO_LEVEL) * loudness[woken, :, None, None]}
(scores,) = ReferenceEvaluator(str(classifier)).run(None, sounds)
assert [int(time) for time, *_ in heard] == (woken + WINDOW - 1).tolist()
figures = np.array([line[1:-1] for line in heard], float)
np.testing.assert_allclose(figures, np.concatenate([loudness[woken], scores], axis=1), atol=1e-3)
assert [label for *_, label in heard] == whistled
assert arenas["num_bytes"] == max(arena["num_bytes"] for arena in arenas["arenas"]) and arenas["saved_bytes"] > 0
assert twice >= 4 * waves.size and spent * 5 < 400 * macs["classifier"]
assert report["links"][0]["mapping"] == "scale" and all(model["verify"]["host"]["passed"] for model in models.values())

# %% [markdown]
# ## The classifier on a second core
#
# On a chip with two cores, the small detector can stay on one core, and wake the other core for the classifier. The
# other core sleeps between sounds. `processors` names the core of the classifier. Its arena now shares no bytes with
# the detector's, because both networks run at once. There is no link, which would have to wait until the classifier has
# ended: the application writes the level itself.

# %%
platform = tvm_ext.Platform.load("dual_m33_equal")
(work / "TWO.toml").write_text("""\
name = "ears"
[[models]]
name = "detector"
file = "detector.onnx"
options = { new_frames = { frames = 1 }, time_axis = { frames = 2 } }
[[models]]
name = "classifier"
file = "classifier.onnx"
processors = ["cpu1"]
""")
two = tvm_ext.bundle(work / "TWO.toml", platform, work / "two", verify=("host",))
for one in two.report["placement"]:
    print(f"{one['model']} on {' and '.join(one['processors'])}")
(apart,) = two.report["arenas"]
print(f"arenas that may be in use at once: {apart['num_bytes']} B")

# %% [markdown]
# `ears_start_classifier` wakes the other core and returns at once. The detector hears the next frames while the
# classifier runs, and `ears_finish_classifier` returns its status. On a chip, the second core calls `ears_serve_cpu1`
# in an endless loop; here it is a thread.

# %%
(work / "two_cores.c").write_text(f"""\
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "ears.h"

enum {{ SAMPLES = {SAMPLES}, SOUND = {SOUND} * SAMPLES, WINDOW = {WINDOW} * SAMPLES }};
static const char *const labels[] = {{"{'", "'.join(LABELS)}"}};
static float last[WINDOW];
static int woken = -1; /* frame of the sound that the classifier works on */

static void *other_core(void *unused)
{{
    (void)unused;
    for (;;) {{
        ears_serve_cpu1();
    }}
    return NULL;
}}

static void print_label(void)
{{
    if (woken >= 0 && ears_finish_classifier() == classifier_ok) {{
        const float *const scores = classifier_scores();
        int best = 0;
        for (int label = 1; label < CLASSIFIER_SCORES_SIZE; ++label) {{
            best = scores[label] > scores[best] ? label : best;
        }}
        printf("%d %s\\n", woken, labels[best]);
    }}
    woken = -1;
}}

int main(void)
{{
    pthread_t thread;
    float *const newest = &last[WINDOW - SAMPLES];
    bool was_over = false;
    if (pthread_create(&thread, NULL, other_core, NULL) != 0) {{
        return 1;
    }}
    detector_reset();
    for (int time = 0; fread(newest, sizeof *last, SAMPLES, stdin) == SAMPLES; ++time) {{
        memcpy(detector_frames(), newest, SAMPLES * sizeof *last);
        const int32_t status = detector_run();
        const float loudness = detector_loudness()[0], rest = detector_rest()[0];
        const bool is_over = status == 0 && loudness > {LOUD_DB}.0f && loudness - rest > {REST_DB}.0f;
        if (is_over && !was_over) {{
            print_label(); /* of the sound before, if the classifier still works on it */
            memcpy(classifier_frames(), last, SOUND * sizeof *last);
            classifier_level()[0] = {TO_LEVEL}f * loudness;
            ears_start_classifier();
            woken = time;
        }} else if (woken >= 0 && !ears_is_running_classifier()) {{
            print_label();
        }}
        was_over = is_over;
        memmove(last, &last[SAMPLES], (WINDOW - SAMPLES) * sizeof *last);
    }}
    print_label();
    return 0;
}}
""")
tests = ("_selftest.c", "_selftest_main.c", "_vectors.c")
sources = [path for path in sorted(two.folder.glob("*.c")) if not path.name.endswith(tests)]
flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", f"-I{two.folder}", "-pthread"]
subprocess.run(["gcc", *flags, work / "two_cores.c", *sources, "-lm", "-o", work / "two_cores"], check=True)
printed = subprocess.run([work / "two_cores"], check=True, capture_output=True, input=np.float32(signal).tobytes())
labels = [line.split() for line in printed.stdout.decode().splitlines()]
print(f"{len(labels)} sounds, the same labels: {[label for _, label in labels] == whistled}")
assert labels == [[time, label] for time, *_, label in heard]
assert [one["processors"] for one in two.report["placement"]] == [["cpu0"], ["cpu1"]]
assert apart["num_bytes"] > arenas["num_bytes"]

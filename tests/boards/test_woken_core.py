"""An always-on core wakes a larger one, which loads the image of its model: both are cores of one board in QEMU.

CPU0 of `dual_m33`, without DSP and FPU, runs a wake word in integers over all frames. When the output of the wake
word exceeds a threshold, CPU0 signals CPU1 and goes on. CPU1, with DSP and FPU, sleeps until the signal. The first time
it copies the image of a recogniser from flash to RAM, and loads it there. Neither core was linked with the recogniser.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import tvm_ext
from codegen_c.emit.firmware import board_files, other_processors
from codegen_c.emit.image import LOADER
from codegen_c.emit.signals import SIGNAL_HEADER
from codegen_c.targets.registry import instruction_set_of, runtime_text
from tests.support.onnx_models import NODE, model_of, saved
from tvm_ext import BuildOptions, Package
from tvm_ext.core.platform import Platform
from tvm_ext.core.processes.process import allowed_seconds, run_program
from tvm_ext.core.toolchain import compile_objects, link_elf
from tvm_ext.execution.board import Placed, qemu_loads
from tvm_ext.execution.host_model import library_sources
from tvm_ext.execution.qemu_start import INPUTS, qemu_command

pytestmark = pytest.mark.board
FRAMES, FEATURES, THRESHOLD = 40, 16, 60
IMAGE_ADDRESS = 0x1030_0000
"""In the flash of `dual_m33`, above the firmware."""

APPLICATION = """\
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "app.h"
#include "processors.h"
#include "semihosting.h"
#include "wake.h"

tvm_ext_channel app_to_cpu1;
tvm_ext_channel app_to_cpu0;
app_message message;

static const int8_t frames[APP_FRAMES][WAKE_X_SIZE] = {
#include "frames.inc"
};

static void print_scores(int32_t beside)
{
    semihosting_print("frame=");
    semihosting_print_decimal((uint64_t)message.frame);
    semihosting_print(" status=");
    semihosting_print_decimal((uint64_t)message.status);
    semihosting_print(" beside=");
    semihosting_print_decimal((uint64_t)beside);
    for (size_t i = 0u; i < SPEECH_Y_SIZE; i++) {
        uint32_t bits;
        (void)memcpy(&bits, &message.scores[i], sizeof bits);
        semihosting_print(" bits=");
        semihosting_print_decimal(bits);
    }
    semihosting_print("\\n");
}

int main(void)
{
    int32_t beside = 0;
    int32_t is_busy = 0;
    start_processors();
    for (int32_t frame = 0; frame < APP_FRAMES; frame++) {
        (void)memcpy(wake_x(), frames[frame], sizeof frames[frame]);
        if (wake_run() != wake_ok) {
            return 1;
        }
        const int32_t is_loud = wake_y()[0] > APP_THRESHOLD ? 1 : 0;
        if (is_busy != 0 && (is_loud != 0 || tvm_ext_has_signal(&app_to_cpu0) != 0)) {
            tvm_ext_await(&app_to_cpu0);
            print_scores(beside);
            is_busy = 0;
        }
        beside += is_busy;
        if (is_loud != 0) {
            for (size_t i = 0u; i < SPEECH_X_SIZE; i++) {
                message.features[i] = (float)frames[frame][i];
            }
            message.frame = frame;
            tvm_ext_notify(&app_to_cpu1); /* wakes the larger core */
            is_busy = 1;
            beside = 0;
        }
    }
    if (is_busy != 0) {
        tvm_ext_await(&app_to_cpu0);
        print_scores(beside);
    }
    semihosting_print("PASS\\n");
    return 0;
}
"""

LARGER = """\
#include <string.h>

#include "app.h"
#include "speech_image.h"

static _Alignas(16) uint8_t code[APP_IMAGE_BYTES];
static speech_context context;

void app_serve_cpu1(void)
{
    tvm_ext_await(&app_to_cpu1); /* sleeps until the wake word */
    message.status = 0;
    if (speech_loaded() == NULL) {
        (void)memcpy(code, (const void *)APP_IMAGE_ADDRESS, sizeof code);
        message.status = speech_load(code, sizeof code, sizeof context);
    }
    if (message.status == 0) {
        (void)memcpy(speech_x(&context), message.features, sizeof message.features);
        message.status = (int32_t)speech_run(&context);
        (void)memcpy(message.scores, speech_y(&context), sizeof message.scores);
    }
    tvm_ext_notify(&app_to_cpu0);
}
"""


def wake_word() -> onnx.ModelProto:
    """x int8[1, 16] -> y int8[1, 1], a weighted sum."""
    constants = {
        "scale": np.float32(1.0), "zero": np.int8(0), "out": np.float32(1.0), "out zero": np.int8(0),
        "w": np.ones((FEATURES, 1), np.int8), "w scale": np.float32(0.25), "w zero": np.int8(0),
    }  # fmt: skip
    nodes = [
        NODE("DequantizeLinear", ["x", "scale", "zero"], ["a"]),
        NODE("DequantizeLinear", ["w", "w scale", "w zero"], ["b"]),
        NODE("MatMul", ["a", "b"], ["c"]),
        NODE("QuantizeLinear", ["c", "out", "out zero"], ["y"]),
    ]
    return model_of(nodes, {"x": ((1, FEATURES), TensorProto.INT8)}, [("y", TensorProto.INT8)], constants)


def recogniser() -> onnx.ModelProto:
    """x float32[1, 16] -> y float32[1, 4], through a hidden layer that takes longer than some frames."""
    random = np.random.default_rng(3)
    constants = {
        "w": random.normal(size=(FEATURES, 4000)).astype(np.float32),
        "v": random.normal(size=(4000, 4)).astype(np.float32),
    }
    nodes = [NODE("MatMul", ["x", "w"], ["a"]), NODE("Relu", ["a"], ["b"]), NODE("MatMul", ["b", "v"], ["y"])]
    return model_of(nodes, {"x": (1, FEATURES)}, ["y"], constants)


def drawn_frames() -> np.ndarray:
    """Quiet frames, with a loud one here and there."""
    random = np.random.default_rng(5)
    frames = random.integers(-20, 20, (FRAMES, FEATURES)).astype(np.int8)
    frames[[6, 20, 33]] = random.integers(30, 90, (3, FEATURES)).astype(np.int8)
    return frames


def built(platform: Platform, folder: Path) -> tuple[Package, Package]:
    """The package of each core, for its own instructions."""
    small = tvm_ext.load(saved(wake_word(), folder, "wake"))
    options = BuildOptions(name="wake", processors=("cpu0",), verify=("host",))
    wake = tvm_ext.build(small, platform, folder / "wake", options)
    larger = tvm_ext.load(saved(recogniser(), folder, "speech"))
    options = BuildOptions(name="speech", context="caller", relocatable_image=True, verify=("host",))
    return wake, tvm_ext.build(larger, alone(platform, "cpu1"), folder / "speech", options)


def alone(platform: Platform, name: str) -> Platform:
    """Return a platform with only one core of the given platform."""
    core = platform.processor_named(name)
    links = tuple(link for link in platform.links if name in (link.source, link.target))
    toolchain = replace(platform.toolchain, flags=("-mthumb", *core.flags))
    own = replace(core, flags=())
    return replace(platform, processors=(own,), links=links, signals=(), toolchain=toolchain)


def firmware(platform: Platform, wake: Package, speech: Package, frames: np.ndarray, folder: Path) -> tuple[Path, Path]:
    """ELF of the application of both cores, and the recogniser's image, which the ELF does not contain."""
    image = speech.folder / "speech.img"
    texts = {
        "app.c": APPLICATION,
        "larger.c": LARGER,
        "app.h": (
            f'#ifndef APP_H\n#define APP_H\n#include "{SIGNAL_HEADER}"\n#include "speech.h"\n'
            f"#define APP_FRAMES {FRAMES}\n#define APP_THRESHOLD {THRESHOLD}\n"
            f"#define APP_IMAGE_BYTES {image.stat().st_size}u\n#define APP_IMAGE_ADDRESS {IMAGE_ADDRESS:#x}u\n"
            "typedef struct {\n    int32_t frame;\n    int32_t status;\n    float features[SPEECH_X_SIZE];\n"
            "    float scores[SPEECH_Y_SIZE];\n} app_message;\n"
            "extern tvm_ext_channel app_to_cpu1, app_to_cpu0;\nextern app_message message;\n"
            "void app_serve_cpu1(void);\n#endif\n"
        ),
        "frames.inc": ",\n".join("{" + ", ".join(map(str, row)) + "}" for row in frames.tolist()),
        SIGNAL_HEADER: runtime_text(SIGNAL_HEADER, instruction_set_of(platform.processor)),
    }
    started = other_processors("app", {"cpu1": "app_serve_cpu1"}, platform)
    texts |= board_files(platform, started, moves=False, others=("cpu1",))
    (folder / "board").mkdir(parents=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
    include = [folder, folder / "board", wake.folder, speech.folder, speech.folder / "image"]
    small = [folder / "app.c", *library_sources(wake.folder, "wake"), *sorted((folder / "board").glob("*.c"))]
    larger = [folder / "larger.c", speech.folder / "image" / "speech_image.c"]
    larger += [speech.folder / "image" / name for name in LOADER if name.endswith(".c")]
    core = platform.processor_named("cpu1")
    objects = compile_objects(small, folder / "small", platform.toolchain, include_dirs=include)
    objects += compile_objects(larger, folder / "larger", platform.toolchain_of(core), include_dirs=include)
    return link_elf(objects, folder / "app.elf", platform.toolchain, script=folder / "board" / "link.ld"), image


def test_a_small_core_wakes_a_larger_one_that_loads_an_image(tmp_path: Path) -> None:
    platform, frames = Platform.load("dual_m33"), drawn_frames()
    wake, speech = built(platform, tmp_path)
    elf, image = firmware(platform, wake, speech, frames, tmp_path / "app")
    assert b"speech_hidden" not in elf.read_bytes() and image.read_bytes()[:4] == b"TVXI"
    (tmp_path / INPUTS).write_bytes(b"")
    extras = qemu_loads(Placed(file=image, address=IMAGE_ADDRESS))
    command = qemu_command(elf, platform, tmp_path, shift=None, extras=extras)
    done = run_program(command, tmp_path, seconds=allowed_seconds(120))
    lines = (done.stdout + done.stderr).strip().splitlines()
    assert not done.problem and done.status == 0 and lines[-1] == "PASS", lines[-5:]
    heard = [list(map(int, re.findall(r"=(\d+)", line))) for line in lines if line.startswith("frame=")]
    scores = wake.run({"x": frames})["y"][:, 0]
    loud = np.flatnonzero(scores > THRESHOLD).tolist()
    assert loud == [6, 20, 33] and [frame for frame, *_ in heard] == loud
    assert all(status == 0 and beside > 0 for _, status, beside, *_ in heard)  # the wake word went on meanwhile
    found = np.array([bits for _, _, _, *bits in heard], np.uint32).view(np.float32)
    expected = speech.run({"x": frames[loud].astype(np.float32)})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-4)

"""Models shared among processors by chance, and the same on one processor; delays before each signal and each wait."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from codegen_c.backend.build import Compiled
from codegen_c.emit.build_files import emit_build_files
from codegen_c.emit.firmware import emit_firmware
from codegen_c.emit.selftest import TestVector, emit_selftest, emit_vectors
from tests.support import state_models, tflite_state_models
from tests.support.onnx_models import saved
from tests.support.placed import place_by_hand
from tests.support.tflite_runners import saved_tflite
from tvm_ext.building.subject import answer
from tvm_ext.compilation.pipeline import compile_model, compile_module
from tvm_ext.core.decisions.models import PortNames
from tvm_ext.core.options import BuildOptions, Io, Quantize
from tvm_ext.core.platform import QUICK_TOOLCHAIN, Platform
from tvm_ext.execution.host_model import HostModel
from tvm_ext.frontends.load import load

Sample = dict[str, np.ndarray]

DELAYS = """\
/* Signals are sent, and awaited, some time later than they could be: another time in each run. */
#include <stdint.h>

static inline void test_delay(void)
{
#if defined(__linux__) || defined(__APPLE__)
    static _Thread_local volatile uint32_t state = 1u; /* cores are threads here, and share no variable of the test */
#else
    static volatile uint32_t state = 1u;
#endif
    state = 1664525u * state + 1013904223u;
    for (volatile uint32_t left = state >> 19; left > 0u; left--) {
    }
}

#define TVM_EXT_SIGNAL_DELAY() test_delay()
"""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One model compiled twice, for one processor and for several, and what to run it on."""

    alone: Compiled
    shared: Compiled
    samples: list[Sample]


def pair_of(
    model: onnx.ModelProto,
    platform: Platform,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    *,
    io: Io = "arena",
    quantize: Quantize = "none",
    pipelined: bool = False,
) -> Pair:
    """The model on the platform's first processor, and with each operator on one that chance chooses.

    pipelined: over successive inputs, all operators up to one that chance chooses on one processor, and the others on
    another one.
    """
    path = folder / "net.onnx"
    onnx.save(model, path)
    mod, rng = load(path), np.random.default_rng(seed)
    inputs = dict(zip(PortNames.read(mod).inputs, mod["main"].params, strict=True))
    shapes = {name: tuple(map(int, param.ty.shape)) for name, param in inputs.items()}
    samples = [{name: _drawn(rng, shape, "float32") for name, shape in shapes.items()} for _ in range(3)]
    options = BuildOptions(io=io, quantize=quantize, name="net", processors=(platform.processor.name,), verify=())
    calibration = samples if quantize == "int8" else None
    _, alone = compile_model(mod, platform, options, calibration)
    chosen = random.Random(seed)
    names = [processor.name for processor in platform.processors]
    stages, cut = chosen.sample(names, 2), chosen.randint(1, max(1, len(alone.program.steps) // 2))
    with monkeypatch.context() as patched:
        if pipelined:
            options = replace(options, placement_objective="throughput")
            place_by_hand(patched, lambda index, _name: stages[index >= cut])
        else:
            place_by_hand(patched, lambda _index, _name: chosen.choice(names))
        for _ in range(10):
            _, shared = compile_model(mod, platform, options, calibration)
            if shared.parallel is not None:  # chance did not leave all to one processor
                break
    assert shared.parallel is not None, "chance left all to one processor ten times; choose another seed"
    count = 5 if pipelined else 3
    drawn = [
        {port.source: _drawn(rng, port.shape, port.dtype) for port in alone.interface.inputs} for _ in range(count)
    ]
    return Pair(alone=alone, shared=shared, samples=drawn)


NETWORKS: dict[str, tuple[Callable[[], onnx.ModelProto | bytes], dict[str, Any], dict[str, str], int]] = {
    "hops": (tflite_state_models.over_time, {"new_frames": {"frames": 1}, "time_axis": {"frames": 1}}, {}, 2),
    "two hops": (tflite_state_models.over_time, {"new_frames": {"frames": 2}, "time_axis": {"frames": 1}}, {}, 3),
    "window": (state_models.frames, {}, {"before": "before.next"}, 1),
    "moved window": (lambda: state_models.frames(then="MatMul"), {}, {"before": "before.next"}, 1),
    "cell": (state_models.voice_detector, {}, {"h": "hn", "c": "cn"}, 4),
    "delays": (state_models.delays, {}, {"z1": "z1.next", "z2": "z2.next"}, 2),
}
"""Models with states: what makes one, options, states, and how many operators are the first stage."""


def stateful_pair(name: str, platform: Platform, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    """A model of `NETWORKS` on the first processor, and in two stages; a hundred inputs in order."""
    make, chosen, states, first = NETWORKS[name]
    made = make()
    path = saved_tflite(made, folder) if isinstance(made, bytes) else saved(made, folder, "net")
    mod, options = load(path, states=states or None), BuildOptions(name="net", verify=(), **chosen)
    alone = compile_module(mod, platform, replace(options, processors=(platform.processor.name,)))
    with monkeypatch.context() as patched:
        place_by_hand(patched, lambda index, _name: platform.processors[index >= first].name)
        staged = replace(options, processors=(platform.processor.name,), placement_objective="throughput")
        shared = compile_module(mod, platform, staged)
    assert shared.interface.is_pipeline, "these stages are none of a pipeline; choose others"
    rng = np.random.default_rng(1)
    drawn = [{port.source: _drawn(rng, port.shape, port.dtype) for port in alone.interface.inputs} for _ in range(100)]
    return Pair(alone=alone, shared=shared, samples=drawn)


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype == "int8":
        return rng.integers(-128, 128, shape).astype(np.int8)
    return rng.uniform(-1, 1, shape).astype(np.float32)


def write_sources(compiled: Compiled, folder: Path) -> Path:
    """The library's C in a new folder."""
    folder.mkdir()
    for name, text in compiled.sources().items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@contextmanager
def delayed(pair: Pair, folder: Path) -> Iterator[tuple[list[dict[str, np.ndarray]], HostModel]]:
    """Answers of one processor to each sample in order, and the model on several, with random delays at signals."""
    (folder / "delays.h").write_text(DELAYS, encoding="utf-8")
    flags = ["-include", str(folder / "delays.h")]
    alone, shared = (write_sources(one, folder / name) for name, one in (("a", pair.alone), ("b", pair.shared)))
    with HostModel(alone, pair.alone.interface, toolchain=QUICK_TOOLCHAIN) as model:
        expected = [found for sample in pair.samples if (found := answer(model, sample))]
    with HostModel(shared, pair.shared.interface, toolchain=QUICK_TOOLCHAIN, flags=flags) as model:
        yield expected, model


def write_package(pair: Pair, compiled: Compiled, folder: Path) -> Path:
    """The same with self-test, firmware and build files, and the header of delays."""
    write_sources(compiled, folder)
    vector = TestVector(inputs=pair.samples[0], outputs=None)
    interface, platform = compiled.interface, compiled.platform
    units = [path.name for path in sorted(folder.glob("*.c"))]
    texts = {
        **emit_vectors(interface, [vector]),
        **emit_selftest(interface, compares=False),
        **emit_build_files(
            "net", units, platform, "speed", own_flags=compiled.own_flags, several=bool(interface.servers)
        ),
        **emit_firmware(interface, platform, compares=False),
        "delays.h": DELAYS,
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder

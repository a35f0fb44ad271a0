"""Models of a bundle on several processors: in rounds, and started while the first processor goes on."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from rich.console import Console

import tvm_ext
from tests.models.test_variants import network as variant
from tests.support import state_models
from tests.support.bundles import written
from tests.support.onnx_models import NODE, model_of
from tests.support.shared_runs import DELAYS
from tests.support.sweeps import some_of
from tvm_ext import BundlePackage
from tvm_ext.core.errors import BadBundle, RunFailed
from tvm_ext.core.platform import Platform
from tvm_ext.report.tables import bundle_tables

STATES = {"before": "before.next"}
LINKS = """
[[links]]
source = "left.y"
target = "head.gain"
scale = 2.0

[[links]]
source = "head.y"
target = "left.gain"
shift = 0.5
"""
"""The first passes its value in the same round, the second to the next round."""


def network(seed: int, channels: int) -> onnx.ModelProto:
    """image float32[1, 3, 12, 12], gain float32[1, 8] -> y float32[1, 8]."""
    random = np.random.default_rng(seed)
    weights = {
        "w": random.normal(size=(channels, 3, 3, 3)).astype(np.float32) / 5,
        "v": random.normal(size=(8, channels)).astype(np.float32),
    }
    nodes = [
        NODE("Conv", ["image", "w"], ["a"], pads=[1, 1, 1, 1]),
        NODE("Relu", ["a"], ["b"]),
        NODE("GlobalAveragePool", ["b"], ["c"]),
        NODE("Flatten", ["c"], ["d"]),
        NODE("Gemm", ["d", "v"], ["e"], transB=1),
        NODE("Add", ["e", "gain"], ["y"]),
    ]
    return model_of(nodes, {"image": (1, 3, 12, 12), "gain": (1, 8)}, ["y"], weights)


MODELS = {"large": network(1, 12), "other": network(2, 8), "small": network(3, 4), "frames": state_models.frames()}
ENTRIES: dict[str, dict[str, object]] = {
    "left": {"file": "large.onnx"},
    "filter": {"file": "frames.onnx", "states": STATES},
    "head": {"file": "other.onnx"},
    "wake": {"file": "small.onnx", "processors": ["cpu1"]},
    "ear": {"file": "small.onnx"},
}
ROUND = ["left", "filter", "head"]


def bundle_file(folder: Path, entries: dict[str, dict[str, object]], links: str = LINKS, **keys: object) -> Path:
    path = written(folder, MODELS, entries, **keys)
    path.write_text(path.read_text() + links)
    return path


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> BundlePackage:
    """Three models of a round on two equal cores, and one that is started on the second."""
    folder = tmp_path_factory.mktemp("door")
    return tvm_ext.bundle(
        bundle_file(folder, ENTRIES, round=ROUND), "dual_m33_equal", folder / "package", verify=("host",)
    )


def test_models_of_a_round_are_placed(door: BundlePackage) -> None:
    placed = {one["model"]: one["processors"] for one in door.report["placement"]}
    console = Console(width=120, record=True, file=io.StringIO())
    for table in bundle_tables(door.report):
        console.print(table)
    shown = console.export_text()
    assert "round on one processor" in shown and "left, filter, head" in shown
    assert placed["wake"] == ["cpu1"] and {name for names in placed.values() for name in names} == {"cpu0", "cpu1"}
    found = door.report["round"]
    assert found["models"] == ROUND and found["bound_cycles"] <= found["makespan_cycles"]
    assert found["makespan_cycles"] < 0.8 * found["single_processor_cycles"]
    filtered = next(one for one in door.report["placement"] if one["model"] == "filter")
    assert [one["processors"] for one in filtered["predicted_cycles"]] == [["cpu0"], ["cpu1"]]  # it has states
    assert door.report["bundle"]["at_once"] == []
    offsets = {one["model"]: one["offset"] for one in door.report["arenas"][0]["arenas"]}
    assert len({offsets[name] for name in ROUND}) == len(ROUND)
    assert all(model.report["verify"]["host"]["passed"] for model in door.models.values())


def test_the_header_tells_the_application_what_to_call(door: BundlePackage) -> None:
    header = (door.folder / "door_round.h").read_text()
    for declared in (
        "int32_t door_run(void);", "left_status door_status_of_left(void);", "void door_serve_cpu1(void);",
        "void door_start_wake(void);", "wake_status door_finish_wake(void);",
    ):  # fmt: skip
        assert declared in header
    assert "door_start_filter" not in header  # a model of the round could be started while its input is written
    flags = ["-x", "c++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    subprocess.run(["g++", *flags, str(door.folder / "door.h")], check=True)


@pytest.mark.parametrize("planted", some_of(["", "memory_order_release"], sweep=["memory_order_acquire"]))
def test_rounds_have_no_data_races(planted: str, door: BundlePackage, tmp_path: Path) -> None:
    """By ThreadSanitizer, with random delays at signals; it finds the races of signals that order nothing."""
    folder = tmp_path / "package"
    shutil.copytree(door.folder, folder)
    (folder / "delays.h").write_text(DELAYS)
    header = folder / "tvm_ext_signal.h"
    text = header.read_text(encoding="utf-8")
    assert planted in text
    header.write_text(text.replace(planted, "memory_order_relaxed") if planted else text, encoding="utf-8")
    flags = "CFLAGS=-fsanitize=thread -include delays.h -DTVM_EXT_SELFTEST_DRAWN=4u"
    done = subprocess.run(
        ["make", "-s", "selftest", flags], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert ("data race" in done.stderr) == bool(planted), done.stderr[-2000:]
    assert (done.returncode == 0) == (not planted), done.stdout
    assert planted or "PASS 5 models" in done.stdout


def test_the_self_test_sees_a_round_that_does_not_copy(door: BundlePackage, tmp_path: Path) -> None:
    folder = tmp_path / "package"
    shutil.copytree(door.folder, folder)
    path = folder / "door_round.c"
    parts = re.split(r"(?m)^(?=\S.*\)$)", path.read_text())
    copies = [
        part.startswith(("int32_t door_run(", "static void round_on")) and "door_link_2" in part for part in parts
    ]
    assert sum(copies) == 1
    pairs = zip(parts, copies, strict=True)
    path.write_text("".join(part.replace("door_link_2();", ";") if copied else part for part, copied in pairs))
    done = subprocess.run(["make", "-s", "selftest"], cwd=folder, capture_output=True, text=True, check=False)
    assert "FAIL left, vector 0, output round" in done.stdout, done.stdout + done.stderr


APPLICATION = """\
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "door.h"

static void *serve(void *unused)
{
    (void)unused;
    for (;;) {
        door_serve_cpu1();
    }
    return NULL;
}

int main(void)
{
    pthread_t thread;
    static float first[8];
    if (pthread_create(&thread, NULL, serve, NULL) != 0) {
        return 1;
    }
    for (int i = 0; i < 50; i++) {
        for (int j = 0; j < WAKE_IMAGE_SIZE; j++) {
            wake_image()[j] = (float)(j % 7);
        }
        memset(wake_gain(), 0, WAKE_GAIN_BYTES);
        door_start_wake();
        memset(ear_image(), i, EAR_IMAGE_BYTES);
        memset(ear_gain(), 0, EAR_GAIN_BYTES);
        if (ear_run() != ear_ok) {
            return 2;
        }
        while (i % 2 == 0 && door_is_running_wake() != 0) {
        }
        if (door_finish_wake() != wake_ok) {
            return 3;
        }
        if (i == 0) {
            memcpy(first, wake_y(), sizeof first);
        } else if (memcmp(first, wake_y(), sizeof first) != 0) {
            return 4;
        }
    }
    printf("%.9g\\n", (double)first[0]);
    return 0;
}
"""


def test_a_model_runs_while_the_first_processor_goes_on(door: BundlePackage, tmp_path: Path) -> None:
    (tmp_path / "application.c").write_text(APPLICATION)
    (tmp_path / "delays.h").write_text(DELAYS)
    tests = ("_selftest.c", "_selftest_main.c", "_vectors.c")
    sources = [str(path) for path in sorted(door.folder.glob("*.c")) if not path.name.endswith(tests)]
    flags = ["-std=gnu11", "-O1", "-fsanitize=thread", "-include", str(tmp_path / "delays.h"), f"-I{door.folder}"]
    program, linked = str(tmp_path / "application"), ["-lm", "-pthread"]
    command = ["gcc", *flags, str(tmp_path / "application.c"), *sources, *linked, "-o", program]
    subprocess.run(command, check=True)
    done = subprocess.run([program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and "data race" not in done.stderr, done.stderr[-2000:]
    image = (np.arange(432) % 7).astype(np.float32).reshape(1, 3, 12, 12)
    expected = door.models["wake"].run({"image": image, "gain": np.zeros((1, 8), np.float32)})["y"]
    assert float(done.stdout) == pytest.approx(expected[0, 0], rel=1e-5)
    offsets = {one["model"]: one["offset"] for one in door.report["arenas"][0]["arenas"]}
    assert offsets["wake"] != offsets["ear"]


@pytest.mark.board
@pytest.mark.parametrize("board", some_of(["dual_m33_equal"], sweep=["dual_m33"]))
def test_both_cores_of_a_board(board: str, tmp_path: Path) -> None:
    """Verified in QEMU; a link outside of the round goes to a model on the other core."""
    links = LINKS + '[[links]]\nsource = "ear.y"\ntarget = "wake.gain"\n'
    path = bundle_file(tmp_path, ENTRIES, links, round=ROUND)
    bundle = tvm_ext.bundle(path, board, tmp_path / "package", verify=("host", "qemu"))
    assert all(model.report["verify"]["qemu"]["passed"] for model in bundle.models.values())
    one = bundle.report["round"]
    assert one["makespan_instructions"] >= max(one["instructions"].values()) > 0
    load = (bundle.folder / "board" / "firmware_filter.c").read_text().split("void filter_load(void)")[1]
    assert "filter_reset();" in load[: load.index("}")]  # a run that was not reset would count no instructions
    assert "door_wait_for_cpu1();" in (bundle.folder / "door_links.c").read_text()
    sample = {"image": np.ones((1, 3, 12, 12), np.float32), "gain": np.ones((1, 8), np.float32)}
    (found,) = bundle.models["wake"].run_board([sample]).outputs
    np.testing.assert_allclose(found["y"], bundle.models["wake"].run(sample)["y"], atol=1e-5)
    with pytest.raises(RunFailed, match=r"models of its bundle run on cpu1, too, and a profile only supports one"):
        bundle.models["ear"].profile()
    if board == "dual_m33":  # floats of images leave cpu0, which has no FPU, without work
        placed = {one["model"]: one["processors"] for one in bundle.report["placement"]}
        assert placed["left"] == placed["head"] == ["cpu1"]
        makefile = (bundle.folder / "Makefile").read_text()
        assert "build/left.o: " in makefile and "build/left_memory.o: " not in makefile


@pytest.mark.board
def test_variants_on_both_cores_share_their_state(tmp_path: Path) -> None:
    """The better variant runs on the core with an FPU; its cycles are counted by the first core's clock."""
    entries = {name: {"file": f"{name}.onnx", "states": {"before": "next"}} for name in ("large", "small")}
    entries["large"] |= {"processors": ["cpu1"]}
    group = {"name": "style", "order": ["large", "small"], "switch": "keep", "limits": {"large": {"temperature_c": 60}}}
    models = {"large": variant(8), "small": variant(2)}
    path = written(tmp_path, models, entries, variants=[group])
    bundle = tvm_ext.bundle(path, "dual_m33", tmp_path / "package", verify=("host", "qemu"))
    assert all(model.report["verify"]["qemu"]["passed"] for model in bundle.models.values())
    (found,), (arenas,) = bundle.report["variants"], bundle.report["arenas"]
    states = {one["num_bytes"] for one in bundle.report["states"]}
    assert found["state_bytes"] == max(states) and {one["offset"] for one in arenas["arenas"]} == {0}
    cycles = [needs["cycles"] for needs in found["needs"]]
    assert cycles[0] < cycles[1]  # eight channels with an FPU take fewer cycles than two without


def test_a_round_on_one_processor_is_a_function(tmp_path: Path) -> None:
    entries = {name: ENTRIES[name] for name in ("left", "head")}
    bundle = tvm_ext.bundle(bundle_file(tmp_path, entries, round=["left", "head"]), "host", tmp_path / "package")
    source = (bundle.folder / "door_round.c").read_text()
    assert "int32_t door_run(void)" in source and "notify" not in source
    assert not (bundle.folder / "tvm_ext_signal.h").exists() and bundle.report["round"]["signals"] == 0


REFUSED = [
    ({"entries": {"wake": {"file": "small.onnx", "processors": ["cpu2"]}}}, r"processors: .* has no processor 'cpu2'"),
    ({"entries": {"wake": {"file": "small.onnx", "processors": ["cpu1"], "options": {"io": "caller"}}}},
     r"models\[0\]\.processors: wake has io = 'caller', so that its run takes arguments"),
    ({"entries": {"wake": {"file": "small.onnx", "processors": ["cpu1"], "options": {"context": "caller"}}}},
     r"models\[0\]\.processors: wake has context = 'caller'"),
    ({"entries": {"wake": {"file": "small.onnx"}}, "round": ["sleep"]}, r"round: 'sleep' is no model of the bundle"),
    ({"entries": {"wake": {"file": "small.onnx"}}, "round": ["wake", "wake"]}, r"round: names wake twice"),
    ({"entries": {"wake": {"file": "small.onnx", "options": {"io": "stream"}}}, "round": ["wake"]},
     r"round: wake has io = 'stream', context = 'static': its run takes arguments"),
    ({"entries": {"wake": {"file": "small.onnx", "processors": ["cpu1", "cpu1"]}}}, r"processors: names cpu1 twice"),
    ({"entries": {name: ENTRIES[name] for name in ROUND}, "round": ["left"], "links": LINKS},
     r"links\[0\]: left is in the round and head is not"),
]  # fmt: skip


@pytest.mark.parametrize(("found", "said"), REFUSED, ids=range(len(REFUSED)))
def test_files_that_cannot_be(found: dict[str, object], said: str, tmp_path: Path) -> None:
    keys = dict(found)
    entries, links = keys.pop("entries"), keys.pop("links", "")
    with pytest.raises(BadBundle, match=said):
        tvm_ext.bundle(bundle_file(tmp_path, entries, links, **keys), "dual_m33_equal", tmp_path / "package", verify=())  # type: ignore[arg-type]


def three_cores() -> Platform:
    """A platform without a board, with three equal cores that share all memory."""
    table = json.loads(Platform.load("dual_m33_equal").to_json())
    (first, second), links = table["processors"], table["links"]
    table["processors"] = [first, second, {**second, "name": "cpu2"}]
    table["links"] = [*links, *({**link, "source": "cpu2"} for link in links if link["source"] == "cpu1")]
    names = ("cpu0", "cpu1", "cpu2")
    signal = table["signals"][0]
    pairs = [(source, target) for source in names for target in names if source != target]
    table["signals"] = [{**signal, "source": source, "target": target} for source, target in pairs]
    return Platform.from_json(json.dumps({**table, "board": None}))


def test_a_link_between_two_other_processors_is_refused(tmp_path: Path) -> None:
    """The first processor could start both, so the link could copy while its target reads."""
    entries: dict[str, dict[str, object]] = {
        "left": {"file": "large.onnx", "processors": ["cpu1"]},
        "head": {"file": "other.onnx", "processors": ["cpu2"]},
    }
    with pytest.raises(BadBundle, match=r"links\[0\]: left runs on cpu1 and head on cpu2, beside the first processor"):
        tvm_ext.bundle(bundle_file(tmp_path, entries), three_cores(), tmp_path / "package", verify=())


def test_three_cores_in_a_round(tmp_path: Path) -> None:
    entries = {
        "left": {"file": "large.onnx", "processors": ["cpu1"]},
        "filter": ENTRIES["filter"],
        "head": {"file": "other.onnx", "processors": ["cpu2"]},
    }
    path = bundle_file(tmp_path, entries, round=ROUND)
    bundle = tvm_ext.bundle(path, three_cores(), tmp_path / "package", verify=("host",))
    assert [one["processors"] for one in bundle.report["placement"]] == [["cpu1"], ["cpu0"], ["cpu2"]]
    assert "tvm_ext_notify(&door_cpu1_to_cpu2)" in (bundle.folder / "door_round.c").read_text()

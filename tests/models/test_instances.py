"""Models whose callers hold arenas and states: several instances of one, alternately, in threads, and on a board."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import tvm_ext
from tests.golden import models as plain_models
from tests.support import state_models
from tests.support.onnx_models import saved
from tests.support.sweeps import some_rows
from tvm_ext import BuildOptions, Package
from tvm_ext.command_line.main import app
from tvm_ext.core.errors import BadOptions, BadPackage
from tvm_ext.core.platform import HOST_TOOLCHAIN, Platform, Toolchain
from tvm_ext.core.processes.process import run_program
from tvm_ext.core.toolchain import compile_objects, host_program, link_elf
from tvm_ext.execution.host_model import library_sources

STATES = {"before": "before.next"}


def built(model: onnx.ModelProto, folder: Path, states: dict[str, str] | None = None, platform: str = "host",
          **options: object) -> Package:  # fmt: skip
    module = tvm_ext.load(saved(model, folder, "net"), states=states)
    return tvm_ext.build(module, platform, folder / "package", BuildOptions(context="caller", **options))  # type: ignore[arg-type]


def written_to(package: Package, folder: Path, toolchain: Toolchain = HOST_TOOLCHAIN) -> list[str]:
    """Symbols of the library that lie in memory that is written to."""
    objects = compile_objects(
        library_sources(package.folder, "net"), folder / "objects", toolchain, include_dirs=[package.folder]
    )
    lines = [
        line
        for path in objects
        for line in subprocess.run(
            [f"{toolchain.prefix}nm", str(path)], capture_output=True, text=True, check=True
        ).stdout.splitlines()
    ]
    assert any(line.split()[-2:] == ["T", "net_run"] for line in lines)
    return [line for line in lines if line.split()[-2] in "BbDdCGgSs"]


@pytest.mark.coverage
@pytest.mark.parametrize(
    ("name", "io"),
    some_rows(
        [("states", "arena"), ("rows", "caller"), ("states", "stream")],
        sweep=[("rows", "arena"), ("states", "caller"), ("rows", "stream")],
    ),
)
def test_instances_go_with_every_interface(name: str, io: str, tmp_path: Path) -> None:
    model = state_models.frames() if name == "states" else plain_models.float_network()
    package = built(model, tmp_path, STATES if name == "states" else None, io=io)
    assert package.report["verify"]["host"]["passed"]
    assert package.report["selftest_coverage"]["statements"], package.report["selftest_coverage"]
    assert not written_to(package, tmp_path)
    again = Package.load(package.folder)
    assert again.interface.context_bytes == package.report["context_bytes"] >= package.report["arena_bytes"]
    header = tmp_path / "user.cpp"
    header.write_text(
        '#include "net.h"\nstatic net_context one;\nstatic_assert(alignof(net_context) == net_context_alignment, "");\n'
        "static_assert(sizeof(one) == net_context_bytes, \"\");\n"
    )  # fmt: skip
    subprocess.run(["g++", "-std=c++14", "-fsyntax-only", f"-I{package.folder}", str(header)], check=True)


def test_a_library_with_static_arenas_is_written_to(tmp_path: Path) -> None:
    """The test of symbols can fail."""
    module = tvm_ext.load(saved(state_models.frames(), tmp_path, "net"), states=STATES)
    package = tvm_ext.build(module, "host", tmp_path / "package", BuildOptions(verify=()))
    assert {line.split()[-1] for line in written_to(package, tmp_path)} == {"net_ram", "net_state"}


def test_an_instance_streams_hops(tmp_path: Path) -> None:
    nodes = [onnx.helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[5, 1])]
    window = state_models.model_of(nodes, {"x": (1, 4, 9, 1)}, ["y"], {"w": state_models.weights(3, 4, 5, 1)})
    package = built(window, tmp_path, io="stream", new_frames={"x": 1}, time_axis={"x": 2})
    assert package.report["verify"]["host"]["passed"] and package.report["warm_up_runs"] > 0
    assert not written_to(package, tmp_path)


DRIVER = """\
#include <stdint.h>
#include <string.h>
#include "net.h"

enum { STEPS = 200, NUM_X = NET_X_SIZE, NUM_Y = NET_OUT_SIZE };
static net_context instances[2];
static float alone[2][STEPS][NUM_Y];
static float together[2][STEPS][NUM_Y];

static int step(int which, int number, float *y)
{
    float *const x = net_x(&instances[which]);
    for (int i = 0; i < NUM_X; ++i) {
        x[i] = (float)((number * 37 + i * 11 + which * 101) % 97) / 97.0f - 0.5f;
    }
    const int32_t status = net_run(&instances[which]);
    (void)memcpy(y, net_OUT(&instances[which]), NUM_Y * sizeof *y);
    return status != 0;
}

static int run_alone(int which)
{
    int failed = 0;
    net_reset(&instances[which]);
    for (int i = 0; i < STEPS; ++i) {
        failed |= step(which, i, alone[which][i]);
    }
    return failed;
}

/* Each instance for itself, then in turn. */
static int run_alternately(void)
{
    int failed = run_alone(0) | run_alone(1);
    net_reset(&instances[0]);
    net_reset(&instances[1]);
    for (int i = 0; i < STEPS; ++i) {
        failed |= step(0, i, together[0][i]) | step(1, i, together[1][i]);
    }
    return failed | (memcmp(alone, together, sizeof alone) != 0) | (memcmp(alone[0], alone[1], sizeof alone[0]) == 0);
}
"""

THREADS = """\
#include <pthread.h>
#include <stdio.h>

static void *run_again(void *which)
{
    const int number = which != NULL;
    for (int round = 0; round < 100; ++round) {
        net_reset(&instances[number]);
        for (int i = 0; i < STEPS; ++i) {
            if (step(number, i, together[number][i]) != 0) {
                return instances;
            }
        }
        if (memcmp(alone[number], together[number], sizeof alone[number]) != 0) {
            return instances;
        }
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[2];
    void *results[2];
    if (run_alternately() != 0) {
        return 1;
    }
    if (pthread_create(&threads[0], NULL, run_again, NULL) || pthread_create(&threads[1], NULL, run_again, instances)) {
        return 2;
    }
    if (pthread_join(threads[0], &results[0]) || pthread_join(threads[1], &results[1])) {
        return 3;
    }
    return results[0] != NULL || results[1] != NULL ? 4 : 0;
}
"""

BOARD = """\
#include "semihosting.h"

int main(void)
{
    semihosting_print(run_alternately() == 0 ? "EQUAL\\n" : "DIFFERENT\\n");
    return 0;
}
"""


def driver(package: Package, main: str) -> str:
    """A program over both instances; the output is named as the package names it."""
    name = package.interface.outputs[0].name
    return f"{DRIVER}\n{main}".replace("net_OUT", f"net_{name}").replace("NET_OUT", f"NET_{name.upper()}")


def test_two_instances_alternately_and_in_threads(tmp_path: Path) -> None:
    package = built(state_models.frames(), tmp_path, STATES, verify=())
    (tmp_path / "driver.c").write_text(driver(package, THREADS))
    sources = [*library_sources(package.folder, "net"), tmp_path / "driver.c"]
    objects = compile_objects(sources, tmp_path / "objects", HOST_TOOLCHAIN, include_dirs=[package.folder])
    program = host_program(objects, tmp_path / "program", HOST_TOOLCHAIN, flags=["-pthread"])
    done = run_program([str(program)], tmp_path, seconds=60)
    assert done.status == 0 and not done.problem, done


@pytest.mark.board
def test_two_instances_on_the_cortex_m4(tmp_path: Path) -> None:
    package = built(state_models.frames(), tmp_path, STATES, platform="cortex_m4")
    assert all(package.report["verify"][target]["passed"] for target in ("host", "qemu"))
    toolchain = Platform.load("cortex_m4").toolchain
    assert not written_to(package, tmp_path, toolchain)
    (tmp_path / "driver.c").write_text(driver(package, BOARD))
    board = package.folder / "board"
    sources = [*library_sources(package.folder, "net"), board / "startup.c", tmp_path / "driver.c"]
    objects = compile_objects(sources, tmp_path / "board", toolchain, include_dirs=[package.folder, board])
    elf = link_elf(objects, tmp_path / "driver.elf", toolchain, script=board / "link.ld")
    command = ["qemu-system-arm", "-M", "mps2-an386", "-display", "none", "-serial", "none", "-monitor", "none",
               "-semihosting-config", "enable=on,target=native", "-kernel", str(elf)]  # fmt: skip
    done = run_program(command, tmp_path, seconds=60)
    assert "EQUAL" in done.stdout + done.stderr, done


def test_a_session_is_an_instance(tmp_path: Path) -> None:
    package = built(state_models.counter(), tmp_path, {"count": "count.next"}, verify=())
    one = {"x": np.array([[1, 2, 3]], np.int32)}
    with package.session() as session, package.session() as other:
        assert [session.run(one)["y"][0, 0] for _ in range(3)] == [2, 4, 6]
        kept = session.state()
        assert other.run(one)["y"][0, 0] == 2
        other.restore(kept)
        assert other.run(one)["y"][0, 0] == session.run(one)["y"][0, 0] == 8
        session.reset()
        assert session.run(one)["y"][0, 0] == 2


def test_names_of_the_model_do_not_meet_those_of_instances(tmp_path: Path) -> None:
    nodes = [onnx.helper.make_node("Relu", ["context"], ["instance"], "context_bytes"),
             onnx.helper.make_node("Sigmoid", ["instance"], ["sram"], "context_alignment")]  # fmt: skip
    model = state_models.model_of(nodes, {"context": (1, 8)}, ["instance", "sram"])
    for io in ("arena", "caller"):
        assert built(model, tmp_path, io=io).report["verify"]["host"]["passed"]


def test_instances_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOptions, match=r"context = 'heap': allowed are static, caller"):
        BuildOptions(context="heap")  # type: ignore[arg-type]
    with pytest.raises(BadOptions, match=r"spreads tensors over sram, psram of cortex_m7_psram"):
        built(state_models.frames(), tmp_path, STATES, platform="cortex_m7_psram")
    with pytest.raises(BadOptions, match=r"context = 'caller': TVM calls compiled code without an instance"):
        tvm_ext.relax_pipeline("host", BuildOptions(context="caller"))
    package = built(plain_models.float_network(), tmp_path, verify=())
    report = package.report | {"context_bytes": 0}
    with pytest.raises(BadPackage, match=r"context = 'caller' contradicts an instance of 0 B"):
        _ = Package(folder=package.folder, report=report).interface


def test_instances_on_the_command_line(tmp_path: Path) -> None:
    path = saved(plain_models.float_network(), tmp_path, "net")
    arguments = [
        "compile",
        str(path),
        "-p",
        "host",
        "-o",
        str(tmp_path / "out"),
        "--context",
        "caller",
        "--verify",
        "none",
    ]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "static net_context context;" in (tmp_path / "out" / "README.md").read_text()
    assert Package.load(tmp_path / "out").interface.holds_context

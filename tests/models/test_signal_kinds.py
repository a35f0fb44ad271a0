"""Ways to wake a processor: events, mailboxes and interrupts, as the platform has them and the C uses them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from codegen_c.backend.build import Compiled
from tests.golden import models
from tests.support.placed import place_by_hand
from tests.support.shared_runs import write_sources
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import QUICK_TOOLCHAIN, Platform, Signal
from tvm_ext.core.toolchain import compile_objects
from tvm_ext.execution.host_model import HostModel
from tvm_ext.frontends.load import load

MAILBOX = Signal(
    source="cpu0", target="cpu1", kind="mailbox", set_address=0x4000_1000, status_address=0x4000_1004,
    clear_address=0x4000_1008,
)  # fmt: skip
INTERRUPT = Signal(
    source="cpu1", target="cpu0", kind="interrupt", set_address=0x4000_2000, clear_address=0x4000_2008, interrupt=5
)


def compiled(folder: Path, monkeypatch: pytest.MonkeyPatch, *signals: Signal) -> Compiled:
    """A small network with every other operator on cpu1, of a platform with such signals."""
    place_by_hand(monkeypatch, lambda index, _: "cpu1" if index % 2 else "")
    onnx.save(models.integer_network(), folder / "net.onnx")
    platform = replace(Platform.load("dual_m33"), signals=signals)
    return compile_module(load(folder / "net.onnx"), platform, BuildOptions(processors=("cpu0",)))


def test_registers_wake_where_the_platform_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = compiled(tmp_path, monkeypatch, MAILBOX, INTERRUPT).sources()
    caller, server = texts["net.c"], texts["net_cpu1.c"]
    assert "tvm_ext_notify(&net_cpu0_to_cpu1); tvm_ext_ring(0x40001000u); /* quantize is done */" in caller
    assert "tvm_ext_await(&net_cpu0_to_cpu1); tvm_ext_answer(0x40001008u); /* quantize is done */" in server
    assert "tvm_ext_notify(&net_cpu1_to_cpu0); tvm_ext_ring(0x40002000u);" in server
    assert "tvm_ext_await(&net_cpu1_to_cpu0); tvm_ext_answer(0x40002008u);" in caller
    assert "#define TVM_EXT_SIGNAL_IDLE(channel) ((void)0)" in texts["net_signals.h"]  # a mailbox raises no event


@pytest.mark.parametrize("signals", [(), (INTERRUPT,)])
def test_events_are_waited_for(signals: tuple[Signal, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = compiled(tmp_path, monkeypatch, *signals).sources()
    assert "TVM_EXT_SIGNAL_IDLE" not in texts["net_signals.h"]
    assert "tvm_ext_ring" not in texts["net.c"]


def test_threads_of_the_host_have_no_registers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = compiled(tmp_path, monkeypatch, MAILBOX, INTERRUPT)
    folder = write_sources(made, tmp_path / "sources")
    with HostModel(folder, made.interface, toolchain=QUICK_TOOLCHAIN) as model:
        assert np.isfinite(model.run({"x": np.ones((1, 3, 5, 5), np.float32)})["y"]).all()


@pytest.mark.board
def test_boards_write_to_registers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = compiled(tmp_path, monkeypatch, MAILBOX, INTERRUPT)
    folder = write_sources(made, tmp_path / "sources")
    toolchain = made.platform.toolchain_of(made.platform.processor)
    objects = compile_objects([folder / "net.c"], tmp_path / "objects", toolchain, include_dirs=[folder])
    assert (0x4000_1000).to_bytes(4, "little") in objects[0].read_bytes()

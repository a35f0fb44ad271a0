"""Refusals of what several processors do not support, each with the way out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from codegen_c.backend.build import Compiled
from codegen_c.emit.firmware import emit_firmware
from tests.golden import models
from tests.support.placed import place_by_hand
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.errors import BadOptions, BadPlatform
from tvm_ext.core.objectives import Objective
from tvm_ext.core.options import BuildOptions, Context, Io
from tvm_ext.core.platform import Platform
from tvm_ext.frontends.load import load


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiled:
    return compiled(tmp_path, monkeypatch)


def compiled(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    io: Io = "arena",
    context: Context = "static",
    objective: Objective = "makespan",
) -> Compiled:
    """A small network on dual_m33 with every other operator on cpu1."""
    place_by_hand(monkeypatch, lambda index, _: "cpu1" if index % 2 else "")
    onnx.save(models.integer_network(), folder / "net.onnx")
    options = BuildOptions(io=io, context=context, placement_objective=objective, processors=("cpu0",))
    return compile_module(load(folder / "net.onnx"), Platform.load("dual_m33"), options)


def test_instances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        BadOptions,
        match=r"steps run on cpu0 and cpu1, .* one run at a time, .*\. Choose context = 'static', .* processors = cpu0",
    ):
        compiled(tmp_path, monkeypatch, context="caller")


def test_streams_in_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadOptions, match=r"io = 'stream'.*Choose placement_objective = 'makespan', io = 'arena'"):
        compiled(tmp_path, monkeypatch, io="stream", objective="throughput")


@pytest.mark.parametrize(
    ("starts", "said"), [(None, "board.starts is missing"), ("mailbox", "board.starts = 'mailbox'")]
)
def test_boards_that_cannot_start_the_other(shared: Compiled, starts: str | None, said: str) -> None:
    board = shared.platform.board
    assert board is not None
    platform = replace(shared.platform, board=replace(board, starts=starts))
    with pytest.raises(BadPlatform, match=f"also runs on cpu1, but {said}; the start-up code supports sse200"):
        emit_firmware(shared.interface, platform)


def test_stacks_that_do_not_fit_together(shared: Compiled) -> None:
    board = shared.platform.board
    assert board is not None
    platform = replace(shared.platform, board=replace(board, stack_bytes=0x10_0000))
    with pytest.raises(BadPlatform, match=r"stack_bytes = 1048576: does not fit into sram of 2097152 B 2 times"):
        emit_firmware(shared.interface, platform)
    assert emit_firmware(replace(shared.interface, servers=()), platform)


def test_stacks_of_all_processors_are_kept_free() -> None:
    platform = Platform.load("dual_m33_equal")
    one, two = (BuildOptions(processors=names).limits_bytes(platform)["sram"] for names in (("cpu0",), None))
    assert one - two == 16384

"""`tvm_ext.estimate`: the figures of a build without its C, the same errors, no compiler called."""

from __future__ import annotations

from pathlib import Path

import pytest

import tvm_ext
from tests.support.image_networks import image_network
from tests.support.onnx_models import saved
from tvm_ext import BuildOptions
from tvm_ext.core.errors import BadOptions, DoesNotFit


def test_ram_and_flash_are_those_of_the_build(digits: Path, tmp_path: Path) -> None:
    for number, options in enumerate((BuildOptions(verify=(), optimize="size"), BuildOptions(verify=(), ram=6000))):
        found = tvm_ext.estimate(digits / "digits.onnx", "host", options)
        report = tvm_ext.build(tvm_ext.load(digits / "digits.onnx"), "host", tmp_path / str(number), options).report
        used = {one["name"]: one["used_bytes"] for one in report["memories"] if one["used_bytes"]}
        assert dict(found.memories) == used
        assert (found.ram_bytes, found.flash_bytes) == (report["arena_bytes"], report["weights_bytes"])
        assert found.method == report["fit"]["attempts"][-1]["method"]
        assert found.predicted_cycles == report["prediction"]["cycles"] and found.macs == report["macs"]
        assert found.predicted_ms == pytest.approx(1000 * found.predicted_cycles / found.clock_hz)
        assert found.clock_hz == tvm_ext.Platform.load("host").processor.clock_hz
        assert found.code_bytes is None and found.stack_bytes is None


def test_no_compiler_is_called(digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    found = tvm_ext.estimate(tvm_ext.load(digits / "digits.onnx"), "cortex_m4")
    assert found.platform == "cortex_m4" and found.model == "digits" and found.predicted_instructions > 0


def test_what_a_build_refuses_an_estimate_refuses(digits: Path, tmp_path: Path) -> None:
    with pytest.raises(DoesNotFit, match="nearest budget"):
        tvm_ext.estimate(digits / "digits.onnx", "cortex_m4", BuildOptions(ram=100))
    with pytest.raises(BadOptions, match="options is a dict"):
        tvm_ext.estimate(digits / "digits.onnx", "cortex_m4", {"ram": 100})  # type: ignore[arg-type]


def test_memories_of_several_are_counted_by_kind(tmp_path: Path) -> None:
    found = tvm_ext.estimate(saved(image_network(1), tmp_path), "cortex_m55")
    kinds = {one.name: one.kind for one in tvm_ext.Platform.load("cortex_m55").memories}
    by_kind = {kind: sum(found.memories[n] for n in found.memories if kinds[n] == kind) for kind in ("ram", "rom")}
    assert (found.ram_bytes, found.flash_bytes) == (by_kind["ram"], by_kind["rom"])

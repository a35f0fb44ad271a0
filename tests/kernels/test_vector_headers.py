"""Headers written for single floats: copies for vectors speak of these vectors alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from codegen_c.targets.instruction_set import InstructionSet
from codegen_c.targets.registry import instruction_sets, runtime_text, shared_by
from tvm_ext.core.platform import Platform

VECTORS = [target for target in instruction_sets() if target.floats.lanes > 1]


@pytest.mark.parametrize("target", VECTORS, ids=lambda target: target.simd)
def test_a_copy_names_its_vectors(target: InstructionSet) -> None:
    lanes = target.floats.lanes
    text = runtime_text(f"tvm_ext_tile_f32x{lanes}.h", target)
    assert f'#include "tvm_ext_f32x{lanes}.h"' in text and f"TVM_EXT_TILE_F32X{lanes}_H" in text
    assert "f32x1" not in text.lower()


@pytest.mark.parametrize("target", VECTORS, ids=lambda target: target.simd)
def test_vectors_of_a_target_are_its_own(target: InstructionSet) -> None:
    """`tvm_ext_f32x1.h` is no pattern for them: additions of a vector are instructions."""
    lanes = target.floats.lanes
    assert f"tvm_ext_f32x{lanes}_maximum" in runtime_text(f"tvm_ext_f32x{lanes}.h", target)


def test_processors_that_differ_share_plain_c() -> None:
    """One function copies for all of them, and not each has the vectors of the first."""
    platform = Platform.load("always_on")
    (core,) = platform.processors
    both = {
        simd: replace(platform, processors=(core, replace(core, name="other", simd=simd)))
        for simd in ("dsp", core.simd)
    }
    texts = {simd: runtime_text("tvm_ext_copy.h", shared_by(two)) for simd, two in both.items()}
    assert "vstrb" in texts[core.simd] == runtime_text("tvm_ext_copy.h", shared_by(platform))
    assert "vstrb" not in texts["dsp"] and "memcpy" in texts["dsp"]


def test_other_names_are_no_copies() -> None:
    with pytest.raises(FileNotFoundError):
        runtime_text("tvm_ext_no_such_header.h", instruction_sets()[0])

"""Vectors that a self-test draws on the device: the C draws what numpy draws, and tells outputs that are others."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from codegen_c.c_text.text import C_TYPES
from codegen_c.emit.drawn_vectors import MOST_STORED_BYTES, DrawnVector, DrawnVectors
from codegen_c.emit.selftest import TestVector, emit_selftest, emit_vectors
from codegen_c.operators.kinds import Quantization
from codegen_c.program.drawn_inputs import FORMS, Domain, Recipe, drawn, recipe_number
from codegen_c.program.interface import Interface, Port
from tvm_ext.core.platform import HOST_TOOLCHAIN
from tvm_ext.core.toolchain import compile_objects, host_program

SHAPE = (3, 37)
RECIPES = tuple(recipe_number(number) for number in range(2 * len(FORMS)))
LIMITS: dict[str, tuple[float, float] | None] = {
    "int8": None, "uint8": None, "int16": (-7, 1000), "uint16": None, "int32": None, "uint32": (5, 4_000_000_000),
    "int64": None, "uint64": (0, 1), "bool": None, "float32": (-50.0, 77.5), "float64": (0.0, 0.1), "float16": None,
    "bfloat16": None,
}  # fmt: skip


@pytest.mark.parametrize("dtype", LIMITS)
def test_the_device_draws_what_is_drawn_here(dtype: str, tmp_path: Path) -> None:
    """A model that copies: its outputs are its inputs. Any other expected element or CRC fails."""
    interface = _copying(dtype, SHAPE)
    vectors = _drawn_vectors(interface, LIMITS[dtype])
    assert vectors.hashed == (dtype not in ("float32", "float64", "float16", "bfloat16"))
    assert _run(interface, vectors, tmp_path / "good").startswith(f"PASS 1 vectors, {len(RECIPES)} drawn")
    first, *others = vectors.vectors
    array = np.array(first.outputs["y"])
    array.flat[0] = array.flat[1] if array.flat[0] != array.flat[1] else 1 - array.flat[0]
    wrong = DrawnVector(recipe=first.recipe, outputs={"y": array})
    changed = DrawnVectors(domains=vectors.domains, vectors=(wrong, *others), exact=True, largest=vectors.largest)
    assert _run(interface, changed, tmp_path / "bad").startswith("FAIL vector 1, output y")


def test_large_float_outputs_are_stored_in_parts(tmp_path: Path) -> None:
    """Another part for each vector, up to the last element; no more bytes than a limit in all."""
    interface = _copying("float32", (1000,))
    vectors = _drawn_vectors(interface, None)
    text = emit_vectors(interface, [_stored(interface)], vectors)
    stored = MOST_STORED_BYTES // len(RECIPES) // 4
    assert f"float out_y[{stored}];" in text["copy_vectors.h"]
    assert f".first_y = {1000 - stored}u," in text["copy_vectors.c"] and ".first_y = 0u," in text["copy_vectors.c"]
    assert _run(interface, vectors, tmp_path).startswith("PASS")


def test_a_recipe_keeps_to_its_domain() -> None:
    port = Port(name="x", source="x", shape=(4000,), dtype="int16", quantization=Quantization(scale=0.5, zero_point=9))
    domain = Domain.of(port, (-300, 500))
    assert domain == Domain(low=-300, high=500, rest=9)
    noise = drawn(port, 0, domain, Recipe(seed=1))
    assert noise.min() < -290 and noise.max() > 490 and len(set(noise.tolist())) > 700
    assert set(drawn(port, 0, domain, Recipe(seed=1, extremes=True)).tolist()) == {-300, 500}
    narrow = drawn(port, 0, domain, Recipe(seed=1, narrow=3))
    assert narrow.min() >= 9 - 309 // 8 and narrow.max() <= 9 + 491 // 8
    sparse = drawn(port, 0, domain, Recipe(seed=1, sparse=4))
    assert 0.9 < np.mean(sparse == 9) < 0.97
    stripes = drawn(port, 0, domain, Recipe(seed=1, run=4)).reshape(-1, 16)
    assert (stripes == stripes[:, :1]).all()
    assert not np.array_equal(drawn(port, 0, domain, Recipe(seed=2)), noise), "seeds differ"
    assert not np.array_equal(drawn(port, 1, domain, Recipe(seed=1)), noise), "inputs differ"


def test_runs_of_drawn_vectors_can_be_fewer(tmp_path: Path) -> None:
    """A macro bounds them: with none, a wrong CRC stays unseen."""
    interface = _copying("int8", SHAPE)
    vectors = _drawn_vectors(interface, None)
    (first, *others) = vectors.vectors
    wrong = DrawnVector(recipe=first.recipe, outputs={"y": first.outputs["y"] * 0})
    changed = DrawnVectors(domains=vectors.domains, vectors=(*others, wrong), exact=True, largest={})
    assert _run(interface, changed, tmp_path / "all").startswith(f"FAIL vector {len(RECIPES)},")
    assert _run(interface, changed, tmp_path / "fewer", f"-DTVM_EXT_SELFTEST_DRAWN={len(RECIPES) - 1}u").startswith(
        "PASS"
    )


def _copying(dtype: str, shape: tuple[int, ...]) -> Interface:
    ports = [Port(name=name, source=name, shape=shape, dtype=dtype) for name in ("x", "y")]
    return Interface(model="copy", io="caller", inputs=(ports[0],), outputs=(ports[1],))


def _drawn_vectors(interface: Interface, limits: tuple[float, float] | None) -> DrawnVectors:
    port = interface.inputs[0]
    domain = Domain.of(port, limits)
    arrays = [drawn(port, 0, domain, recipe) for recipe in RECIPES]
    vectors = [DrawnVector(recipe=one, outputs={"y": array}) for one, array in zip(RECIPES, arrays, strict=True)]
    largest = max(float(np.abs(array.astype(np.float64)).max()) for array in arrays)
    return DrawnVectors(domains=(domain,), vectors=tuple(vectors), exact=True, largest={"y": largest})


def _stored(interface: Interface) -> TestVector:
    port = interface.inputs[0]
    zeros = np.zeros(port.shape, port.dtype)
    return TestVector(inputs={"x": zeros}, outputs={"y": zeros})


def _run(interface: Interface, vectors: DrawnVectors, folder: Path, *flags: str) -> str:
    folder.mkdir(exist_ok=True)
    c_type, size = C_TYPES[interface.inputs[0].dtype], interface.inputs[0].num_elements
    header = (
        "#include <stdbool.h>\n#include <stdint.h>\n"
        f"#define COPY_X_SIZE {size}u\n#define COPY_Y_SIZE {size}u\n"
        f"int32_t copy_run(const {c_type} *x, {c_type} *y);\n"
    )
    source = (
        '#include "copy.h"\n#include <string.h>\n'
        f"int32_t copy_run(const {c_type} *x, {c_type} *y)\n{{\n"
        "    (void)memcpy(y, x, sizeof *x * COPY_X_SIZE);\n    return 0;\n}\n"
    )
    texts = {
        "copy.h": header,
        "copy.c": source,
        **emit_vectors(interface, [_stored(interface)], vectors),
        **emit_selftest(interface, drawn=vectors),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    objects = compile_objects(sorted(folder.glob("*.c")), folder / "o", HOST_TOOLCHAIN, flags=flags)
    program = host_program(objects, folder / "test", HOST_TOOLCHAIN)
    return subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=60).stdout

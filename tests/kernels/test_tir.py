"""Operators through their PrimFuncs: the C text compiles clean, and computes what TVM computes."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op
from tvm.script import relax as R
from tvm.script import tirx as T

from codegen_c.c_text.text import number
from codegen_c.tir import composite
from codegen_c.tir.composite import lower_composite
from codegen_c.tir.llvm import reference_of
from codegen_c.tir.plain_c import NoPlainC, PlainC
from tests.kernels import tir_cases
from tests.kernels.tir_cases import CASES, Case
from tests.kernels.tir_library import PRELUDE, arguments_of, assert_equal, c_dtype, call, compile_c, entry, lowered


@dataclass(frozen=True, kw_only=True, eq=False)
class Built:
    """Every case lowered, all of them in one C file and one shared library."""

    plain: dict[str, PlainC]
    source: Path
    library: ctypes.CDLL


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("tir")
    plain = {case.name: lowered(case.function()) for case in CASES}
    source, library = folder / "cases.c", folder / "cases.so"
    source.write_text(PRELUDE + "".join(entry(name, one) for name, one in plain.items()))
    compile_c("gcc", ["-O2", "-shared", "-fPIC", str(source), "-o", str(library), "-lm"])
    return Built(plain=plain, source=source, library=ctypes.CDLL(str(library)))


@pytest.fixture(scope="module")
def reference() -> relax.VirtualMachine:
    """Every case on TVM's virtual machine, compiled at once: LLVM takes most of the time."""
    functions = {case.name: case.function().with_attr("global_symbol", case.name) for case in CASES}
    return relax.VirtualMachine(tvm.compile(tvm.IRModule(functions), target="llvm"), tvm.cpu())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_computes_what_tvm_computes(case: Case, built: Built, reference: relax.VirtualMachine) -> None:
    inputs = case.arrays()
    result = reference[case.name](*[tvm.runtime.tensor(array) for array in inputs])
    expected = [field.numpy() for field in ([result] if isinstance(result, tvm.runtime.Tensor) else result)]
    outputs = [np.full_like(array, 77) for array in expected]
    call(built.library, case.name, arguments_of(built.plain[case.name], inputs, outputs))
    assert_equal(outputs, expected)


def test_output_may_take_the_place_it_claims(built: Built) -> None:
    claims = [case for case in CASES if built.plain[case.name].in_place]
    assert {"exp", "quantize", "clip", "permute"} & {case.name for case in claims} == {"exp", "clip"}
    for case in claims:
        plain, inputs, shared = built.plain[case.name], case.arrays(), case.arrays()
        output = np.zeros(inputs[plain.in_place[0]].shape, c_dtype(plain))
        call(built.library, case.name, arguments_of(plain, inputs, [output]))
        place = shared[plain.in_place[0]].view(output.dtype)
        call(built.library, case.name, arguments_of(plain, shared, [place]))
        np.testing.assert_array_equal(place, output)


def test_compiles_clean_for_size_and_for_cortex_m(built: Built) -> None:
    compile_c("gcc", ["-Os", "-c", str(built.source), "-o", str(built.source.with_suffix(".o"))])
    if shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("arm-none-eabi-gcc is not installed")
    cpu = ["-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard"]
    compile_c("arm-none-eabi-gcc", [*cpu, "-Os", "-c", str(built.source), "-o", str(built.source.with_suffix(".arm"))])


def test_stays_within_its_buffers(built: Built, tmp_path: Path) -> None:
    """A program of its own that gives every case exactly the bytes it asks for, under both sanitizers."""
    calls, data = [], []
    for case in CASES:
        plain = built.plain[case.name]
        inputs = case.arrays()
        outputs = [np.zeros(_output_bytes(case), np.uint8) for case in _results(case)]
        arrays = arguments_of(plain, inputs, outputs)
        pointers = "".join(f"    void *p{i} = take({array.nbytes}u);\n" for i, array in enumerate(arrays))
        frees = "".join(f"    free(p{i});\n" for i in range(len(arrays)))
        names = ", ".join(f"p{i}" for i in range(len(arrays)))
        calls.append(f"    {{\n{pointers}    run_{case.name}({names});\n{frees}    }}\n")
        data += [array.tobytes() for array in arrays]
    (tmp_path / "data.bin").write_bytes(b"".join(data))
    source, program = tmp_path / "main.c", tmp_path / "main"
    source.write_text(
        f'#include <stdio.h>\n#include <stdlib.h>\n#include "{built.source}"\nstatic FILE *data;\n'
        "static void *take(size_t size)\n{\n    void *p = malloc(size);\n"
        "    if (fread(p, 1, size, data) != size) {\n        exit(2);\n    }\n    return p;\n}\n"
        f'int main(void)\n{{\n    data = fopen("{tmp_path / "data.bin"}", "rb");\n{"".join(calls)}'
        "    return fclose(data);\n}\n"
    )
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-Wno-error"]
    compile_c("gcc", [*sanitizers, str(source), "-o", str(program), "-lm"])
    done = subprocess.run([str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]


def _results(case: Case) -> list[tvm.ir.Type]:
    ty = case.function().ret_ty
    return list(ty.fields) if isinstance(ty, relax.TupleType) else [ty]


def _output_bytes(ty: relax.TensorType) -> int:
    return int(np.prod([int(extent) for extent in ty.shape.values])) * np.dtype(str(ty.dtype)).itemsize


@pytest.mark.parametrize(
    ("build", "shape", "dtype", "says"),
    [
        (lambda x: op.topk(x, k=2), (3, 5), "float32", r"topk: .*tvm\.contrib\.sort\.topk"),
        (lambda x: op.sort(x), (3, 5), "float32", r"sort: .*tvm\.contrib\.sort"),
        (lambda x: op.nonzero(x), (3, 5), "float32", r"nonzero: "),
        (lambda x: op.exp(x), (3, 5), "float16", r"exp: it needs arithmetic on float16"),
        (lambda x: op.add(x, x), (3, 5), "bfloat16", r"add: it needs arithmetic on bfloat16"),
        (lambda x: op.less(x, op.flip(x, 0)), (3, 5), "float16", r"flip, less: it needs arithmetic on float16"),
        (lambda x: op.exp(x), ("n", 5), "float32", r"exp: .*shape"),
    ],
)
def test_refuses_and_names_the_operator(build, shape, dtype, says) -> None:
    shape = tuple(tvm.tirx.Var(extent, "int64") if isinstance(extent, str) else extent for extent in shape)
    function = Case(name="refused", build=build, inputs=((shape, dtype),)).function()
    refusal = lower_composite(function)
    assert isinstance(refusal, NoPlainC)
    assert re.search(says, refusal.reason), refusal.reason


def test_padding_and_activation_take_no_scratch(built: Built) -> None:
    assert built.plain["conv2d_bias_relu"].scratch_bytes == 0
    assert built.plain["quantized_add"].scratch_bytes == 0


def test_scratch_is_shared_by_buffers_apart_in_time() -> None:
    shape = (64, 8)

    def build(x: relax.Expr) -> relax.Expr:
        for axis in (1, 0, 1, 0):
            x = op.cumsum(op.cumsum(x, axis=axis), axis=1 - axis)
        return x

    plain = lowered(Case(name="chain", build=build, inputs=((shape, "float32"),)).function())
    assert plain.scratch_bytes == 2 * 64 * 8 * 4


def test_a_uniform_constant_becomes_a_literal(built: Built) -> None:
    plain = built.plain["hardswish"]
    assert plain.constants == ()
    assert "3.0f" in plain.function.body


def test_same_composite_same_text(built: Built) -> None:
    for case in (*tir_cases.LINEAR[:4], *tir_cases.REDUCING[:4]):
        assert lowered(case.function()).function == built.plain[case.name].function


def test_an_exception_of_tvm_is_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("secret")

    monkeypatch.setattr(composite, "legalize_composite", fail)
    refusal = lower_composite(Case(name="refused", build=op.exp, inputs=(((3, 5), "float32"),)).function())
    assert isinstance(refusal, NoPlainC)
    assert refusal.reason == "exp: it needs loops, which TVM does not make of it"


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.1, "float32", "0.1f"),
        (-1.0, "float64", "(-1.0)"),
        (float("inf"), "float32", "INFINITY"),
        (float("nan"), "float64", "(double)NAN"),
        (-(2**31), "int32", "INT32_MIN"),
        (-5, "int8", "(-5)"),
        (7, "uint32", "7u"),
        (2**40, "int64", "INT64_C(1099511627776)"),
        (1, "bool", "true"),
        (1.0, "float16", "15360"),
        (-2.0, "bfloat16", "49152"),
    ],
)
def test_literals_are_exact(value, dtype, text) -> None:
    assert number(value, dtype) == text


@pytest.mark.parametrize(
    ("build", "dtype", "integers_only"),
    [
        (lambda x: op.add(x, x), "int8", True),
        (lambda x: op.add(x, x), "float32", False),
        (lambda x: op.add(x, x), "float64", False),
        (lambda x: op.astype(op.exp(op.astype(x, "float64")), "int32"), "int32", False),
        (lambda x: op.argmax(x, 1), "int8", True),
    ],
)
def test_states_whether_it_computes_in_integers_only(build, dtype, integers_only: bool) -> None:
    function = Case(name="numbers", build=build, inputs=(((3, 5), dtype),)).function()
    assert lowered(function).integers_only is integers_only


def test_calls_primfuncs_that_stand_in_the_module() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            twice = builder.emit_output(builder.call_te(tvm.topi.add, x, x))
        builder.emit_func_output(twice)
    module = builder.get()
    assert isinstance(lower_composite(module["main"]), NoPlainC)
    assert "input0[ax0] + input0[ax0]" in lowered(module["main"], module).function.body


def test_a_function_that_states_no_accesses_keeps_its_producers(tmp_path: Path) -> None:
    @T.prim_func(private=True, s_tir=True)
    def opaque(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
        with T.sblock("opaque"):
            T.reads()
            T.writes()
            for i in range(4):
                b[i] = T.popcount(T.reinterpret("int32", a[i])).astype("float32")

    x = relax.Var("x", R.Tensor((4,), "float32"))
    builder = relax.BlockBuilder()
    name = builder.add_func(opaque, "opaque")
    with builder.function("main", [x]):
        with builder.dataflow():
            doubled = builder.emit(op.add(x, x))
            result = builder.emit_output(relax.call_tir(name, (doubled,), R.Tensor((4,), "float32")))
        builder.emit_func_output(result)
    module = builder.get()
    plain = lowered(module["main"], module)
    assert "$_popcount_i32($_i32_of_f32(" in plain.function.body
    source, library = tmp_path / "opaque.c", tmp_path / "opaque.so"
    source.write_text(PRELUDE + entry("opaque", plain))
    compile_c("gcc", ["-O2", "-shared", "-fPIC", str(source), "-o", str(library), "-lm"])
    inputs, outputs = [np.array([0, 0.5, -1.5, 3], np.float32)], [np.zeros(4, np.float32)]
    call(ctypes.CDLL(str(library)), "opaque", arguments_of(plain, inputs, outputs))
    assert_equal(outputs, reference_of(module["main"], module)(inputs))


@pytest.mark.parametrize(("reduce", "worst"), [(op.max, -np.inf), (op.min, np.inf)])
def test_the_extreme_of_infinities_is_infinite(tmp_path: Path, reduce, worst: float) -> None:
    """TVM starts from the largest finite float, which an infinity lies beyond."""
    x = relax.Var("x", relax.TensorType([2, 3], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(reduce(x, axis=[1]))
    plain = lowered(builder.get()["main"])
    source, library = tmp_path / "extreme.c", tmp_path / "extreme.so"
    source.write_text(PRELUDE + entry("extreme", plain))
    compile_c("gcc", ["-O2", "-shared", "-fPIC", str(source), "-o", str(library), "-lm"])
    inputs, outputs = [np.array([[worst] * 3, [worst, 1, worst]], "float32")], [np.zeros(2, "float32")]
    call(ctypes.CDLL(str(library)), "extreme", arguments_of(plain, inputs, outputs))
    np.testing.assert_array_equal(outputs[0], np.array([worst, 1], "float32"))

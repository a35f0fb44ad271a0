"""Instructions of generic steps, modelled and executed: operators as TVM defines them, each alone on boards in QEMU.

    python benchmarks/generic_costs.py

Each definition becomes plain C, compiled as packages are; its cost is modelled by the operations of its loops
(`codegen_c.kernels.work`). `soft` is a Cortex-M4 without FPU. Instructions are not cycles.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from benchmarks.measure.steps import measure_steps  # noqa: E402
from codegen_c.arena.plan import plan_memory  # noqa: E402
from codegen_c.backend.build import Compiled  # noqa: E402
from codegen_c.emit.banner import Origin  # noqa: E402
from codegen_c.kernels.contract import Implementation  # noqa: E402
from codegen_c.kernels.generic import KERNEL as GENERIC  # noqa: E402
from codegen_c.kernels.work import instructions_of  # noqa: E402
from codegen_c.program.interface import Interface, Port  # noqa: E402
from codegen_c.program.program import KernelCall, Program  # noqa: E402
from codegen_c.program.tensors import Constant, Tensor  # noqa: E402
from codegen_c.tir.composite import lower_composite  # noqa: E402
from codegen_c.tir.plain_c import PlainC  # noqa: E402
from tests.kernels.tir_cases import Case  # noqa: E402
from tvm_ext.core.platform import Platform  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "generic_costs.json"
IMAGE, ROWS, VECTOR = ((1, 6, 24, 20), "float32"), ((24, 30), "float32"), (600,)
_SOFT = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=soft")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {}
    for name, platform in platforms().items():
        rows = list(measured(platform))
        ratios = np.array([row["modelled"] / row["executed"] for row in rows])
        far = np.maximum(ratios, 1 / ratios)
        shares = {f"within {bound}": round(float((far <= bound).mean()), 3) for bound in (1.25, 2)}
        found[name] = {"operators": len(rows), **shares, "rows": rows}
        print(name, len(rows), shares, flush=True)
    write_result(options.results, stamped({"processors": found}))
    return 0


def platforms() -> dict[str, Platform]:
    """Boards by name; `soft` compiles for the Cortex-M4 without its FPU."""
    m4 = Platform.load("cortex_m4")
    toolchain = replace(m4.toolchain, flags=_SOFT)
    return {"cortex_m4": m4, "soft": replace(m4, toolchain=toolchain), "cortex_m55": Platform.load("cortex_m55")}


def measured(platform: Platform) -> Iterator[dict[str, Any]]:
    """Each definition that becomes C: its name, and instructions, modelled and executed."""
    fpu = "none" if platform.toolchain.flags == _SOFT else platform.processor.fpu
    plains = {case.name: lower_composite(case.function()) for case in cases()}
    known = [(case, plain) for case in cases() if isinstance(plain := plains[case.name], PlainC)]
    steps = [step_of(case, plain, platform) for case, plain in known]
    for (case, plain), executed in zip(known, measure_steps(steps), strict=True):
        modelled = instructions_of(plain.work, fpu=fpu, isa=platform.processor.isa)
        yield {"operator": case.name, "modelled": modelled, "executed": executed}


def step_of(case: Case, plain: PlainC, platform: Platform) -> tuple[Compiled, KernelCall]:
    """A program of one generic step."""
    output = case.function().ret_ty
    types = [*case.inputs, (tuple(map(int, output.shape.values)), str(output.dtype))]
    names = [*(f"x{index}" for index in range(len(case.inputs))), "y"]
    tensors = {
        name: Tensor(name=name, source=name, shape=shape, dtype=dtype, memory=platform.activations)
        for name, (shape, dtype) in zip(names, types, strict=True)
    }
    constants = {name: Constant(name=name, data=np.ascontiguousarray(array), memory=platform.weights)
                 for name, array in plain.constants}  # fmt: skip
    implementation = Implementation(
        kernel=GENERIC.name, function=plain.function, reference=list, constants=tuple(plain.constants),
        scratch_bytes=plain.scratch_bytes,
    )  # fmt: skip
    call = KernelCall(name="step", implementation=implementation, inputs=tuple(names[:-1]), outputs=("y",),
                      constants=tuple(constants))  # fmt: skip
    program, plan = plan_memory(
        Program(name="layer", inputs=call.inputs, outputs=call.outputs, tensors=tensors, constants=constants,
                steps=(call,)), activations=platform.activations,
    )  # fmt: skip
    ports = [Port(name=name, source=name, shape=t.shape, dtype=t.dtype) for name, t in tensors.items()]
    interface = Interface(model="layer", io="arena", inputs=tuple(ports[:-1]), outputs=tuple(ports[-1:]))
    origin = Origin(generator="benchmarks", model=case.name, sha256="0", platform=platform.name)
    return Compiled(program=program, plan=plan, interface=interface, origin=origin, platform=platform), call


def cases() -> list[Case]:
    """Operators that have no kernel of their own, or not in every form, at sizes of small networks."""
    return [Case(name=name, build=build, inputs=inputs) for name, (build, inputs) in definitions().items()]


def definitions() -> dict[str, tuple[Callable[..., relax.Expr], tuple[tuple[tuple[int, ...], str], ...]]]:
    """Name -> expression over inputs, and their shapes and types."""
    unary = ("abs", "ceil", "floor", "round", "sign", "exp", "log", "sqrt", "rsqrt", "square", "tanh", "sigmoid", "sin",
             "cos", "sinh", "cosh", "atan", "asinh", "erf", "trunc", "isnan", "isfinite")  # fmt: skip
    binary = ("add", "multiply", "divide", "maximum", "equal", "less", "floor_divide", "power")
    integers = ("add", "multiply", "maximum", "floor_divide", "bitwise_and", "left_shift")
    activations = ("relu", "gelu", "silu", "gelu_tanh", "leakyrelu", "softplus", "log_softmax")
    reductions = ("sum", "mean", "max", "prod", "variance", "std")
    scale, zero = relax.const(np.float32(0.1)), relax.const(np.int8(3))

    def quantized(x: relax.Expr) -> relax.Expr:
        return op.quantize(x, scale, zero, axis=0, out_dtype="int8")

    def dequantized(x: relax.Expr) -> relax.Expr:
        return op.dequantize(x, scale, zero, axis=0, out_dtype="float32")

    def weights(*shape: int) -> relax.Expr:
        return relax.const(np.random.default_rng(3).standard_normal(shape).astype(np.float32))

    one, two = (ROWS,), (ROWS, ROWS)
    return {
        **{name: (getattr(op, name), one) for name in unary},
        **{name: (getattr(op, name), two) for name in binary},
        **{f"{name}_i32": (getattr(op, name), ((VECTOR, "int32"),) * 2) for name in integers},
        **{name: (getattr(op.nn, name), one) for name in activations},
        **{f"{name}_{'_'.join(map(str, axes))}": (lambda x, n=name, a=axes: getattr(op, n)(x, a), (IMAGE,))
           for name in reductions for axes in ([1], [2, 3], [0, 2])},
        "softmax_1": (lambda x: op.nn.softmax(x, 1), (IMAGE,)),
        "layer_norm": (lambda x: op.nn.layer_norm(x, weights(30), weights(30), axes=-1), one),
        "group_norm": (lambda x: op.nn.group_norm(x, weights(6), weights(6), 2, 1, [2, 3]), (IMAGE,)),
        "argmax": (lambda x: op.argmax(x, axis=1), (IMAGE,)),
        "cumsum": (lambda x: op.cumsum(x, axis=1), one),
        "permute": (lambda x: op.permute_dims(x, [0, 2, 3, 1]), (IMAGE,)),
        "concat": (lambda x, y: op.concat((x, y), axis=1), two),
        "tile": (lambda x: op.tile(x, (2, 3)), one),
        "repeat": (lambda x: op.repeat(x, 2, axis=1), one),
        "flip": (lambda x: op.flip(x, axis=1), one),
        **{f"pad_{mode}": (lambda x, m=mode: op.nn.pad(x, [1, 1, 2, 2], pad_mode=m), one)
           for mode in ("constant", "reflect", "replicate")},
        **{f"resize_{method}": (
            lambda x, m=method: op.image.resize2d(
                x, (36, 30), layout="NCHW", method=m, coordinate_transformation_mode="half_pixel"), (IMAGE,))
           for method in ("nearest_neighbor", "linear", "cubic")},
        **{f"cast_{source}_{target}": (lambda x, t=target: op.astype(x, t), ((VECTOR, source),))
           for source, target in (("int8", "float32"), ("float32", "int8"), ("int32", "float32"), ("int64", "int32"))},
        "quantize": (quantized, one),
        "dequantize": (dequantized, (((24, 30), "int8"),)),
        "quantized_add": (lambda x, y: quantized(op.add(dequantized(x), dequantized(y))), (((24, 30), "int8"),) * 2),
        "where": (op.where, (((24, 30), "bool"), *two)),
        "matmul": (op.matmul, (ROWS, ((30, 12), "float32"))),
        "conv2d": (lambda x: op.nn.conv2d(x, weights(4, 6, 3, 3), padding=1), (IMAGE,)),
        "conv2d_transpose": (lambda x: op.nn.conv2d_transpose(x, weights(6, 2, 3, 3), strides=2), (IMAGE,)),
        "conv1d": (lambda x: op.nn.conv1d(x, weights(4, 6, 3), padding=1), (((1, 6, 60), "float32"),)),
        "max_pool2d": (lambda x: op.nn.max_pool2d(x, (3, 3), strides=(2, 2), padding=1), (IMAGE,)),
        "avg_pool2d": (lambda x: op.nn.avg_pool2d(x, (3, 3), strides=(2, 2), padding=1), (IMAGE,)),
        "mish": (lambda x: op.multiply(x, op.tanh(op.nn.softplus(x))), one),
    }  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())

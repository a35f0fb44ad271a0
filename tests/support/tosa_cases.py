"""Small graphs of one TOSA operator each, and several of them as one file. As a program it records their results again.

The names of tensors of a case begin with the case's name, so that cases of one file stay apart.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.tosa_file import Operator, stored, tosa_file
from tvm_ext.frontends.tosa.schema import BITS, STORED

_KINDS = {"b": "bool", "8": "int8", "16": "int16", "32": "int32", "48": "int48", "4": "int4"}
_RESCALE = {"scale32": True, "per_channel": False, "input_unsigned": False, "output_unsigned": False}
_LARGEST = {"int48": 1 << 40, "int32": 1 << 24}


@dataclass(kw_only=True)
class TosaCase:
    """A graph of one operator.

    name: of the case, such as `add_32`. given: its inputs by their names in a file.
    """

    name: str
    tensors: dict[str, tuple[str, Sequence[int], np.ndarray | None]] = field(default_factory=dict)
    shapes: dict[str, Sequence[int]] = field(default_factory=dict)
    operators: list[Operator] = field(default_factory=list)
    given: dict[str, np.ndarray] = field(default_factory=dict)
    result: tuple[str, tuple[int, ...]] = ("", ())

    @property
    def output(self) -> str:
        return f"{self.name}.y"


def file_of(cases: Sequence[TosaCase]) -> bytes:
    """Return a file with all cases."""
    tensors = {name: tensor for case in cases for name, tensor in case.tensors.items()}
    shapes = {name: numbers for case in cases for name, numbers in case.shapes.items()}
    operators = [operator for case in cases for operator in case.operators]
    inputs = [name for case in cases for name in case.given]
    return tosa_file(tensors, operators, inputs, [case.output for case in cases], shapes=shapes)


def numbers_like(random: np.random.Generator, type_name: str, shape: Sequence[int]) -> np.ndarray:
    """Return random numbers of a type, of the magnitude that it holds, or less for wide types."""
    if type_name == "bool":
        return random.integers(0, 2, shape).astype(bool)
    largest = min(_LARGEST.get(type_name, 1 << 60), (1 << (BITS[type_name] - 1)) - 1)
    return random.integers(-largest, largest + 1, shape).astype(STORED[type_name])


def case_of(
    name: str,
    operator: str,
    inputs: Sequence[tuple[str, Any]],
    result: tuple[str, tuple[int, ...]],
    attributes: Mapping[str, object] | None = None,
) -> TosaCase:
    """Return a case.

    inputs: in order, pairs of a kind and what belongs to it. `8`, `16`, `32`, `48` and `b` with a shape are inputs of
    random numbers, or with an array inputs of these numbers. The same kinds after `=` are constants. `shape` is a
    constant shape.
    """
    random = np.random.default_rng([ord(letter) for letter in name])
    case = TosaCase(name=name, result=(_KINDS[result[0]], result[1]))
    names: list[str] = []
    for place, (kind, value) in enumerate(inputs):
        own = f"{name}.{place}"
        names.append(own)
        if kind == "shape":
            case.shapes[own] = value
            continue
        type_name = _KINDS[kind.removeprefix("=")]
        is_given = isinstance(value, np.ndarray)
        array = value.astype(STORED[type_name]) if is_given else numbers_like(random, type_name, value)
        is_constant = kind.startswith("=")
        case.tensors[own] = (type_name, array.shape, stored(array, type_name) if is_constant else None)
        if not is_constant:
            case.given[own] = array
    case.tensors[case.output] = (*case.result, None)
    case.operators.append(Operator(name=operator, inputs=names, output=case.output, attributes=attributes or {}))
    return case if result[0] != "48" else _narrowed(case)


def _narrowed(case: TosaCase) -> TosaCase:
    """Return a case with its sums of 48 bits rescaled to int16, because the reference model returns no such sums."""
    sums = f"{case.name}.sums"
    parts = {"multiplier": ("int16", 23456), "shift": ("int8", 28), "sums_zp": ("int48", 0), "y_zp": ("int16", 0)}
    for part, (type_name, number) in parts.items():
        case.tensors[f"{case.name}.{part}"] = (type_name, (1,), stored(np.array([number]), type_name))
    case.tensors[sums] = ("int48", case.result[1], None)
    case.tensors[case.output] = ("int16", case.result[1], None)
    case.operators[0] = replace(case.operators[0], output=sums)
    inputs = [sums, *(f"{case.name}.{part}" for part in parts)]
    attributes = {**_RESCALE, "scale32": False, "rounding_mode": "SINGLE_ROUND"}
    case.operators.append(Operator(name="RESCALE", inputs=inputs, output=case.output, attributes=attributes))
    case.result = ("int16", case.result[1])
    return case


def zero(kind: str, number: int = 0) -> tuple[str, np.ndarray]:
    """Return a constant of one number, such as a zero point."""
    return f"={kind}", np.array([number])


def _elementwise() -> list[TosaCase]:
    shape = (2, 3, 5)
    cases = [case_of(f"{name.lower()}_32", name, [("32", shape)] * 2, ("32", shape)) for name in ("ADD", "SUB")]
    cases += [case_of(f"{name.lower()}_32", name, [("32", shape)], ("32", shape)) for name in ("ABS", "CLZ")]
    nans = {"nan_mode": "PROPAGATE"}
    for name in ("MAXIMUM", "MINIMUM"):
        cases += [case_of(f"{name.lower()}_32", name, [("32", shape)] * 2, ("32", shape), nans)]
    cases += [case_of("add_repeated_32", "ADD", [("32", shape), ("32", (1, 3, 1))], ("32", shape))]
    divisors = np.array([[[1, -1, 7, -13, 40000]]])
    cases += [case_of("intdiv_32", "INTDIV", [("32", shape), ("=32", divisors)], ("32", shape))]
    for kind in ("8", "16", "32"):
        cases += [
            case_of(f"{name.lower()}_{kind}", name, [(kind, shape)] * 2, (kind, shape))
            for name in ("BITWISE_AND", "BITWISE_OR", "BITWISE_XOR")
        ]
        cases += [case_of(f"bitwise_not_{kind}", "BITWISE_NOT", [(kind, shape)], (kind, shape))]
        shifts = np.arange(5).reshape(1, 1, 5)
        for name in ("LOGICAL_LEFT_SHIFT", "LOGICAL_RIGHT_SHIFT"):
            cases += [case_of(f"{name.lower()}_{kind}", name, [(kind, shape), (f"={kind}", shifts)], (kind, shape))]
        for rounds in (False, True):
            operands = [(kind, shape), (f"={kind}", shifts + rounds)]
            cases += [
                case_of(
                    f"arithmetic_right_shift_{kind}_{int(rounds)}",
                    "ARITHMETIC_RIGHT_SHIFT",
                    operands,
                    (kind, shape),
                    {"round": rounds},
                )
            ]
        cases += [
            case_of(
                f"mul_{kind}",
                "MUL",
                [(kind, shape), (kind, shape) if kind != "32" else ("=32", np.full((1, 1, 1), 77)), zero("8")],
                ("32", shape),
            )
        ]
    cases += [case_of("mul_32_shifted", "MUL", [("32", shape), ("32", shape), zero("8", 23)], ("32", shape))]
    for name in ("LOGICAL_AND", "LOGICAL_OR", "LOGICAL_XOR"):
        cases += [case_of(f"{name.lower()}_b", name, [("b", shape)] * 2, ("b", shape))]
    cases += [case_of("logical_not_b", "LOGICAL_NOT", [("b", shape)], ("b", shape))]
    small = np.arange(30).reshape(shape) % 4
    cases += [
        case_of(f"{name.lower()}_32", name, [("32", small), ("32", small[::-1].copy())], ("b", shape))
        for name in ("EQUAL", "GREATER", "GREATER_EQUAL")
    ]
    cases += [case_of("select_16", "SELECT", [("b", shape), ("16", shape), ("16", shape)], ("16", shape))]
    for kind in ("8", "16"):
        limits = {
            name: list(np.array([number], f"<i{int(kind) // 8}").tobytes())
            for name, number in (("min_val", -50), ("max_val", 33))
        }
        cases += [
            case_of(f"clamp_{kind}", "CLAMP", [(kind, shape)], (kind, shape), {**limits, "nan_mode": "PROPAGATE"})
        ]
    cases += [case_of("negate_8", "NEGATE", [("8", shape), zero("8", 5), zero("8", -9)], ("8", shape))]
    cases += [case_of("negate_32", "NEGATE", [("32", shape), zero("32"), zero("32")], ("32", shape))]
    pairs = (("8", "32"), ("32", "8"), ("16", "b"), ("b", "16"), ("32", "16"), ("8", "16"))
    cases += [case_of(f"cast_{one}_{other}", "CAST", [(one, shape)], (other, shape)) for one, other in pairs]
    table = np.arange(256) * 7 % 256 - 128
    cases += [case_of("table_8", "TABLE", [("8", shape), ("=8", table)], ("8", shape))]
    cases += [
        case_of("table_16", "TABLE", [("16", shape), ("=16", np.arange(513) * 91 % 65000 - 32000)], ("32", shape))
    ]
    return cases


def _rescales() -> list[TosaCase]:
    shape, cases = (3, 4, 6), []
    forms: tuple[tuple[str, str, int, int, str, dict[str, object]], ...] = (
        ("8", "32", 11, 0, "SINGLE_ROUND", {}), ("32", "8", 0, -5, "SINGLE_ROUND", {}),
        ("32", "8", 0, 4, "DOUBLE_ROUND", {}), ("32", "8", 0, 4, "DOUBLE_ROUND", {"per_channel": True}),
        ("16", "8", 0, 9, "SINGLE_ROUND", {}), ("8", "16", 3, 0, "DOUBLE_ROUND", {"per_channel": True}),
        ("8", "8", -8, 8, "SINGLE_ROUND", {"input_unsigned": True}),
        ("8", "8", 8, 100, "SINGLE_ROUND", {"output_unsigned": True}),
        ("32", "16", 0, 0, "SINGLE_ROUND", {"scale32": False}),
    )  # fmt: skip
    for place, (given, wanted, first, second, rounding, changes) in enumerate(forms):
        attributes = {**_RESCALE, **changes, "rounding_mode": rounding}
        count, is_wide = (6 if attributes["per_channel"] else 1), bool(attributes["scale32"])
        bits = 31 if is_wide else 15
        multipliers = (1 << (bits - 1)) + np.arange(count) * (1 << (bits - 4)) + 12345
        room = {"8": 7, "16": 15, "32": 24}
        shifts = bits + room[given] - room[wanted] + np.arange(count) % 3
        parts = [("=32" if is_wide else "=16", multipliers), ("=8", np.clip(shifts, 2, 62))]
        inputs = [(given, shape), *parts, zero(given, first), zero(wanted, second)]
        cases.append(case_of(f"rescale_{given}_{wanted}_{place}", "RESCALE", inputs, (wanted, shape), attributes))
    return cases


def _convolutions() -> list[TosaCase]:
    window = {"pad": [1, 0, 1, 1], "stride": [1, 1], "dilation": [1, 1]}
    cases = []
    for kind, sums, point in (("8", "32", -3), ("16", "48", 0)):
        zeros = [zero(kind, point), zero("8")]
        one: dict[str, object] = {**window, "acc_type": _KINDS[sums]}
        cases += [
            case_of(
                f"conv2d_{kind}",
                "CONV2D",
                [(kind, (1, 5, 4, 3)), ("=8", (6, 3, 3, 3)), (f"={sums}", (6,)), *zeros],
                (sums, (1, 4, 4, 6)),
                one,
            ),
            case_of(
                f"depthwise_conv2d_{kind}",
                "DEPTHWISE_CONV2D",
                [(kind, (1, 5, 4, 3)), ("=8", (3, 3, 3, 2)), (f"={sums}", (6,)), *zeros],
                (sums, (1, 4, 4, 6)),
                one,
            ),
            case_of(
                f"conv3d_{kind}",
                "CONV3D",
                [(kind, (1, 3, 4, 4, 2)), ("=8", (3, 2, 2, 3, 2)), (f"={sums}", (3,)), *zeros],
                (sums, (1, 2, 2, 3, 3)),
                {**one, "pad": [0, 0, 0, 1, 0, 1], "stride": [1, 2, 1], "dilation": [1, 2, 1]},
            ),
            case_of(
                f"transpose_conv2d_{kind}",
                "TRANSPOSE_CONV2D",
                [(kind, (1, 3, 4, 2)), ("=8", (3, 3, 2, 2)), (f"={sums}", (1,)), *zeros],
                (sums, (1, 8, 9, 3)),
                {"out_pad": [-1, 2, 1, 0], "stride": [2, 2], "acc_type": _KINDS[sums]},
            ),
            case_of(
                f"matmul_{kind}",
                "MATMUL",
                [(kind, (2, 3, 7)), (kind, (2, 7, 4)), zero(kind, point), zero(kind, -point)],
                (sums, (2, 3, 4)),
            ),
        ]
    return cases


def _moves() -> list[TosaCase]:
    pool = {"kernel": [2, 4], "stride": [2, 2], "pad": [1, 0, 1, 1]}
    cases = []
    for kind, point in (("8", 7), ("16", 0)):
        image = (kind, (1, 5, 6, 3))
        cases += [
            case_of(
                f"avg_pool2d_{kind}",
                "AVG_POOL2D",
                [image, zero(kind, point), zero(kind, -point)],
                (kind, (1, 3, 3, 3)),
                {**pool, "acc_type": "int32"},
            ),
            case_of(
                f"max_pool2d_{kind}", "MAX_POOL2D", [image], (kind, (1, 3, 3, 3)), {**pool, "nan_mode": "PROPAGATE"}
            ),
            case_of(f"argmax_{kind}", "ARGMAX", [image], ("32", (1, 5, 3)), {"axis": 2, "nan_mode": "PROPAGATE"}),
            case_of(
                f"pad_{kind}", "PAD", [image, ("shape", [0, 1, 2, 0, 1, 1, 0, 0]), zero(kind, 9)], (kind, (2, 7, 8, 3))
            ),
            case_of(
                f"gather_{kind}",
                "GATHER",
                [(kind, (2, 5, 3)), ("32", np.array([[4, 0, 0], [1, 3, 2]]))],
                (kind, (2, 3, 3)),
            ),
            case_of(
                f"scatter_{kind}",
                "SCATTER",
                [(kind, (2, 5, 3)), ("32", np.array([[4, 0], [1, 3]])), (kind, (2, 2, 3))],
                (kind, (2, 5, 3)),
            ),
        ]
        for mode, result in (("NEAREST", kind), ("BILINEAR", {"8": "32", "16": "48"}[kind])):
            steps = [("shape", [4, 2, 3, 1]), ("shape", [-1, 0]), ("shape", [1, 2])]
            cases.append(
                case_of(
                    f"resize_{mode.lower()}_{kind}", "RESIZE", [image, *steps], (result, (1, 10, 18, 3)), {"mode": mode}
                )
            )
    image = ("8", (1, 5, 6, 3))
    axis = {"axis": 1, "nan_mode": "PROPAGATE"}
    cases += [
        case_of(f"{name.lower()}_32", name, [("32", (2, 4, 3))], ("32", (2, 1, 3)), axis)
        for name in ("REDUCE_MAX", "REDUCE_MIN", "REDUCE_SUM")
    ]
    cases += [
        case_of(f"{name.lower()}_b", name, [("b", (2, 4, 3))], ("b", (2, 1, 3)), axis)
        for name in ("REDUCE_ALL", "REDUCE_ANY")
    ]
    cases += [
        case_of("concat_8", "CONCAT", [image, ("8", (1, 5, 2, 3))], ("8", (1, 5, 8, 3)), {"axis": 2}),
        case_of("reshape_8", "RESHAPE", [image, ("shape", [6, 15])], ("8", (6, 15))),
        case_of("reverse_8", "REVERSE", [image], ("8", (1, 5, 6, 3)), {"axis": 2}),
        case_of("slice_8", "SLICE", [image, ("shape", [0, 1, 2, 0]), ("shape", [1, 3, 4, 2])], ("8", (1, 3, 4, 2))),
        case_of("tile_8", "TILE", [image, ("shape", [2, 1, 1, 2])], ("8", (2, 5, 6, 6))),
        case_of("transpose_8", "TRANSPOSE", [image], ("8", (3, 1, 6, 5)), {"perms": [3, 0, 2, 1]}),
    ]
    return cases


def all_cases() -> list[TosaCase]:
    """Return all cases: each operator of the integer profile, in the types of its inputs."""
    return [*_elementwise(), *_rescales(), *_convolutions(), *_moves()]


RECORDED = Path(__file__).parents[1] / "models" / "tosa_results.json"
"""Results of the reference model by the name of a case: the start of the SHA-256 of their bytes."""


def digest(result: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(result).tobytes()).hexdigest()[:16]


def reference_result(case: TosaCase) -> np.ndarray:
    """Return the result of the specification's reference model. It needs the package tosa-tools."""
    import tosa_reference_model  # pyright: ignore[reportMissingImports]

    found, status = tosa_reference_model.run(file_of([case]), list(case.given.values()))
    assert status == tosa_reference_model.GraphStatus.TOSA_VALID, f"{case.name}: {status}"
    type_name, shape = case.result
    return np.asarray(found[0]).view(STORED[type_name]).reshape(shape)


if __name__ == "__main__":
    RECORDED.write_text(
        json.dumps({case.name: digest(reference_result(case)) for case in all_cases()}, indent=1) + "\n"
    )

"""Custom operators that are missing, that do not take a call, or that are wrong themselves: each is named with why."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tvm_ext
from codegen_c.custom import registry
from tests.support import custom_operators as custom
from tests.support.tflite_file import TfliteWriter
from tvm_ext import BuildOptions, Platform
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.errors import BadOptions, UnsupportedModel
from tvm_ext.custom import CustomCode, CustomOperator, CustomState, CustomTensor


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's own table of registered operators."""
    monkeypatch.setattr(registry, "_registered", {})


def refused(path: Path, reason: str) -> None:
    with pytest.raises(UnsupportedModel, match=reason):
        tvm_ext.load(path)


def test_a_missing_operator_says_how_to_bring_it(tmp_path: Path) -> None:
    path = custom.envelope(tmp_path)
    refused(path, r"(?s)Envelope, once \(Envelope_0\): a custom operator; its meaning is not in the file. Bring it as "
                  r"a tvm_ext.custom.CustomOperator, registered by tvm_ext.custom.register_operator or installed "
                  r"under the entry point group 'tvm_ext.operators' \(docs/operators.md\)")  # fmt: skip
    tvm_ext.custom.register_operator(custom.ENVELOPE)
    tvm_ext.load(path)


def test_it_refuses_a_call_in_its_own_words(tmp_path: Path) -> None:
    tvm_ext.custom.register_operator(custom.ENVELOPE)
    refused(custom.envelope(tmp_path, "int32"), r"Envelope_0\): it supports int16 only, not int32\[1, 32\]")


def _raise(*_: Any) -> Any:
    raise KeyError("decay")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"outputs": _raise}, r"outputs of its CustomOperator 'Envelope' fails: KeyError: 'decay'"),
        ({"refuses": _raise}, r"refuses of its CustomOperator 'Envelope' fails: KeyError"),
        ({"states": _raise}, r"states of its CustomOperator 'Envelope' fails: KeyError"),
        ({"code": _raise}, r"code of its CustomOperator 'Envelope' fails: KeyError"),
        (
            {"outputs": lambda call: [CustomTensor(shape=(1, 31), dtype="int32")]},
            r"its outputs are int32\[1, 32\] in the file, int32\[1, 31\] by the operator's definition",
        ),
        ({"outputs": lambda call: []}, r"int32\[1, 32\] in the file, nothing by the operator's definition"),
        (
            {"states": lambda call: [CustomState(name="state", initial=np.zeros(1, np.float16))]},
            r"its state 'state' is of type float16; C11 has float32",
        ),
    ],
)  # fmt: skip
def test_an_operator_that_is_wrong(changed: dict[str, Callable[..., Any]], reason: str, tmp_path: Path) -> None:
    tvm_ext.custom.register_operator(replace(custom.ENVELOPE, **changed))
    refused(custom.envelope(tmp_path), reason)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"inputs": ("2x",)}, r"its C has a parameter '2x', which is not a C identifier or occurs twice"),
        ({"outputs": ("samples",)}, r"its C has a parameter 'samples', which is not a C identifier or occurs twice"),
        ({"inputs": ("state",)}, r"a parameter 'state'"),
        ({"inputs": ("a", "b")}, r"its C takes 2 inputs and returns 1 results; the call has 1 and 1"),
        ({"tables": {"t": np.zeros(2, np.float16)}}, r"its table 't' is of type float16; C11 has float32"),
        ({"headers": {"../x.h": ""}}, r"its header '../x.h' must have a name like my_operator.h"),
    ],
)
def test_c_that_does_not_fit(changed: dict[str, Any], reason: str, tmp_path: Path) -> None:
    def code(call: tvm_ext.custom.CustomCall) -> CustomCode:
        return replace(custom.ENVELOPE.code(call), **changed)

    tvm_ext.custom.register_operator(replace(custom.ENVELOPE, code=code))
    refused(custom.envelope(tmp_path), re.escape(reason) if "../" in reason else reason)


def _compiled(path: Path) -> dict[str, str]:
    return compile_module(tvm_ext.load(path), Platform.load("host"), BuildOptions(verify=())).sources()


def test_headers_of_one_name(tmp_path: Path) -> None:
    """Two operators bring one name, or one brings that of a file that the package has anyway."""
    other = replace(custom.MISH, code=lambda call: replace(custom.MISH.code(call), headers={"envelope_step.h": "/**/"}))
    for operator in (custom.ENVELOPE, other):
        tvm_ext.custom.register_operator(operator)
    net = TfliteWriter()
    x, f = net.input("x", (1, 8), "int16"), net.input("f", (1, 8))
    y = net.operator("Envelope", [x], net.tensor("y", (1, 8), "int32"), custom=custom.options(decay=2))
    z = net.operator("Mish", [f], net.tensor("z", (1, 8)))
    with pytest.raises(UnsupportedModel, match=r"custom operators bring two different headers named envelope_step.h"):
        _compiled(custom.saved(net, [y, z], tmp_path, "both"))
    taken = custom.envelope(tmp_path).rename(tmp_path / "envelope_step.tflite")
    with pytest.raises(UnsupportedModel, match=r"brings envelope_step.h, but the package has a file of that name"):
        _compiled(taken)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"\xff" * 9, r"its options cannot be read"),
        (custom.options(decay=3)[:-2] + b"\x99\x01", r"its options cannot be read|fails: KeyError"),
        (bytes(70000), r"its options take 70000 B; at most 65536 are read"),
        (custom.options(other=3), r"fails: KeyError: 'decay'"),
    ],
)
def test_options_that_nobody_vouched_for(raw: bytes, reason: str, tmp_path: Path) -> None:
    tvm_ext.custom.register_operator(custom.ENVELOPE)
    refused(custom.envelope(tmp_path, custom=raw), reason)


def test_options_of_all_kinds(tmp_path: Path) -> None:
    seen = list[tvm_ext.custom.CustomCall]()
    tvm_ext.custom.register_operator(replace(custom.ENVELOPE, refuses=lambda call: seen.append(call)))
    raw = custom.options(decay=3, gain=0.5, name="a", on=True, taps=[1, 2, 3], nothing=None)
    tvm_ext.load(custom.envelope(tmp_path, custom=raw))
    assert seen[0].options == {"decay": 3, "gain": 0.5, "name": "a", "on": True, "taps": (1, 2, 3), "nothing": None}
    assert seen[0].raw_options == raw and seen[0].present[0].name == "samples"


def test_calls_that_no_operator_takes(tmp_path: Path) -> None:
    tvm_ext.custom.register_operator(custom.MATCHED)
    bank, small = np.ones((3, 8), np.int8), np.ones((1, 8), np.int8)
    for change, reason in (("constants", "all its inputs are constants"), ("text", "is of type STRING; C11 has")):
        net = TfliteWriter()
        x = net.constant("x", small) if change == "constants" else net.input("x", (1, 8), "int8")
        results = [
            net.tensor("score", (1,), "int32"),
            net.tensor("index", (1,), "string" if change == "text" else "int32"),
        ]
        net.operator("Matched", [x, net.constant("bank", bank)], results)
        refused(custom.saved(net, results, tmp_path, change), reason)


PACKAGE = """
import numpy as np
from tvm_ext.custom import CustomCode, CustomOperator, CustomTensor

HALF = CustomOperator(
    name="{name}",
    outputs=lambda call: [CustomTensor(shape=call.present[0].shape, dtype="int16")],
    reference=lambda call, arrays: [(arrays[0].astype(np.int32) // 2).astype(np.int16)],
    code=lambda call: CustomCode(inputs=("x",), outputs=("y",), body="y[0] = (int16_t)(x[0] >> 1);"),
)
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of sys.path; operators are looked for anew in the test, and anew behind it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    registry._installed.cache_clear()
    yield tmp_path
    registry._installed.cache_clear()
    for name in [name for name in sys.modules if name.startswith("half_operators")]:
        del sys.modules[name]


def install(folder: Path, *, package: str = "half_operators", name: str = "Half", value: str = "HALF") -> None:
    (folder / f"{package}.py").write_text(PACKAGE.format(name=name))
    metadata = folder / f"{package}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[tvm_ext.operators]\n{name} = {package}:{value}\n")


def test_an_installed_operator_is_found(site: Path) -> None:
    install(site)
    net = TfliteWriter()
    x = net.input("x", (1,), "int16")
    y = net.operator("Half", [x], net.tensor("y", (1,), "int16"))
    assert "y[0] = (int16_t)(x[0] >> 1);" in "".join(_compiled(custom.saved(net, [y], site, "half")).values())
    assert isinstance(registry.custom_operator("Half"), CustomOperator)
    with pytest.raises(BadOptions, match=r"operator 'Half' is already installed by half_operators:HALF"):
        tvm_ext.custom.register_operator(replace(custom.MISH, name="Half"))
    assert tvm_ext.custom.register_operator(custom.MISH) is tvm_ext.custom.register_operator(custom.MISH)


def test_installed_operators_that_cannot_be(site: Path) -> None:
    install(site)
    install(site, package="half_operators_too")
    with pytest.raises(ImportError, match=r"'Half' is defined in half_operators:HALF and half_operators_too:HALF"):
        registry.custom_operator("Half")
    install(site, package="half_operators_three", value="np")
    with pytest.raises(
        ImportError, match=r"'half_operators_three:np' of group 'tvm_ext.operators' is not a tvm_ext.custom.Custom"
    ):
        registry.custom_operator("Half")

"""The registry of kernels: found by file, chosen by cost, refused in words."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import codegen_c
from codegen_c import kernels as package
from codegen_c.kernels.contract import Kernel, Refusal
from codegen_c.kernels.registry import kernels, kernels_of, select
from codegen_c.operators.kinds import Conv2d, Elementwise, Operator, Pool2d, Softmax, Window
from codegen_c.operators.scalar import Operand
from tests.kernels.float32 import floats, program
from tests.kernels.harness import HOST


def test_every_kernel_of_a_module_is_registered() -> None:
    root, found = Path(codegen_c.__file__).parent, 0
    assert len({kernel.name for kernel in kernels()}) == len(kernels())
    for path in sorted(root.rglob("*.py")):
        assigned = re.findall(r"^([A-Z][A-Z0-9_]*) = ", path.read_text(), re.M)
        module = sys.modules.get(".".join(("codegen_c", *path.relative_to(root).with_suffix("").parts)))
        own = [one for name in assigned if isinstance(one := getattr(module, name, None), Kernel)]
        assert not own or path.relative_to(root).parts[0] in ("kernels", "targets"), path
        assert own == [] or list(kernels_of(sys.modules[module.__name__])) == own, path
        found += len(own)
    assert found == len(kernels())


def test_names_are_c_identifiers() -> None:
    assert all(kernel.name.isidentifier() and kernel.name.islower() for kernel in kernels())


@pytest.fixture
def fresh() -> Iterator[None]:
    """The registry read anew in the test, and anew behind it."""
    kernels.cache_clear()
    yield
    kernels.cache_clear()


def test_two_kernels_of_one_name_are_an_error_that_names_both_files(
    fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "zz_copy.py").write_text("from codegen_c.kernels.softmax.softmax_f32 import KERNEL as KERNEL\n")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "codegen_c.kernels.zz_copy", raising=False)
    with pytest.raises(ImportError, match=r"'softmax_f32' is defined in \S+\.softmax_f32 and \S+\.zz_copy"):
        kernels()
    sys.modules.pop("codegen_c.kernels.zz_copy", None)


def test_a_new_file_is_a_new_kernel(fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cheaper than the one that is there, so it is chosen."""
    (tmp_path / "zz_new.py").write_text(
        "from dataclasses import replace\n"
        "from codegen_c.kernels.softmax import softmax_f32\n"
        "def implement(operator, target, stored):\n"
        "    return replace(softmax_f32.implement(operator, target, stored), kernel='new', instructions=0)\n"
        "KERNEL = replace(softmax_f32.KERNEL, name='new', implement=implement)\n"
    )
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "codegen_c.kernels.zz_new", raising=False)
    chosen = select(Softmax(inputs=(floats(4),), outputs=(floats(4),)), HOST)
    sys.modules.pop("codegen_c.kernels.zz_new", None)
    assert getattr(chosen, "kernel", chosen) == "new"


def test_refusals_say_which_kernel_and_why() -> None:
    pool = Pool2d(
        inputs=(floats(1, 4, 4, 1),), outputs=(floats(1, 4, 4, 1),), method="max",
        window=Window(kernel=(2, 2), dilation=(2, 2), padding=(1, 1, 1, 1)),
    )  # fmt: skip
    assert select(pool, HOST) == (
        Refusal(kernel="pool2d_f32", reason="every window must hold at least one element of the input"),
    )


def test_only_kernels_of_the_operator_are_asked() -> None:
    add = program(("add", Operand(kind="input"), Operand(kind="input", index=1)))
    broadcast = Elementwise(inputs=(floats(2, 3), floats(2, 1)), outputs=(floats(2, 3),), finish=add)
    refused = select(broadcast, HOST)
    assert isinstance(refused, tuple) and [refusal.kernel for refusal in refused] == ["elementwise_f32"]


def test_an_operator_without_kernels_has_no_refusals_either() -> None:
    class Unknown(Operator):
        pass

    assert select(Unknown(inputs=(), outputs=()), HOST) == ()


def test_the_first_constraint_that_fails_gives_the_reason_on_one_line() -> None:
    def never(operator: Conv2d, target: object) -> bool:
        """must be
        something else"""
        return False

    def unreached(operator: Conv2d, target: object) -> bool:
        raise AssertionError

    kernel = Kernel(
        name="k", title="k", operator=Conv2d, implement=kernels()[0].implement, constraints=(never, unreached)
    )
    operator = Conv2d(
        inputs=(floats(1, 1, 1, 1),), outputs=(floats(1, 1, 1, 1),), weight=np.ones((1, 1, 1, 1), np.float32),
        bias=np.zeros(1, np.float32), window=Window(kernel=(1, 1)),
    )  # fmt: skip
    assert kernel.refuses(operator, HOST) == Refusal(kernel="k", reason="must be something else")
    assert replace(kernel, constraints=()).refuses(operator, HOST) is None

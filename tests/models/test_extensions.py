"""Planners and passes of other distributions: beside ours, checked, named in the report; and problems as CSV."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import tvm_ext
from codegen_c.arena.planners import AllocationProblem, offset_fault, with_planners
from codegen_c.arena.problem import Buffer, Gap
from codegen_c.arena.solve import Solution, optimise
from tests.report.reports import report_of
from tests.support.distributions import install
from tests.support.onnx_models import NODE, model_of, saved
from tvm_ext.command_line.main import app
from tvm_ext.core.errors import BadPackage, ExtensionFailed
from tvm_ext.core.extensions import PASSES, PLANNERS, extensions
from tvm_ext.packages.allocation_problems import allocation_problems, write_allocation_problems
from tvm_ext.services.job import libraries

Install = Callable[..., None]

BUFFERS = (Buffer(begin=0, end=2, size=32, alignment=16), Buffer(begin=1, end=3, size=16, alignment=16),
           Buffer(begin=2, end=4, size=32, alignment=16))  # fmt: skip
PROBLEM = AllocationProblem(
    memory="sram", names=("a", "b", "c"), buffers=BUFFERS, lower_bound_bytes=48, num_bytes=80
)  # fmt: skip
HIGH = Solution(offsets=[0, 32, 48], num_bytes=80, lower_bound_bytes=48)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a module of one object under a group, for one test."""

    def done(group: str, source: str, name: str = "research", line: str = "mine = research:mine") -> None:
        install(tmp_path / name, name, source, {group: line})
        monkeypatch.syspath_prepend(tmp_path / name)
        monkeypatch.delitem(sys.modules, name, raising=False)

    return done


def test_a_lower_plan_is_taken_and_a_higher_one_is_not(installed: Install) -> None:
    installed(PLANNERS, "def mine(problem):\n    assert problem.names == ('a', 'b', 'c')\n    return [0, 32, 0]\n")
    found, planner = with_planners(PROBLEM, HIGH)
    assert (found.offsets, found.num_bytes, found.proved) == ([0, 32, 0], 48, True)
    assert planner == "mine of research 1.0"
    ours = optimise(BUFFERS)
    assert with_planners(PROBLEM, ours) == (ours, "")


def test_none_is_no_offer(installed: Install) -> None:
    installed(PLANNERS, "def mine(problem):\n    return None\n")
    assert with_planners(PROBLEM, HIGH) == (HIGH, "")


FAULTS: dict[str, tuple[str, str]] = {
    "overlap": ("[0, 16, 48]", "a at 0 and b at 16 share bytes in step 1"),
    "alignment": ("[0, 40, 80]", "b at 40: a multiple of 16 bytes, 0 or more, is needed"),
    "below": ("[-16, 32, 0]", "a at -16: a multiple of 16 bytes, 0 or more"),
    "count": ("[0, 32]", "returns 2 offsets, but each buffer needs one"),
    "words": ("'abc'", "does not return one integer offset for each buffer"),
    "raises": ("1 // 0", "ZeroDivisionError: integer division or modulo by zero. Fix or uninstall it"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_no_plan_is_never_used(installed: Install, fault: str) -> None:
    given, message = FAULTS[fault]
    installed(PLANNERS, f"def mine(problem):\n    return {given}\n")
    with pytest.raises(ExtensionFailed, match=f"planner mine of research 1.0, on 3 buffers of sram: {message}"):
        with_planners(PROBLEM, HIGH)


def test_pins_and_bytes_that_are_unused_meanwhile() -> None:
    pinned = replace(PROBLEM, buffers=(replace(BUFFERS[0], offset=16), *BUFFERS[1:]))
    assert offset_fault(pinned, [0, 32, 0]) == "a at 0: it is pinned to 16"
    gapped = replace(BUFFERS[0], gaps=(Gap(begin=1, end=2, low=0, high=16),))
    problem = replace(PROBLEM, buffers=(gapped, *BUFFERS[1:]))
    assert offset_fault(problem, [0, 16, 32]) == "" and "share bytes" in offset_fault(problem, [0, 0, 32])
    random = np.random.default_rng(3)
    for _ in range(50):
        buffers = tuple(Buffer(begin=int(b), end=int(b + n), size=int(s)) for b, n, s in random.integers(1, 9, (6, 3)))
        one = replace(PROBLEM, names=tuple("abcdef"), buffers=buffers)
        assert offset_fault(one, optimise(buffers).offsets) == ""
        found = [int(offset) for offset in random.integers(0, 12, 6)]
        assert (offset_fault(one, found) == "") == _is_apart(buffers, found)


def _is_apart(buffers: Sequence[Buffer], offsets: Sequence[int]) -> bool:
    """Told byte by byte, step by step."""
    taken: set[tuple[int, int]] = set()
    for buffer, offset in zip(buffers, offsets, strict=True):
        own = {(step, byte) for step in range(buffer.begin, buffer.end) for byte in range(offset, offset + buffer.size)}
        if taken & own:
            return False
        taken |= own
    return True


def model(folder: Path) -> Path:
    nodes = [NODE("Relu", ["x"], ["a"], name="a"), NODE("Relu", ["a"], ["b"], name="b"),
             NODE("MatMul", ["b", "w"], ["y"], name="y")]  # fmt: skip
    return saved(model_of(nodes, {"x": (1, 4)}, ["y"], {"w": np.eye(4, dtype=np.float32)}), folder)


DROP = """
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

@mutator
class Twice(PyExprMutator):
    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        inner = self.lookup_binding(call.args[0]) if call.args and isinstance(call.args[0], relax.Var) else None
        relu = tvm.ir.Op.get("relax.nn.relu")
        return call.args[0] if call.op == relu and isinstance(inner, relax.Call) and inner.op == relu else call

@tvm.transform.module_pass(opt_level=0)
class mine:
    def transform_module(self, mod, _ctx):
        made = Twice(mod)
        made.builder_.update_func(mod.get_global_var("main"), made.visit_expr(mod["main"]))
        return made.builder_.get()
"""


def test_a_pass_runs_before_ours(installed: Install, tmp_path: Path) -> None:
    """The second of two rectifiers goes; the file's runtime still says that the C is right."""
    path = model(tmp_path)
    before = tvm_ext.build(path, "host", tmp_path / "out", verify=("host",))
    installed(PASSES, DROP)
    package = tvm_ext.build(path, "host", tmp_path / "out", verify=("host",))
    assert package.report["extension_passes"] == ["mine of research 1.0"]
    assert "extension_passes" not in before.report
    assert "b" in nodes_of(before) and nodes_of(package) == nodes_of(before) - {"b"}
    assert package.report["verify"]["host"]["passed"]


def nodes_of(package: tvm_ext.Package) -> set[str]:
    """The model's operators that steps compute."""
    return {node for step in package.report["steps"] for node in step["source_nodes"]}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return None", "not a well-formed module: it is of type NoneType"),
        ("raise KeyError('k')", r"KeyError: 'k'\. Fix or uninstall it"),
        ("mod['main'] = mod['main'].with_attr('global_symbol', 'n'); return mod", "a well-formed module: Name in Glo"),
        ("return other(mod)", "A pass has to keep inputs and outputs"),
    ],
)
def test_a_pass_that_cannot_be_used(installed: Install, tmp_path: Path, body: str, message: str) -> None:
    other = """
def other(mod):
    from tvm import relax
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.nn.relu(x))
        builder.emit_func_output(y)
    return builder.get()
"""
    installed(PASSES, f"{other}\ndef mine():\n    return run\ndef run(mod):\n    {body}\n")
    with pytest.raises(ExtensionFailed, match=f"pass mine of research 1.0: .*{message}"):
        tvm_ext.estimate(model(tmp_path), "host")


def test_points_that_cannot_be_loaded_and_names_twice(installed: Install) -> None:
    installed(PLANNERS, "raise OSError('no licence')\n")
    with pytest.raises(ExtensionFailed, match=r"mine = research:mine of research 1\.0 cannot be loaded: OSError: no"):
        extensions(PLANNERS)
    installed(PASSES, "mine = 1\n", name="left", line="same = left:mine")
    installed(PASSES, "mine = 1\n", name="right", line="same = right:mine")
    with pytest.raises(ExtensionFailed, match=r"same is defined twice, the second time by right 1\.0; uninstall one"):
        extensions(PASSES)


def test_results_are_kept_for_what_is_installed(installed: Install) -> None:
    libraries.cache_clear()
    installed(PLANNERS, "mine = None\n")
    assert libraries()["research"] == "1.0"
    libraries.cache_clear()


def test_problems_of_a_package_are_what_minimalloc_reads(tmp_path: Path) -> None:
    report = report_of("integer_network")
    (file,) = write_allocation_problems(report, tmp_path / "problems")
    with file.open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    placed = {one["c_name"]: one for one in report["tensors"] if not one["part_of"]}
    assert file.name == f"{report['arenas'][0]['memory']}.csv" and len(rows) == len(placed)
    assert list(rows[0]) == ["id", "lower", "upper", "size"]
    for row in rows:
        one, size = placed[row["id"]], int(row["size"])
        assert (int(row["lower"]), int(row["upper"])) == (one["begin"], one["end"])
        assert size % 16 == 0 and 0 <= size - one["num_bytes"] < 16
    buffers = [Buffer(begin=int(r["lower"]), end=int(r["upper"]), size=int(r["size"]), alignment=16) for r in rows]
    assert optimise(buffers).num_bytes >= report["arena_bytes"]


@pytest.mark.parametrize(
    "change", [{"memory": "../m"}, {"c_name": "a,b"}, {"num_bytes": "x"}, {"begin": None}], ids=str
)
def test_a_damaged_report_names_no_file(change: dict[str, object]) -> None:
    report = report_of("integer_network")
    report["tensors"][0].update(change)
    with pytest.raises(BadPackage, match=r"report\.json is damaged at"):
        allocation_problems(report)


def test_the_command(tmp_path: Path) -> None:
    package = tvm_ext.build(model(tmp_path), "host", tmp_path / "out", verify=())
    result = CliRunner().invoke(app, ["problems", str(package.folder), "-o", str(tmp_path / "csv")])
    assert result.exit_code == 0, result.output
    (file,) = (tmp_path / "csv").glob("*.csv")
    assert result.stdout.strip() == str(file) and file.read_text() == allocation_problems(package.report)[file.stem]

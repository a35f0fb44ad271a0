# %% [markdown]
# # A planner and a pass of your own
#
# This tutorial adds two parts to the compiler from outside: a planner that chooses the offsets of tensors, and a pass
# that changes the graph before code is generated. Both are entry points of an installed distribution and run in
# addition to the built-in planner and passes. Their results are checked before use.

# %%
import csv
import importlib
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tvm_ext
from tvm_ext.packages.allocation_problems import write_allocation_problems

work = Path(tempfile.mkdtemp())

# %% [markdown]
# ## A model, and its allocation problem
#
# The model has two branches of different widths. One branch has the same ReLU twice, as exporters sometimes write it.

# %%
random = np.random.default_rng(0)
shapes = {"wide": (8, 96), "narrow": (8, 24), "up": (96, 40), "side": (24, 40)}
constants = [
    numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name) for name, shape in shapes.items()
]
nodes = [
    helper.make_node("MatMul", ["x", "wide"], ["a"], "a"),
    helper.make_node("Relu", ["a"], ["b"], "b"),
    helper.make_node("Relu", ["b"], ["c"], "c"),
    helper.make_node("MatMul", ["c", "up"], ["d"], "d"),
    helper.make_node("MatMul", ["x", "narrow"], ["e"], "e"),
    helper.make_node("MatMul", ["e", "side"], ["f"], "f"),
    helper.make_node("Add", ["d", "f"], ["y"], "y"),
]
graph = helper.make_graph(
    nodes, "branches", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 8))],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 40))], constants,
)  # fmt: skip
path = work / "branches.onnx"
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)

ours = tvm_ext.build(path, "host", work / "ours", verify=("host",))
(problem,) = write_allocation_problems(ours.report, work / "problems")
print(problem.read_text())
with problem.open(newline="") as file:
    assert csv.DictReader(file).fieldnames == ["id", "lower", "upper", "size"]

# %% [markdown]
# `tvm-ext problems DIR -o problems` writes the same files: one file for each memory, in the format of MiniMalloc. A
# buffer is live in steps `[lower, upper)`.
#
# ## A distribution with both
#
# A planner is a function of the problem that returns an offset for each buffer, or None if it has no solution. This
# planner tries five hundred orders and puts each buffer at the first free offset. A pass is any pass of TVM; this pass
# removes a ReLU of a ReLU. Usually `pip install` installs the module and its metadata, from a `pyproject.toml` with
#
#     [project.entry-points."tvm_ext.planners"]
#     orders = "research:orders"
#     [project.entry-points."tvm_ext.passes"]
#     once = "research:Once"
#
# Here we write both files like an installer. Only installed code runs: no model, platform or option can name code.

# %%
RESEARCH = """
import random
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

CARELESS = False


def orders(problem):
    if CARELESS:
        return [0] * len(problem.buffers)
    chosen = random.Random(7)
    free = [i for i, one in enumerate(problem.buffers) if one.offset is None]
    if len(free) < len(problem.buffers):
        return None  # this planner does not support pinned tensors
    best = None
    for _ in range(500):
        chosen.shuffle(free)
        offsets = {}
        for i in free:
            one = problem.buffers[i]
            busy = sorted((offsets[j], offsets[j] + problem.buffers[j].size) for j in offsets
                          if problem.buffers[j].overlaps(one))
            at = 0
            for low, high in busy:
                if at + one.size <= low:
                    break
                at = max(at, -(-high // one.alignment) * one.alignment)
            offsets[i] = at
        top = max(offsets[i] + problem.buffers[i].size for i in free)
        if best is None or top < best[0]:
            best = top, [offsets[i] for i in range(len(free))]
    print(f"{problem.memory}: {len(free)} buffers in {best[0]} B, built-in planner {problem.num_bytes} B")
    return best[1]


@mutator
class _Once(PyExprMutator):
    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        relu = tvm.ir.Op.get("relax.nn.relu")
        inner = self.lookup_binding(call.args[0]) if call.op == relu else None
        return call.args[0] if isinstance(inner, relax.Call) and inner.op == relu else call


@tvm.transform.module_pass(opt_level=0)
class Once:
    def transform_module(self, mod, _context):
        made = _Once(mod)
        made.builder_.update_func(mod.get_global_var("main"), made.visit_expr(mod["main"]))
        return made.builder_.get()
"""
POINTS = "[tvm_ext.planners]\norders = research:orders\n[tvm_ext.passes]\nonce = research:Once\n"
site = work / "site"
metadata = site / "research-1.0.dist-info"
metadata.mkdir(parents=True)
(site / "research.py").write_text(RESEARCH)
(metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: research\nVersion: 1.0\n")
(metadata / "entry_points.txt").write_text(POINTS)
sys.path.insert(0, str(site))
importlib.invalidate_caches()

# %% [markdown]
# ## Compare with the built-in planner
#
# The planner runs after the built-in search, and its offsets are used if they need fewer bytes. In this example the
# built-in offsets are optimal, as `proved` in the report says. The offsets of a planner are compared pair by pair
# before use, and the independent validator checks the plan. The pass runs before all other passes, on the loaded
# module, and must not change inputs or outputs. Verification compares the C with the model file in onnxruntime.

# %%
theirs = tvm_ext.build(path, "host", work / "theirs", verify=("host",))
print("passes:", *theirs.report["extension_passes"])
for name, package in (("without", ours), ("with", theirs)):
    operators = [node for step in package.report["steps"] for node in step["source_nodes"]]
    print(f"{name:8}{package.report['arena_bytes']:6} B, operators {' '.join(operators)}")
assert theirs.report["verify"]["host"]["passed"] and theirs.report["extension_passes"] == ["once of research 1.0"]
assert theirs.report["arena_bytes"] <= ours.report["arena_bytes"]
x = random.standard_normal((16, 8)).astype(np.float32)
assert np.array_equal(ours.run(x)["y"], theirs.run(x)["y"])

# %% [markdown]
# An invalid plan is refused, with the names of the planner and its distribution, and is not used.

# %%
importlib.import_module("research").CARELESS = True
try:
    tvm_ext.estimate(path, "host")
except tvm_ext.errors.ExtensionFailed as error:
    print(error)
else:
    raise AssertionError("overlapping buffers were accepted")

# %% [markdown]
# # A planner and a pass of your own
#
# Where tensors lie in memory is a problem that people write papers about, and so is what a graph should look like
# before code is made of it. Both can be brought from outside: a planner of offsets and a pass run beside ours, as entry
# points of an installed distribution. What they give is checked before it is used.

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
# Two branches of different widths; the rectifier of one of them stands there twice, as exporters do.

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
# `tvm-ext problems DIR -o problems` writes the same: one file for each memory, in the form that MiniMalloc reads. A
# buffer is alive in steps `[lower, upper)`.
#
# ## A distribution with both
#
# A planner is a function of the problem that returns an offset for each buffer, or None where it has nothing to offer.
# This one tries five hundred orders and puts each buffer at the first offset that is free. A pass is any pass of TVM;
# this one drops a rectifier of a rectifier. Usually `pip install` leaves the module and its metadata where Python finds
# them, from a `pyproject.toml` with
#
#     [project.entry-points."tvm_ext.planners"]
#     orders = "research:orders"
#     [project.entry-points."tvm_ext.passes"]
#     once = "research:Once"
#
# Here we write both down as an installer does. Only what is installed is run: no model, platform or option names code.

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
        return None  # pinned tensors are ours to place
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
    print(f"{problem.memory}: {len(free)} buffers in {best[0]} B, ours {problem.num_bytes} B")
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
# ## Beside ours
#
# The planner is asked after our own search and its offsets are taken where they are lower; here ours are as low as any
# can be, `proved` says so. Its offsets are compared pair by pair before use, and the plan goes through the independent
# validator, too. The pass runs first of all, on the module as it was loaded, and may change neither inputs nor outputs;
# verification compares the C with the model's own file in onnxruntime.

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
# A plan that cannot be is refused by the name of the planner and of its distribution, and nothing of it is used.

# %%
importlib.import_module("research").CARELESS = True
try:
    tvm_ext.estimate(path, "host")
except tvm_ext.errors.ExtensionFailed as error:
    print(error)
else:
    raise AssertionError("buffers over each other were taken")

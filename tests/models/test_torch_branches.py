"""torch.cond of an exported program: both branches are compiled, and a run executes one of them."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tvm_ext
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions
from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.frontends.shapes import ModelNotice

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")


class Decided(torch.nn.Module):
    """Two dense layers or one, by the mean of the input. nested: the branch of two decides once more."""

    def __init__(self, *, nested: bool = False) -> None:
        super().__init__()
        self.nested = nested
        self.first, self.second = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        def inner(x: Any) -> Any:
            return self.second(torch.relu(self.first(x)))

        def deciding(x: Any) -> Any:
            return torch.cond(x.mean() > 1, inner, lambda x: x - 1, (x,))

        return torch.relu(torch.cond(x.mean() > 0, deciding if self.nested else inner, self.second, (x,)))


def exported(module: Any, path: Path, *args: Any) -> Path:
    torch.manual_seed(0)
    torch.export.save(torch.export.export(module.eval(), args or (torch.ones(1, 16),)), path)
    return path


@pytest.mark.parametrize("nested", some_of([True], sweep=[False]))
def test_both_branches_give_the_numbers_of_torch(nested: bool, tmp_path: Path) -> None:
    net = Decided(nested=nested)
    path = exported(net, tmp_path / "decided.pt2")
    with pytest.warns(ModelNotice, match="both branches are compiled, and a run skips steps"):
        module = tvm_ext.load(path)
    package = tvm_ext.build(module, "host", tmp_path / "out", BuildOptions(verify=("host",)))
    result = package.report["verify"]["host"]
    assert result["passed"] and result["reference"].startswith("PyTorch"), result
    assert package.report["macs"] == 512 and package.report["macs_best_case"] == (0 if nested else 256)
    assert "} else {" in (tmp_path / "out" / "decided.c").read_text()
    for mean in (-1.0, 0.5, 2.0):
        x = np.random.default_rng(0).normal(mean, 0.1, (1, 16)).astype(np.float32)
        (found,) = package.run({"x": x}).values()
        np.testing.assert_allclose(found, net(torch.from_numpy(x)).detach().numpy(), rtol=1e-4, atol=1e-5)


class Deep(torch.nn.Module):
    """Branches within branches, which would have longer names at each level."""

    def forward(self, x: Any) -> Any:
        def level(depth: int) -> Any:
            if depth == 0:
                return lambda x: x * 2
            return lambda x: torch.cond(x.mean() > depth, level(depth - 1), lambda x: x - depth, (x,)) + 1

        return level(6)(x)


def test_names_of_deep_branches_stay_short(tmp_path: Path) -> None:
    module = tvm_ext.load(exported(Deep(), tmp_path / "deep.pt2"))
    assert max(len(binding.var.name) for binding in module["main"].body.blocks[0].bindings) < 120
    package = tvm_ext.build(module, "host", tmp_path / "out", BuildOptions(verify=()))
    for mean in (-1.0, 1.5, 2.5, 4.5, 9.0):
        x = np.full((1, 16), mean, np.float32)
        (found,) = package.run({"x": x}).values()
        np.testing.assert_allclose(found, Deep()(torch.from_numpy(x)).numpy(), rtol=1e-6)


class Indexed(torch.nn.Module):
    def forward(self, x: Any, i: Any) -> Any:
        return torch.cond(x.mean() > 0, lambda x, i: x[:, i], lambda x, i: x * 1, (x, i))


def test_computed_indices_in_a_branch_are_refused(tmp_path: Path) -> None:
    path = exported(Indexed(), tmp_path / "indexed.pt2", torch.ones(1, 16), torch.arange(16))
    with pytest.raises(UnsupportedModel, match="may be given indices out of range where its branch is not taken"):
        tvm_ext.load(path)


def changed(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The file with another torch.cond. change: changes the node."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    name = next(name for name in entries if name.endswith("models/model.json"))
    program = json.loads(entries[name])
    nodes = program["graph_module"]["graph"]["nodes"]
    change(next(node for node in nodes if node["target"].endswith(".cond")))
    entries[name] = json.dumps(program).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def branch(node: dict[str, Any], place: int = 1) -> dict[str, Any]:
    return node["inputs"][place]["arg"]["as_graph"]["graph"]


def returns_a_bias(node: dict[str, Any]) -> None:
    branch(node)["outputs"][0]["as_tensor"] = branch(node)["inputs"][0]["as_tensor"]


def nest(node: dict[str, Any]) -> None:
    for _ in range(20):
        inner = json.loads(json.dumps(node["inputs"][2]))
        outer = {"target": node["target"], "inputs": [*node["inputs"]], "outputs": node["outputs"], "metadata": {}}
        node["inputs"][1] = {
            **inner, "arg": {"as_graph": {"name": "g", "graph": {**branch({"inputs": [0, inner]}), "nodes": [outer]}}}
        }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "kind", "reason"),
    [
        (lambda node: node.update(target="torch.ops.higher_order.map"), UnsupportedModel, "compiled for torch.cond"),
        (lambda node: node["inputs"].pop(), UnsupportedModel, "only compiled with a tensor as its condition"),
        (lambda node: branch(node)["inputs"].pop(), BadModel, "tensors to a branch of"),
        (lambda node: branch(node)["outputs"].pop(), BadModel, "its branches have 0 and 1 results"),
        (lambda node: node["outputs"].clear(), BadModel, "it has no outputs"),
        (returns_a_bias, UnsupportedModel, "whose branches give other shapes or types"),
        (lambda node: branch(node)["sym_int_values"].update(s={"as_int": 3}), UnsupportedModel, "sizes that a branch"),
        (lambda node: branch(node)["nodes"][0].update(target="os.system"), UnsupportedModel, "os.system"),
        (nest, UnsupportedModel, "graphs within graphs nest deeper than 16"),
    ],
)  # fmt: skip
def test_damaged_branches_are_refused(change: Any, kind: type, reason: str, tmp_path: Path) -> None:
    path = changed(exported(Decided(), tmp_path / "decided.pt2"), change)
    with pytest.raises(kind, match=reason):
        tvm_ext.load(path)

"""PyTorch's exported programs: numbers as torch computes them, names as its graph has them, nothing unpickled."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from tests.models.agree import names, run, spans
from tests.support.packages import HOST_ONLY, assert_close
from tests.support.torch_models import digits_network, export, nn, torch
from tvm_ext.core.decisions.models import ModelOrigin, PortNames
from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.execution.host_model import HostModel
from tvm_ext.frontends.load import ModelNotice, load
from tvm_ext.frontends.pytorch import import_program


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(4, 3)

    def forward(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.dense(values).relu(), values.sum(dim=1)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(Tiny().eval(), (2, 4), tmp_path_factory.mktemp("tiny") / "tiny.pt2")


def images(count: int) -> np.ndarray:
    return np.random.default_rng(0).random((count, 1, 8, 8)).astype(np.float32)


def test_digits(digits: Path, tmp_path: Path) -> None:
    network = digits_network(digits)
    path = export(network, (1, 1, 8, 8), tmp_path / "digits.pt2")
    package = tvm_ext.build(tvm_ext.load(path), "host", tmp_path / "out", HOST_ONLY)
    verified = package.report["verify"]["host"]
    assert (verified["reference"], verified["own_reading"]) == ("PyTorch", None)
    assert verified["passed"] and package.report["model"]["format"] == "torch"
    kernels = "conv2d conv2d pool2d depthwise conv2d pool2d dense softmax".split()
    assert [step["kernel"] for step in package.report["steps"]] == [f"{kernel}_f32" for kernel in kernels]
    with HostModel(package.folder, package.interface) as model:
        for image in images(4)[:, np.newaxis]:
            (found,) = model.run({"input": image}).values()
            assert_close({"y": found}, {"y": network(torch.from_numpy(image)).detach().numpy()})


def test_open_batch(digits: Path, tmp_path: Path) -> None:
    network = digits_network(digits)
    batch = torch.export.Dim("batch")
    path = export(network, (2, 1, 8, 8), tmp_path / "digits.pt2", dynamic_shapes=({0: batch},))
    with pytest.warns(ModelNotice, match="-> "):
        assert [int(dim) for dim in load(path)["main"].params[0].ty.shape.values] == [1, 1, 8, 8]
    x = images(3)
    (found,) = run(load(path, shapes={"input": (3, 1, 8, 8)}), [x])
    assert_close({"y": found}, {"y": network(torch.from_numpy(x)).detach().numpy()})


def test_names(tiny: Path) -> None:
    mod = load(tiny)
    assert list(PortNames.read(mod).inputs) == ["values"]
    assert list(PortNames.read(mod).outputs) == ["relu", "sum_1"]
    assert names(mod)[-2:] == ["relu", "sum_1"] and "dense/addmm" in spans(mod)
    assert ModelOrigin.read(mod).source_format == "torch" and ModelOrigin.read(mod).rounding == "onnx"


def test_outputs_in_order(tiny: Path) -> None:
    program = torch.export.load(tiny)
    x = np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32)
    for found, expected in zip(run(load(tiny), [x]), program.module()(torch.from_numpy(x)), strict=True):
        np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-5, atol=1e-6)


class Bomb:
    """Unpickling one leaves a file behind."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self.mark,)


def changed(source: Path, target: Path, change: Callable[[str, bytes], bytes]) -> Path:
    """The archive with each entry passed through `change`, which gets its name below the root folder."""
    with zipfile.ZipFile(source) as before, zipfile.ZipFile(target, "w") as after:
        for member in before.infolist():
            after.writestr(member.filename, change(member.filename.split("/", 1)[1], before.read(member)))
    return target


def program_with(change: Callable[[str], str]) -> Callable[[str, bytes], bytes]:
    return lambda name, data: change(data.decode()).encode() if name == "models/model.json" else data


def test_a_pool_is_an_output_under_its_name(tmp_path: Path) -> None:
    """Decomposed, it is a pool with indices, of which the first result is taken."""

    class Pool(nn.Module):
        def forward(self, image: torch.Tensor) -> torch.Tensor:
            return nn.functional.max_pool2d(image, 2)

    path = export(Pool().eval(), (1, 2, 8, 8), tmp_path / "pool.pt2")
    package = tvm_ext.build(load(path), "host", tmp_path / "out", HOST_ONLY)
    assert list(package.outputs) == ["max_pool2d"]
    assert package.report["verify"]["host"]["reference"] == "PyTorch"


def test_a_constant_is_an_output_under_its_name(tmp_path: Path) -> None:
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.arange(3.0))

        def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.weight + 1, image * 2

    path = export(Constant().eval(), (1, 3), tmp_path / "constant.pt2")
    package = tvm_ext.build(load(path), "host", tmp_path / "out", HOST_ONLY)
    assert list(package.outputs) == ["add", "mul"]
    assert package.report["verify"]["host"]["reference"] == "PyTorch"


def test_outputs_that_are_one_tensor_have_their_names(tmp_path: Path) -> None:
    """An input and a result under other names."""

    class Aliases(nn.Module):
        def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = image + 1
            return torch.ops.aten.alias(image), y, torch.ops.aten.alias(y), y * 2

    path = export(Aliases().eval(), (1, 4), tmp_path / "aliases.pt2")
    package = tvm_ext.build(load(path), "host", tmp_path / "out", HOST_ONLY)
    assert list(package.outputs) == ["alias", "add", "alias_1", "mul"]
    assert package.report["verify"]["host"]["reference"] == "PyTorch"


def test_an_output_of_another_type_than_torch_gives_is_refused(tmp_path: Path) -> None:
    """TVM's importer multiplies matrices in float32, whatever they are."""

    class Product(nn.Module):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return values.double() @ torch.ones(4, 3, dtype=torch.float64)

    path = export(Product().eval(), (2, 4), tmp_path / "product.pt2")
    with pytest.raises(UnsupportedModel, match=r"is float64, and TVM's importer computes it in float32"):
        load(path)


def test_sample_inputs_are_not_unpickled(tiny: Path, tmp_path: Path) -> None:
    mark = tmp_path / "exploded"
    bomb = pickle.dumps(Bomb(mark))
    path = changed(tiny, tmp_path / "bomb.pt2", lambda name, data: bomb if "sample_inputs" in name else data)
    load(path)
    assert not mark.exists()


def test_weights_kept_as_pickles_are_refused(tiny: Path, tmp_path: Path) -> None:
    def change(name: str, data: bytes) -> bytes:
        return data.replace(b'"use_pickle": false', b'"use_pickle": true') if "weights_config" in name else data

    with pytest.raises(UnsupportedModel, match=r"'dense.weight' is kept as a Python object \(pickle\)"):
        load(changed(tiny, tmp_path / "pickled.pt2", change))


@pytest.mark.parametrize(
    "target", ["torch.load.x", "torch.hub.load", "torch.ops.aten.from_file.default", "#higher_order", "mine.op"]
)
def test_other_targets_are_refused_by_name(target: str, tiny: Path, tmp_path: Path) -> None:
    path = changed(tiny, tmp_path / "m.pt2", program_with(lambda t: t.replace("torch.ops.aten.relu.default", target)))
    with pytest.raises(UnsupportedModel, match=f"{target}: only operators of ATen"):
        load(path)


@pytest.mark.parametrize("expression", ["__import__('os').system('true')", "s0.__class__", "open('x')", "[1]"])
def test_sizes_are_arithmetic(expression: str, digits: Path, tmp_path: Path) -> None:
    path = export(
        digits_network(digits), (2, 1, 8, 8), tmp_path / "digits.pt2", dynamic_shapes=({0: torch.export.Dim("batch")},)
    )
    with zipfile.ZipFile(path) as archive:
        text = archive.read("digits/models/model.json").decode()
    symbol = text.split('"expr_str": "', 1)[1].split('"', 1)[0]
    bad = changed(path, tmp_path / "bad.pt2", program_with(lambda t: t.replace(symbol, expression)))
    with pytest.raises(BadModel, match="a symbolic size is no arithmetic expression"):
        load(bad)


def test_files_that_are_no_exported_program(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "folder.pt2").mkdir()
    for name, data, match in (
        ("empty.pt2", b"", "is empty"),
        ("text.pt2", b"not a model", "is not a .pt2 archive"),
        ("half.pt2", tiny.read_bytes()[: tiny.stat().st_size // 2], "is not a .pt2 archive, or it is truncated"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(BadModel, match=match):
            load(tmp_path / name)
    with pytest.raises(BadModel, match="is a folder"):
        load(tmp_path / "folder.pt2")
    with zipfile.ZipFile(tmp_path / "other.pt2", "w") as archive:
        archive.writestr("other/data.txt", "hello")
    with pytest.raises(BadModel, match=r"lacks models/model\.json"):
        load(tmp_path / "other.pt2")
    broken = changed(tiny, tmp_path / "broken.pt2", program_with(lambda text: text[: len(text) // 2]))
    with pytest.raises(BadModel, match=r"models/model\.json in it is damaged"):
        load(broken)
    changed(tiny, tmp_path / "schema.pt2", program_with(lambda text: "{}"))
    with pytest.raises(BadModel, match=r"is damaged: .*it lacks 'graph_module'"):
        load(tmp_path / "schema.pt2")
    version = program_with(lambda text: text.replace('"schema_version": {"major": 8', '"schema_version": {"major": 7'))
    with pytest.raises(BadModel, match=r"cannot load it: Serialized schema version"):
        load(changed(tiny, tmp_path / "version.pt2", version))


def test_operators_without_a_converter(tmp_path: Path) -> None:
    class Rare(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.bessel_j0(x)

    with pytest.raises(UnsupportedModel, match=r"special_bessel_j0.default, once: there is no converter for it"):
        load(export(Rare(), (2, 3), tmp_path / "rare.pt2"))


def test_exceptions_of_the_importer_are_not_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    path = export(nn.ReLU(), (2, 3), tmp_path / "relu.pt2")

    def failing(*_: object, **__: object) -> None:
        raise KeyError("inner words")

    with monkeypatch.context() as patched:
        patched.setattr(ExportedProgramImporter, "from_exported_program", failing)
        with pytest.raises(UnsupportedModel, match=r"of the kinds user_input \(KeyError\)") as caught:
            load(path)
    assert "inner words" not in str(caught.value)
    monkeypatch.setitem(import_program.CONVERTERS, "relu.default", failing)
    with pytest.raises(
        UnsupportedModel, match=r"no converter takes relu.default with self = float32\[2, 3\]"
    ) as caught:
        load(path)
    assert "inner words" not in str(caught.value)

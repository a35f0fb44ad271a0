"""`import tvm_ext` gives the documented names, lazily, whatever else was imported before."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import tvm_ext
from tests.support.onnx_models import SMALL_MODELS
from tests.support.packages import Packages
from tests.support.sweeps import some_of


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)


SOME = ("Platform", "build", "errors", "estimate")


@pytest.mark.parametrize("name", some_of(SOME, sweep=[name for name in tvm_ext.__all__ if name not in SOME]))
def test_public_name(name: str) -> None:
    result = python(f"import tvm_ext; value = tvm_ext.{name}; print(type(value).__name__)")
    assert result.returncode == 0, result.stderr
    assert (result.stdout.strip() == "module") == (name in ("custom", "errors"))


def test_names_have_their_homes_and_nothing_else_is_public() -> None:
    """Also the types that public functions give; each is found where it says that it is."""
    result = python("import tvm_ext; print(*[n for n in dir(tvm_ext) if not n.startswith('_')])")
    assert result.returncode == 0, result.stderr
    homes = {name: module for name, module in tvm_ext._HOMES.items()}
    assert {*homes} == {*tvm_ext.__all__} and [*tvm_ext.__all__] == sorted(tvm_ext.__all__)
    assert {"Session", "RunResult", "Profile", "Estimate", "custom"} <= {*tvm_ext.__all__} and len(homes) <= 24
    others = {*result.stdout.split()} - {*tvm_ext.__all__}
    assert others <= {"annotations", "import_module", "TYPE_CHECKING", "core", "relax", "register_pipelines"}, others
    for package in ("tvm_ext", "relay_passes", "codegen_c"):
        assert (Path(__file__).parents[2] / package / "py.typed").is_file()


def test_the_version_is_that_of_the_distribution() -> None:
    result = python("import sys, tvm_ext; print(tvm_ext.__version__, 'tvm' in sys.modules)")
    assert result.stdout.split() == [version("tvm-ext"), "False"], result.stderr


def test_describing_a_platform_does_not_import_tvm() -> None:
    result = python("import sys, tvm_ext; tvm_ext.Platform.load('host'); sys.exit('tvm' in sys.modules)")
    assert result.returncode == 0, result.stderr


def test_a_package_runs_without_tvm(packages: Packages) -> None:
    """Importing it takes two seconds; only `evaluate` beside the model file needs it."""
    package = packages.small("moves_data", SMALL_MODELS["moves_data"])
    code = f"""
import sys, numpy, tvm_ext
package = tvm_ext.Package.load({str(package.folder)!r})
x = {{name: numpy.ones(spec.shape, spec.dtype) for name, spec in package.inputs.items()}}
print(*package.run(x), "tvm" in sys.modules)
"""
    result = python(code)
    assert result.stdout.split() == [*package.outputs, "False"], result.stderr


@pytest.mark.parametrize("before", ["tvm_ext", "tvm"])
def test_pipelines_are_known_by_name_behind_either_import(before: str) -> None:
    """And tvm is not imported by it, nor is a finder of modules left."""
    code = f"""
import sys, {before}
assert {before!r} == "tvm" or "tvm" not in sys.modules
import tvm_ext
from tvm import relax
names = [*tvm_ext.Platform.shipped(), *tvm_ext.Platform.boards()]
assert len(names) > 15
for name in names:
    assert relax.get_pipeline("tvm_ext." + name).info.name == "tvm_ext." + name
options = tvm_ext.BuildOptions(optimize="size")
assert relax.get_pipeline("tvm_ext.cortex_m4", options=options) is not None
assert not [one for one in sys.meta_path if "tvm_ext" in type(one).__module__]
"""
    result = python(code)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("name", "now"),
    [("CustomOperator", "custom.CustomOperator"), ("register_operator", "custom.register_operator"),
     ("HostModel", "Session"), ("QemuResult", "RunResult")],
)  # fmt: skip
def test_moved_names_say_where_they_are(name: str, now: str) -> None:
    with pytest.raises(AttributeError, match=rf"has no attribute '{name}'; it is tvm_ext\.{now} now"):
        getattr(tvm_ext, name)
    home, _, own = now.rpartition(".")
    assert hasattr(getattr(tvm_ext, home) if home else tvm_ext, own)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'compile'"):
        _ = tvm_ext.compile


@pytest.mark.parametrize("arguments", [["--help"], ["compile", "--help"], ["platforms"]], ids=" ".join)
def test_the_command_line_starts_without_what_it_does_not_need(arguments: list[str]) -> None:
    code = f"""
import sys
from tvm_ext.command_line.main import run
sys.argv[1:] = {arguments!r}
try:
    run()
except SystemExit as left:
    assert not left.code, left.code
print("loaded:", *sorted({{"tvm", "tvm_ffi", "numpy", "pydantic", "onnx", "jinja2", "torch"}} & set(sys.modules)))
"""
    result = python(code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "loaded:"


def test_formats_are_imported_when_they_are_read() -> None:
    code = "import sys, tvm_ext; tvm_ext.load; print(*{'onnx', 'onnxruntime', 'tflite'} & set(sys.modules))"
    result = python(code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == ""


def test_pytorch_can_be_imported_behind_a_tvm_that_did_without() -> None:
    code = """
import sys
from tvm_ext.services.import_tvm import import_tvm_alone
import_tvm_alone()
assert "tvm" in sys.modules and "torch" not in sys.modules
sys.modules["torch"] = other = type(sys)("torch")
import_tvm_alone()
assert sys.modules["torch"] is other
"""
    result = python(code)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("arguments", ["", "with_torch=True"])
def test_a_command_imports_tvm_without_what_it_has_for_gpus(arguments: str) -> None:
    """Both meet errors in there, whose backtraces cost the symbols of all libraries."""
    code = f"""
import os, sys
from tvm_ext.services.import_tvm import import_tvm_alone
before = dict(os.environ)
import_tvm_alone({arguments})
assert dict(os.environ) == before
print("loaded:", *{{"tvm.backend.cuda.op", "tvm.runtime.disco"}} & set(sys.modules))
"""
    result = python(code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "loaded:"

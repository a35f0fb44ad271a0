"""Fixtures of all tests: the repository, models kept outside of it, packages; skips where tools are missing."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.analyzers import missing_tools
from tests.support.packages import Packages
from tvm_ext.assurance import assurance
from tvm_ext.assurance.coverage import Coverage

ROOT = Path(__file__).parent.parent
# In every compilation, of child processes too: a user's build never depends on warnings, ours are to have none.
os.environ["TVM_EXT_STRICT_WARNINGS"] = "1"
# Objects and measurements of earlier runs must not decide a test. All processes of a run share their objects.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["TVM_EXT_CACHE"] = tempfile.mkdtemp(prefix="tvm_ext_cache_")
    atexit.register(shutil.rmtree, os.environ["TVM_EXT_CACHE"], ignore_errors=True)

_UNCOUNTED = (
    *("boards", "browser", "errors", "forms", "fuzz", "kernels", "models", "passes", "regressions", "services"),
    "sweeps",
)
"""Folders of tests whose builds measure no coverage, but for tests that are marked `coverage`."""
_MEASURE_COVERAGE = assurance.selftest_coverage


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/expected from what comes out")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out the coverage of the self-test, a fourth of the time of a small build, where no test looks at it."""
    counts = item.path.parent.name not in _UNCOUNTED or item.get_closest_marker("coverage") is not None
    assurance.selftest_coverage = _MEASURE_COVERAGE if counts else _no_coverage


def _no_coverage(folder: Path, model: str, **_: object) -> Coverage:
    return Coverage(statements=None, covered=None, missed={}, missed_shared={}, reason="not measured for this test")


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the project."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of models and data too large for the repository: `../shared`, or what TVM_EXT_SHARED names."""
    folder = Path(os.environ.get("TVM_EXT_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        _missing("no folder ../shared beside the project, and TVM_EXT_SHARED names none")
    return folder


@pytest.fixture(scope="session")
def shared_models(shared: Path) -> Path:
    """MLPerf Tiny networks: `kws_fp32.onnx` and others, each with reference outputs in an .npz."""
    folder = shared / "models"
    if not folder.is_dir():
        _missing(f"no folder models in {shared.name}")
    return folder


@pytest.fixture(scope="session")
def shared_streaming(shared: Path) -> Path:
    """Models with state, and windows over time."""
    folder = shared / "streaming"
    if not folder.is_dir():
        _missing(f"no folder streaming in {shared.name}")
    return folder


@pytest.fixture(scope="session")
def digits() -> Path:
    """Folder of the small network that the project carries: digits.onnx, digits_test.npz."""
    return ROOT / "tutorials" / "digits"


@pytest.fixture(scope="session")
def packages(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """Packages built once for all tests of the session that ask for them."""
    return Packages(models=lambda: request.getfixturevalue("shared_models"), folder=tmp_path_factory.mktemp("packages"))


def _missing(what: str) -> None:
    """Skip, or fail where TVM_EXT_REQUIRE_SHARED=1 wants them."""
    if os.environ.get("TVM_EXT_REQUIRE_SHARED") == "1":
        pytest.fail(what)
    pytest.skip(what)


def _absent(*tools: str) -> list[str]:
    """Those of the tools that are not on PATH."""
    return [tool for tool in tools if shutil.which(tool) is None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests whose mark asks for tools that are missing, unless the environment wants these tests run.

    Variables TVM_EXT_REQUIRE_BOARDS=1 and TVM_EXT_REQUIRE_ANALYZERS=1.
    """
    missing = {
        "board": _absent("arm-none-eabi-gcc", "qemu-system-arm"),
        "riscv_board": _absent("riscv64-unknown-elf-gcc", "qemu-system-riscv32"),
        "riscv_clang": _absent("clang"),
        "wasm_board": [*_absent("clang-19", "wasm-ld-19", "node"), *(() if find_spec("wasmtime") else ("wasmtime",))],
        "process_board": _absent(
            "clang-19",
            "ld.lld-19",
            "llvm-nm-19",
            "qemu-aarch64",
            "qemu-riscv64",
            "aarch64-linux-gnu-gcc",
            "riscv64-linux-gnu-gcc",
        ),
        "browser": _absent("chromium", "clang-19", "wasm-ld-19"),
        "xtensa_board": _absent("xtensa-lx106-elf-gcc", "qemu-system-xtensa"),
        "analyzers": missing_tools(),
    }
    for mark, tools in missing.items():
        installer = "analyzers" if mark == "analyzers" else "boards"
        if not tools or os.environ.get(f"TVM_EXT_REQUIRE_{installer.upper()}") == "1":
            continue
        skip = pytest.mark.skip(reason=f"no {' and no '.join(tools)}; .ci/{installer} installs them")
        for item in items:
            if item.get_closest_marker(mark):
                item.add_marker(skip)

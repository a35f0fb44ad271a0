"""Packages that several tests look at, each built once per session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

import tvm_ext
from tests.support.onnx_models import saved
from tvm_ext import BuildOptions, Package
from tvm_ext.assurance import assurance

HOST_ONLY = BuildOptions(verify=("host",))


@dataclass(frozen=True, kw_only=True)
class Packages:
    """Builds on demand below `folder`; models are looked for in `models`."""

    models: Callable[[], Path]
    folder: Path
    built: dict[str, Package] = field(default_factory=dict)

    def shared(self, name: str, platform: str = "host", options: BuildOptions = HOST_ONLY) -> Package:
        """One of the networks of shared/models, verified as `options` say."""
        path = self.models() / f"{name}.onnx"
        return self._build((name, platform, options), lambda: path)

    def small(
        self, name: str, make: Callable[[], onnx.ModelProto], platform: str = "host", options: BuildOptions = HOST_ONLY
    ) -> Package:
        """A model made by a test; `name` stands for it."""
        return self._build((name, platform, options), lambda: saved(make(), self.folder, name))

    def _build(self, key: tuple[str, str, BuildOptions], model: Callable[[], Path]) -> Package:
        # Options may hold what has no hash. Builds of some tests measure no coverage (tests/conftest.py).
        known = f"{key} {assurance.selftest_coverage.__name__}"
        if known not in self.built:
            name, platform, options = key
            folder = self.folder / f"{name}_{platform}_{len(self.built)}"
            self.built[known] = tvm_ext.build(tvm_ext.load(model()), platform, folder, options)
        return self.built[known]


def sample(package: Package, seed: int = 7) -> dict[str, np.ndarray]:
    """Inputs for a package: integers in {0, 1, 2} (which index any table), floats of a normal distribution."""
    random = np.random.default_rng(seed)
    return {
        name: random.standard_normal(spec.shape).astype(spec.dtype)
        if spec.dtype.startswith("float")
        else random.integers(0, 3, spec.shape).astype(spec.dtype)
        for name, spec in package.inputs.items()
    }


def assert_close(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], tolerance: float = 1e-4) -> None:
    """Same names in the same order, shapes, types; floats within `tolerance` of the largest magnitude, others equal."""
    assert list(found) == list(expected)
    for name, wanted in expected.items():
        assert (found[name].shape, found[name].dtype) == (wanted.shape, wanted.dtype), name
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(found[name], wanted, rtol=0, atol=tolerance * np.abs(wanted).max(), err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], wanted, err_msg=name)


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file of a folder by its name in it."""
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}

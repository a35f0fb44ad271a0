"""Constants of a layer that lie next to each other: one transfer for each layer, alone and in a bundle."""

from __future__ import annotations

from pathlib import Path

import pytest

import tvm_ext
from tests.support.bundles import written
from tests.support.onnx_models import saved
from tests.support.random_models import random_model
from tvm_ext import BuildOptions

pytestmark = pytest.mark.board

VERIFIED = BuildOptions(verify=("host", "qemu"))
NETWORK = random_model(1, num_layers=9)


def test_one_transfer_fetches_a_layer_on_the_board(tmp_path: Path) -> None:
    package = tvm_ext.build(tvm_ext.load(saved(NETWORK, tmp_path, "net")), "always_on", tmp_path / "out", VERIFIED)
    assert package.report["verify"]["qemu"]["passed"]
    names = [step["name"] for step in package.report["steps"]]
    fetched = [name for name in names if name.startswith("fetch_")]
    layers = {name.removeprefix("fetch_").partition("_constants")[0] for name in fetched}
    assert len(fetched) == len(layers) and any("_constants" in name for name in fetched)
    run = (package.folder / "net.c").read_text()
    weights = (package.folder / "net_weights.h").read_text()
    joined = [name.removeprefix("fetch_").removesuffix("_copy") for name in fetched if "_constants" in name]
    for name in joined:
        assert f"extern const struct net_{name} net_{name};" in weights
        assert run.count(f"&net_{name}, ") == 1, "one transfer"
        assert f"{name}_copy.weights" in run and f"{name}_copy.bias" in run
        assert f"net_{name}_weights[" not in weights, "no second copy in flash"


def test_equal_layers_of_a_bundle_stand_once(tmp_path: Path) -> None:
    entries = {name: {"file": "net.onnx"} for name in ("first", "second")}
    bundle = tvm_ext.bundle(written(tmp_path, {"net": NETWORK}, entries), "always_on", tmp_path / "package")
    assert all(model.report["verify"]["qemu"]["passed"] for model in bundle.models.values())
    shared = {path.name: path.read_text() for path in bundle.folder.glob("*_weights.[ch]")}
    common = next(text for name, text in shared.items() if name.endswith(".c") and not name.startswith(tuple(entries)))
    assert ".weights = {" in common and ".bias = {" in common
    assert all(".weights = {" not in text for name, text in shared.items() if name.startswith(tuple(entries)))
    assert "_TYPE" in shared["first_weights.h"], "both models' headers may be read at once"

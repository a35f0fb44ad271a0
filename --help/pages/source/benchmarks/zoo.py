"""Networks for measuring: known architectures with random weights, as float32 and as int8 in QDQ form.

    python benchmarks/zoo.py mcunet_320k_int8 mobilenet_v2_035_144_fp32 --output out/zoo

Weights and inputs of the calibration come from fixed seeds, so figures repeat; such a network classifies nothing.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.networks.dense import feed_forward, wide_mlp  # noqa: E402
from benchmarks.networks.lines import factored, wide_windows, words_1d  # noqa: E402
from benchmarks.networks.mobile import MCUNET_5FPS_VWW, MCUNET_320K, mcunet, mobilenet_v2  # noqa: E402
from benchmarks.networks.quantize import quantized  # noqa: E402
from benchmarks.networks.searched import AMOEBANET_A, DARTS, NASNET_A, searched  # noqa: E402
from benchmarks.networks.tiny import autoencoder, ds_cnn, mobilenet_v1, resnet8  # noqa: E402
from benchmarks.networks.wired import dense_block, gated_dense_block, gated_unet, randwire, unet  # noqa: E402

_FIXED: dict[str, Callable[[str], onnx.ModelProto]] = {
    "ds_cnn": ds_cnn,
    "mobilenet_v1_025_96": mobilenet_v1,
    "resnet8": resnet8,
    "autoencoder": autoencoder,
    "mcunet_5fps_vww": partial(mcunet, blocks=MCUNET_5FPS_VWW, size=80, num_classes=2),
    "mcunet_320k": partial(mcunet, blocks=MCUNET_320K, size=176, num_classes=1000),
}
WIRED: dict[str, Callable[[str], onnx.ModelProto]] = {
    "darts_cifar_6_36": partial(searched, family=DARTS, cells=6, channels=36),
    "nasnet_a_cifar_6_32": partial(searched, family=NASNET_A, cells=6, channels=32),
    "amoebanet_a_cifar_6_36": partial(searched, family=AMOEBANET_A, cells=6, channels=36),
    "randwire_ws_32_4_075": partial(randwire, seed=0),
    "unet_16": unet,
    "dense_block_12": dense_block,
    "gated_unet_16": gated_unet,
    "gated_dense_block_8": gated_dense_block,
}
"""Networks whose wiring leaves many orders open; `benchmarks/order.py` compares those."""
LINES: dict[str, Callable[[str], onnx.ModelProto]] = {
    "words_1d": words_1d,
    "factored": factored,
    "wide_windows": wide_windows,
}
"""Networks of windows with 3 or 5 taps along an axis."""
DENSE: dict[str, Callable[[str], onnx.ModelProto]] = {
    "mlp_64_4096": partial(wide_mlp, features=64, hidden=4096),
    "ffn_16_128_512": partial(feed_forward, tokens=16, features=128, hidden=512),
}
"""Networks of dense layers alone, their hidden vectors wide."""

_MOBILENET_V2 = ("mobilenet_v2_035_144", "mobilenet_v2_100_224")


def names() -> list[str]:
    """The networks that are measured, float32 and int8 of each, smallest first."""
    return [f"{network}_{dtype}" for network in (*_FIXED, *_MOBILENET_V2) for dtype in ("fp32", "int8")]


def build(name: str) -> onnx.ModelProto:
    """A network by name: one of `names()`, one of `WIRED`, `LINES` or `DENSE` with its type
    (`unet_16_fp32`), or `mobilenet_v2_WWW_SSS_fp32` (or `_int8`) of any width in hundredths
    and image size in pixels. Input and output are called `input` and `output`.

    Raises KeyError for a name that is neither.
    """
    parts = re.fullmatch(r"(.+)_(fp32|int8)", name)
    if parts is None:
        raise KeyError(f"{name!r}: the name of a network ends with _fp32 or _int8; there are {_known()}.")
    model = _network(parts[1])
    return quantized(model) if parts[2] == "int8" else model


def _network(name: str) -> onnx.ModelProto:
    named = _FIXED | WIRED | LINES | DENSE
    if name in named:
        return named[name](name)
    sizes = re.fullmatch(r"mobilenet_v2_(\d{3})_(\d{2,3})", name)
    if sizes is None:
        raise KeyError(f"{name!r}: no such network; there are {_known()}.")
    return mobilenet_v2(name, width=int(sizes[1]) / 100, size=int(sizes[2]))


def _known() -> str:
    return ", ".join([*sorted(_FIXED | WIRED | LINES | DENSE), "mobilenet_v2_WWW_SSS"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Write networks as .onnx files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=names(), help="default: all")
    parser.add_argument("--output", type=Path, default=Path("out/zoo"))
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    for name in options.names:
        onnx.save(build(name), options.output / f"{name}.onnx")
        print(options.output / f"{name}.onnx")


if __name__ == "__main__":
    main()

"""Exported programs of small PyTorch networks; what imports this skips where torch is absent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from tests.support.peers import peer

torch = peer("torch")
nn = torch.nn


def digits_network(folder: Path) -> nn.Module:
    """The network of tutorials/train_digits.py with the weights of its ONNX file."""
    conv, relu = nn.Conv2d, nn.ReLU
    network = nn.Sequential()
    for name, module in {
        "stem": nn.Sequential(conv(1, 16, 3, padding=1), relu()),
        "body": nn.Sequential(conv(16, 40, 3, padding=1), relu(), nn.MaxPool2d(2)),
        "depthwise": nn.Sequential(conv(40, 40, 3, padding=1, groups=40), relu()),
        "pointwise": nn.Sequential(conv(40, 64, 1), relu()),
        "pool": nn.AdaptiveAvgPool2d(1),
        "flatten": nn.Flatten(),
        "dense": nn.Linear(64, 10),
        "softmax": nn.Softmax(dim=1),
    }.items():
        network.add_module(name, module)
    stored = {t.name: numpy_helper.to_array(t) for t in onnx.load(folder / "digits.onnx").graph.initializer}
    state = {}
    for key in network.state_dict():
        layer, role = key.rsplit(".", 1)
        state[key] = torch.from_numpy(np.array(stored[f"{layer.removesuffix('.0')}.{role}"]))
    network.load_state_dict(state)
    return network.eval()


def export(network: nn.Module, shape: tuple[int, ...], path: Path, **options: object) -> Path:
    """Writes the exported program of a network with one input."""
    return export_on(network, torch.zeros(shape), path, **options)


def export_on(network: nn.Module, sample: torch.Tensor, path: Path, **options: object) -> Path:
    """The same with an input of the sample's type."""
    torch.export.save(torch.export.export(network, (sample,), **options), path)
    return path

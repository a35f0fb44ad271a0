"""Networks for handwritten digits as lists of layers, from which PyTorch, Brevitas and Keras build the same one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

Array = np.ndarray
Weights = Mapping[str, Array]
DIGITS = Path(__file__).resolve().parents[2] / "tutorials" / "digits"
INPUT_SHAPE = (1, 1, 8, 8)
NUM_CALIBRATION = 32


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer of float32[N, C, H, W]; a dense one has rows, and follows a mean.

    stride: of a pool its window, too. adds: the result gets the values of so many layers before added, 1 for its input.
    """

    name: str
    kind: Literal["conv", "depthwise", "max_pool", "mean", "dense"]
    channels: int = 0
    kernel: int = 1
    stride: int = 1
    activation: Literal["", "relu", "relu6"] = ""
    adds: int = 0

    @property
    def has_weights(self) -> bool:
        return self.kind in ("conv", "depthwise", "dense")


def digits() -> list[Layer]:
    """The network of the tutorials, without its softmax."""
    return [
        Layer(name="stem", kind="conv", channels=16, kernel=3, activation="relu"),
        Layer(name="body", kind="conv", channels=40, kernel=3, activation="relu"),
        Layer(name="pool", kind="max_pool", stride=2),
        Layer(name="depthwise", kind="depthwise", channels=40, kernel=3, activation="relu"),
        Layer(name="pointwise", kind="conv", channels=64, activation="relu"),
        Layer(name="mean", kind="mean"),
        Layer(name="dense", kind="dense", channels=10),
    ]


def mobilenet() -> list[Layer]:
    """Inverted residuals with ReLU6, after MobileNetV2 (Sandler et al. 2018)."""
    layers = [Layer(name="stem", kind="conv", channels=16, kernel=3, activation="relu6")]
    for block, (channels, stride) in enumerate([(16, 1), (24, 2), (24, 1), (32, 2), (32, 1)]):
        before = layers[-1].channels
        layers += [
            Layer(name=f"expand{block}", kind="conv", channels=4 * before, activation="relu6"),
            Layer(
                name=f"depthwise{block}", kind="depthwise", channels=4 * before, kernel=3, stride=stride,
                activation="relu6",
            ),
            Layer(name=f"project{block}", kind="conv", channels=channels, adds=3 if before == channels else 0),
        ]  # fmt: skip
    last = Layer(name="last", kind="conv", channels=64, activation="relu6")
    return [*layers, last, Layer(name="mean", kind="mean"), Layer(name="dense", kind="dense", channels=10)]


def ds_cnn() -> list[Layer]:
    """Four depthwise separable blocks of 64 channels, after DS-CNN (Zhang et al. 2017)."""
    layers = [Layer(name="stem", kind="conv", channels=64, kernel=3, activation="relu")]
    for block in range(4):
        layers += [
            Layer(name=f"depthwise{block}", kind="depthwise", channels=64, kernel=3, activation="relu"),
            Layer(name=f"pointwise{block}", kind="conv", channels=64, activation="relu"),
        ]
    return [*layers, Layer(name="mean", kind="mean"), Layer(name="dense", kind="dense", channels=10)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """Layers with trained weights: `name.weight` as PyTorch has them, and `name.bias`."""

    title: str
    layers: Sequence[Layer]
    weights: Weights

    def torch_module(self) -> Any:
        """The network in PyTorch, in evaluation mode."""
        import torch

        module = torch_module(self.layers)
        module.load_state_dict({f"layers.{name}": torch.from_numpy(array) for name, array in self.weights.items()})
        return module.eval()


def torch_module(layers: Sequence[Layer], *, normalized: bool = False) -> Any:
    """The network in PyTorch with random weights: float32[N, 1, 8, 8] -> logits float32[N, 10].

    normalized: each convolution has a batch normalization behind it.
    """
    from torch import nn

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleDict()
            self.activations = nn.ModuleDict()
            channels = INPUT_SHAPE[1]
            for layer in layers:
                if layer.has_weights:
                    self.layers[layer.name] = _torch_layer(layer, channels, normalized=normalized)
                    channels = layer.channels
                if layer.activation:
                    self.activations[layer.name] = nn.ReLU() if layer.activation == "relu" else nn.ReLU6()

        def forward(self, image: Any) -> Any:
            values = [image]
            for layer in layers:
                value = values[-1]
                if layer.has_weights:
                    value = self.layers[layer.name](value)
                elif layer.kind == "max_pool":
                    value = nn.functional.max_pool2d(value, layer.stride)
                else:
                    value = nn.functional.adaptive_avg_pool2d(value, 1).flatten(1)
                if layer.activation:
                    value = self.activations[layer.name](value)
                values.append(value + values[-layer.adds] if layer.adds else value)
            return values[-1]

    return Layers()


def _torch_layer(layer: Layer, channels: int, *, normalized: bool) -> Any:
    from torch import nn

    if layer.kind == "dense":
        return nn.Linear(channels, layer.channels)
    groups = channels if layer.kind == "depthwise" else 1
    padding = layer.kernel // 2
    made = nn.Conv2d(channels, layer.channels, layer.kernel, layer.stride, padding=padding, groups=groups)
    return nn.Sequential(made, nn.BatchNorm2d(layer.channels)) if normalized else made


def tutorial_network() -> Network:
    """The digits with the weights of the tutorials, trained by `tutorials/train_digits.py`."""
    import onnx

    graph = onnx.load(DIGITS / "digits.onnx").graph
    weights = {tensor.name: np.array(onnx.numpy_helper.to_array(tensor)) for tensor in graph.initializer}
    named = {f"{layer.name}.{role}" for layer in digits() for role in ("weight", "bias")}
    kept = {name: array for name, array in weights.items() if name in named}
    return Network(title="digits", layers=digits(), weights=kept)


def trained(title: str, layers: Sequence[Layer], *, epochs: int = 12) -> Network:
    """A network trained on the digits that are not held out; fixed seeds, one thread."""
    import torch

    from tutorials.train_digits import SEED, split

    images, labels, *_ = split(SEED)
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    inputs, targets = torch.from_numpy(as_inputs(images)), torch.from_numpy(labels).long()
    module, batches = torch_module(layers, normalized=True), len(inputs) // 32
    optimizer = torch.optim.AdamW(module.parameters(), weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=epochs * batches)
    for _ in range(epochs):
        for chosen in torch.randperm(len(inputs))[: batches * 32].split(32):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(module(inputs[chosen]), targets[chosen]).backward()
            optimizer.step()
            schedule.step()
    for name, layer in module.eval().layers.items():
        if isinstance(layer, torch.nn.Sequential):
            module.layers[name] = torch.nn.utils.fusion.fuse_conv_bn_eval(*layer)
    weights = {name.removeprefix("layers."): value.numpy().copy() for name, value in module.state_dict().items()}
    return Network(title=title, layers=layers, weights=weights)


def as_inputs(images: Array) -> Array:
    """Grey levels uint8[N, 8, 8] of 0 to 16 as float32[N, 1, 8, 8]."""
    return (images / 16).astype(np.float32)[:, np.newaxis]


def calibration() -> Array:
    """Inputs for calibration, float32[N, 1, 8, 8]."""
    with np.load(DIGITS / "digits_calibration.npz", allow_pickle=False) as arrays:
        return arrays["image"][:NUM_CALIBRATION].reshape(-1, *INPUT_SHAPE[1:])


def held_out() -> tuple[Array, Array]:
    """Inputs that no training saw, float32[359, 1, 8, 8], and their labels."""
    with np.load(DIGITS / "digits_test.npz", allow_pickle=False) as arrays:
        return as_inputs(arrays["images"]), arrays["labels"]

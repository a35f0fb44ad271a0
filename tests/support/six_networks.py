"""Six int8 networks of different kinds as TensorFlow Lite files, for tests and benchmarks that go over all targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from tests.support.tflite_models import RELU6, Network, autoencoder, ds_cnn, resnet
from tests.support.tflite_state_models import lstm
from tests.support.tflite_transformer import encoder_block

_MOBILE_BLOCKS = ((1, 2), (2, 2), (1, 1), (2, 2), (1, 1), (2, 2), (1, 1), (1, 1), (2, 2), (1, 1))
"""Stride and growth of the channels of each depthwise-separable block."""


def mobilenet() -> bytes:
    """Model like MobileNetV1: depthwise-separable blocks whose channels grow where their images shrink."""
    net = Network(int8=True, seed=5)
    x = net.conv(net.input((1, 48, 48, 3)), 8, (3, 3), "stem", stride=(2, 2), activation=RELU6)
    channels = 8
    for block, (stride, growth) in enumerate(_MOBILE_BLOCKS):
        channels = min(128, channels * growth)
        x = net.depthwise(x, (3, 3), f"depthwise_{block}", stride=(stride, stride), activation=RELU6)
        x = net.conv(x, channels, (1, 1), f"pointwise_{block}", activation=RELU6)
    x = net.pool(x, net.shape(x)[1:3], "pool")
    x = net.dense(net.reshape(x, (-1, net.shape(x)[-1]), "flat"), 2, "logits")
    return net.writer.finish([net.softmax(x, "probabilities")])


SIX: Mapping[str, Callable[[], bytes]] = MappingProxyType(
    {
        "DS-CNN": lambda: ds_cnn(int8=True),
        "autoencoder": lambda: autoencoder(int8=True),
        "ResNet": lambda: resnet(int8=True),
        "MobileNetV1": mobilenet,
        "LSTM": lambda: lstm(int8=True, steps=10, channels=8, units=16),
        "transformer": lambda: encoder_block(int8=True, tokens=8, width=16, heads=2, activation="TANH"),
    }
)
"""Networks by name; weights are random."""

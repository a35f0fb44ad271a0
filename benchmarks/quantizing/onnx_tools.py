"""ONNX files of onnxruntime's quantizer and of Brevitas."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.quantizing.networks import INPUT_SHAPE, Network, calibration

Array = np.ndarray


def onnxruntime_file(network: Network, path: Path, form: str, activations: str, weights: str) -> None:
    """Write what quantize_static makes: form QDQ or QOperator, types as QuantType names them."""
    from onnxruntime import quantization as tools

    class Reader(tools.CalibrationDataReader):
        def __init__(self) -> None:
            self.samples = iter(calibration())

        def get_next(self) -> dict[str, Array] | None:
            return {"image": sample[np.newaxis]} if (sample := next(self.samples, None)) is not None else None

    with _float_file(network) as source:
        tools.quantize_static(
            source, path, Reader(), quant_format=tools.QuantFormat[form], per_channel=True,
            activation_type=tools.QuantType[activations], weight_type=tools.QuantType[weights],
            reduce_range=weights == "QUInt8",
        )  # fmt: skip


def onnxruntime_dynamic_file(network: Network, path: Path) -> None:
    """Write what quantize_dynamic makes: int8 weights by tensor, activations quantized at run time."""
    from onnxruntime import quantization as tools

    with _float_file(network) as source:
        tools.quantize_dynamic(source, path, weight_type=tools.QuantType.QInt8)


@contextmanager
def _float_file(network: Network) -> Iterator[Path]:
    """The network as PyTorch exports it, in a folder that is gone afterwards; warnings are left out."""
    import torch

    with tempfile.TemporaryDirectory(prefix="tvm_ext_") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = Path(folder) / "float.onnx"
        names = {"input_names": ["image"], "output_names": ["logits"]}
        torch.onnx.export(
            network.torch_module(), (torch.zeros(INPUT_SHAPE),), source, **names, opset_version=17, dynamo=False
        )
        yield source


def brevitas_file(network: Network, path: Path, weight_bits: int, activation_bits: int, *, in_integers: bool) -> None:
    """Write what Brevitas exports as QCDQ after calibration.

    in_integers: biases are int32 and the result is quantized; otherwise both are real numbers, Brevitas' own default.
    """
    import torch
    from brevitas.export import export_onnx_qcdq
    from brevitas.graph.calibrate import calibration_mode

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        module = _brevitas_module(network, weight_bits, activation_bits, in_integers=in_integers)
        with calibration_mode(module):
            module(torch.from_numpy(calibration()))
        sample = torch.zeros(INPUT_SHAPE)
        names = {"input_names": ["image"], "output_names": ["logits"]}
        export_onnx_qcdq(module, args=sample, export_path=str(path), opset_version=17, dynamo=False, **names)


def _brevitas_module(network: Network, weight_bits: int, activation_bits: int, *, in_integers: bool) -> Any:
    """The network of Brevitas' layers, in evaluation mode."""
    import torch
    from brevitas import nn as layers_of
    from brevitas import quant

    weights = {"weight_quant": quant.Int8WeightPerChannelFloat, "weight_bit_width": weight_bits}
    biases = {"bias_quant": quant.Int32Bias if in_integers else None}
    signed = {"act_quant": quant.Int8ActPerTensorFloat, "return_quant_tensor": True}
    unsigned = {"act_quant": quant.Uint8ActPerTensorFloat, "bit_width": activation_bits, "return_quant_tensor": True}
    spec = network.layers

    class Quantized(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = layers_of.QuantIdentity(**signed)
            self.layers, self.behind = torch.nn.ModuleDict(), torch.nn.ModuleDict()
            sums = None
            channels = INPUT_SHAPE[1]
            for index, layer in enumerate(spec):
                if layer.has_weights:
                    self.layers[layer.name] = _brevitas_layer(layers_of, layer, channels, weights | biases)
                    channels = layer.channels
                is_last = index == len(spec) - 1
                adds_next = any(other.adds and index == place - other.adds for place, other in enumerate(spec))
                if layer.activation == "relu6":
                    self.behind[layer.name] = torch.nn.Sequential(torch.nn.ReLU6(), layers_of.QuantIdentity(**unsigned))
                elif layer.activation:
                    self.behind[layer.name] = layers_of.QuantReLU(**unsigned)
                elif layer.kind == "mean" or (layer.has_weights and (in_integers or not is_last)):
                    # Both sides of a sum have one scale, Brevitas' condition for adding quantized tensors.
                    sums = layers_of.QuantIdentity(**signed) if sums is None or not layer.adds else sums
                    self.behind[layer.name] = sums if adds_next or layer.adds else layers_of.QuantIdentity(**signed)

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            values = [self.first(image)]
            for layer in spec:
                value = values[-1]
                if layer.has_weights:
                    value = self.layers[layer.name](value)
                elif layer.kind == "max_pool":
                    value = torch.nn.functional.max_pool2d(value, layer.stride)
                else:
                    value = torch.nn.functional.adaptive_avg_pool2d(_real(value), 1).flatten(1)
                if layer.name in self.behind:
                    value = self.behind[layer.name](_real(value) if layer.activation == "relu6" else value)
                if layer.adds:
                    value = self.behind[layer.name](_real(value) + _real(values[-layer.adds]))
                values.append(value)
            return _real(values[-1])

    module = Quantized()
    state = {f"layers.{name}": torch.from_numpy(array) for name, array in network.weights.items()}
    module.load_state_dict(state, strict=False)
    return module.eval()


def _real(value: Any) -> Any:
    """The tensor of a quantized one."""
    return value.value if hasattr(value, "value") else value


def _brevitas_layer(layers_of: Any, layer: Any, channels: int, quantizers: dict[str, Any]) -> Any:
    if layer.kind == "dense":
        return layers_of.QuantLinear(channels, layer.channels, bias=True, **quantizers)
    groups = channels if layer.kind == "depthwise" else 1
    padding = layer.kernel // 2
    return layers_of.QuantConv2d(
        channels, layer.channels, layer.kernel, layer.stride, padding=padding, groups=groups, bias=True, **quantizers
    )


def run_onnx(path: Path, inputs: Array) -> Array:
    """Logits by onnxruntime, float32[N, 10], one input at a time."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"image": one[np.newaxis]})[0] for one in inputs])

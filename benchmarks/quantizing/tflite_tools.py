"""TensorFlow Lite files of Keras' converter and of ai-edge-quantizer."""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.quantizing.networks import INPUT_SHAPE, Layer, Network, calibration

Array = np.ndarray


def keras_file(network: Network, path: Path, form: str) -> None:
    """Write what TFLiteConverter makes: form float, int8 (inputs and outputs too), 16x8, or dynamic."""
    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_keras_model(_keras_model(network))
    if form != "float":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if form in ("int8", "16x8"):
        converter.representative_dataset = lambda: ([channels_last(one[np.newaxis])] for one in calibration())
    if form == "int8":
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
    if form == "16x8":
        words = tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
        converter.target_spec.supported_ops = [words]
    with contextlib.redirect_stdout(io.StringIO()):
        path.write_bytes(converter.convert())


def _keras_model(network: Network) -> Any:
    """The network in Keras, float32[1, 8, 8, 1] -> float32[1, 10]."""
    import tensorflow as tf

    layers = tf.keras.layers
    values = [tf.keras.Input(_shape()[1:], batch_size=1, name="image")]
    for layer in network.layers:
        value = values[-1]
        if layer.has_weights:
            if layer.kernel > 1 and layer.stride > 1:  # Keras' own padding of strided layers is another one
                value = layers.ZeroPadding2D(layer.kernel // 2)(value)
            value = _keras_layer(layers, layer)(value)
        elif layer.kind == "max_pool":
            value = layers.MaxPool2D(layer.stride)(value)
        else:
            value = layers.GlobalAveragePooling2D()(value)
        if layer.activation:
            value = layers.ReLU(max_value=6.0 if layer.activation == "relu6" else None)(value)
        values.append(layers.Add()([value, values[-layer.adds]]) if layer.adds else value)
    model = tf.keras.Model(values[0], values[-1])
    for layer in network.layers:
        if layer.has_weights:
            weight, bias = network.weights[f"{layer.name}.weight"], network.weights[f"{layer.name}.bias"]
            axes = {"dense": (1, 0), "conv": (2, 3, 1, 0), "depthwise": (2, 3, 0, 1)}[layer.kind]
            model.get_layer(layer.name).set_weights([weight.transpose(axes), bias])
    return model


def _keras_layer(layers: Any, layer: Layer) -> Any:
    padding = "same" if layer.stride == 1 else "valid"
    if layer.kind == "dense":
        return layers.Dense(layer.channels, name=layer.name)
    if layer.kind == "depthwise":
        return layers.DepthwiseConv2D(layer.kernel, strides=layer.stride, padding=padding, name=layer.name)
    return layers.Conv2D(layer.channels, layer.kernel, strides=layer.stride, padding=padding, name=layer.name)


def ai_edge_file(network: Network, path: Path, form: str) -> None:
    """Write what ai-edge-quantizer makes of Keras' float file.

    form: one of its recipes by name, or `static_wi4_ai8`: int4 weights but of depthwise layers, int8 activations.
    """
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_quantizer import quantizer, recipe

    source = path.with_suffix(".float.tflite")
    keras_file(network, source, "float")
    ((signature, ports),) = Interpreter(str(source)).get_signature_list().items()
    samples = [{ports["inputs"][0]: channels_last(one[np.newaxis])} for one in calibration()]
    recipes = _int4_recipe(recipe.static_wi8_ai8()) if form == "static_wi4_ai8" else getattr(recipe, form)()
    with contextlib.redirect_stdout(io.StringIO()):
        tool = quantizer.Quantizer(str(source))
        tool.load_quantization_recipe(recipes)
        found = tool.calibrate({signature: samples}) if tool.need_calibration else None
        path.write_bytes(tool.quantize(found).quantized_model)
    source.unlink()


def _int4_recipe(recipes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A recipe of int8 with weights of 4 bits; depthwise layers keep 8, which the tool has no 4 for."""
    packed, whole = copy.deepcopy(recipes), copy.deepcopy(recipes)
    for one in packed:
        one["op_config"]["weight_tensor_config"]["num_bits"] = 4
    for one in whole:
        one["operation"] = type(one["operation"]).DEPTHWISE_CONV_2D
    return [*packed, *whole]


def run_tflite(path: Path, inputs: Array) -> Array:
    """Logits by LiteRT, float32[N, 10]; integer ports are quantized and dequantized here.

    Its reference kernels: XNNPACK's, which it takes by default, round otherwise than TensorFlow Lite defines.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    tool = Interpreter(str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    tool.allocate_tensors()
    (source,), (result,) = tool.get_input_details(), tool.get_output_details()
    return np.concatenate(list(_run(tool, source, result, inputs)))


def _run(tool: Any, source: Any, result: Any, inputs: Array) -> Iterator[Array]:
    for one in inputs:
        image = channels_last(one[np.newaxis])
        tool.set_tensor(source["index"], as_integers(image, source["dtype"], *source["quantization"]))
        tool.invoke()
        yield as_reals(tool.get_tensor(result["index"]), *result["quantization"])


def as_integers(values: Array, dtype: Any, scale: float, zero_point: int) -> Array:
    """Real numbers in steps of a port that is quantized, as they are for one that is not."""
    if np.dtype(dtype).kind == "f":
        return values
    limits = np.iinfo(dtype)
    return np.clip(np.rint(values / scale) + zero_point, limits.min, limits.max).astype(dtype)


def as_reals(values: Array, scale: float, zero_point: int) -> Array:
    """Real numbers of a port."""
    return values if values.dtype.kind == "f" else ((values.astype(np.int32) - zero_point) * scale).astype(np.float32)


def channels_last(images: Array) -> Array:
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1))


def _shape() -> tuple[int, ...]:
    batch, channels, rows, columns = INPUT_SHAPE
    return (batch, rows, columns, channels)

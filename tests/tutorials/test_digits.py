"""The committed digits network and its held-out images belong together and hide nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime


def test_network_is_right_on_held_out_images(digits: Path) -> None:
    held_out = np.load(digits / "digits_test.npz")
    images, labels = held_out["images"], held_out["labels"]
    assert images.dtype == np.uint8 and images.shape == (len(labels), 8, 8) and images.max() == 16
    session = onnxruntime.InferenceSession(digits / "digits.onnx", providers=["CPUExecutionProvider"])
    inputs = (images / 16).astype(np.float32).reshape(-1, 1, 1, 8, 8)
    guesses = [session.run(["probabilities"], {"image": image})[0].argmax() for image in inputs]
    assert np.mean(np.array(guesses) == labels) >= 0.97


def test_network_is_plain(digits: Path) -> None:
    model = onnx.load(digits / "digits.onnx")
    onnx.checker.check_model(model, full_check=True)
    names = [node.name for node in model.graph.node]
    assert len(set(names)) == len(names) and all(names)
    assert not model.functions and not model.metadata_props and not model.doc_string
    assert not any(node.doc_string or node.metadata_props for node in model.graph.node)

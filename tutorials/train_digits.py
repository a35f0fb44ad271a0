"""Train the small digits network of the demo and the tutorial, and write its ONNX file and held-out images.

    pip install "tvm-ext[train]"
    python tutorials/train_digits.py

Writes `digits/digits.onnx` (float32[1, 1, 8, 8] in, 10 probabilities out), `digits/digits_test.npz`
(images uint8[359, 8, 8], labels uint8[359]) and, for quantization, `digits/digits_calibration.npz` (100 of the
training images: image float32[100, 1, 1, 8, 8], labels uint8[100]). The data are the UCI handwritten digits in
scikit-learn. Their grey levels are 0 to 16, and the network expects them divided by 16. A fixed shuffle holds out one
fifth of the images, which training does not use. Seeds are fixed and training uses one thread, so two runs on the same
machine write the same file. The files are committed, so neither the demo nor the tests need torch.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from sklearn.datasets import load_digits
from torch import nn

FOLDER = Path(__file__).parent / "digits"
GREY_LEVELS = 16.0
SEED = 7
NUM_CALIBRATION = 100


class Digits(nn.Module):
    """Network of two convolutions, a depthwise-separable block, two pools and a dense layer: 9,634 fused parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(16, 40, 3, padding=1), nn.BatchNorm2d(40), nn.ReLU(), nn.MaxPool2d(2))
        self.depthwise = nn.Sequential(nn.Conv2d(40, 40, 3, padding=1, groups=40), nn.BatchNorm2d(40), nn.ReLU())
        self.pointwise = nn.Sequential(nn.Conv2d(40, 64, 1), nn.BatchNorm2d(64), nn.ReLU())
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.dense = nn.Linear(64, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the logits float32[N, 10] of images float32[N, 1, 8, 8]."""
        features = self.pointwise(self.depthwise(self.body(self.stem(image))))
        return self.dense(self.flatten(self.pool(features)))

    def fuse(self) -> None:
        """Fold each batch normalization into the convolution before it, as in deployed networks."""
        for block in (self.stem, self.body, self.depthwise, self.pointwise):
            block[0] = torch.nn.utils.fusion.fuse_conv_bn_eval(block[0], block[1])
            del block[1]


def split(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return training images and labels, and held-out images and labels. Images are uint8[N, 8, 8]."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    images, labels = images.reshape(-1, 8, 8).astype(np.uint8)[order], labels.astype(np.uint8)[order]
    held_out = len(labels) // 5
    return images[held_out:], labels[held_out:], images[:held_out], labels[:held_out]


def shift(batch: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Augment the data: move the whole batch by up to one pixel in each direction."""
    down, right = torch.randint(-1, 2, (2,), generator=generator).tolist()
    padded = nn.functional.pad(batch, (1, 1, 1, 1))
    return padded[:, :, 1 - down : 9 - down, 1 - right : 9 - right]


def train(images: np.ndarray, labels: np.ndarray, *, seed: int, epochs: int = 15) -> Digits:
    """Train with AdamW, a one-cycle learning rate and shuffled batches of 32, and return the fused network."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.from_numpy(images).unsqueeze(1) / GREY_LEVELS
    targets = torch.from_numpy(labels).long()
    network = Digits()
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=1e-3)
    batches = len(inputs) // 32
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=epochs * batches)
    for _ in range(epochs):
        order = torch.randperm(len(inputs), generator=generator)
        for chosen in order[: batches * 32].split(32):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(shift(inputs[chosen], generator)), targets[chosen])
            loss.backward()
            optimizer.step()
            schedule.step()
    network.eval()
    network.fuse()
    return network


def export(network: Digits) -> onnx.ModelProto:
    """Return the network with a final softmax as ONNX opset 17, batch 1, with short names and without metadata."""
    buffer = io.BytesIO()
    torch.onnx.export(
        nn.Sequential(network, nn.Softmax(dim=1)),
        (torch.zeros(1, 1, 8, 8),),
        buffer,
        input_names=["image"],
        output_names=["probabilities"],
        opset_version=17,
        dynamo=False,
    )
    model = onnx.load_from_string(buffer.getvalue())
    rename(model.graph)
    model.graph.name = "digits"
    model.producer_name, model.producer_version = "tutorials/train_digits.py", ""
    for text in ("doc_string", "metadata_props"):
        model.ClearField(text)
        for node in model.graph.node:
            node.ClearField(text)
    onnx.checker.check_model(model, full_check=True)
    return model


def rename(graph: onnx.GraphProto) -> None:
    """Shorten names: `/0/stem/stem.0/Conv` to `stem/Conv`, its result to `stem/Conv:0`, weights to `stem.weight`."""
    public = {value.name for value in (*graph.input, *graph.output)}
    names = {}
    for weight in graph.initializer:
        layer, role = weight.name.removeprefix("0.").rsplit(".", 1)
        names[weight.name] = f"{layer.removesuffix('.0')}.{role}"
        weight.name = names[weight.name]
    for node in graph.node:
        layer = next((part for part in node.name.split("/") if not part.isdigit() and part), "")
        node.name = node.op_type if layer == node.op_type else f"{layer}/{node.op_type}"
        for index, name in enumerate(node.output):
            names[name] = name if name in public else f"{node.name}:{index}"
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names[name] for name in node.output]
    del graph.value_info[:]


def main() -> None:
    """Train the network, export it, measure its accuracy on the held-out images, and write the files."""
    train_images, train_labels, test_images, test_labels = split(SEED)
    model = export(train(train_images, train_labels, seed=SEED))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    inputs = (test_images / GREY_LEVELS).astype(np.float32).reshape(-1, 1, 1, 8, 8)
    guesses = [int(np.argmax(session.run(None, {"image": image})[0])) for image in inputs]
    accuracy = float(np.mean(np.array(guesses) == test_labels))
    if accuracy < 0.97:
        raise SystemExit(f"accuracy on held-out images is {accuracy:.2%}, but must be at least 97 %; wrote no file")
    FOLDER.mkdir(exist_ok=True)
    onnx.save(model, str(FOLDER / "digits.onnx"))
    np.savez_compressed(FOLDER / "digits_test.npz", images=test_images, labels=test_labels)
    calibration = (train_images[:NUM_CALIBRATION] / GREY_LEVELS).astype(np.float32).reshape(-1, 1, 1, 8, 8)
    np.savez_compressed(FOLDER / "digits_calibration.npz", image=calibration, labels=train_labels[:NUM_CALIBRATION])
    print(f"{len(test_labels)} held-out images, {accuracy:.2%} correct; {len(model.SerializeToString())} B of ONNX")


if __name__ == "__main__":
    main()

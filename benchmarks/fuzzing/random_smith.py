"""Random valid models by NNSmith (Liu et al. 2023), as ONNX and as exported PyTorch programs; an extra installs it."""

from __future__ import annotations

import io
import random
import warnings
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx

OPSET = 17
_UNSUPPORTED = ("complex", "float16")


def is_installed() -> bool:
    return find_spec("nnsmith") is not None and find_spec("torch") is not None


def smith_onnx(seed: int, num_nodes: int) -> bytes | None:
    """A model as PyTorch exports it; None where one of its operators has no form in ONNX."""
    import torch

    network, inputs = _network(seed, num_nodes)
    if network is None:
        return None
    file = io.BytesIO()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its older exporter, which needs no further packages
            torch.onnx.export(
                network, inputs, file, input_names=list(network.input_like), output_names=list(network.output_like),
                opset_version=OPSET, dynamo=False,
            )  # fmt: skip
        onnx.checker.check_model(onnx.load_from_string(file.getvalue()))
    except Exception:  # what PyTorch cannot export
        return None
    return file.getvalue()


def smith_torch(seed: int, num_nodes: int) -> bytes | None:
    """A .pt2 file; None where PyTorch does not export the network."""
    import torch

    network, inputs = _network(seed, num_nodes)
    if network is None:
        return None
    with TemporaryDirectory(prefix="fuzz_") as name:
        path = Path(name) / "model.pt2"
        try:
            torch.export.save(torch.export.export(network, inputs), path)
        except Exception:
            return None
        return path.read_bytes()


def _network(seed: int, num_nodes: int) -> tuple[Any, tuple[Any, ...]]:
    """A module and inputs for it; (None, ()) where it computes in types that are refused, or the solver gave up."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from nnsmith.graph_gen import model_gen
        from nnsmith.materialize.onnx import ONNXModel
        from nnsmith.materialize.torch.symbolnet import SymbolNet

    random.seed(seed)
    np.random.seed(seed % (1 << 32))
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    try:
        generated = model_gen(opset=ONNXModel.operators(), seed=seed, max_nodes=num_nodes, timeout_ms=20_000)
        graph = generated.make_concrete()
        if any(word in str(value.dtype) for value in graph.vars.values() for word in _UNSUPPORTED):
            return None, ()
        torch.manual_seed(seed)
        network = SymbolNet(graph).eval()
        network.debug_numeric = lambda tensors: None  # it asks what no exporter can answer
        values = network.get_random_inps()
        return network, tuple(values[name] for name in network.input_like)
    except Exception:  # its solver's and PyTorch's errors have no common base
        return None, ()

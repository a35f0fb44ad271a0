"""Exported programs of PyTorch that PT2E quantization made, by torchao with three quantizers."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.quantizing.networks import INPUT_SHAPE, Network, calibration

Array = np.ndarray


def pt2e_file(network: Network, path: Path, quantizer: str) -> None:
    """Write the program of a network; quantizer: XNNPACK, Cortex-M (both of ExecuTorch) or x86 (torchao's)."""
    import torch
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    def image(array: Array) -> Any:
        return torch.from_numpy(array.reshape(INPUT_SHAPE)).to(memory_format=torch.channels_last)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = network.torch_module().to(memory_format=torch.channels_last)  # Cortex-M quantizes no other
        sample = (image(np.zeros(INPUT_SHAPE, np.float32)),)
        exported = torch.export.export(module, sample).module(check_guards=False)
        prepared = prepare_pt2e(exported, _quantizer(quantizer))
        for one in calibration():
            prepared(image(one))
        torch.export.save(torch.export.export(convert_pt2e(prepared), sample), path)


def _quantizer(name: str) -> Any:
    if name == "Cortex-M":
        from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer

        return CortexMQuantizer()
    if name == "XNNPACK":
        from executorch.backends.xnnpack.quantizer import xnnpack_quantizer

        config = xnnpack_quantizer.get_symmetric_quantization_config(is_per_channel=True)
        return xnnpack_quantizer.XNNPACKQuantizer().set_global(config)
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer

    config = x86_inductor_quantizer.get_default_x86_inductor_quantization_config()
    return x86_inductor_quantizer.X86InductorQuantizer().set_global(config)


def run_torch(path: Path, inputs: Array) -> Array:
    """Logits by PyTorch, float32[N, 10], one input at a time."""
    import torch

    module = torch.export.load(path).module(check_guards=False)
    with torch.no_grad():
        return np.concatenate([module(torch.from_numpy(one[np.newaxis])).numpy() for one in inputs])

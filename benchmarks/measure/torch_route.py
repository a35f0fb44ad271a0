"""Build a network of a PyTorch library on one route in a child process, and compare the C with the module's results."""

from __future__ import annotations

import re
import resource
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PLATFORM = "host"
_SEEDS = (1, 2)


def prepare() -> None:
    """Import all that `built` needs."""
    from benchmarks.networks.torch_libraries import import_libraries

    import_libraries()
    for name in ("onnxscript", "torch.onnx", "tvm_ext.building.build", "tvm_ext.verification.reference_runtimes.ask"):
        import_module(name)


def built(name: str, route: str) -> dict[str, Any]:
    """Return the figures of a network on a route, or why it was refused (`refused`) or is wrong (`failed`)."""
    import torch

    import tvm_ext
    from benchmarks.networks.torch_libraries import NETWORKS
    from tvm_ext.core.errors import TvmExtError, VerificationFailed

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    network = NETWORKS[name]
    module = network.module()
    figures: dict[str, Any] = {"parameters": sum(one.numel() for one in module.parameters())}
    with TemporaryDirectory(prefix="tvm_ext_bench_") as folder:
        path = Path(folder) / ("model.pt2" if route == "export" else "model.onnx")
        try:
            _export(module, network.samples(_SEEDS[0]), path)
        except Exception as error:  # exporters raise anything
            return {**figures, "not_exported": f"{type(error).__name__}: {_line(error, folder)}"}
        begin = _cpu_s()
        try:
            mod = tvm_ext.load(path)
            if route == "export":
                figures["same_in_memory"] = _is_same_in_memory(module, network.samples(_SEEDS[0]), mod)
            package = tvm_ext.build(mod, PLATFORM, Path(folder) / "out")
        except VerificationFailed as error:
            return {**figures, "failed": _line(error, folder)}
        except TvmExtError as error:
            return {**figures, "refused": _line(error, folder)}
        report = package.report
        return {
            **figures, "reference": report["verify"]["host"]["reference"],
            "error": _largest_error(module, [network.samples(seed) for seed in _SEEDS], package),
            "arena_bytes": report["arena_bytes"], "macs": report["macs"],
            "seconds": round(_cpu_s() - begin, 1),
        }  # fmt: skip


def _export(module: Any, inputs: tuple[Any, ...], path: Path) -> None:
    import torch

    if path.suffix == ".pt2":
        torch.export.save(torch.export.export(module, inputs), path)
    else:
        torch.onnx.export(module, inputs, path, dynamo=True, external_data=False, verbose=False)


def _is_same_in_memory(module: Any, inputs: tuple[Any, ...], mod: Any) -> bool:
    """Return True if the module in memory is read as the same Relax module as its file."""
    import tvm_ffi

    import tvm_ext

    held = tvm_ext.load(module, example_inputs=inputs)
    return bool(tvm_ffi.structural_equal(held["main"], mod["main"], map_free_vars=True))


def _largest_error(module: Any, samples: Sequence[tuple[Any, ...]], package: Any) -> float:
    """Return the largest difference of the package's results from the module's, relative to the largest result."""
    import numpy as np
    import torch

    worst = 0.0
    for sample in samples:
        with torch.no_grad():
            wanted = [value.numpy() for value in torch.utils._pytree.tree_leaves(module(*sample))]
        named = {name: value.numpy() for name, value in zip(package.inputs, sample, strict=True)}
        for ours, theirs in zip(package.run(named).values(), wanted, strict=True):
            largest = float(np.abs(theirs).max()) or 1.0
            worst = max(worst, float(np.abs(ours.astype(np.float64) - theirs).max()) / largest)
    return float(f"{worst:.1e}")


def _line(error: Exception, folder: str) -> str:
    text = " ".join(str(error).replace(f"{folder}/", "").split())
    return re.sub(r"/\S*tvm_ext_models_\S*/", "", text)[:600]


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)

"""Block of documents on RISC-V's vectors: a view of `benchmarks/results/riscv_vectors.json`."""

from __future__ import annotations

from benchmarks.measure.block_parts import result
from benchmarks.measure.tables import table

NETWORKS = {"kws_int8": "DS-CNN (`kws_int8`)", "resnet_int8": "ResNet-8 (`resnet_int8`)"}


def riscv_vectors() -> str:
    """Executed instructions and vector registers worked on, by network and platform."""
    rows: list[tuple[str, ...]] = []
    for network, platforms in result("riscv_vectors")["networks"].items():
        for index, (platform, one) in enumerate(platforms.items()):
            registers = f"{one['vector_registers'] / one['macs']:.2f}" if one["vector_registers"] else "-"
            rows.append(
                (
                    "" if index else NETWORKS[network], f"`{platform}`", f"{one['instructions']:,}",
                    f"{one['instructions_per_mac']:.2f}", registers, f"{one['code_bytes']:,}",
                    f"{one['estimated_cycles']:,}", f"{one['modelled_by_executed']:.2f}",
                )
            )  # fmt: skip
    heads = (
        "network", "platform", "instructions", "per multiply-add", "registers per multiply-add", "code, B",
        "cycles, estimated", "modelled / executed",
    )  # fmt: skip
    return table(heads, rows)

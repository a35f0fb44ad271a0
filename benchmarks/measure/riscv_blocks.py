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


def coral_npu() -> str:
    """Networks on the Coral NPU: executed instructions, estimated cycles, and bytes of each memory."""
    rows: list[tuple[str, ...]] = []
    for network, forms in result("coral_npu")["networks"].items():
        for index, (form, one) in enumerate(forms.items()):
            rows.append(
                (
                    "" if index else f"`{network}`", form, f"{one['instructions']:,}",
                    f"{one['instructions'] / one['macs']:.2f}", f"{one['estimated_cycles']:,}",
                    f"{one['code_bytes']:,}", f"{one['memories']['dtcm']:,}", f"{one['memories']['sram']:,}",
                    f"{one['memories']['flash']:,}",
                )
            )  # fmt: skip
    port = result("coral_npu")["published"]
    rows.append(
        (
            "the first network, published port", "", f"{port['instructions']:,}", "", "", "", "", "", "",
        )
    )  # fmt: skip
    heads = (
        "network", "`--optimize`", "instructions", "per multiply-add", "cycles, estimated", "code, B", "DTCM, B",
        "RAM outside, B", "flash, B",
    )  # fmt: skip
    return table(heads, rows)

"""Firmware on QEMU boards: outputs, executed instructions, stack, faults."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from codegen_c.emit.firmware import emit_firmware, instruction_shift, qemu_arguments
from tests.boards.toy import EXPONENT, build_elf, write_loop, write_toy
from tests.support.onnx_models import NODE, model_of, saved, weights
from tvm_ext.core.errors import BadInput, BadPlatform, DoesNotFit, RunFailed
from tvm_ext.core.platform import Platform
from tvm_ext.execution.board import run_qemu
from tvm_ext.execution.host_model import run_host

pytestmark = pytest.mark.board


@pytest.mark.parametrize("io", ["arena", "caller"])
def test_outputs_of_every_sample_come_back(board: Platform, tmp_path: Path, io) -> None:
    toy = write_toy(tmp_path, board, io=io)
    elf = build_elf(tmp_path, board, tmp_path / "build")
    samples = [{name: value * scale for name, value in toy.sample.items()} for scale in np.float32([1, 3, -1])]
    result = run_qemu(elf, board, toy.interface, samples)
    for sample, outputs in zip(samples, result.outputs, strict=True):
        x = sample["in:0 */ ??/"].ravel()
        np.testing.assert_allclose(outputs["out"], np.maximum(2 * x + 1, 0), rtol=1e-6)


def test_libm_on_the_board_agrees_with_the_host(board: Platform, tmp_path: Path) -> None:
    toy = write_toy(tmp_path, board, body=EXPONENT)
    elf = build_elf(tmp_path, board, tmp_path / "build")
    on_board = run_qemu(elf, board, toy.interface, [toy.sample]).outputs[0]["out"]
    on_host = run_host(tmp_path, toy.interface, [toy.sample])[0]["out"]
    assert np.abs(on_board - on_host).max() <= 1e-5 * np.abs(on_host).max()


@pytest.mark.parametrize("iterations", [1, 2, 12_345, 1_000_003])
def test_instructions_of_a_known_loop_are_exact(board: Platform, tmp_path: Path, iterations: int) -> None:
    toy = write_toy(tmp_path, board)
    executed = write_loop(toy, iterations)
    elf = build_elf(tmp_path, board, tmp_path / "build")
    results = [run_qemu(elf, board, toy.interface, [toy.sample]) for _ in range(2)]
    assert [result.instructions for result in results] == [executed, executed]
    assert results[0].stack_bytes == 0


def test_instructions_are_exact_past_the_end_of_the_timer(cortex_m4: Platform, tmp_path: Path, monkeypatch) -> None:
    # At shift 10 an instruction takes 25.6 ticks, so 32 bits are full after 168 million of them.
    monkeypatch.setattr("tvm_ext.execution.board.instruction_shift", lambda _: 10)
    toy = write_toy(tmp_path, cortex_m4)
    executed = write_loop(toy, 90_000_000)
    elf = build_elf(tmp_path, cortex_m4, tmp_path / "build")
    assert run_qemu(elf, cortex_m4, toy.interface, [toy.sample]).instructions == executed


def test_an_unresolvable_clock_is_not_reported_as_a_count(cortex_m4: Platform, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tvm_ext.execution.board.instruction_shift", lambda _: 6)
    toy = write_toy(tmp_path, cortex_m4)
    elf = build_elf(tmp_path, cortex_m4, tmp_path / "build")
    with pytest.raises(RunFailed, match="did not report instructions"):
        run_qemu(elf, cortex_m4, toy.interface, [toy.sample])


def test_stack_is_the_high_water_mark(board: Platform, tmp_path: Path) -> None:
    marks = []
    for words in (64, 564):
        folder = tmp_path / str(words)
        toy = write_toy(folder, board, prologue=_local_array(words))
        elf = build_elf(folder, board, folder / "build")
        marks.append(run_qemu(elf, board, toy.interface, [toy.sample]).stack_bytes)
    assert marks[1] - marks[0] == 2000
    assert 256 <= marks[0] <= 320


def test_stack_overflow_is_an_error(board: Platform, tmp_path: Path) -> None:
    toy = write_toy(tmp_path, board, prologue=_local_array(4200))
    elf = build_elf(tmp_path, board, tmp_path / "build")
    with pytest.raises(RunFailed, match=r"stack overflow|FAULT UsageFault|FAULT HardFault"):
        run_qemu(elf, board, toy.interface, [toy.sample])


def test_a_fault_says_where(board: Platform, tmp_path: Path) -> None:
    toy = write_toy(tmp_path, board, prologue='    __asm__ volatile("udf #0");')
    elf = build_elf(tmp_path, board, tmp_path / "build")
    with pytest.raises(RunFailed, match=r"exit 1.*\n(.*\n)*FAULT HardFault pc=0x0000[0-9a-f]{4} cfsr=0x00010000"):
        run_qemu(elf, board, toy.interface, [toy.sample])


def test_a_run_without_end_meets_the_time_limit(cortex_m4: Platform, tmp_path: Path) -> None:
    toy = write_toy(tmp_path, cortex_m4, prologue='    for (;;) { __asm__ volatile(""); }')
    (tmp_path / "toy.c").write_text((tmp_path / "toy.c").read_text().split("\n    for (int32_t i")[0] + "\n}\n")
    elf = build_elf(tmp_path, cortex_m4, tmp_path / "build")
    with pytest.raises(RunFailed, match="did not end within 2 s"):
        run_qemu(elf, cortex_m4, toy.interface, [toy.sample], time_limit_s=2)


def test_a_status_other_than_zero_is_an_error(cortex_m4: Platform, tmp_path: Path) -> None:
    toy = write_toy(tmp_path, cortex_m4)
    _replace(tmp_path / "toy.c", "return 0;", "return 3;")
    elf = build_elf(tmp_path, cortex_m4, tmp_path / "build")
    with pytest.raises(RunFailed, match="returned an error"):
        run_qemu(elf, cortex_m4, toy.interface, [toy.sample])


def test_inputs_are_checked_before_qemu_starts(cortex_m4: Platform, tmp_path: Path) -> None:
    toy = write_toy(tmp_path, cortex_m4)
    with pytest.raises(BadInput, match="no samples"):
        run_qemu(tmp_path / "absent.elf", cortex_m4, toy.interface, [])
    with pytest.raises(BadInput, match="is missing"):
        run_qemu(tmp_path / "absent.elf", cortex_m4, toy.interface, [{}])


@pytest.mark.parametrize("io", ["arena", "caller"])
def test_firmware_that_reads_other_inputs(cortex_m4: Platform, tmp_path: Path, io) -> None:
    """Another build of a model of this name: more bytes than it reads, and outputs that could be this model's."""
    toy = write_toy(tmp_path, cortex_m4, io=io)
    elf = build_elf(tmp_path, cortex_m4, tmp_path / "build")
    (port,) = toy.interface.inputs
    other = replace(toy.interface, inputs=(replace(port, shape=(3, 4)),))
    with pytest.raises(RunFailed, match="the input file does not have the size of this model's inputs"):
        run_qemu(elf, cortex_m4, other, [{port.source: np.zeros((3, 4), np.float32)}])


def test_the_self_test_passes_and_fails(board: Platform, tmp_path: Path) -> None:
    for name, body, code, said in (
        ("good", "output[i] = input[i] > -0.5f ? 2.0f * input[i] + 1.0f : 0.0f;", 0, "PASS"),
        ("bad", "output[i] = i == 5 ? 0.0f : 2.0f * fmaxf(input[i], -0.5f) + 1.0f;", 1, "element=5 differing=1"),
    ):
        write_toy(tmp_path / name, board, body=body)
        elf = build_elf(tmp_path / name, board, tmp_path / name / "build")
        done = _boot_without_arguments(elf, board)
        assert done.returncode == code, done.stderr
        assert said in done.stdout + done.stderr


def test_a_memory_of_its_own_is_zeroed_and_placed(tmp_path: Path) -> None:
    platform = Platform.load("cortex_m55")
    assert platform.memory("sram").section == ".bss.sram"
    count = '    static int32_t runs __attribute__((section(".bss.sram")));\n    runs++;\n'
    toy = write_toy(tmp_path, platform, section=".bss.sram", prologue=count, body="output[i] = (float)runs;")
    elf = build_elf(tmp_path, platform, tmp_path / "build")
    # One warm-up and one measured run after a start that zeroed the counter.
    assert run_qemu(elf, platform, toy.interface, [toy.sample]).outputs[0]["out"].tolist() == [2.0] * 8
    symbols = subprocess.run(["arm-none-eabi-nm", str(elf)], capture_output=True, text=True, check=True).stdout
    addresses = {line.split()[2]: int(line.split()[0], 16) for line in symbols.splitlines()}
    sram = platform.memory("sram")
    assert sram.address <= addresses["output"] < sram.address + sram.capacity_bytes


def test_constants_in_rom_and_ram_memories_are_there_at_start(cortex_m4: Platform, tmp_path: Path) -> None:
    flash, sram = cortex_m4.memories
    qspi = replace(flash, name="qspi", section=".rodata.qspi", address=0x2100_0000, capacity_bytes=0x1000)
    fast = replace(sram, name="fast", section=".fast", address=0x2020_0000, capacity_bytes=0x1000)
    sram = replace(sram, capacity_bytes=0x20_0000)
    flash = replace(flash, capacity_bytes=0x20_0000)
    qspi = replace(qspi, address=0x0020_0000)
    platform = replace(cortex_m4, memories=(flash, sram, qspi, fast), weights="fast")
    tables = (
        '    static const float slow[8] __attribute__((section(".rodata.qspi"))) = {1, 2, 3, 4, 5, 6, 7, 8};\n'
        '    static const float near[8] __attribute__((section(".fast"))) = {8, 7, 6, 5, 4, 3, 2, 1};\n'
        "    const volatile float *const a = slow;\n    const volatile float *const b = near;\n"
    )
    toy = write_toy(tmp_path, platform, prologue=tables, body="output[i] = a[i] * b[i];")
    elf = build_elf(tmp_path, platform, tmp_path / "build")
    product = [8.0, 14.0, 18.0, 20.0, 20.0, 18.0, 14.0, 8.0]
    assert run_qemu(elf, platform, toy.interface, [toy.sample]).outputs[0]["out"].tolist() == product


def test_a_memory_too_small_is_named_with_the_bytes_that_are_missing(cortex_m4: Platform, tmp_path: Path) -> None:
    flash, sram = cortex_m4.memories
    platform = replace(cortex_m4, memories=(flash, replace(sram, capacity_bytes=16384 + 32)))
    write_toy(tmp_path, platform)
    with pytest.raises(DoesNotFit, match=r"^toy\.elf: sram is (\d+) B too small for the firmware: ") as error:
        build_elf(tmp_path, platform, tmp_path / "build")
    missing = int(str(error.value).split(" B too small")[0].split()[-1])
    enough = replace(platform, memories=(flash, replace(sram, capacity_bytes=16384 + 32 + missing)))
    write_toy(tmp_path, enough)
    assert build_elf(tmp_path, enough, tmp_path / "build").is_file()


def test_a_flash_too_small_for_the_code(cortex_m4: Platform, tmp_path: Path) -> None:
    """Its weights alone would fit; the plan does not know of code."""
    flash, sram = cortex_m4.memories
    platform = replace(cortex_m4, memories=(replace(flash, capacity_bytes=4096), sram))
    path = saved(
        model_of([NODE("Conv", ["x", "w"], ["y"])], {"x": (1, 3, 8, 8)}, ["y"], {"w": weights(8, 3, 3, 3)}), tmp_path
    )
    with pytest.raises(DoesNotFit, match=r"^small\.elf: flash is \d+ B too small"):
        tvm_ext.build(tvm_ext.load(path), platform, tmp_path / "out", tvm_ext.BuildOptions(verify=()))
    assert not (tmp_path / "out").exists()


def test_a_stack_larger_than_its_memory_is_refused(cortex_m4: Platform, host: Platform, tmp_path: Path) -> None:
    toy = write_toy(tmp_path, host)
    assert cortex_m4.board
    platform = replace(cortex_m4, board=replace(cortex_m4.board, stack_bytes=0x40_0000))
    with pytest.raises(BadPlatform, match=r"stack_bytes = 4194304: does not fit into sram"):
        emit_firmware(toy.interface, platform)
    with pytest.raises(BadPlatform, match="host has no"):
        emit_firmware(toy.interface, host)


def test_a_timer_too_slow_to_count_is_refused(cortex_m4: Platform) -> None:
    assert cortex_m4.board
    with pytest.raises(BadPlatform, match="timer_hz = 32768: the timer is too slow"):
        instruction_shift(replace(cortex_m4.board, timer_hz=32768))
    assert instruction_shift(replace(cortex_m4.board, timer_hz=2_000_000)) == 10


def _local_array(words: int) -> str:
    """C that touches every word of an array on the stack."""
    touch = f"for (int32_t w = 0; w < {words}; w++) {{ local[w] = 1; }}"
    return f"    volatile int32_t local[{words}];\n    {touch}\n    (void)local[0];"


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def _boot_without_arguments(elf: Path, platform: Platform) -> subprocess.CompletedProcess[str]:
    assert platform.board
    arguments = qemu_arguments(platform, shift=instruction_shift(platform.board))
    command = ["qemu-system-arm", *arguments, "-semihosting-config", "enable=on,target=native", "-kernel", str(elf)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)

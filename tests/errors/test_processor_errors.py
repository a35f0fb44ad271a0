"""Platforms of several processors that contradict themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.errors.test_platform_errors import platform_file
from tests.support.core_platforms import host_cores, with_own_memory
from tvm_ext.core.errors import BadPlatform
from tvm_ext.core.platform import Platform

MORE = """\
[[processors]]
name = "helper"
isa = "host"
clock_hz = 2_000_000
watts = 0.5
flags = ["-O1"]
[[processors]]
name = "npu"
isa = "npu"
clock_hz = 1_000_000
kind = "offload"
[processors.offload]
header = "npu_driver.h"
wait = "npu_wait"
[[processors.offload.operators]]
kind = "conv2d"
types = ["int8"]
start = "npu_conv2d"
most_shape = [1, 64, 64, 256]
most_kernel = [3, 3]
cycles_per_call = 100
cycles_per_mac = 0.125
[[signals]]
source = "cpu"
target = "helper"
kind = "mailbox"
set_address = 0x5000_3004
status_address = 0x5000_3000
clear_address = 0x5000_3008
latency_cycles = 20
[[signals]]
source = "helper"
target = "cpu"
kind = "interrupt"
set_address = 0x5000_4004
clear_address = 0x5000_4008
interrupt = 6
"""


def load(folder: Path, old: str = "", new: str = "") -> Platform:
    """The platform of the other tests with a second core and an accelerator, its first `old` replaced."""
    return Platform.load(platform_file(folder, old, new, more=MORE))


def test_the_good_one_says_all(tmp_path: Path) -> None:
    platform = load(tmp_path)
    cpu, helper, npu = platform.processors
    assert (cpu.kind, helper.flags, helper.watts, npu.kind) == ("core", ("-O1",), 0.5, "offload")
    assert npu.offload and npu.offload.operators[0].most_shape == (1, 64, 64, 256)
    there = platform.signal_between("cpu", "helper")
    assert there and (there.kind, there.latency_cycles) == ("mailbox", 20)
    assert platform.signal_between("cpu", "npu") is None
    assert Platform.from_json(platform.to_json()) == platform


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'name = "cpu"',
            'name = "cpu"\nkind = "offload"',
            r"processors\.cpu: the first processor runs .* a core first",
        ),
        ('name = "cpu"', 'name = "cpu"\nkind = "gpu"', r"processors\[0\]\.kind = 'gpu': .*'core', 'offload' or 'tvm'"),
        ('flags = ["-O1"]', 'flags = ["-o/etc/passwd"]', r"processors\[1\]\.flags\[0\] = '-o/etc/passwd'"),
        ("watts = 0.5", "watts = -1", r"processors\[1\]\.watts = -1"),
        ('kind = "offload"\n', "", r"processors\.npu\.offload: is the driver of an accelerator"),
        ("watts = 0.5", 'kind = "offload"', r"processors\.helper: an offload needs its driver; add a \[processors"),
        ('isa = "npu"', 'isa = "npu"\nfpu = "single"', r"processors\.npu: simd, fpu and flags are of code"),
        ('isa = "npu"', 'isa = "npu"\nflags = ["-O1"]', r"processors\.npu: simd, fpu and flags are of code"),
        ('"npu_driver.h"', '"../../evil.h"', r"processors\[2\]\.offload\.header = '\.\./\.\./evil\.h'"),
        ('"npu_driver.h"', '"a.h>\\n#include <b.h"', r"processors\[2\]\.offload\.header"),
        ('"npu_wait"', '"system(0);"', r"processors\[2\]\.offload\.wait = 'system\(0\);'"),
        ('"npu_wait"', '"while"', r"processors\.npu\.offload\.wait = 'while': is a word of C"),
        ('"npu_conv2d"', '"tvm_ext_run"', r"offload\.operators\[0\]\.start = 'tvm_ext_run': is a word of C, or"),
        ('"npu_conv2d"', '"npu_wait"', r"offload\.operators\[0\]\.start = 'npu_wait': another function has that name"),
        ('types = ["int8"]', 'types = ["int8", "float32"]', r"operators\[0\]\.types: layers of floats come with other"),
        (
            "cycles_per_call = 100",
            'cycles_per_call = 100\n[[processors.offload.operators]]\nkind = "conv2d"\ntypes = ["float32"]\n'
            'start = "npu_conv2d"\nmost_shape = [1, 8, 8, 8]',
            r"operators\[1\]\.start = 'npu_conv2d': another function has that name; each takes arguments of its own",
        ),
        ('kind = "conv2d"', 'kind = "magic"', r"offload\.operators\[0\]\.kind = 'magic'"),
        ('types = ["int8"]', 'types = ["int4"]', r"offload\.operators\[0\]\.types\[0\] = 'int4'"),
        ('types = ["int8"]', "types = []", r"offload\.operators\[0\]\.types = \[\]"),
        ("most_shape = [1, 64,", "most_shape = [1, 0,", r"offload\.operators\[0\]\.most_shape\[1\] = 0"),
        ("cycles_per_mac", "macs", r"operators\[0\]\.macs: unknown key; allowed here: .*cycles_per_mac"),
        ('npu_wait"', 'npu_wait"\nspeed = 1', r"offload\.speed: unknown key; allowed here: header, wait, operators"),
        ('target = "helper"', 'target = "npu"', r"signals\[0\]\.target = 'npu' is no core: cpu, helper"),
        ('target = "helper"', 'target = "cpu"', r"signals\[0\]\.target = 'cpu' is its source"),
        (
            'source = "helper"\ntarget = "cpu"',
            'source = "cpu"\ntarget = "helper"',
            r"signals\[1\]: from cpu to helper there is a signal already",
        ),
        ("status_address = 0x5000_3000\n", "", r"signals\[0\]\.status_address: is missing; kind = 'mailbox' needs it"),
        ("interrupt = 6\n", "", r"signals\[1\]\.interrupt: is missing; kind = 'interrupt' needs it"),
        ('kind = "mailbox"\n', "", r"signals\[0\]\.set_address = \d+: kind = 'event' has none; leave it out"),
        ("0x5000_3004", "0x5000_3005", r"signals\[0\]\.set_address = 0x50003005: is not the address of a word"),
        ("0x5000_3004", "0x1_0000_0000", r"signals\[0\]\.set_address = 0x100000000: is not the address of a word"),
        (
            "latency_cycles = 20",
            "latency = 20",
            r"signals\[0\]\.latency: unknown key; allowed here: source, target, kind",
        ),
    ],
)
def test_broken_processors(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(BadPlatform, match=message):
        load(tmp_path, old, new)


def test_two_cores_need_two_stacks(tmp_path: Path) -> None:
    shipped = Path(str(Path(__file__).parents[2] / "tvm_ext" / "platforms" / "dual_m33_equal.toml"))
    text = shipped.read_text(encoding="utf-8") + "stack_bytes = 0x4_0000\n"
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    with pytest.raises(BadPlatform, match=r"board\.stack_bytes = 262144: 2 of them do not fit into sram of 524288 B"):
        Platform.load(tmp_path / "mine.toml")


@pytest.mark.parametrize("name", ["dual_m33", "dual_m33_equal"])
def test_shipped_platforms_of_two_cores(name: str) -> None:
    platform = Platform.load(name)
    first, second = (processor.name for processor in platform.processors)
    assert platform.signal_between(first, second) and platform.signal_between(second, first)
    assert (platform.processor.simd == "dsp") == (name == "dual_m33_equal") == (not platform.processors[1].flags)
    assert platform.processors[1].simd == "dsp"


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("activations", r"activations = 'own': cpu, the first processor, does not reach own; add a \[\[links\]\]"),
        ("weights", r"weights = 'own': cpu, the first processor, does not reach own; add"),
        ("retained", r"memories.own.retained = true: cpu, the first processor, does not reach own; add"),
    ],
)
def test_what_the_first_processor_needs_is_not_in_the_memory_of_another(key: str, said: str) -> None:
    platform = with_own_memory(host_cores(1_000_000, 1_000_000), "cpu1", capacity_bytes=1 << 12)
    table = json.loads(platform.to_json())
    if key == "retained":
        table["memories"][-1]["retained"] = True
    else:
        table[key] = "own"
    with pytest.raises(BadPlatform, match=said):
        Platform.from_json(json.dumps(table))

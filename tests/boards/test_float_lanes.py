"""Vectors of 8 floats: each form gives the bits of plain C, for extreme numbers too, and networks run fast with it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from codegen_c.targets.registry import instruction_sets
from tests.support.packages import Packages, sample
from tests.support.sweeps import some_rows
from tvm_ext import BuildOptions

COMMON = Path(__file__).parents[2] / "codegen_c" / "runtime"
PLAIN = ("gcc", "-O2", "-mfma", "-mno-avx2")
"""The host's compiler, for plain C with fused multiply-adds."""
TESTED = """
#include <stdio.h>
#include "tvm_ext_f32x8.h"

static const float numbers[8] = {0.0f, -0.0f, 1.5f, -2.1f, 3.0e38f, -1.0e-45f, INFINITY, NAN};

static void show(const char *name, tvm_ext_f32x8 value)
{
    float lane[9] = {0.0f};
    tvm_ext_f32x8_store(&lane[1], value);
    printf("%s", name);
    for (int i = 1; i < 9; ++i) {
        uint32_t bits;
        (void)memcpy(&bits, &lane[i], sizeof bits);
        printf(lane[i] != lane[i] ? " nan" : " %08x", (unsigned)bits);
    }
    printf("\\n");
}

int main(void)
{
    const tvm_ext_f32x8 a = tvm_ext_f32x8_load(numbers);
    for (int shift = 0; shift < 8; ++shift) {
        float turned[9], powers[8];
        for (int i = 0; i < 8; ++i) {
            const int32_t bits = 0x4b400000 + i - shift; /* 1.5 * 2^23 and a whole number in the lowest bits */
            turned[i + 1] = numbers[(i + shift) % 8];
            (void)memcpy(&powers[i], &bits, sizeof bits);
        }
        const tvm_ext_f32x8 b = tvm_ext_f32x8_load(&turned[1]);
        show("add", tvm_ext_f32x8_add(a, b));
        show("subtract", tvm_ext_f32x8_subtract(a, b));
        show("multiply", tvm_ext_f32x8_multiply(a, b));
        show("maximum", tvm_ext_f32x8_maximum(a, b));
        show("minimum", tvm_ext_f32x8_minimum(a, b));
        show("fma", tvm_ext_f32x8_fma(a, b, tvm_ext_f32x8_splat(0.1f)));
        show("fma_n", tvm_ext_f32x8_fma_n(1.0f / 3.0f, a, b));
        show("times_power", tvm_ext_f32x8_times_power(tvm_ext_f32x8_splat(-1.25f), tvm_ext_f32x8_load(powers)));
    }
    return 0;
}
"""
RV64 = ("clang-19", "--target=riscv64-linux-gnu", "-march=rv64gcv", "-O2", "-static", "-fuse-ld=lld")
FORMS = {
    "avx2": ("host", ("gcc", "-O2", "-mfma", "-mavx2"), ()),
    "neon": ("host", ("aarch64-linux-gnu-gcc", "-O2", "-static"), ("qemu-aarch64",)),
    "rvv": ("zve32f", RV64, ("qemu-riscv64", "-cpu", "rv64,v=true,vext_spec=v1.0,vlen=256")),
}


def printed(folder: Path, simd: str, compiler: Sequence[str], emulator: Sequence[str]) -> list[str]:
    """Lines of the program with the vectors of the target `simd`."""
    (target,) = (target for target in instruction_sets() if target.simd == simd)
    own = COMMON.parent.joinpath(*target.package.split(".")[1:], "runtime")
    program, text = folder / f"lanes_{compiler[0]}{len(compiler)}", folder / "lanes.c"
    text.write_text(TESTED)
    flags = ("-std=c11", "-ffp-contract=off", f"-I{own}", f"-I{COMMON}")
    subprocess.run([*compiler, *flags, str(text), "-o", str(program), "-lm"], check=True)
    return subprocess.run([*emulator, str(program)], check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.board
@pytest.mark.process_board
@pytest.mark.parametrize("form", FORMS)
def test_lanes_have_the_bits_of_plain_c(form: str, tmp_path: Path) -> None:
    flags = Path("/proc/cpuinfo").read_text()
    if form == "avx2" and not {"avx2", "fma"} <= set(flags.split()):
        pytest.skip("this processor has no AVX2")
    expected = printed(tmp_path, "host", PLAIN, ())
    assert len(expected) == 64 and len(set(expected)) > 50
    assert printed(tmp_path, *FORMS[form]) == expected


@pytest.mark.board
@pytest.mark.process_board
@pytest.mark.parametrize(("platform", "most"), some_rows([("raspberry_pi_4", 0.5)], sweep=[("riscv64_v", 0.4)]))
def test_networks_have_the_bits_of_the_host_in_few_instructions(packages: Packages, platform: str, most: float) -> None:
    """Sums are in the same order on the host, which fuses as well. `most`: instructions for each multiply-add."""
    package = packages.shared("kws_fp32", platform, BuildOptions(verify=("host", "qemu")))
    verified = package.report["verify"]["qemu"]
    assert verified["passed"] and verified["instructions"] < most * package.report["macs"]
    expected = package.run(sample(package), on="host")
    for name, array in package.run_board([sample(package)]).outputs[0].items():
        np.testing.assert_array_equal(array.view(np.uint8), np.asarray(expected[name]).view(np.uint8))

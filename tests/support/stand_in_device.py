"""A stand-in for a debugger with a device behind it: QEMU on an ELF alone, files of its folder by semihosting.

    python stand_in_device.py PLATFORM [fault] ELF

fault: `status` ends with 3, `silent` prints nothing, `garbage` prints what no firmware does, `forever` never ends,
`no_files` runs in another folder, `wrong` changes the outputs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from codegen_c.emit.firmware import instruction_shift, qemu_arguments
from codegen_c.targets.registry import startup_of
from tvm_ext.core.platform import Platform


def main(name: str, *rest: str) -> int:
    fault, elf = rest if len(rest) > 1 else ("", rest[0])
    if fault == "status":
        sys.stderr.write("no probe was found\n")
        return 3
    if fault == "garbage":
        sys.stdout.write("Info : clock speed 1000 kHz\n")
    if fault == "forever":
        time.sleep(600)
    if fault in ("silent", "garbage"):
        return 0
    platform = Platform.load(name)
    assert platform.board is not None
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(
            [
                startup_of(platform).emulator, *qemu_arguments(platform, shift=instruction_shift(platform.board)),
                "-semihosting-config", "enable=on,target=native", "-kernel", elf,
            ],
            cwd=elsewhere if fault == "no_files" else None, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    sys.stdout.write(f"Info : flashed {elf}\n{done.stdout}{done.stderr}")
    if fault == "wrong":
        outputs = Path("out.bin")
        outputs.write_bytes(bytes(255 - byte for byte in outputs.read_bytes()))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

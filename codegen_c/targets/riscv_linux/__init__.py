"""Start-up code of programs on Linux for 64-bit RISC-V."""

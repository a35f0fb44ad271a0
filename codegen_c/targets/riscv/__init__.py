"""Start-up code of RISC-V in machine mode."""

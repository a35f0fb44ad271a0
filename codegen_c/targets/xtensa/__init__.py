"""Start-up code of Xtensa with the call0 ABI, and the functions that a compiler without a C library needs."""

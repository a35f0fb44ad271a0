"""Target WebAssembly with vectors of 128 bits (SIMD128)."""

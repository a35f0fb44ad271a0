"""The ground floor that all three packages stand on: errors, platforms, options, toolchains."""

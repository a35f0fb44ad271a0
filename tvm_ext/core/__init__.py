"""The base layer of all three packages: errors, platforms, options, toolchains."""

"""The command line `tvm-ext`: commands, options, parsers for option values, and output to the terminal."""

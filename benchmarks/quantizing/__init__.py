"""Files as quantizers that people use write them, and what the tools' own runtimes make of these."""

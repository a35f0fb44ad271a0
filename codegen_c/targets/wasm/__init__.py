"""Start-up code of modules of WebAssembly, which a runtime runs as a process."""

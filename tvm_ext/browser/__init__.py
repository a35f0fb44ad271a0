"""Packages in a browser: a page that runs a package as WebAssembly."""

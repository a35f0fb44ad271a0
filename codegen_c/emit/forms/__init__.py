"""Forms of a package for build systems, one module each: metadata over the same sources, which are not copied."""

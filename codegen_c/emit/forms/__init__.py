"""Forms that a package has for build systems, one file each: metadata over the same sources, which stand once."""

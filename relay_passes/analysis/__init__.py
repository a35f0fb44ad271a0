"""Facts about modules. Nothing in this folder rewrites a module."""

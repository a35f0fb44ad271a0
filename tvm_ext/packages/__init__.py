"""Packages: the folder that a build leaves, its self-test and its allocation problems."""

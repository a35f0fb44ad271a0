"""Execution of packages: on the host in a child process, on a board in QEMU, on a device by a user's command."""

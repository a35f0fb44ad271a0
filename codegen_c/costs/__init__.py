"""Instructions, bytes and predicted time of kernel calls and programs."""

"""Facts about modules; nothing here rewrites one."""

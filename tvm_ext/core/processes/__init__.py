"""Programs and functions in processes of their own, with limits."""

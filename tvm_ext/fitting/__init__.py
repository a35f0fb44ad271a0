"""Makes a model fit the memories it may take: what may be tried, what is tried next, and who compiles it."""

"""Layer by layer: what each step of a package's C gives, beside what a runtime that is not ours gives there."""

"""`python -m tvm_ext` is the command `tvm-ext`."""

from tvm_ext.cli import main

if __name__ == "__main__":
    main()

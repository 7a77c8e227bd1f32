"""The package for the compiled kernel of `build_kernel`; empty without a C compiler."""

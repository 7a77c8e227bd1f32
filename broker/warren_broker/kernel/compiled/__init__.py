"""Where `build_kernel` puts the compiled kernel; empty where no C compiler is."""

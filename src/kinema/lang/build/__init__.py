"""The C++ compiler, the kernel cache and the CPU."""

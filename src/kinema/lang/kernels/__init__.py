"""`@kernel`, kernels written in C++, and kernels as plain Python."""

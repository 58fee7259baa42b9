"""Emits C++ from the intermediate form: SIMD lanes, or any scalar type."""

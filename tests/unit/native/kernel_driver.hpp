// Runs emitted kernels on arrays from a file, each in heap memory of its own, so that a sanitizer sees every access
// beyond one. The file with the kernels includes this one and defines `kernels`.
#pragma once
#include <stdio.h>
#include <stdlib.h>

#include <vector>

#include "abi.h"

extern const kn_kernel kernels[];

template <class T>
T read_one(FILE* file) {
  T value;
  if (fread(&value, sizeof value, 1, file) != 1) abort();
  return value;
}

inline char* take(int64_t bytes) {
  void* memory;
  if (posix_memalign(&memory, 64, size_t(bytes)) != 0) abort();
  return static_cast<char*>(memory);
}

// Calls: kernel, count, active, groups and their `apart`, arrays; per array: elements, bytes, contents. Writes the
// arrays afterwards.
int main(int, char** argv) {
  FILE* in = fopen(argv[1], "rb");
  FILE* out = fopen(argv[2], "wb");
  for (int64_t calls = read_one<int64_t>(in); calls > 0; --calls) {
    const kn_kernel kernel = kernels[read_one<int64_t>(in)];
    kn_call call = {};
    call.end = read_one<int64_t>(in);
    call.active = int32_t(read_one<int64_t>(in));
    std::vector<uint8_t> apart(size_t(read_one<int64_t>(in)));
    if (fread(apart.data(), 1, apart.size(), in) != apart.size()) abort();
    call.apart = apart.empty() ? nullptr : apart.data();
    std::vector<void*> arrays(size_t(read_one<int64_t>(in)));
    std::vector<int64_t> lengths, bytes;
    for (void*& array : arrays) {
      lengths.push_back(read_one<int64_t>(in));
      bytes.push_back(read_one<int64_t>(in));
      array = take(bytes.back());
      if (fread(array, 1, size_t(bytes.back()), in) != size_t(bytes.back())) abort();
    }
    call.array = arrays.data();
    call.length = lengths.data();
    // Without an arena every local array is an allocation of its own, with its own guard zones.
    kn_arena arena = {};
    call.arena = &arena;
    kernel(&call);
    while (arena.overflow) {
      void* next = *static_cast<void**>(arena.overflow);
      free(arena.overflow);
      arena.overflow = next;
    }
    for (size_t i = 0; i < arrays.size(); ++i) {
      if (fwrite(arrays[i], 1, size_t(bytes[i]), out) != size_t(bytes[i])) abort();
      free(arrays[i]);
    }
  }
  fclose(in);
  fclose(out);
  puts("PASS");
}

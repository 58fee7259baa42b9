// What the stand-alone checks of native code have in common.
#pragma once
#include <stdio.h>
#include <string.h>

#include <atomic>

inline std::atomic<int> failures{0};

// Prints the first failures: CHECK(condition, "format", ...).
#define CHECK(condition, ...)                                \
  do {                                                       \
    if (!(condition) && failures.fetch_add(1) < 20) {        \
      printf("%s:%d: %s: ", __FILE__, __LINE__, #condition); \
      printf(__VA_ARGS__);                                   \
      printf("\n");                                          \
    }                                                        \
  } while (0)

// Any NaN is as good as another.
template <class T>
bool same_bits(T a, T b) {
  return memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}

inline int verdict() {
  if (failures > 0)
    printf("%d failures\n", failures.load());
  else
    printf("all is well\n");
  return failures > 0 ? 1 : 0;
}

// Vectors as long as one register of this processor.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace openipu {

// No longer: compilers take comparisons of longer vectors apart, number by number.
#if defined(__AVX512F__)
constexpr int64_t kWidth = 16;
#elif defined(__AVX2__)
constexpr int64_t kWidth = 8;
#else
constexpr int64_t kWidth = 4;
#endif
typedef float Floats __attribute__((vector_size(kWidth * sizeof(float))));
typedef int32_t Integers __attribute__((vector_size(kWidth * sizeof(int32_t))));

template <class T>
inline T load(const float* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
inline void store(float* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

// One number in all places. To subtract nothing costs nothing; to add it would make 0 of -0.
inline Floats everywhere(float value) { return value - Floats{}; }

// The first `count` numbers, and zeros; and the way back.
inline Floats load_some(const float* from, int64_t count) {
  if (count == kWidth) return load<Floats>(from);
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps((1u << count) - 1, from);
#else
  Floats value = {};
  std::memcpy(&value, from, count * sizeof(float));
  return value;
#endif
}

inline void store_some(float* to, Floats value, int64_t count) {
  if (count == kWidth) return store(to, value);
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(to, (1u << count) - 1, value);
#else
  std::memcpy(to, &value, count * sizeof(float));
#endif
}

// Changes rows and columns of a square.
inline void turn(Floats (&rows)[kWidth]) {
#if defined(__clang__)
  for (int64_t row = 0; row < kWidth; row++) {
    for (int64_t column = 0; column < row; column++) {
      const float one = rows[row][column];
      rows[row][column] = rows[column][row];
      rows[column][row] = one;
    }
  }
#else
  // In halves, quarters, and so on: GCC knows shuffles of two vectors by a third.
#pragma GCC unroll 4
  for (int64_t half = kWidth / 2; half > 0; half /= 2) {
    Integers upper, lower;
    for (int64_t lane = 0; lane < kWidth; lane++) {
      upper[lane] = lane & half ? lane - half + kWidth : lane;
      lower[lane] = lane & half ? lane + kWidth : lane + half;
    }
#pragma GCC unroll 16
    for (int64_t row = 0; row < kWidth; row++) {
      if (row & half) continue;
      const Floats one = rows[row], other = rows[row + half];
      rows[row] = __builtin_shuffle(one, other, upper);
      rows[row + half] = __builtin_shuffle(one, other, lower);
    }
  }
#endif
}

// Vectors of which all numbers, or only the first ones, are there.
struct Whole {
  Floats load(const float* from) const { return openipu::load<Floats>(from); }
  void store(float* to, Floats value) const { openipu::store(to, value); }
};

struct Some {
  int64_t count;
  Floats load(const float* from) const { return load_some(from, count); }
  void store(float* to, Floats value) const { store_some(to, value, count); }
};

// Calls `work` with the one or the other. Asked at every access instead, compilers would keep nothing in registers.
template <class Work>
inline void by_width(int64_t count, Work&& work) {
  count < kWidth ? work(Some{count}) : work(Whole{});
}

// Numbers of which the first begins a cache line: vectors that lie in two of them are read at half the speed.
class Packed {
 public:
  explicit Packed(int64_t count) : lines_((count + kLine - 1) / kLine) {}
  float* data() { return lines_.data()->numbers; }
  const float* data() const { return lines_.data()->numbers; }

 private:
  static constexpr int64_t kLine = 16;
  struct alignas(kLine * sizeof(float)) Line {
    float numbers[kLine];
  };
  std::vector<Line> lines_;
};

// The next multiple.
inline int64_t rounded(int64_t count, int64_t to) { return (count + to - 1) / to * to; }

// `count` things in as few blocks as there may be, all of about the same size: work(first, size).
template <class Work>
inline void in_blocks(int64_t count, int64_t most, Work&& work) {
  const int64_t blocks = (count + most - 1) / most;
  for (int64_t block = 0; block < blocks; block++) {
    const int64_t begin = count * block / blocks;
    work(begin, count * (block + 1) / blocks - begin);
  }
}

}  // namespace openipu

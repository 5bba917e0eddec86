// Tiles of products: sums that stay in registers while the operands pass by.
#pragma once

#include <cstdint>
#include <type_traits>

#include "vectors.h"

namespace openipu {

// Rows of a tile: their sums fill the registers.
constexpr int64_t kRows = kWidth == 16 ? 6 : 3;
// Vectors of one row of it.
constexpr int kColumns = 4;

// Adds rows times a panel [depth, vectors] to a tile.
//   left: where the numbers of the rows are, `step` apart for the next row and `along` for the next depth.
template <int vectors, int rows>
inline void multiply(const float* left, int64_t step, int64_t along, int64_t depth, const float* panel,
                     Floats (&sums)[rows][vectors]) {
  for (int64_t d = 0; d < depth; d++, left += along, panel += vectors * kWidth) {
    Floats right[vectors];
    for (int v = 0; v < vectors; v++) right[v] = load<Floats>(panel + v * kWidth);
    for (int r = 0; r < rows; r++) {
      const Floats x = everywhere(left[r * step]);
      for (int v = 0; v < vectors; v++) sums[r][v] += x * right[v];
    }
  }
}

// Calls `work` with the number of rows, known to the compiler, for all of `count` rows.
template <class Work>
inline void by_rows(int64_t count, Work&& work) {
  int64_t row = 0;
  for (; row + kRows <= count; row += kRows) work(row, std::integral_constant<int, kRows>());
  switch (count - row) {
    case 5: return work(row, std::integral_constant<int, 5>());
    case 4: return work(row, std::integral_constant<int, 4>());
    case 3: return work(row, std::integral_constant<int, 3>());
    case 2: return work(row, std::integral_constant<int, 2>());
    case 1: return work(row, std::integral_constant<int, 1>());
  }
}

// Calls `work` with the number of vectors, known to the compiler.
template <class Work>
inline void by_vectors(int64_t count, Work&& work) {
  switch (count) {
    case 4: return work(std::integral_constant<int, 4>());
    case 3: return work(std::integral_constant<int, 3>());
    case 2: return work(std::integral_constant<int, 2>());
    case 1: return work(std::integral_constant<int, 1>());
  }
}

}  // namespace openipu

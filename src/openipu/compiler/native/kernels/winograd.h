// What Winograd's algorithms for windows of 3x3 share: tiles of 2x2 and 4x4 results, and patches of inputs, transformed.
#pragma once

#include <algorithm>

#include "vectors.h"

namespace openipu {

// One dimension of the algorithm for tiles of so many results: `tile` of them, of three weights, take `tile` + 2
// multiplications. What transforms gradients of results and sums for weights are the transposes of what transforms
// products to results, and weights.
template <int tile>
struct Line;

// Points 0, 1, -1 and infinity: additions only.
template <>
struct Line<2> {
  static void inputs(const Floats (&d)[4], Floats (&made)[4]) {
    made[0] = d[0] - d[2];
    made[1] = d[1] + d[2];
    made[2] = d[2] - d[1];
    made[3] = d[1] - d[3];
  }
  static void weights(const Floats (&w)[3], Floats (&made)[4]) {
    const Floats outer = 0.5f * (w[0] + w[2]), half = 0.5f * w[1];
    made[0] = w[0];
    made[1] = outer + half;
    made[2] = outer - half;
    made[3] = w[2];
  }
  static void results(const Floats (&m)[4], Floats (&made)[2]) {
    made[0] = m[0] + m[1] + m[2];
    made[1] = m[1] - m[2] - m[3];
  }
  static void gradients(const Floats (&g)[2], Floats (&made)[4]) {
    made[0] = g[0];
    made[1] = g[0] + g[1];
    made[2] = g[0] - g[1];
    made[3] = -g[1];
  }
  static void sums(const Floats (&m)[4], Floats (&made)[3]) {
    const Floats both = 0.5f * (m[1] + m[2]);
    made[0] = m[0] + both;
    made[1] = 0.5f * (m[1] - m[2]);
    made[2] = both + m[3];
  }
};

// Points 0, a, -a, b, -b and infinity. Those that are usual, 1 and 2, lose two more bits; all numbers here are exact.
template <>
struct Line<4> {
  static constexpr float a = 0.625f, b = 1.5f, a2 = a * a, b2 = b * b;
  // What the numbers of a point are divided by.
  static constexpr float zeroth = 1 / (a2 * b2), near = 1 / (2 * a2 * (a2 - b2)), far = 1 / (2 * b2 * (b2 - a2));

  static void inputs(const Floats (&d)[6], Floats (&made)[6]) {
    const Floats near_even = d[4] - b2 * d[2], near_odd = a * (d[3] - b2 * d[1]);
    const Floats far_even = d[4] - a2 * d[2], far_odd = b * (d[3] - a2 * d[1]);
    made[0] = a2 * b2 * d[0] + (d[4] - (a2 + b2) * d[2]);
    made[1] = near_even + near_odd;
    made[2] = near_even - near_odd;
    made[3] = far_even + far_odd;
    made[4] = far_even - far_odd;
    made[5] = a2 * b2 * d[1] + (d[5] - (a2 + b2) * d[3]);
  }
  static void weights(const Floats (&w)[3], Floats (&made)[6]) {
    const Floats near_even = near * (w[0] + a2 * w[2]), near_odd = near * a * w[1];
    const Floats far_even = far * (w[0] + b2 * w[2]), far_odd = far * b * w[1];
    made[0] = zeroth * w[0];
    made[1] = near_even + near_odd;
    made[2] = near_even - near_odd;
    made[3] = far_even + far_odd;
    made[4] = far_even - far_odd;
    made[5] = w[2];
  }
  static void results(const Floats (&m)[6], Floats (&made)[4]) {
    const Floats near_even = m[1] + m[2], near_odd = a * (m[1] - m[2]);
    const Floats far_even = m[3] + m[4], far_odd = b * (m[3] - m[4]);
    made[0] = m[0] + near_even + far_even;
    made[1] = near_odd + far_odd;
    made[2] = a2 * near_even + b2 * far_even;
    made[3] = a2 * near_odd + b2 * far_odd + m[5];
  }
  static void gradients(const Floats (&g)[4], Floats (&made)[6]) {
    const Floats near_even = g[0] + a2 * g[2], near_odd = a * (g[1] + a2 * g[3]);
    const Floats far_even = g[0] + b2 * g[2], far_odd = b * (g[1] + b2 * g[3]);
    made[0] = g[0];
    made[1] = near_even + near_odd;
    made[2] = near_even - near_odd;
    made[3] = far_even + far_odd;
    made[4] = far_even - far_odd;
    made[5] = g[3];
  }
  static void sums(const Floats (&m)[6], Floats (&made)[3]) {
    const Floats near_even = near * (m[1] + m[2]), near_odd = near * a * (m[1] - m[2]);
    const Floats far_even = far * (m[3] + m[4]), far_odd = far * b * (m[3] - m[4]);
    made[0] = zeroth * m[0] + near_even + far_even;
    made[1] = near_odd + far_odd;
    made[2] = a2 * near_even + b2 * far_even + m[5];
  }
};

// Inputs of a tile in one dimension, and in both: as many spots, at which numbers are multiplied.
template <int tile>
constexpr int kPatch = tile + 2;
template <int tile>
constexpr int kSpots = kPatch<tile> * kPatch<tile>;

// Numbers that a thread works on at once: more than a few tiles, so that whatever all of them meet is read for many,
// and no more than its caches hold.
constexpr int64_t kNumbers = 96 << 10;
constexpr int64_t kFewestTiles = 36, kMostTiles = 256;
// Tiles of a row that are transformed one after the other.
constexpr int64_t kLongestPiece = 24;

// How far apart spots are that have so many numbers. Not a multiple of a page: they would push each other out of the
// caches.
inline int64_t spot_step(int64_t numbers) { return rounded(numbers, 1024) + 16; }

// How many tiles with so many numbers a thread works on at once.
inline int64_t tiles_at_once(int64_t numbers) {
  return std::min(kMostTiles, std::max(kFewestTiles, kNumbers / numbers));
}

// Tiles [begin, end) of one row of an image.
struct Piece {
  int64_t image, row, begin, end;
  int64_t size() const { return end - begin; }
};

inline std::vector<Piece> pieces_of(int64_t images, int64_t rows, int64_t columns) {
  std::vector<Piece> pieces;
  for (int64_t image = 0; image < images; image++) {
    for (int64_t row = 0; row < rows; row++) {
      in_blocks(columns, kLongestPiece, [&](int64_t begin, int64_t count) {
        pieces.push_back({image, row, begin, begin + count});
      });
    }
  }
  return pieces;
}

// A few pieces in a row.
struct Block {
  const Piece* begin;
  const Piece* end;
  int64_t tiles;
};

// All pieces in about so many blocks.
inline std::vector<Block> blocks_of(const std::vector<Piece>& pieces, int64_t count) {
  const int64_t all = pieces.size();
  std::vector<Block> blocks;
  for (int64_t i = 0; i < count; i++) {
    Block block{pieces.data() + all * i / count, pieces.data() + all * (i + 1) / count, 0};
    for (const Piece* piece = block.begin; piece < block.end; piece++) block.tiles += piece->size();
    if (block.tiles) blocks.push_back(block);
  }
  return blocks;
}

alignas(64) constexpr float kZeros[kWidth] = {};

// A vector of channels of all positions of an image; beyond it are zeros.
struct Plane {
  const float* begin;
  int64_t rows, columns, row_step, column_step;
};

// Some rows of it, whose columns are read from top to bottom.
template <int size, class Vectors>
class Rows {
 public:
  Rows(const Plane& plane, int64_t top, Vectors vectors) : plane_(plane), vectors_(vectors) {
    for (int i = 0; i < size; i++) {
      const bool inside = top + i >= 0 && top + i < plane.rows;
      rows_[i] = inside ? plane.begin + (top + i) * plane.row_step : kZeros;
      steps_[i] = inside ? plane.column_step : 0;
    }
  }
  void read(int64_t column, Floats (&made)[size]) const {
    const bool inside = column >= 0 && column < plane_.columns;
    for (int i = 0; i < size; i++) made[i] = inside ? vectors_.load(rows_[i] + column * steps_[i]) : Floats{};
  }

 private:
  const Plane& plane_;
  const Vectors vectors_;
  const float* rows_[size];
  int64_t steps_[size];
};

// Patches that begin at (top, left) and a tile further each time: a tile is `step` and a spot `spot` numbers further.
template <int tile, class Vectors>
inline void transform_patches(const Plane& plane, Vectors vectors, int64_t top, int64_t left, int64_t tiles, float* to,
                              int64_t step, int64_t spot) {
  constexpr int size = kPatch<tile>;
  const Rows<size, Vectors> rows(plane, top, vectors);
  // Columns, transformed along the rows; patches side by side share two.
  Floats columns[size][size];
  auto read = [&](int64_t column, Floats (&made)[size]) {
    Floats given[size];
    rows.read(column, given);
    Line<tile>::inputs(given, made);
  };
  for (int c = 0; c < 2; c++) read(left + c, columns[c]);
  for (int64_t done = 0; done < tiles; done++, left += tile, to += step) {
    for (int c = 2; c < size; c++) read(left + c, columns[c]);
    for (int r = 0; r < size; r++) {
      Floats row[size], made[size];
      for (int c = 0; c < size; c++) row[c] = columns[c][r];
      Line<tile>::inputs(row, made);
      for (int c = 0; c < size; c++) store(to + (r * size + c) * spot, made[c]);
    }
    for (int r = 0; r < size; r++) {
      for (int c = 0; c < 2; c++) columns[c][r] = columns[tile + c][r];
    }
  }
}

}  // namespace openipu

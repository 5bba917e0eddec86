// What Winograd's algorithms for windows of 3x3 share: patches of 4x4 inputs, transformed by additions.
#pragma once

#include <algorithm>

#include "vectors.h"

namespace openipu {

// Tiles of 2x2 windows have 4x4 inputs, which become as many numbers that are multiplied spot by spot.
constexpr int64_t kSpots = 16;
// Numbers that a thread works on at once: more than a few tiles, so that whatever all of them meet is read for many,
// and no more than its caches hold.
constexpr int64_t kNumbers = 96 << 10;
constexpr int64_t kFewestTiles = 36, kMostTiles = 256;
// Tiles of a row that are transformed one after the other.
constexpr int64_t kLongestPiece = 24;

// How far apart spots are that have so many numbers. Not a multiple of a page: they would push each other out of the
// caches.
inline int64_t spot_step(int64_t numbers) { return rounded(numbers, 1024) + 16; }

// How many tiles of so many channels a thread works on at once.
inline int64_t tiles_at_once(int64_t channels) {
  return std::min(kMostTiles, std::max(kFewestTiles, kNumbers / (kSpots * channels)));
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

// A vector of channels, of which `filled` are there, of all positions of an image; beyond it are zeros.
struct Plane {
  const float* begin;
  int64_t rows, columns, row_step, column_step, filled;

  Floats at(int64_t row, int64_t column) const {
    const bool inside = row >= 0 && row < rows && column >= 0 && column < columns;
    return load_some(inside ? begin + row * row_step + column * column_step : kZeros, filled);
  }
};

// Patches that begin at (top, left) and two columns further each time: a tile is `step` and a spot `spot` numbers
// further.
inline void transform_patches(const Plane& plane, int64_t top, int64_t left, int64_t tiles, float* to, int64_t step,
                              int64_t spot) {
  // One column of patches, transformed along the rows.
  struct Column {
    Floats of[4];
  };
  auto column = [&](int64_t x) {
    Floats d[4];
    for (int64_t i = 0; i < 4; i++) d[i] = plane.at(top + i, x);
    return Column{{d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]}};
  };
  Column a = column(left), b = column(left + 1);
  for (int64_t tile = 0; tile < tiles; tile++, to += step) {
    const int64_t x = left + tile * 2;
    const Column c = column(x + 2), d = column(x + 3);
    for (int64_t i = 0; i < 4; i++) {
      float* at = to + i * 4 * spot;
      store(at, a.of[i] - c.of[i]);
      store(at + spot, b.of[i] + c.of[i]);
      store(at + 2 * spot, c.of[i] - b.of[i]);
      store(at + 3 * spot, b.of[i] - d.of[i]);
    }
    a = c;
    b = d;
  }
}

}  // namespace openipu

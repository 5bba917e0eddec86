// Sums of outer products over many rows: the gradients of weights that were used at every time, of every example.
//
// Both operands are stored row by row, and a sum over rows reads them as they are: nothing is transposed.
#include <algorithm>

#include "parts.h"
#include "tiles.h"

namespace openipu {
namespace {

// Rows that are packed at once: with a tile's width they stay in the first cache while all tiles of its columns pass.
constexpr int64_t kBlock = 64;
// More would pack the same columns more often.
constexpr int64_t kPartsPerThread = 2;
constexpr int64_t kTile = kColumns * kWidth;

// result[l, r] = sum over rows of left[row, l] * right[row, r]; steps are the distances between rows.
struct Sums {
  int64_t rows, left, right, left_step, right_step;
  // Whether the result is stored as [right, left].
  bool turned;
};

// Tiles of some columns of the right operand, for some of the left one's.
class Columns {
 public:
  Columns(const Sums& s, int64_t first, int64_t begin, int64_t end)
      : s_(s), first_(first), begin_(begin), end_(end), count_(std::min(kTile, s.right - first)),
        vectors_((count_ + kWidth - 1) / kWidth), panel_(kBlock * kTile), sums_((end - begin) * kTile) {
    std::fill_n(sums_.data(), (end - begin) * kTile, 0.0f);
  }

  void operator()(const float* left, const float* right, float* result) {
    for (int64_t row = 0; row < s_.rows; row += kBlock) {
      const int64_t depth = std::min(kBlock, s_.rows - row);
      pack(right + row * s_.right_step + first_, depth);
      by_vectors(vectors_, [&](auto constant) {
        add<decltype(constant)::value>(left + row * s_.left_step + begin_, depth);
      });
    }
    write(result);
  }

 private:
  void pack(const float* from, int64_t depth) {
    float* to = panel_.data();
    for (int64_t d = 0; d < depth; d++, from += s_.right_step) {
      for (int64_t v = 0; v < vectors_; v++, to += kWidth) {
        store(to, load_some(from + v * kWidth, std::min(kWidth, count_ - v * kWidth)));
      }
    }
  }

  template <int vectors>
  void add(const float* left, int64_t depth) {
    by_rows(end_ - begin_, [&](int64_t number, auto constant) {
      constexpr int many = decltype(constant)::value;
      float* at = sums_.data() + number * kTile;
      Floats tile[many][vectors];
      for (int r = 0; r < many; r++) {
        for (int v = 0; v < vectors; v++) tile[r][v] = load<Floats>(at + r * kTile + v * kWidth);
      }
      multiply<vectors, many>(left + number, 1, s_.left_step, depth, panel_.data(), tile);
      for (int r = 0; r < many; r++) {
        for (int v = 0; v < vectors; v++) store(at + r * kTile + v * kWidth, tile[r][v]);
      }
    });
  }

  void write(float* result) const {
    const float* from = sums_.data();
    for (int64_t l = begin_; l < end_; l++, from += kTile) {
      if (s_.turned) {
        for (int64_t r = 0; r < count_; r++) result[(first_ + r) * s_.left + l] = from[r];
      } else {
        std::copy_n(from, count_, result + l * s_.right + first_);
      }
    }
  }

  const Sums& s_;
  int64_t first_, begin_, end_, count_, vectors_;
  Packed panel_, sums_;
};

void sum(ffi::ThreadPool& pool, const Sums& s, const float* left, const float* right, float* result) {
  const int64_t down = (s.left + kRows - 1) / kRows, tiles = down * ((s.right + kTile - 1) / kTile);
  const int64_t parts = parts_for(pool, kPartsPerThread, tiles, s.rows * s.left * s.right);
  in_parts(pool, parts, [&](int64_t part) {
    int64_t tile = tiles * part / parts;
    const int64_t end = tiles * (part + 1) / parts;
    while (tile < end) {
      const int64_t begin = tile % down, last = std::min(down, begin + end - tile);
      Columns(s, tile / down * kTile, begin * kRows, std::min(s.left, last * kRows))(left, right, result);
      tile += last - begin;
    }
  });
}

ffi::Error outer(ffi::ThreadPool pool, ffi::AnyBuffer left, ffi::AnyBuffer right, ffi::Result<ffi::AnyBuffer> result,
                 Numbers shape) {
  return guarded([&] {
    const int64_t* n = shape.begin();
    sum(pool, Sums{n[0], n[1], n[2], n[3], n[4], n[5] != 0}, static_cast<const float*>(left.untyped_data()),
        static_cast<const float*>(right.untyped_data()), static_cast<float*>(result->untyped_data()));
  });
}

}  // namespace
}  // namespace openipu

XLA_FFI_DEFINE_HANDLER_SYMBOL(openipu_outer_sum, openipu::outer,
                              openipu::ffi::Ffi::Bind()
                                  .Ctx<openipu::ffi::ThreadPool>()
                                  .Arg<openipu::ffi::AnyBuffer>()
                                  .Arg<openipu::ffi::AnyBuffer>()
                                  .Ret<openipu::ffi::AnyBuffer>()
                                  .Attr<openipu::Numbers>("shape"));

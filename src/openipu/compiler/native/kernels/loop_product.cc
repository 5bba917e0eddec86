// Products of a loop. Each thread has the same part of a product in every step, so its weights stay near: some rows of
// the result, some columns, or all of it for some of what is summed over; then the threads' results are added later.
#include <algorithm>

#include "loop.h"
#include "tiles.h"

namespace openipu::loop {
namespace {

constexpr int64_t kTile = kColumns * kWidth;

// A matrix, or a stack of them: how far apart matrices, rows and columns are.
struct Matrices {
  Array array;
  int64_t stack_step, row_step, column_step;

  explicit Matrices(Reader& from)
      : array(from), stack_step(from.number()), row_step(from.number()), column_step(from.number()) {}
  const float* in(const Addresses& addresses, int64_t number) const {
    return reinterpret_cast<const float*>(array.in(addresses)) + number * stack_step;
  }
};

class Product : public Operation {
 public:
  explicit Product(Reader& from)
      : height_(from.number()), depth_(from.number()), left_(from), right_(from), result_(from) {
    rows = from.number() * height_, columns = from.number();
  }

  void run(const Addresses& addresses, const Region& region, const Room& room) const override {
    auto* result = reinterpret_cast<float*>(result_.in(addresses)) + region.part * rows * columns;
    const int64_t begin = border(depth_, region.part, region.parts);
    const int64_t depth = border(depth_, region.part + 1, region.parts) - begin;
    // A thread for which nothing is left to sum over adds nothing.
    if (depth == 0) return void(std::fill_n(result, rows * columns, 0.0f));
    for (int64_t row = region.row; row < region.row_end;) {
      const int64_t number = row / height_, first = row % height_;
      const int64_t count = std::min({height_ - first, region.row_end - row, kSummedRows});
      const float* left = left_.in(addresses, number) + first * left_.row_step + begin * left_.column_step;
      const float* right = right_.in(addresses, number) + begin * right_.row_step;
      for (int64_t column = region.column; column < region.column_end; column += kTile) {
        const int64_t width = std::min(kTile, region.column_end - column);
        by_vectors((width + kWidth - 1) / kWidth, [&](auto vectors) {
          columns_of<decltype(vectors)::value>(left, right + column * right_.column_step, count, depth, width,
                                               result + row * columns + column, room);
        });
      }
      row += count;
    }
  }

 private:
  template <int vectors>
  void columns_of(const float* left, const float* right, int64_t count, int64_t all, int64_t width, float* result,
                  const Room& room) const {
    constexpr int64_t step = vectors * kWidth;
    in_blocks(all, kDepth, [&](int64_t begin, int64_t depth) {
      pack<vectors>(right + begin * right_.row_step, depth, width, room.panel);
      const bool is_first = begin == 0, is_last = begin + depth == all;
      by_rows(count, [&](int64_t row, auto constant) {
        constexpr int many = decltype(constant)::value;
        Floats sums[many][vectors] = {};
        if (!is_first) {
          for (int r = 0; r < many; r++) {
            for (int v = 0; v < vectors; v++) sums[r][v] = load<Floats>(room.sums + (row + r) * step + v * kWidth);
          }
        }
        multiply<vectors, many>(left + row * left_.row_step + begin * left_.column_step, left_.row_step,
                                left_.column_step, depth, room.panel, sums);
        if (!is_last) {
          for (int r = 0; r < many; r++) {
            for (int v = 0; v < vectors; v++) store(room.sums + (row + r) * step + v * kWidth, sums[r][v]);
          }
          return;
        }
        by_width(width - (vectors - 1) * kWidth, [&](auto last) {
          for (int r = 0; r < many; r++) {
            float* to = result + (row + r) * columns;
            for (int v = 0; v < vectors - 1; v++) store(to + v * kWidth, sums[r][v]);
            last.store(to + (vectors - 1) * kWidth, sums[r][vectors - 1]);
          }
        });
      });
    });
  }

  // Some depth of the columns, as `multiply` reads it.
  template <int vectors>
  void pack(const float* from, int64_t depth, int64_t width, float* to) const {
    constexpr int64_t step = vectors * kWidth;
    if (right_.column_step == 1) {
      for (int64_t d = 0; d < depth; d++) {
        const float* row = from + d * right_.row_step;
        for (int v = 0; v < vectors; v++) {
          store(to + d * step + v * kWidth, load_some(row + v * kWidth, std::min(kWidth, width - v * kWidth)));
        }
      }
      return;
    }
    if (right_.row_step == 1) return pack_turned<vectors>(from, depth, width, to);
    if (width < step) std::fill_n(to, depth * step, 0.0f);
    for (int64_t column = 0; column < width; column++) {
      const float* numbers = from + column * right_.column_step;
      for (int64_t d = 0; d < depth; d++) to[d * step + column] = numbers[d * right_.row_step];
    }
  }

  // The same of columns that are stored as rows, in squares.
  template <int vectors>
  void pack_turned(const float* from, int64_t depth, int64_t width, float* to) const {
    for (int v = 0; v < vectors; v++) {
      const int64_t columns = std::min(kWidth, width - v * kWidth);
      for (int64_t begin = 0; begin < depth; begin += kWidth) {
        const int64_t some = std::min(kWidth, depth - begin);
        Floats square[kWidth] = {};
        for (int64_t column = 0; column < columns; column++) {
          square[column] = load_some(from + (v * kWidth + column) * right_.column_step + begin, some);
        }
        turn(square);
        for (int64_t d = 0; d < some; d++) store(to + ((begin + d) * vectors + v) * kWidth, square[d]);
      }
    }
  }

  // The rows of one matrix, and what is summed over.
  int64_t height_, depth_;
  Matrices left_, right_;
  Array result_;
};

// What the threads made of a product, added.
class Parts : public Operation {
 public:
  explicit Parts(Reader& from) : given_(from), result_(from) { rows = from.number(), columns = from.number(); }

  void run(const Addresses& addresses, const Region& region, const Room& room) const override {
    const int64_t begin = region.row * columns, count = (region.row_end - region.row) * columns;
    const auto* given = reinterpret_cast<const float*>(given_.in(addresses)) + begin;
    auto* result = reinterpret_cast<float*>(result_.in(addresses)) + begin;
    std::copy_n(given, count, result);
    for (int64_t part = 1; part < room.threads; part++) {
      given += rows * columns;
      for (int64_t i = 0; i < count; i++) result[i] += given[i];
    }
  }

 private:
  Array given_, result_;
};

}  // namespace

Made read_parts(Reader& from) { return std::make_unique<Parts>(from); }

Made read_product(Reader& from) { return std::make_unique<Product>(from); }

}  // namespace openipu::loop

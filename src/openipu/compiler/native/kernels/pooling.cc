// The gradient of maxima over windows of two dimensions that overlap, vectorised over what is stored innermost.
#include <algorithm>
#include <limits>

#include "parts.h"
#include "vectors.h"

namespace openipu {
namespace {

constexpr int64_t kPartsPerThread = 2;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Numbers and the winners among them: vectors of both, or one of each for what is left at the end of a row.
struct Wide {
  using Number = Floats;
  using Winner = Integers;
  static constexpr int64_t width = kWidth;
};
struct Single {
  using Number = float;
  using Winner = int32_t;
  static constexpr int64_t width = 1;
};

// `shape` holds: outer, inner, then for the two pooled dimensions each of
//   size, windows, extent of a window, stride, padding below.
struct Pooling {
  int64_t outer, inner;
  struct Side {
    int64_t size, windows, extent, stride, low;
    int64_t start(int64_t window) const { return window * stride - low; }
    // Offsets in a window that are not in the padding.
    int64_t first(int64_t window) const { return std::max<int64_t>(0, -start(window)); }
    int64_t last(int64_t window) const { return std::min(extent, size - start(window)); }
  } rows, columns;

  explicit Pooling(Numbers shape) {
    auto next = shape.begin();
    outer = *next++;
    inner = *next++;
    for (Side* side : {&rows, &columns}) {
      for (int64_t* field : {&side->size, &side->windows, &side->extent, &side->stride, &side->low}) *field = *next++;
    }
  }

  int64_t plane() const { return rows.size * columns.size * inner; }

  // Where in a plane element (i, j) of window (r, c) begins, and whether it is no padding.
  int64_t at(int64_t r, int64_t c, int64_t i, int64_t j) const {
    return ((rows.start(r) + i) * columns.size + columns.start(c) + j) * inner;
  }
  bool inside(int64_t r, int64_t c, int64_t i, int64_t j) const {
    return i >= rows.first(r) && i < rows.last(r) && j >= columns.first(c) && j < columns.last(c);
  }
};

// Gives a window's gradient to the first of its largest elements. Padding takes part, as it does in XLA.
template <class Lanes, bool whole>
inline void give(const Pooling& p, const float* gradient, const float* x, float* result, int64_t r,
                 int64_t c) {
  using Number = typename Lanes::Number;
  using Winner = typename Lanes::Winner;
  const int64_t rows = p.rows.extent, columns = p.columns.extent, step = p.inner, row = p.columns.size * p.inner;
  Number best = Number{} + kLowest;
  Winner winner = {}, number = {};
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t j = 0; j < columns; j++, number += 1) {
      const bool inside = whole || p.inside(r, c, i, j);
      const Number next = inside ? load<Number>(x + i * row + j * step) : Number{} + kLowest;
      // The first element begins; another one wins unless the best so far is at least as large.
      const auto stays = best >= next;
      const bool first = i + j == 0;
      winner = stays ? winner : number;
      best = first ? next : stays ? best : next;
    }
  }
  const Number given = load<Number>(gradient);
  number = Winner{};
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t j = 0; j < columns; j++, number += 1) {
      if (!whole && !p.inside(r, c, i, j)) continue;
      float* to = result + i * row + j * step;
      const Number part = (winner == number) ? given : Number{};
      store(to, load<Number>(to) + part);
    }
  }
}

template <bool whole>
inline void give_row(const Pooling& p, const float* gradient, const float* x, float* result, int64_t r,
                     int64_t c) {
  const int64_t begin = p.at(r, c, 0, 0), vectors = p.inner / kWidth * kWidth;
  for (int64_t from = 0; from < vectors; from += kWidth) {
    give<Wide, whole>(p, gradient + from, x + begin + from, result + begin + from, r, c);
  }
  for (int64_t from = vectors; from < p.inner; from++) {
    give<Single, whole>(p, gradient + from, x + begin + from, result + begin + from, r, c);
  }
}

// All windows of one plane.
void maximum_gradient_plane(const Pooling& p, const float* gradient, const float* x, float* result) {
  std::memset(result, 0, p.plane() * sizeof(float));
  for (int64_t r = 0; r < p.rows.windows; r++) {
    for (int64_t c = 0; c < p.columns.windows; c++, gradient += p.inner) {
      const bool whole = p.inside(r, c, 0, 0) && p.inside(r, c, p.rows.extent - 1, p.columns.extent - 1);
      (whole ? give_row<true> : give_row<false>)(p, gradient, x, result, r, c);
    }
  }
}

void maximum_gradient(ffi::ThreadPool& pool, const Pooling& p, const float* gradient, const float* x, float* result) {
  const int64_t windows = p.rows.windows * p.columns.windows * p.inner;
  const int64_t parts = parts_for(pool, kPartsPerThread, p.outer, p.outer * windows * p.rows.extent * p.columns.extent);
  in_parts(pool, parts, [&](int64_t part) {
    for (int64_t o = p.outer * part / parts; o < p.outer * (part + 1) / parts; o++) {
      maximum_gradient_plane(p, gradient + o * windows, x + o * p.plane(), result + o * p.plane());
    }
  });
}

using Array = ffi::Buffer<ffi::F32>;
using Result = ffi::ResultBuffer<ffi::F32>;

ffi::Error pooling_maximum_gradient(ffi::ThreadPool pool, Array gradient, Array x, Result result, Numbers shape) {
  return guarded([&] {
    maximum_gradient(pool, Pooling(shape), gradient.typed_data(), x.typed_data(), result->typed_data());
  });
}

}  // namespace
}  // namespace openipu

using openipu::ffi::Ffi;
XLA_FFI_DEFINE_HANDLER_SYMBOL(openipu_pooling_maximum_gradient, openipu::pooling_maximum_gradient,
                              Ffi::Bind()
                                  .Ctx<openipu::ffi::ThreadPool>()
                                  .Arg<openipu::Array>()
                                  .Arg<openipu::Array>()
                                  .Ret<openipu::Array>()
                                  .Attr<openipu::Numbers>("shape"));

// Batch normalisation in training and its gradient: statistics in one pass over memory, what follows in another.
#include <algorithm>
#include <cmath>

#include "parts.h"
#include "vectors.h"

namespace openipu {
namespace {

// `shape` holds: lanes, then of one lane what is before the channels, the channels, and what is after them.
struct Batch {
  int64_t lanes, outer, channels, inner;
  explicit Batch(Numbers shape) : lanes(shape[0]), outer(shape[1]), channels(shape[2]), inner(shape[3]) {}
  int64_t size() const { return outer * channels * inner; }
  float count() const { return static_cast<float>(outer * inner); }
};

// A piece of memory that stays in the first cache while it is read twice.
constexpr int64_t kPiece = 4096;
// Multiply-adds that a number takes as long as, for the division of work: it is read and written.
constexpr int64_t kWork = 8;

float total(Floats values) {
  float sum = 0;
  for (int64_t i = 0; i < kWidth; i++) sum += values[i];
  return sum;
}

// How many numbers a thread has seen of a channel, their mean, and the sum of squared deviations from it.
struct Moments {
  float count = 0, mean = 0, squares = 0;
  void merge(float more, float other, float other_squares) {
    if (more == 0) return;
    const float all = count + more, apart = other - mean;
    mean += apart * (more / all);
    squares += other_squares + apart * apart * (count * more / all);
    count = all;
  }
};

// Calls `each(first number, how many, channel)` for vectors of channels side by side.
template <class Each>
void over_channels(int64_t channels, Each&& each) {
  for (int64_t c = 0; c < channels; c += kWidth) each(c, std::min(kWidth, channels - c));
}

// The moments of rows that have all channels innermost.
void moments_of_rows(const float* x, int64_t rows, int64_t channels, Moments* found) {
  const int64_t most = std::max<int64_t>(8, kPiece / channels);
  for (int64_t begin = 0; begin < rows; begin += most) {
    const int64_t some = std::min(most, rows - begin);
    const float count = static_cast<float>(some);
    over_channels(channels, [&](int64_t c, int64_t width) {
      const float* from = x + begin * channels + c;
      Floats sum = {}, squares = {};
      for (int64_t r = 0; r < some; r++) sum += load_some(from + r * channels, width);
      const Floats mean = sum / count;
      for (int64_t r = 0; r < some; r++) {
        const Floats apart = load_some(from + r * channels, width) - mean;
        squares += apart * apart;
      }
      for (int64_t i = 0; i < width; i++) found[c + i].merge(count, mean[i], squares[i]);
    });
  }
}

// The moments of numbers side by side that belong to one channel.
void moments_of_line(const float* x, int64_t size, Moments& found) {
  for (int64_t begin = 0; begin < size; begin += kPiece) {
    const int64_t some = std::min(kPiece, size - begin), vectors = some / kWidth * kWidth;
    const float *from = x + begin, count = static_cast<float>(some);
    Floats sums = {}, squares = {};
    for (int64_t i = 0; i < vectors; i += kWidth) sums += load<Floats>(from + i);
    float sum = total(sums), square = 0;
    for (int64_t i = vectors; i < some; i++) sum += from[i];
    const float mean = sum / count;
    for (int64_t i = 0; i < vectors; i += kWidth) {
      const Floats apart = load<Floats>(from + i) - mean;
      squares += apart * apart;
    }
    for (int64_t i = vectors; i < some; i++) square += (from[i] - mean) * (from[i] - mean);
    found.merge(count, mean, total(squares) + square);
  }
}

// Rows of channels, or lines of numbers of one channel, in so many parts.
struct Division {
  const Batch& b;
  int64_t parts;

  Division(ffi::ThreadPool& pool, const Batch& batch)
      : b(batch), parts(parts_for(pool, 1, rows_or_lines(batch), batch.size() * kWork)) {}

  static int64_t rows_or_lines(const Batch& b) { return b.inner == 1 ? b.outer : b.outer * b.channels; }
  int64_t begin(int64_t part) const { return rows_or_lines(b) * part / parts; }

  // Calls `each(begin, end, channel)` for every line of a part.
  template <class Each>
  void lines(int64_t part, Each&& each) const {
    for (int64_t line = begin(part); line < begin(part + 1); line++) {
      each(line * b.inner, (line + 1) * b.inner, line % b.channels);
    }
  }
};

void forward(ffi::ThreadPool& pool, const Batch& b, const float* x, const float* scale, const float* offset,
             const float* epsilon, float* y, float* means, float* variances) {
  const int64_t channels = b.channels;
  const Division division(pool, b);
  std::vector<Moments> found(channels * division.parts);
  Packed factors(channels);
  float* factor = factors.data();
  in_parts(pool, division.parts, [&](int64_t part) {
    Moments* own = found.data() + channels * part;
    const int64_t begin = division.begin(part), rows = division.begin(part + 1) - begin;
    if (b.inner == 1) return moments_of_rows(x + begin * channels, rows, channels, own);
    division.lines(part, [&](int64_t first, int64_t last, int64_t c) { moments_of_line(x + first, last - first, own[c]); });
  });
  for (int64_t c = 0; c < channels; c++) {
    Moments all;
    for (int64_t part = 0; part < division.parts; part++) {
      const Moments& some = found[part * channels + c];
      all.merge(some.count, some.mean, some.squares);
    }
    means[c] = all.mean;
    variances[c] = all.squares / b.count();
    factor[c] = scale[c] / std::sqrt(variances[c] + epsilon[c]);
  }
  in_parts(pool, division.parts, [&](int64_t part) {
    if (b.inner != 1) {
      return division.lines(part, [&](int64_t first, int64_t last, int64_t c) {
        const float mean = means[c], by = factor[c], plus = offset[c];
        for (int64_t i = first; i < last; i++) y[i] = (x[i] - mean) * by + plus;
      });
    }
    for (int64_t r = division.begin(part); r < division.begin(part + 1); r++) {
      over_channels(channels, [&](int64_t c, int64_t width) {
        const int64_t at = r * channels + c;
        const Floats apart = load_some(x + at, width) - load_some(means + c, width);
        store_some(y + at, apart * load_some(factor + c, width) + load_some(offset + c, width), width);
      });
    }
  });
}

// Sums over a channel of the gradient, and of the gradient times deviations from the mean. Pieces are summed first:
// a long sum of floats one by one would lose digits.
void sums_of_rows(const float* g, const float* x, const float* means, int64_t rows, int64_t channels, float* sums,
                  float* products) {
  constexpr int64_t kRows = 64;
  for (int64_t begin = 0; begin < rows; begin += kRows) {
    const int64_t some = std::min(kRows, rows - begin);
    over_channels(channels, [&](int64_t c, int64_t width) {
      const int64_t from = begin * channels + c;
      const Floats mean = load_some(means + c, width);
      Floats sum = {}, product = {};
      for (int64_t r = 0; r < some; r++) {
        const Floats given = load_some(g + from + r * channels, width);
        sum += given;
        product += given * (load_some(x + from + r * channels, width) - mean);
      }
      store_some(sums + c, load_some(sums + c, width) + sum, width);
      store_some(products + c, load_some(products + c, width) + product, width);
    });
  }
}

void sums_of_line(const float* g, const float* x, float mean, int64_t size, float& sum, float& product) {
  for (int64_t begin = 0; begin < size; begin += kPiece) {
    const int64_t end = std::min(begin + kPiece, size), vectors = begin + (end - begin) / kWidth * kWidth;
    Floats sums = {}, products = {};
    for (int64_t i = begin; i < vectors; i += kWidth) {
      const Floats given = load<Floats>(g + i);
      sums += given;
      products += given * (load<Floats>(x + i) - mean);
    }
    float piece = total(sums), piece_product = total(products);
    for (int64_t i = vectors; i < end; i++) {
      piece += g[i];
      piece_product += g[i] * (x[i] - mean);
    }
    sum += piece;
    product += piece_product;
  }
}

void backward(ffi::ThreadPool& pool, const Batch& b, const float* g, const float* x, const float* scale,
              const float* means, const float* variances, const float* epsilon, float* of_x, float* of_scale,
              float* of_offset) {
  const int64_t channels = b.channels;
  const Division division(pool, b);
  // Vectors of different threads do not share a cache line.
  const int64_t apart = (2 * channels + 31) / 16 * 16;
  std::vector<float> found(apart * division.parts);
  Packed factors(3 * channels);
  // of_x = factor * g + slope * (x - mean) + shift
  float *factor = factors.data(), *slope = factor + channels, *shift = slope + channels;
  in_parts(pool, division.parts, [&](int64_t part) {
    float *sums = found.data() + apart * part, *products = sums + channels;
    const int64_t begin = division.begin(part), rows = division.begin(part + 1) - begin, from = begin * channels;
    if (b.inner == 1) return sums_of_rows(g + from, x + from, means, rows, channels, sums, products);
    division.lines(part, [&](int64_t first, int64_t last, int64_t c) {
      sums_of_line(g + first, x + first, means[c], last - first, sums[c], products[c]);
    });
  });
  for (int64_t c = 0; c < channels; c++) {
    float sum = 0, product = 0;
    for (int64_t part = 0; part < division.parts; part++) {
      sum += found[part * apart + c];
      product += found[part * apart + channels + c];
    }
    const float inverse = 1 / std::sqrt(variances[c] + epsilon[c]);
    of_offset[c] = sum;
    of_scale[c] = product * inverse;
    factor[c] = scale[c] * inverse;
    slope[c] = -factor[c] * inverse * of_scale[c] / b.count();
    shift[c] = -factor[c] * sum / b.count();
  }
  in_parts(pool, division.parts, [&](int64_t part) {
    if (b.inner != 1) {
      return division.lines(part, [&](int64_t first, int64_t last, int64_t c) {
        const float mean = means[c], by = factor[c], steep = slope[c], plus = shift[c];
        for (int64_t i = first; i < last; i++) of_x[i] = by * g[i] + steep * (x[i] - mean) + plus;
      });
    }
    for (int64_t r = division.begin(part); r < division.begin(part + 1); r++) {
      over_channels(channels, [&](int64_t c, int64_t width) {
        const int64_t at = r * channels + c;
        const Floats deviation = load_some(x + at, width) - load_some(means + c, width);
        const Floats made = load_some(factor + c, width) * load_some(g + at, width) +
                            load_some(slope + c, width) * deviation + load_some(shift + c, width);
        store_some(of_x + at, made, width);
      });
    }
  });
}

using Array = ffi::Buffer<ffi::F32>;
using Result = ffi::ResultBuffer<ffi::F32>;

ffi::Error normalization_forward(ffi::ThreadPool pool, Array x, Array scale, Array offset, Array epsilon, Result y, Result mean,
                                 Result variance, Numbers shape) {
  return guarded([&] {
    const Batch b(shape);
    for (int64_t lane = 0; lane < b.lanes; lane++) {
      const int64_t at = lane * b.size(), channel = lane * b.channels;
      forward(pool, b, x.typed_data() + at, scale.typed_data() + channel, offset.typed_data() + channel,
              epsilon.typed_data() + channel, y->typed_data() + at, mean->typed_data() + channel,
              variance->typed_data() + channel);
    }
  });
}

ffi::Error normalization_backward(ffi::ThreadPool pool, Array g, Array x, Array scale, Array mean, Array variance,
                                  Array epsilon, Result of_x, Result of_scale, Result of_offset, Numbers shape) {
  return guarded([&] {
    const Batch b(shape);
    for (int64_t lane = 0; lane < b.lanes; lane++) {
      const int64_t at = lane * b.size(), channel = lane * b.channels;
      backward(pool, b, g.typed_data() + at, x.typed_data() + at, scale.typed_data() + channel,
               mean.typed_data() + channel, variance.typed_data() + channel, epsilon.typed_data() + channel,
               of_x->typed_data() + at, of_scale->typed_data() + channel, of_offset->typed_data() + channel);
    }
  });
}

}  // namespace
}  // namespace openipu

using openipu::ffi::Ffi;
XLA_FFI_DEFINE_HANDLER_SYMBOL(openipu_normalization_forward, openipu::normalization_forward,
                              Ffi::Bind()
                                  .Ctx<openipu::ffi::ThreadPool>()
                                  .Arg<openipu::Array>()
                                  .Arg<openipu::Array>()
                                  .Arg<openipu::Array>()
                                  .Arg<openipu::Array>()
                                  .Ret<openipu::Array>()
                                  .Ret<openipu::Array>()
                                  .Ret<openipu::Array>()
                                  .Attr<openipu::Numbers>("shape"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(openipu_normalization_backward, openipu::normalization_backward,
                              Ffi::Bind()
                                  .Ctx<openipu::ffi::ThreadPool>()
                                  .Arg<openipu::Array>()
                                  .Arg<openipu::Array>()
                                  .Arg<openipu::Array>()
                                  .Arg<openipu::Array>()
                                  .Arg<openipu::Array>()
                                  .Arg<openipu::Array>()
                                  .Ret<openipu::Array>()
                                  .Ret<openipu::Array>()
                                  .Ret<openipu::Array>()
                                  .Attr<openipu::Numbers>("shape"));

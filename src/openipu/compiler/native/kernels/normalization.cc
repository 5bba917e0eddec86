// Batch normalisation in training and its gradient: statistics in one pass over memory, what follows in another.
#include <omp.h>

#include <algorithm>
#include <cmath>

#include "kernel.h"
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

// The part of `size` that this thread takes.
struct Share {
  int64_t begin, end;
  explicit Share(int64_t size) {
    const int64_t threads = omp_get_num_threads(), mine = omp_get_thread_num();
    begin = size * mine / threads;
    end = size * (mine + 1) / threads;
  }
};

// Calls `each(begin, end, channel)` for every line of numbers of one channel that this thread takes.
template <class Each>
void over_lines(const Batch& b, Each&& each) {
  const Share share(b.outer * b.channels);
  for (int64_t line = share.begin; line < share.end; line++) {
    each(line * b.inner, (line + 1) * b.inner, line % b.channels);
  }
}

void forward(const Batch& b, const float* x, const float* scale, const float* offset, const float* epsilon,
             float* y, float* means, float* variances) {
  const int64_t channels = b.channels;
  std::vector<Moments> found(channels * omp_get_max_threads());
  Packed factors(channels);
  float* factor = factors.data();
#pragma omp parallel
  {
    Moments* own = found.data() + channels * omp_get_thread_num();
    const Share rows(b.outer);
    if (b.inner == 1) {
      moments_of_rows(x + rows.begin * channels, rows.end - rows.begin, channels, own);
    } else {
      over_lines(b, [&](int64_t begin, int64_t end, int64_t c) { moments_of_line(x + begin, end - begin, own[c]); });
    }
#pragma omp barrier
#pragma omp for schedule(static)
    for (int64_t c = 0; c < channels; c++) {
      Moments all;
      for (int t = 0; t < omp_get_num_threads(); t++) {
        const Moments& part = found[t * channels + c];
        all.merge(part.count, part.mean, part.squares);
      }
      means[c] = all.mean;
      variances[c] = all.squares / b.count();
      factor[c] = scale[c] / std::sqrt(variances[c] + epsilon[c]);
    }
    if (b.inner == 1) {
      for (int64_t r = rows.begin; r < rows.end; r++) {
        over_channels(channels, [&](int64_t c, int64_t width) {
          const int64_t at = r * channels + c;
          const Floats apart = load_some(x + at, width) - load_some(means + c, width);
          store_some(y + at, apart * load_some(factor + c, width) + load_some(offset + c, width), width);
        });
      }
    } else {
      over_lines(b, [&](int64_t begin, int64_t end, int64_t c) {
        const float mean = means[c], by = factor[c], plus = offset[c];
        for (int64_t i = begin; i < end; i++) y[i] = (x[i] - mean) * by + plus;
      });
    }
  }
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

void backward(const Batch& b, const float* g, const float* x, const float* scale, const float* means,
              const float* variances, const float* epsilon, float* of_x, float* of_scale, float* of_offset) {
  const int64_t channels = b.channels;
  // Vectors of different threads do not share a cache line.
  const int64_t apart = (2 * channels + 31) / 16 * 16;
  std::vector<float> found(apart * omp_get_max_threads());
  Packed factors(3 * channels);
  // of_x = factor * g + slope * (x - mean) + shift
  float *factor = factors.data(), *slope = factor + channels, *shift = slope + channels;
#pragma omp parallel
  {
    float *sums = found.data() + apart * omp_get_thread_num(), *products = sums + channels;
    const Share rows(b.outer);
    if (b.inner == 1) {
      const int64_t from = rows.begin * channels;
      sums_of_rows(g + from, x + from, means, rows.end - rows.begin, channels, sums, products);
    } else {
      over_lines(b, [&](int64_t begin, int64_t end, int64_t c) {
        sums_of_line(g + begin, x + begin, means[c], end - begin, sums[c], products[c]);
      });
    }
#pragma omp barrier
#pragma omp for schedule(static)
    for (int64_t c = 0; c < channels; c++) {
      float sum = 0, product = 0;
      for (int t = 0; t < omp_get_num_threads(); t++) {
        sum += found[t * apart + c];
        product += found[t * apart + channels + c];
      }
      const float inverse = 1 / std::sqrt(variances[c] + epsilon[c]);
      of_offset[c] = sum;
      of_scale[c] = product * inverse;
      factor[c] = scale[c] * inverse;
      slope[c] = -factor[c] * inverse * of_scale[c] / b.count();
      shift[c] = -factor[c] * sum / b.count();
    }
    if (b.inner == 1) {
      for (int64_t r = rows.begin; r < rows.end; r++) {
        over_channels(channels, [&](int64_t c, int64_t width) {
          const int64_t at = r * channels + c;
          const Floats deviation = load_some(x + at, width) - load_some(means + c, width);
          const Floats made = load_some(factor + c, width) * load_some(g + at, width) +
                              load_some(slope + c, width) * deviation + load_some(shift + c, width);
          store_some(of_x + at, made, width);
        });
      }
    } else {
      over_lines(b, [&](int64_t begin, int64_t end, int64_t c) {
        const float mean = means[c], by = factor[c], steep = slope[c], plus = shift[c];
        for (int64_t i = begin; i < end; i++) of_x[i] = by * g[i] + steep * (x[i] - mean) + plus;
      });
    }
  }
}

using Array = ffi::Buffer<ffi::F32>;
using Result = ffi::ResultBuffer<ffi::F32>;

ffi::Error normalization_forward(Array x, Array scale, Array offset, Array epsilon, Result y, Result mean,
                                 Result variance, Numbers shape) {
  return run([&] {
    const Batch b(shape);
    for (int64_t lane = 0; lane < b.lanes; lane++) {
      const int64_t at = lane * b.size(), channel = lane * b.channels;
      forward(b, x.typed_data() + at, scale.typed_data() + channel, offset.typed_data() + channel,
              epsilon.typed_data() + channel, y->typed_data() + at, mean->typed_data() + channel,
              variance->typed_data() + channel);
    }
  });
}

ffi::Error normalization_backward(Array g, Array x, Array scale, Array mean, Array variance,
                                  Array epsilon, Result of_x, Result of_scale, Result of_offset, Numbers shape) {
  return run([&] {
    const Batch b(shape);
    for (int64_t lane = 0; lane < b.lanes; lane++) {
      const int64_t at = lane * b.size(), channel = lane * b.channels;
      backward(b, g.typed_data() + at, x.typed_data() + at, scale.typed_data() + channel,
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

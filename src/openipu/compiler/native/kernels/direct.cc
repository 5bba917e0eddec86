// Convolutions of few channels and the gradient of their weights, on arrays with the batch innermost.
//
// Vectors run over the batch, so they are full whatever the number of channels is, and nothing is copied into patches.
// The other dimensions may be stored in any order: arrays are read by their strides, and so are the weights, whose
// strides are negative where a program reverses them.
#include <algorithm>
#include <memory>
#include <type_traits>

#include "parts.h"
#include "vectors.h"

namespace openipu {
namespace {

// Sums that are computed at once fill the registers: so many output channels, times two vectors of the batch or so
// many columns of the kernel.
constexpr int64_t kChannels = kWidth == 16 ? 8 : 4;
constexpr int64_t kColumns = 3;
// Multiply-adds that are worth waking another thread for.
constexpr int64_t kThread = 1 << 21;
// Pieces into which a single row is cut for threads to share.
constexpr int64_t kPieces = 16;

// One dimension of space. Between two elements of the input lie `spread - 1` zeros.
struct Side {
  int64_t size, windows, kernel, stride, dilation, low, spread;
};

// Elements between two neighbours of an array in each dimension; the batch has 1.
struct Steps {
  int64_t channel, row, column;
};

// `shape` holds: lanes, sets of weights, batch, inputs, outputs; the seven numbers of `Side` for rows and for columns;
// the steps of input and output; then of the weights where the first one is and the steps of outputs, inputs, rows
// and columns.
struct Layer {
  int64_t lanes, sets;  // As many lanes after each other as there are for a set have the same weights.
  int64_t batch, inputs, outputs;
  Side rows, columns;
  Steps source, target;
  int64_t first, of_output, of_input, of_row, of_column;

  explicit Layer(Numbers shape) {
    const int64_t* next = shape.begin();
    for (int64_t* field : {&lanes, &sets, &batch, &inputs, &outputs}) *field = *next++;
    for (Side* s : {&rows, &columns}) {
      for (int64_t* field : {&s->size, &s->windows, &s->kernel, &s->stride, &s->dilation, &s->low, &s->spread}) {
        *field = *next++;
      }
    }
    for (Steps* s : {&source, &target}) {
      for (int64_t* field : {&s->channel, &s->row, &s->column}) *field = *next++;
    }
    for (int64_t* field : {&first, &of_output, &of_input, &of_row, &of_column}) *field = *next++;
  }

  int64_t source_size() const { return inputs * rows.size * columns.size * batch; }
  int64_t target_size() const { return outputs * rows.windows * columns.windows * batch; }
  int64_t positions() const { return rows.kernel * columns.kernel; }
  int64_t weights_size() const { return outputs * inputs * positions(); }
  int64_t work() const { return lanes * target_size() * inputs * positions(); }
  int64_t weight(int64_t output, int64_t input, int64_t row, int64_t column) const {
    return first + output * of_output + input * of_input + row * of_row + column * of_column;
  }
};

// An array of one lane. What lies behind a vector that the batch does not fill may be read as long as it is in it.
struct Array {
  const float* begin;
  const float* end;
};

// Whether a place of a vector belongs to the batch.
inline Integers first_places(int64_t count) {
  Integers mask = {};
  for (int64_t i = 0; i < count; i++) mask[i] = -1;
  return mask;
}

// A vector of which `count` numbers are the batch's; the others are zero if `clean`, else anything.
template <bool clean>
inline Floats take(const float* from, const float* end, int64_t count, Integers mask) {
  Floats value = end - from >= kWidth ? load<Floats>(from) : load_some(from, count);
  if (!clean) return value;
  Integers bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits &= mask;
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

// `work` with a number that the compiler knows: the one of 1 to `most` that equals `count`.
template <int most, class Work>
inline void with_constant(int64_t count, Work&& work) {
  if constexpr (most > 0) {
    if (count == most) return work(std::integral_constant<int, most>());
    with_constant<most - 1>(count, work);
  }
}

// Columns [begin, end) of a row of one lane's output.
struct Part {
  int64_t lane, row, begin, end;
};

int64_t threads_for(ffi::ThreadPool& pool, const Layer& layer) {
  const int64_t most = std::min<int64_t>(pool.num_threads(), layer.work() / kThread);
  return std::max<int64_t>(1, most);
}

// All parts of the output, each thread its own: work(thread, part). Who has which depends on the number of threads only.
template <class Work>
void share_out(ffi::ThreadPool& pool, const Layer& layer, int64_t threads, Work&& work) {
  const int64_t rows = layer.rows.windows, columns = layer.columns.windows;
  const int64_t pieces = rows == 1 ? std::min(kPieces, columns) : 1, all = layer.lanes * rows * pieces;
  auto share = [&](int64_t thread) {
    for (int64_t i = all * thread / threads; i < all * (thread + 1) / threads; i++) {
      const int64_t piece = i % pieces, row = i / pieces;
      work(thread, Part{row / rows, row % rows, columns * piece / pieces, columns * (piece + 1) / pieces});
    }
  };
  if (threads == 1) return share(0);
  in_parts(pool, threads, share);
}

// An element of a window that is not in the padding: its place in the input and in the kernel.
struct Tap {
  int64_t from, number;
};

// The elements of every window along one side.
std::vector<std::vector<Tap>> taps_of(const Side& side) {
  std::vector<std::vector<Tap>> taps(side.windows);
  for (int64_t window = 0; window < side.windows; window++) {
    for (int64_t k = 0; k < side.kernel; k++) {
      const int64_t place = window * side.stride + k * side.dilation - side.low;
      if (place >= 0 && place % side.spread == 0 && place / side.spread < side.size) {
        taps[window].push_back({place / side.spread, k});
      }
    }
  }
  return taps;
}

// Weights in the order in which they are used: blocks of outputs, inputs, kernel, outputs of the block.
std::vector<float> packed(const Layer& layer, const float* weights) {
  std::vector<float> made;
  made.reserve(layer.weights_size());
  in_blocks(layer.outputs, kChannels, [&](int64_t output, int64_t count) {
    for (int64_t input = 0; input < layer.inputs; input++) {
      for (int64_t row = 0; row < layer.rows.kernel; row++) {
        for (int64_t column = 0; column < layer.columns.kernel; column++) {
          for (int64_t o = 0; o < count; o++) made.push_back(weights[layer.weight(output + o, input, row, column)]);
        }
      }
    }
  });
  return made;
}

// Some output channels of one window, for some vectors of the batch. Taps are offsets in input and packed weights.
template <int outputs, int vectors, bool whole>
inline void window(const Layer& layer, const std::vector<Tap>& taps, const float* weights, Array x, int64_t place,
                   int64_t count, float* y) {
  Floats sums[outputs][vectors] = {};
  const float* from = x.begin + place;
  for (int64_t input = 0; input < layer.inputs; input++) {
    for (const Tap& tap : taps) {
      const float* weight = weights + tap.number * outputs;
      Floats values[vectors];
      for (int v = 0; v < vectors; v++) {
        const float* at = from + tap.from + v * kWidth;
        values[v] = whole ? load<Floats>(at) : take<false>(at, x.end, count, Integers{});
      }
      for (int o = 0; o < outputs; o++) {
        const Floats factor = everywhere(weight[o]);
        for (int v = 0; v < vectors; v++) sums[o][v] += values[v] * factor;
      }
    }
    from += layer.source.channel;
    weights += layer.positions() * outputs;
  }
  for (int o = 0; o < outputs; o++) {
    for (int v = 0; v < vectors; v++) {
      float* to = y + o * layer.target.channel + v * kWidth;
      whole ? store(to, sums[o][v]) : store_some(to, sums[o][v], count);
    }
  }
}

// All channels and the whole batch of one window.
void all_of_window(const Layer& layer, const std::vector<Tap>& taps, const float* weights, Array x, float* y) {
  in_blocks(layer.outputs, kChannels, [&](int64_t output, int64_t count) {
    with_constant<kChannels>(count, [&](auto constant) {
      constexpr int outputs = decltype(constant)::value;
      const float* mine = weights + output * layer.inputs * layer.positions();
      float* to = y + output * layer.target.channel;
      int64_t b = 0;
      for (; b + 2 * kWidth <= layer.batch; b += 2 * kWidth) {
        window<outputs, 2, true>(layer, taps, mine, x, b, 0, to + b);
      }
      for (; b + kWidth <= layer.batch; b += kWidth) window<outputs, 1, true>(layer, taps, mine, x, b, 0, to + b);
      if (b < layer.batch) window<outputs, 1, false>(layer, taps, mine, x, b, layer.batch - b, to + b);
    });
  });
}

// y = sum over inputs and the kernel of x times weights.
void convolution(ffi::ThreadPool& pool, const Layer& layer, const float* x, const float* weights, float* y) {
  const auto rows = taps_of(layer.rows), columns = taps_of(layer.columns);
  std::vector<std::vector<float>> ready;
  for (int64_t set = 0; set < layer.sets; set++) ready.push_back(packed(layer, weights + set * layer.weights_size()));
  share_out(pool, layer, threads_for(pool, layer), [&](int64_t, Part part) {
    const float* begin = x + part.lane * layer.source_size();
    const Array mine = {begin, begin + layer.source_size()};
    float* to = y + part.lane * layer.target_size() + part.row * layer.target.row;
    std::vector<Tap> taps;
    for (int64_t column = part.begin; column < part.end; column++) {
      taps.clear();
      for (const Tap& r : rows[part.row]) {
        for (const Tap& c : columns[column]) {
          taps.push_back({r.from * layer.source.row + c.from * layer.source.column,
                          r.number * layer.columns.kernel + c.number});
        }
      }
      const float* used = ready[part.lane * layer.sets / layer.lanes].data();
      all_of_window(layer, taps, used, mine, to + column * layer.target.column);
    }
  });
}

// Windows whose element `k` along a side is not in the padding.
struct Span {
  int64_t begin, end;

  Span(const Side& side, int64_t k) {
    const int64_t shift = side.low - k * side.dilation;
    begin = std::min(side.windows, divided_up(shift, side.stride));
    end = std::max(begin, std::min(side.windows, divided_up(side.size + shift, side.stride)));
  }
  bool has(int64_t window) const { return window >= begin && window < end; }

 private:
  static int64_t divided_up(int64_t a, int64_t b) { return a <= 0 ? 0 : (a + b - 1) / b; }
};

// The gradient of a part of the output, for a block of its channels: windows, vectors of the batch, channels.
class Gradient {
 public:
  Gradient(const Layer& layer, Part part, const float* y, int64_t output, int64_t outputs)
      : outputs(outputs), vectors((layer.batch + kWidth - 1) / kWidth), begin(part.begin), end(part.end) {
    values_.reserve((end - begin) * vectors * outputs);
    y += output * layer.target.channel + part.row * layer.target.row;
    for (int64_t window = begin; window < end; window++) {
      for (int64_t b = 0; b < layer.batch; b += kWidth) {
        const float* from = y + window * layer.target.column + b;
        for (int64_t o = 0; o < outputs; o++) {
          values_.push_back(load_some(from + o * layer.target.channel, std::min(kWidth, layer.batch - b)));
        }
      }
    }
  }

  const int64_t outputs, vectors, begin, end;
  const Floats* at(int64_t window) const { return values_.data() + (window - begin) * vectors * outputs; }

 private:
  std::vector<Floats> values_;
};

// A number that is loaded into a register now: compilers read it from memory for each use, which costs more.
inline Floats once(Floats value) {
#if defined(__x86_64__)
  asm("" : "+v"(value));
#endif
  return value;
}

// A row of the input, from where the first window has the first of some neighbouring columns of the kernel.
struct Line {
  const float* begin;
  const float* end;      // Of the whole array.
  int64_t window, tap;   // Steps to the next window and to the next column of the kernel.
};

// Adds products of one vector of the batch in windows [begin, end) to sums that stay in registers.
// Where not `all` of the columns are in every window, `spans` tell which are.
template <bool all, bool whole, int outputs, int taps>
inline void add_products(const Gradient& gradient, Line x, int64_t begin, int64_t end, int64_t vector,
                         const Span* spans, int64_t count, Floats (&sums)[outputs][taps]) {
  const Integers mask = first_places(whole ? 0 : count);
  const float* from = x.begin + begin * x.window + vector * kWidth;
  const Floats* y = gradient.at(begin) + vector * outputs;
  for (int64_t window = begin; window < end; window++, from += x.window, y += gradient.vectors * outputs) {
    Floats values[taps] = {};
    for (int t = 0; t < taps; t++) {
      const float* at = from + t * x.tap;
      if (all || spans[t].has(window)) values[t] = whole ? load<Floats>(at) : take<true>(at, x.end, count, mask);
    }
    for (int o = 0; o < outputs; o++) {
      const Floats factor = once(y[o]);
      for (int t = 0; t < taps; t++) {
        if (all || spans[t].has(window)) sums[o][t] += values[t] * factor;
      }
    }
  }
}

// The same for all windows and the whole batch.
template <int outputs, int taps>
void add_line(const Layer& layer, const Gradient& gradient, Line x, const Span* spans, Floats* sums) {
  Floats here[outputs][taps];
  for (int o = 0; o < outputs; o++) {
    for (int t = 0; t < taps; t++) here[o][t] = sums[o * taps + t];
  }
  int64_t first = gradient.begin, last = gradient.end;
  for (int t = 0; t < taps; t++) {
    first = std::max(first, spans[t].begin);
    last = std::min(last, spans[t].end);
  }
  first = std::min(first, gradient.end);
  last = std::max(first, last);
  const int64_t full = layer.batch / kWidth, count = layer.batch % kWidth;
  for (int64_t v = 0; v < full; v++) {
    add_products<false, true>(gradient, x, gradient.begin, first, v, spans, 0, here);
    add_products<true, true>(gradient, x, first, last, v, spans, 0, here);
    add_products<false, true>(gradient, x, last, gradient.end, v, spans, 0, here);
  }
  if (count) add_products<false, false>(gradient, x, gradient.begin, gradient.end, full, spans, count, here);
  for (int o = 0; o < outputs; o++) {
    for (int t = 0; t < taps; t++) sums[o * taps + t] = here[o][t];
  }
}

// The sums of one thread: for every weight a vector over the batch, in the order in which they are made.
class Sums {
 public:
  explicit Sums(const Layer& layer) : layer_(layer), sums_(layer.weights_size()) {
    for (int64_t k = 0; k < layer.columns.kernel; k++) spans_.emplace_back(layer.columns, k);
  }

  // Adds products of a part of the output with all of the input.
  void add(Part part, const float* x, const float* y) {
    const Side &rows = layer_.rows, &columns = layer_.columns;
    const int64_t step = layer_.source.column;
    const float* source = x + part.lane * layer_.source_size();
    in_blocks(layer_.outputs, kChannels, [&](int64_t output, int64_t outputs) {
      const Gradient gradient(layer_, part, y + part.lane * layer_.target_size(), output, outputs);
      for (int64_t input = 0; input < layer_.inputs; input++) {
        for (int64_t k = 0; k < rows.kernel; k++) {
          const int64_t row = part.row * rows.stride + k * rows.dilation - rows.low;
          if (row < 0 || row >= rows.size) continue;
          const float* line = source + input * layer_.source.channel + row * layer_.source.row;
          in_blocks(columns.kernel, kColumns, [&](int64_t column, int64_t taps) {
            const Line x = {line + (column * columns.dilation - columns.low) * step, source + layer_.source_size(),
                            columns.stride * step, columns.dilation * step};
            Floats* sums = sums_.data() + place(output, outputs, input, k, column);
            with_constant<kChannels>(outputs, [&](auto many) {
              with_constant<kColumns>(taps, [&](auto wide) {
                add_line<decltype(many)::value, decltype(wide)::value>(layer_, gradient, x, &spans_[column], sums);
              });
            });
          });
        }
      }
    });
  }

  Sums& operator+=(const Sums& other) {
    for (size_t i = 0; i < sums_.size(); i++) sums_[i] += other.sums_[i];
    return *this;
  }

  // Sums over the batch, where they belong.
  void write(float* weights) const {
    in_blocks(layer_.outputs, kChannels, [&](int64_t output, int64_t outputs) {
      for (int64_t input = 0; input < layer_.inputs; input++) {
        for (int64_t row = 0; row < layer_.rows.kernel; row++) {
          in_blocks(layer_.columns.kernel, kColumns, [&](int64_t column, int64_t taps) {
            const Floats* from = sums_.data() + place(output, outputs, input, row, column);
            for (int64_t o = 0; o < outputs; o++) {
              for (int64_t t = 0; t < taps; t++, from++) {
                float total = 0;
                for (int64_t i = 0; i < kWidth; i++) total += (*from)[i];
                weights[layer_.weight(output + o, input, row, column + t)] = total;
              }
            }
          });
        }
      }
    });
  }

 private:
  // Where the sums of a block begin: blocks of outputs, inputs, rows, blocks of columns, outputs, columns.
  int64_t place(int64_t output, int64_t outputs, int64_t input, int64_t row, int64_t column) const {
    const int64_t before = output * layer_.inputs * layer_.positions();
    return before + outputs * ((input * layer_.rows.kernel + row) * layer_.columns.kernel + column);
  }

  const Layer layer_;
  std::vector<Floats> sums_;
  std::vector<Span> spans_;
};

// The gradient of a set of weights, from the input and the gradient of the output of all lanes that have it.
void weight_gradient(ffi::ThreadPool& pool, const Layer& layer, const float* x, const float* y, float* weights) {
  const int64_t threads = threads_for(pool, layer);
  // Each thread makes its own: in memory side by side they would slow each other down.
  std::vector<std::unique_ptr<Sums>> sums(threads);
  share_out(pool, layer, threads, [&](int64_t thread, Part part) {
    if (!sums[thread]) sums[thread] = std::make_unique<Sums>(layer);
    sums[thread]->add(part, x, y);
  });
  Sums total(layer);
  for (const auto& each : sums) {
    if (each) total += *each;
  }
  total.write(weights);
}

using Buffer = ffi::Buffer<ffi::F32>;
using Result = ffi::ResultBuffer<ffi::F32>;

ffi::Error direct_convolution(ffi::ThreadPool pool, Buffer x, Buffer weights, Result y, Numbers shape) {
  return guarded([&] { convolution(pool, Layer(shape), x.typed_data(), weights.typed_data(), y->typed_data()); });
}

ffi::Error direct_weight_gradient(ffi::ThreadPool pool, Buffer x, Buffer y, Result weights, Numbers shape) {
  return guarded([&] {
    const Layer whole(shape);
    Layer layer = whole;
    layer.lanes = whole.lanes / whole.sets;
    for (int64_t set = 0; set < whole.sets; set++) {
      const int64_t lane = set * layer.lanes;
      weight_gradient(pool, layer, x.typed_data() + lane * layer.source_size(), y.typed_data() + lane * layer.target_size(),
                      weights->typed_data() + set * layer.weights_size());
    }
  });
}

auto binding() {
  return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<Buffer>().Arg<Buffer>().Ret<Buffer>().Attr<Numbers>("shape");
}

}  // namespace
}  // namespace openipu

XLA_FFI_DEFINE_HANDLER_SYMBOL(openipu_direct_convolution, openipu::direct_convolution, openipu::binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(openipu_direct_weight_gradient, openipu::direct_weight_gradient, openipu::binding());

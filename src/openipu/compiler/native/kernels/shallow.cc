// Convolutions of few input channels, on activations with the channels innermost: vectors run over the outputs.
//
// Every weight of a few vectors of outputs is read once for several results that lie side by side, each of which takes
// one number of the input. Nothing is copied into patches; an image is copied into its padding if it has any.
#include <cstring>
#include <vector>

#include "fused.h"

namespace openipu {
namespace {

// Sums that are computed at once fill the registers: so many results times so many vectors of output channels.
constexpr int64_t kResults = kWidth == 8 ? 4 : 8;
constexpr int64_t kVectors = 2;
constexpr int64_t kPartsPerThread = 2;

// What results read: distances from the first number of their window, and panels of weights in the same order.
struct Kernel {
  std::vector<int64_t> distances;
  const float* weights;
};

// An image as the windows see it: with its padding, or as it is.
struct Image {
  const float* begin;
  int64_t row;
};

struct Layer : FusedLayer {
  explicit Layer(const FusedLayer& layer) : FusedLayer(layer) {}

  int64_t width_out() const { return rounded(outputs, kWidth); }
  int64_t taps() const { return rows.kernel * columns.kernel * inputs; }
  int64_t work() const { return batch * rows.windows * columns.windows * taps() * outputs; }
  // How far windows reach.
  static int64_t reach(const Side& side) { return (side.windows - 1) * side.stride + side.kernel; }
  bool padded(const Side& side) const { return side.low != 0 || reach(side) > side.size; }
  bool padded() const { return padded(rows) || padded(columns); }
  int64_t row() const { return (padded() ? reach(columns) : columns.size) * inputs; }
  // Bytes of an image with its padding; none if it has no padding.
  size_t room() const { return padded() ? reach(rows) * row() * sizeof(float) : 0; }
};

// The part of a side's windows that the input has: as a first place in them, one in the input, and a length.
struct Overlap {
  int64_t to, from, length;
  explicit Overlap(const Side& side) {
    to = std::max<int64_t>(0, side.low);
    from = std::max<int64_t>(0, -side.low);
    length = std::max<int64_t>(0, std::min(side.size - from, Layer::reach(side) - to));
  }
};

// The image, copied into `room` if it needs padding.
Image image_of(const Layer& layer, const float* given, const Scratch& room) {
  const int64_t row = layer.row();
  if (!layer.padded()) return {given, row};
  float* made = room.data<float>();
  std::memset(made, 0, layer.room());
  const Overlap rows(layer.rows), columns(layer.columns);
  for (int64_t r = 0; r < rows.length; r++) {
    const float* from = given + ((rows.from + r) * layer.columns.size + columns.from) * layer.inputs;
    std::memcpy(made + (rows.to + r) * row + columns.to * layer.inputs, from,
                columns.length * layer.inputs * sizeof(float));
  }
  return {made, row};
}

// The weights in panels, written to `to`.
Kernel kernel_of(const Layer& layer, const float* given, float* to) {
  Kernel kernel;
  kernel.weights = to;
  auto each = [&](auto&& work) {
    for (int64_t r = 0; r < layer.rows.kernel; r++) {
      for (int64_t c = 0; c < layer.columns.kernel; c++) {
        for (int64_t input = 0; input < layer.inputs; input++) work(r, c, input);
      }
    }
  };
  each([&](int64_t r, int64_t c, int64_t input) {
    kernel.distances.push_back(r * layer.row() + c * layer.inputs + input);
  });
  in_blocks(layer.width_out() / kWidth, kVectors, [&](int64_t begin, int64_t count) {
    each([&](int64_t r, int64_t c, int64_t input) {
      for (int64_t v = 0; v < count; v++, to += kWidth) {
        store(to, layer.weights(given, (begin + v) * kWidth, input, r, c));
      }
    });
  });
  return kernel;
}

// Results whose windows begin at `windows`, for a panel of weights.
template <int results, int vectors>
inline void sum_up(const Kernel& kernel, const float* panel, const float* const* windows,
                   Floats (&sums)[results][vectors]) {
  for (int i = 0; i < results; i++) {
    for (int v = 0; v < vectors; v++) sums[i][v] = Floats{};
  }
  for (const int64_t distance : kernel.distances) {
    Floats w[vectors];
    for (int v = 0; v < vectors; v++, panel += kWidth) w[v] = load<Floats>(panel);
    for (int i = 0; i < results; i++) {
      const Floats x = everywhere(windows[i][distance]);
      for (int v = 0; v < vectors; v++) sums[i][v] += x * w[v];
    }
  }
}

// A run of results of one row, at `begin` of it, for a panel of weights from the output `channel` on.
struct Run {
  int64_t row, begin, channel;
  const float* panel;
};

template <int results, int vectors>
void plain(const Layer& layer, const Kernel& kernel, const Image& image, const Run& run, const float* bias,
           float* result) {
  const int64_t step = layer.columns.stride * layer.inputs;
  const float* windows[results];
  const float* first = image.begin + run.row * layer.rows.stride * image.row + run.begin * step;
  for (int i = 0; i < results; i++) windows[i] = first + i * step;
  Floats sums[results][vectors];
  sum_up<results, vectors>(kernel, run.panel, windows, sums);
  float* to = result + (run.row * layer.columns.windows + run.begin) * layer.outputs + run.channel;
  for (int v = 0; v < vectors; v++) {
    const int64_t filled = std::min(kWidth, layer.outputs - run.channel - v * kWidth);
    const Floats added = load_some(bias + run.channel + v * kWidth, filled);
    for (int i = 0; i < results; i++) {
      store_some(to + i * layer.outputs + v * kWidth, layer.epilogue(sums[i][v], added), filled);
    }
  }
}

// The same for maxima of 2x2 results.
template <int maxima, int vectors>
void pooled(const Layer& layer, const Kernel& kernel, const Image& image, const Run& run, const float* bias,
            float* result) {
  const int64_t step = layer.columns.stride * layer.inputs, below = layer.rows.stride * image.row;
  const float* windows[maxima * 4];
  const float* first = image.begin + run.row * 2 * below + run.begin * 2 * step;
  for (int i = 0; i < maxima; i++) {
    for (int j = 0; j < 4; j++) windows[i * 4 + j] = first + (i * 2 + j % 2) * step + j / 2 * below;
  }
  Floats sums[maxima * 4][vectors];
  sum_up<maxima * 4, vectors>(kernel, run.panel, windows, sums);
  float* to = result + (run.row * layer.result_columns() + run.begin) * layer.outputs + run.channel;
  for (int v = 0; v < vectors; v++) {
    const int64_t filled = std::min(kWidth, layer.outputs - run.channel - v * kWidth);
    const Floats added = load_some(bias + run.channel + v * kWidth, filled);
    for (int i = 0; i < maxima; i++) {
      // What is added to all and rectified afterwards does not change which is the largest.
      const Floats above = larger(sums[i * 4][v], sums[i * 4 + 1][v]);
      const Floats below = larger(sums[i * 4 + 2][v], sums[i * 4 + 3][v]);
      store_some(to + i * layer.outputs + v * kWidth, layer.epilogue(larger(above, below), added), filled);
    }
  }
}

using Compute = void (*)(const Layer&, const Kernel&, const Image&, const Run&, const float*, float*);

template <int vectors>
Compute compute_for(const Layer& layer, int64_t count) {
  if (layer.epilogue.pool) return count == 1 ? pooled<1, vectors> : pooled<kResults / 4, vectors>;
  static constexpr Compute all[] = {plain<1, vectors>, plain<2, vectors>, plain<3, vectors>, plain<4, vectors>,
                                    plain<5, vectors>, plain<6, vectors>, plain<7, vectors>, plain<8, vectors>};
  return all[count - 1];
}

// A row of an image's result.
void convolve_row(const Layer& layer, const Kernel& kernel, const Image& image, int64_t row, const float* bias,
                  float* result) {
  in_blocks(layer.width_out() / kWidth, kVectors, [&](int64_t first, int64_t vectors) {
    const float* panel = kernel.weights + first * kWidth * layer.taps();
    const int64_t most = layer.epilogue.pool ? kResults / 4 : kResults;
    const auto compute = vectors == 1 ? compute_for<1> : compute_for<2>;
    const Compute whole = compute(layer, most);
    int64_t begin = 0;
    for (; begin + most <= layer.result_columns(); begin += most) {
      whole(layer, kernel, image, Run{row, begin, first * kWidth, panel}, bias, result);
    }
    const int64_t rest = layer.result_columns() - begin;
    if (rest) compute(layer, rest)(layer, kernel, image, Run{row, begin, first * kWidth, panel}, bias, result);
  });
}

void convolve(ffi::ThreadPool& pool, const Layer& layer, const float* source, const float* weights, const float* bias, float* result) {
  const Scratch panels(layer.taps() * layer.width_out() * sizeof(float));
  const Kernel kernel = kernel_of(layer, weights, panels.data<float>());
  const int64_t image_size = layer.source_size() / layer.batch, result_size = layer.result_size() / layer.batch;
  const int64_t parts = parts_for(pool, kPartsPerThread, layer.batch, layer.work());
  in_parts(pool, parts, [&](int64_t part) {
    const Scratch room(layer.room());
    for (int64_t i = layer.batch * part / parts; i < layer.batch * (part + 1) / parts; i++) {
      const Image image = image_of(layer, source + i * image_size, room);
      for (int64_t row = 0; row < layer.result_rows(); row++) {
        convolve_row(layer, kernel, image, row, bias, result + i * result_size);
      }
    }
  });
}

ffi::Error shallow(ffi::ThreadPool pool, FusedArray source, FusedArray weights, FusedArray bias, FusedResult result,
                   Numbers shape) {
  return fused(pool, source, weights, bias, result, shape,
               [](ffi::ThreadPool& threads, const FusedLayer& layer, auto... arrays) {
                 convolve(threads, Layer(layer), arrays...);
               });
}

}  // namespace
}  // namespace openipu

XLA_FFI_DEFINE_HANDLER_SYMBOL(openipu_shallow_convolution, openipu::shallow, openipu::fused_binding());

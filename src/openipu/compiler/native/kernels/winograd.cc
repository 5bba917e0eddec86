// Convolutions with windows of 3x3 by Winograd's algorithm F(2x2, 3x3), on activations with the channels innermost.
//
// Four results of a channel take 16 multiplications instead of 36: patches of 4x4 inputs and the weights are
// transformed by additions, multiplied spot by spot (one product of matrices for each of the 16 spots), and the
// products transformed back. Transformed patches of a few tiles stay in the caches of the thread that needs them.
#include <algorithm>
#include <vector>

#include "fused.h"
#include "winograd.h"

namespace openipu {
namespace {

// Sums that are computed at once fill the registers: so many tiles times so many vectors of output channels.
constexpr int64_t kRows = 6;
constexpr int64_t kVectors = kWidth == 8 ? 2 : 4;
// Weights of one part of their transformation.
constexpr int64_t kWeights = 1 << 12;

// Tiles of 2x2 results. Those that pooling drops are never computed.
struct Layer : FusedLayer {
  explicit Layer(const FusedLayer& layer) : FusedLayer(layer) {}

  int64_t tiles(const Side& side) const { return epilogue.pool ? side.windows / 2 : (side.windows + 1) / 2; }
  int64_t tile_rows() const { return tiles(rows); }
  int64_t tile_columns() const { return tiles(columns); }
  int64_t tiles() const { return batch * tile_rows() * tile_columns(); }
  int64_t width_in() const { return rounded(inputs, kWidth); }
  int64_t width_out() const { return rounded(outputs, kWidth); }
};

// Weights of all spots: panels of a few vectors of output channels, each with one row for every input channel.
class Weights {
 public:
  explicit Weights(const Layer& layer) : layer_(layer), spot_(layer.inputs * layer.width_out()) {}

  int64_t size() const { return kSpots * spot_; }

  // Panel of `vectors` vectors from `begin` on: where the row of an input is.
  int64_t at(int64_t spot, int64_t begin, int64_t vectors, int64_t input) const {
    return spot * spot_ + begin * kWidth * layer_.inputs + input * vectors * kWidth;
  }

  // Those of some inputs.
  void transform(const float* given, float* made, int64_t first, int64_t last) const {
    const int64_t vectors = layer_.width_out() / kWidth;
    in_blocks(vectors, kVectors, [&](int64_t begin, int64_t count) {
      for (int64_t input = first; input < last; input++) {
        for (int64_t v = 0; v < count; v++) vector(given, made, input, begin, count, v);
      }
    });
  }

 private:
  void vector(const float* given, float* made, int64_t input, int64_t begin, int64_t count, int64_t v) const {
    Floats g[3][3], h[4][3];
    for (int64_t r = 0; r < 3; r++) {
      for (int64_t c = 0; c < 3; c++) g[r][c] = layer_.weights(given, (begin + v) * kWidth, input, r, c);
    }
    for (int64_t c = 0; c < 3; c++) apart(g[0][c], g[1][c], g[2][c], h[0][c], h[1][c], h[2][c], h[3][c]);
    for (int64_t r = 0; r < 4; r++) {
      Floats u[4];
      apart(h[r][0], h[r][1], h[r][2], u[0], u[1], u[2], u[3]);
      for (int64_t c = 0; c < 4; c++) store(made + at(r * 4 + c, begin, count, input) + v * kWidth, u[c]);
    }
  }

  static void apart(Floats a, Floats b, Floats c, Floats& u0, Floats& u1, Floats& u2, Floats& u3) {
    const Floats outer = 0.5f * (a + c), half = 0.5f * b;
    u0 = a;
    u1 = outer + half;
    u2 = outer - half;
    u3 = c;
  }

  const Layer& layer_;
  int64_t spot_;
};

// The patches of a piece, transformed: spot after spot, `spot` numbers apart.
void transform_patches(const Layer& layer, const float* source, const Piece& piece, float* patches, int64_t spot) {
  const int64_t inputs = layer.inputs, row = layer.columns.size * inputs;
  const int64_t top = piece.row * 2 - layer.rows.low, left = piece.begin * 2 - layer.columns.low;
  const float* image = source + piece.image * layer.rows.size * row;
  for (int64_t channel = 0; channel < inputs; channel += kWidth) {
    const int64_t filled = std::min(kWidth, inputs - channel);
    const Plane plane{image + channel, layer.rows.size, layer.columns.size, row, inputs, filled};
    transform_patches(plane, top, left, piece.size(), patches + channel, layer.width_in(), spot);
  }
}

// The product of `rows` patches and a panel of weights at one spot.
template <int rows, int vectors>
void multiply(const float* patches, int64_t width, const float* panel, int64_t inputs, float* products, int64_t step) {
  Floats sums[rows][vectors] = {};
  for (int64_t input = 0; input < inputs; input++, panel += vectors * kWidth) {
    Floats w[vectors];
    for (int v = 0; v < vectors; v++) w[v] = load<Floats>(panel + v * kWidth);
    for (int r = 0; r < rows; r++) {
      const Floats x = everywhere(patches[r * width + input]);
      for (int v = 0; v < vectors; v++) sums[r][v] += x * w[v];
    }
  }
  for (int r = 0; r < rows; r++) {
    for (int v = 0; v < vectors; v++) store(products + r * step + v * kWidth, sums[r][v]);
  }
}

using Multiply = void (*)(const float*, int64_t, const float*, int64_t, float*, int64_t);

template <int vectors>
Multiply multiply_for(int64_t rows) {
  static_assert(kRows == 6, "one function for each number of rows");
  static constexpr Multiply all[] = {multiply<1, vectors>, multiply<2, vectors>, multiply<3, vectors>,
                                     multiply<4, vectors>, multiply<5, vectors>, multiply<6, vectors>};
  return all[rows - 1];
}

Multiply multiply_for(int64_t rows, int64_t vectors) {
  static_assert(kVectors <= 4, "one function for each number of vectors");
  static constexpr Multiply (*all[])(int64_t) = {multiply_for<1>, multiply_for<2>, multiply_for<3>, multiply_for<4>};
  return all[vectors - 1](rows);
}

// All products of so many patches.
void multiply_all(const Layer& layer, const Weights& weights, const float* transformed, int64_t tiles,
                  const float* patches, int64_t patch_spot, float* products, int64_t product_spot) {
  const int64_t width_in = layer.width_in(), width_out = layer.width_out();
  for (int64_t spot = 0; spot < kSpots; spot++) {
    in_blocks(width_out / kWidth, kVectors, [&](int64_t begin, int64_t vectors) {
      const float* panel = transformed + weights.at(spot, begin, vectors, 0);
      in_blocks(tiles, kRows, [&](int64_t tile, int64_t rows) {
        multiply_for(rows, vectors)(patches + spot * patch_spot + tile * width_in, width_in, panel, layer.inputs,
                                    products + spot * product_spot + tile * width_out + begin * kWidth, width_out);
      });
    });
  }
}

// The results of a piece, from its products.
void transform_back(const Layer& layer, const float* bias, const Piece& piece, const float* products, int64_t spot,
                    float* result) {
  const Epilogue& epilogue = layer.epilogue;
  const int64_t outputs = layer.outputs, width = layer.width_out(), line = layer.result_columns() * outputs;
  float* image = result + piece.image * layer.result_rows() * line;
  for (int64_t channel = 0; channel < outputs; channel += kWidth) {
    const int64_t filled = std::min(kWidth, outputs - channel);
    const Floats added = load_some(bias + channel, filled);
    const float* from = products + channel;
    for (int64_t tile = piece.begin; tile < piece.end; tile++, from += width) {
      Floats above[4], below[4];
      for (int64_t j = 0; j < 4; j++) {
        const float* at = from + j * spot;
        const Floats m0 = load<Floats>(at), m1 = load<Floats>(at + 4 * spot);
        const Floats m2 = load<Floats>(at + 8 * spot), m3 = load<Floats>(at + 12 * spot);
        above[j] = m0 + m1 + m2;
        below[j] = m1 - m2 - m3;
      }
      const Floats y00 = above[0] + above[1] + above[2], y01 = above[1] - above[2] - above[3];
      const Floats y10 = below[0] + below[1] + below[2], y11 = below[1] - below[2] - below[3];
      if (epilogue.pool) {
        // What is added to all and rectified afterwards does not change which is the largest.
        const Floats most = larger(larger(y00, y01), larger(y10, y11));
        store_some(image + piece.row * line + tile * outputs + channel, epilogue(most, added), filled);
        continue;
      }
      float* to = image + piece.row * 2 * line + tile * 2 * outputs + channel;
      const bool right = tile * 2 + 1 < layer.columns.windows, down = piece.row * 2 + 1 < layer.rows.windows;
      store_some(to, epilogue(y00, added), filled);
      if (right) store_some(to + outputs, epilogue(y01, added), filled);
      if (down) store_some(to + line, epilogue(y10, added), filled);
      if (right && down) store_some(to + line + outputs, epilogue(y11, added), filled);
    }
  }
}

void compute(const Layer& layer, const float* source, const Weights& weights, const float* transformed,
             const float* bias, const Block& block, float* result) {
  const int64_t patch_spot = spot_step(block.tiles * layer.width_in());
  const int64_t product_spot = spot_step(block.tiles * layer.width_out());
  const Scratch scratch(kSpots * (patch_spot + product_spot) * sizeof(float));
  float* patches = scratch.data<float>();
  float* products = patches + kSpots * patch_spot;
  int64_t tile = 0;
  for (const Piece* piece = block.begin; piece < block.end; tile += piece->size(), piece++) {
    transform_patches(layer, source, *piece, patches + tile * layer.width_in(), patch_spot);
  }
  multiply_all(layer, weights, transformed, block.tiles, patches, patch_spot, products, product_spot);
  tile = 0;
  for (const Piece* piece = block.begin; piece < block.end; tile += piece->size(), piece++) {
    transform_back(layer, bias, *piece, products + tile * layer.width_out(), product_spot, result);
  }
}

void convolve(ffi::ThreadPool& pool, const Layer& layer, const float* source, const float* given, const float* bias,
              float* result) {
  const Weights weights(layer);
  const Scratch scratch(weights.size() * sizeof(float));
  float* transformed = scratch.data<float>();
  const int64_t most = tiles_at_once(layer.width_in() + layer.width_out());
  const std::vector<Piece> pieces = pieces_of(layer.batch, layer.tile_rows(), layer.tile_columns());
  const std::vector<Block> blocks =
      blocks_of(pieces, rounded((layer.tiles() + most - 1) / most, std::max<int64_t>(1, pool.num_threads())));
  const int64_t parts = std::max<int64_t>(1, std::min({layer.inputs * layer.outputs / kWeights, layer.inputs,
                                                       pool.num_threads()}));
  in_parts(pool, parts, [&](int64_t part) {
    weights.transform(given, transformed, layer.inputs * part / parts, layer.inputs * (part + 1) / parts);
  });
  in_parts(pool, blocks.size(), [&](int64_t block) {
    compute(layer, source, weights, transformed, bias, blocks[block], result);
  });
}

ffi::Error winograd(ffi::ThreadPool pool, FusedArray source, FusedArray weights, FusedArray bias, FusedResult result,
                    Numbers shape) {
  return fused(pool, source, weights, bias, result, shape,
               [](ffi::ThreadPool& threads, const FusedLayer& layer, auto... arrays) {
                 convolve(threads, Layer(layer), arrays...);
               });
}

}  // namespace
}  // namespace openipu

XLA_FFI_DEFINE_HANDLER_SYMBOL(openipu_winograd_convolution, openipu::winograd, openipu::fused_binding());

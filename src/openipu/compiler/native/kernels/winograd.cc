// Convolutions with windows of 3x3 by Winograd's algorithms F(2x2, 3x3) and F(4x4, 3x3), on activations with the
// channels innermost.
//
// A tile of 2x2 results of a channel takes 16 multiplications instead of 36, one of 4x4 takes 36 instead of 144: patches
// of inputs and the weights are transformed, multiplied spot by spot (one product of matrices for each of the 16 or 36
// spots), and the products transformed back. Transformed patches of a few tiles stay in the caches of the thread that
// needs them.
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

// Transformed weights that stay in a cache while blocks of tiles pass; more are read again for every block.
constexpr int64_t kCached = 1 << 20;

// Tiles of results. Those of which pooling drops everything are never computed.
template <int tile>
struct Layer : FusedLayer {
  explicit Layer(const FusedLayer& layer) : FusedLayer(layer) {}

  int64_t tiles(const Side& side) const {
    const int64_t windows = epilogue.pool ? side.windows / 2 * 2 : side.windows;
    return (windows + tile - 1) / tile;
  }
  int64_t tile_rows() const { return tiles(rows); }
  int64_t tile_columns() const { return tiles(columns); }
  int64_t tiles() const { return batch * tile_rows() * tile_columns(); }
  int64_t width_in() const { return rounded(inputs, kWidth); }
  int64_t width_out() const { return rounded(outputs, kWidth); }
};

// Weights of all spots: panels of a few vectors of output channels, each with one row for every input channel.
template <int tile>
class Weights {
 public:
  explicit Weights(const Layer<tile>& layer) : layer_(layer), spot_(layer.inputs * layer.width_out()) {}

  int64_t size() const { return kSpots<tile> * spot_; }

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
    constexpr int size = kPatch<tile>;
    Floats columns[3][size];
    for (int64_t c = 0; c < 3; c++) {
      Floats column[3];
      for (int64_t r = 0; r < 3; r++) column[r] = layer_.weights(given, (begin + v) * kWidth, input, r, c);
      Line<tile>::weights(column, columns[c]);
    }
    for (int64_t r = 0; r < size; r++) {
      Floats transformed[size];
      Line<tile>::weights({columns[0][r], columns[1][r], columns[2][r]}, transformed);
      for (int64_t c = 0; c < size; c++) store(made + at(r * size + c, begin, count, input) + v * kWidth, transformed[c]);
    }
  }

  const Layer<tile>& layer_;
  int64_t spot_;
};

// The patches of a piece, transformed: spot after spot, `spot` numbers apart.
template <int tile>
void transform_patches(const Layer<tile>& layer, const float* source, const Piece& piece, float* patches,
                       int64_t spot) {
  const int64_t inputs = layer.inputs, row = layer.columns.size * inputs;
  const int64_t top = piece.row * tile - layer.rows.low, left = piece.begin * tile - layer.columns.low;
  const float* image = source + piece.image * layer.rows.size * row;
  for (int64_t channel = 0; channel < inputs; channel += kWidth) {
    const Plane plane{image + channel, layer.rows.size, layer.columns.size, row, inputs};
    by_width(std::min(kWidth, inputs - channel), [&](auto vectors) {
      transform_patches<tile>(plane, vectors, top, left, piece.size(), patches + channel, layer.width_in(), spot);
    });
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
template <int tile>
void multiply_all(const Layer<tile>& layer, const Weights<tile>& weights, const float* transformed, int64_t tiles,
                  const float* patches, int64_t patch_spot, float* products, int64_t product_spot) {
  const int64_t width_in = layer.width_in(), width_out = layer.width_out();
  for (int64_t spot = 0; spot < kSpots<tile>; spot++) {
    in_blocks(width_out / kWidth, kVectors, [&](int64_t begin, int64_t vectors) {
      const float* panel = transformed + weights.at(spot, begin, vectors, 0);
      in_blocks(tiles, kRows, [&](int64_t first, int64_t rows) {
        multiply_for(rows, vectors)(patches + spot * patch_spot + first * width_in, width_in, panel, layer.inputs,
                                    products + spot * product_spot + first * width_out + begin * kWidth, width_out);
      });
    });
  }
}

// Products of all spots of a tile, transformed back to results.
template <int tile>
inline void results_of(const float* products, int64_t spot, Floats (&results)[tile][tile]) {
  constexpr int size = kPatch<tile>;
  Floats columns[size][tile];
  for (int c = 0; c < size; c++) {
    Floats column[size];
    for (int r = 0; r < size; r++) column[r] = load<Floats>(products + (r * size + c) * spot);
    Line<tile>::results(column, columns[c]);
  }
  for (int r = 0; r < tile; r++) {
    Floats row[size];
    for (int c = 0; c < size; c++) row[c] = columns[c][r];
    Line<tile>::results(row, results[r]);
  }
}

// The results of a piece, from its products.
template <int tile>
void transform_back(const Layer<tile>& layer, const float* bias, const Piece& piece, const float* products,
                    int64_t spot, float* result) {
  const Epilogue& epilogue = layer.epilogue;
  // One number of the result is of so many results in each dimension.
  const int64_t each = epilogue.pool ? 2 : 1, down = layer.result_rows() - piece.row * tile / each;
  const int64_t outputs = layer.outputs, width = layer.width_out(), line = layer.result_columns() * outputs;
  float* first = result + (piece.image * layer.result_rows() + piece.row * tile / each) * line;
  for (int64_t channel = 0; channel < outputs; channel += kWidth) {
    by_width(std::min(kWidth, outputs - channel), [&](auto vectors) {
      const Floats added = vectors.load(bias + channel);
      const float* from = products + channel;
      for (int64_t number = piece.begin; number < piece.end; number++, from += width) {
        const int64_t right = layer.result_columns() - number * tile / each;
        float* to = first + number * tile / each * outputs + channel;
        Floats y[tile][tile];
        results_of<tile>(from, spot, y);
        if (epilogue.pool) {
          for (int r = 0; r < tile / 2; r++) {
            for (int c = 0; c < tile / 2; c++) {
              // What is added to all and rectified afterwards does not change which is the largest.
              const Floats above = larger(y[2 * r][2 * c], y[2 * r][2 * c + 1]);
              const Floats below = larger(y[2 * r + 1][2 * c], y[2 * r + 1][2 * c + 1]);
              if (r < down && c < right) vectors.store(to + r * line + c * outputs, epilogue(larger(above, below), added));
            }
          }
        } else {
          for (int r = 0; r < tile; r++) {
            for (int c = 0; c < tile; c++) {
              if (r < down && c < right) vectors.store(to + r * line + c * outputs, epilogue(y[r][c], added));
            }
          }
        }
      }
    });
  }
}

template <int tile>
void compute(const Layer<tile>& layer, const float* source, const Weights<tile>& weights, const float* transformed,
             const float* bias, const Block& block, float* result) {
  constexpr int64_t spots = kSpots<tile>;
  const int64_t patch_spot = spot_step(block.tiles * layer.width_in());
  const int64_t product_spot = spot_step(block.tiles * layer.width_out());
  const Scratch scratch(spots * (patch_spot + product_spot) * sizeof(float));
  float* patches = scratch.data<float>();
  float* products = patches + spots * patch_spot;
  int64_t first = 0;
  for (const Piece* piece = block.begin; piece < block.end; first += piece->size(), piece++) {
    transform_patches(layer, source, *piece, patches + first * layer.width_in(), patch_spot);
  }
  multiply_all(layer, weights, transformed, block.tiles, patches, patch_spot, products, product_spot);
  first = 0;
  for (const Piece* piece = block.begin; piece < block.end; first += piece->size(), piece++) {
    transform_back(layer, bias, *piece, products + first * layer.width_out(), product_spot, result);
  }
}

template <int tile>
void convolve(ffi::ThreadPool& pool, const Layer<tile>& layer, const float* source, const float* given,
              const float* bias, float* result) {
  const Weights<tile> weights(layer);
  const Scratch scratch(weights.size() * sizeof(float));
  float* transformed = scratch.data<float>();
  const int64_t numbers = kSpots<tile> * (layer.width_in() + layer.width_out());
  const int64_t most = weights.size() > kCached ? kMostTiles : tiles_at_once(numbers);
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

template <int tile>
ffi::Error winograd(ffi::ThreadPool pool, FusedArray source, FusedArray weights, FusedArray bias, FusedResult result,
                    Numbers shape) {
  return fused(pool, source, weights, bias, result, shape,
               [](ffi::ThreadPool& threads, const FusedLayer& layer, auto... arrays) {
                 convolve(threads, Layer<tile>(layer), arrays...);
               });
}

}  // namespace
}  // namespace openipu

XLA_FFI_DEFINE_HANDLER_SYMBOL(openipu_winograd_convolution, openipu::winograd<2>, openipu::fused_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(openipu_wide_winograd_convolution, openipu::winograd<4>, openipu::fused_binding());

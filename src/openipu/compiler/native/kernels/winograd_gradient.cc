// The gradient of weights of 3x3 by Winograd's algorithms F(3x3, 2x2) and F(3x3, 4x4), on activations with the channels
// innermost.
//
// What a tile of 2x2 gradients adds to the weights of two channels takes 16 multiplications instead of 36, one of 4x4
// takes 36 instead of 144: the inputs of the tile and its gradients are transformed and multiplied spot by spot, which
// is summed over all tiles: one product of matrices for each spot. Sums are transformed back once.
//
// Where all sums are few, each thread has its own, and works on a few tiles at once that stay in its caches. Otherwise
// threads transform many tiles together, and each of them sums for some of the channels.
#include <algorithm>
#include <vector>

#include "parts.h"
#include "scratch.h"
#include "tiles.h"
#include "winograd.h"

namespace openipu {
namespace {

// Sums of which every thread may have its own: they stay in its caches.
constexpr int64_t kOwnSums = 160 << 10;
// Tiles that are transformed at once where threads have no sums of their own: these are read and written for each.
constexpr int64_t kTilesTogether = 512;
// Tiles of one vector of channels that stay in the first cache while sums of all rows pass.
constexpr int64_t kDepth = 64;
// Fewest rows of a part of the sums.
constexpr int64_t kFewestRows = 2 * kRows;

template <int tile>
struct Side {
  int64_t size, windows, low;
  int64_t tiles() const { return (windows + tile - 1) / tile; }
};

// A layer's convolution; `shape` is that of `Layer` in convolution.cc, with two dimensions of space and one group.
template <int tile>
struct Layer {
  int64_t batch, inputs, outputs;
  Side<tile> rows, columns;
  int64_t of_output, of_input, of_row, of_column;

  explicit Layer(Numbers n)
      : batch(n[2]), inputs(n[3]), outputs(n[4]), rows{n[5], n[7], n[15]}, columns{n[6], n[8], n[16]},
        of_output(n[18]), of_input(n[19]), of_row(n[20]), of_column(n[21]) {}

  int64_t tiles() const { return batch * rows.tiles() * columns.tiles(); }
  int64_t source_size() const { return batch * rows.size * columns.size * inputs; }
  int64_t target_size() const { return batch * rows.windows * columns.windows * outputs; }
  int64_t weights_size() const { return inputs * outputs * 9; }
  int64_t width_in() const { return rounded(inputs, kWidth); }
  int64_t width_out() const { return rounded(outputs, kWidth); }
};

// A few vectors of channels.
struct Panel {
  int64_t begin, vectors;
  int64_t width() const { return vectors * kWidth; }
};

std::vector<Panel> panels_of(int64_t channels) {
  std::vector<Panel> panels;
  in_blocks((channels + kWidth - 1) / kWidth, kColumns,
            [&](int64_t begin, int64_t vectors) { panels.push_back({begin, vectors}); });
  return panels;
}

// Transformed numbers of so many spots: panel after panel, each with one row for every tile.
class Transformed {
 public:
  Transformed(int64_t spots, int64_t channels, int64_t tiles)
      : panels(panels_of(channels)), tiles_(tiles), spot_(spot_step(tiles * rounded(channels, kWidth))),
        room_(spots * spot_ * sizeof(float)) {}

  float* at(int64_t spot, const Panel& panel, int64_t tile) const {
    return room_.data<float>() + spot * spot_ + panel.begin * kWidth * tiles_ + tile * panel.width();
  }

  // work(first channel, where its vector of the first tile is to be, how far apart tiles are, and spots).
  template <class Work>
  void for_vectors(int64_t tile, Work&& work) const {
    for (const Panel& panel : panels) {
      for (int64_t v = 0; v < panel.vectors; v++) {
        work((panel.begin + v) * kWidth, at(0, panel, tile) + v * kWidth, panel.width(), spot_);
      }
    }
  }

  const std::vector<Panel> panels;

 private:
  int64_t tiles_, spot_;
  Scratch room_;
};

// Gradients of windows from (top, left) on, a tile further each time, transformed.
template <int tile, class Vectors>
void transform_windows(const Plane& plane, Vectors vectors, int64_t top, int64_t left, int64_t tiles, float* to,
                       int64_t step, int64_t spot) {
  constexpr int size = kPatch<tile>;
  const Rows<tile, Vectors> rows(plane, top, vectors);
  for (int64_t done = 0; done < tiles; done++, left += tile, to += step) {
    Floats columns[tile][size];
    for (int c = 0; c < tile; c++) {
      Floats given[tile];
      rows.read(left + c, given);
      Line<tile>::gradients(given, columns[c]);
    }
    for (int r = 0; r < size; r++) {
      Floats row[tile], made[size];
      for (int c = 0; c < tile; c++) row[c] = columns[c][r];
      Line<tile>::gradients(row, made);
      for (int c = 0; c < size; c++) store(to + (r * size + c) * spot, made[c]);
    }
  }
}

// Inputs and gradients of some tiles, transformed.
template <int tile>
struct Operands {
  Operands(const Layer<tile>& layer, int64_t tiles)
      : layer(layer), inputs(kSpots<tile>, layer.inputs, tiles), outputs(kSpots<tile>, layer.outputs, tiles) {}

  // The tiles of a block, to where those of others end.
  void transform(const Block& block, const float* source, const float* target, int64_t to_tile) const {
    for (const Piece* piece = block.begin; piece < block.end; to_tile += piece->size(), piece++) {
      const int64_t top = piece->row * tile, left = piece->begin * tile;
      inputs.for_vectors(to_tile, [&](int64_t channel, float* to, int64_t step, int64_t spot) {
        const Plane x = plane(source, layer.rows.size, layer.columns.size, layer.inputs, piece->image, channel);
        by_width(std::min(kWidth, layer.inputs - channel), [&](auto vectors) {
          transform_patches<tile>(x, vectors, top - layer.rows.low, left - layer.columns.low, piece->size(), to, step,
                                  spot);
        });
      });
      outputs.for_vectors(to_tile, [&](int64_t channel, float* to, int64_t step, int64_t spot) {
        const Plane y = plane(target, layer.rows.windows, layer.columns.windows, layer.outputs, piece->image, channel);
        by_width(std::min(kWidth, layer.outputs - channel), [&](auto vectors) {
          transform_windows<tile>(y, vectors, top, left, piece->size(), to, step, spot);
        });
      });
    }
  }

  static Plane plane(const float* array, int64_t rows, int64_t columns, int64_t channels, int64_t image,
                     int64_t channel) {
    return {array + image * rows * columns * channels + channel, rows, columns, columns * channels, channels};
  }

  const Layer<tile>& layer;
  Transformed inputs, outputs;
};

// Sums of some inputs, which are rows [row, row + rows) of a panel, and a panel of outputs: [spot, rows, outputs].
template <int tile>
struct Sums {
  Panel left;
  int64_t row, rows;
  Panel right;
  int64_t offset;

  int64_t size() const { return kSpots<tile> * rows * right.width(); }

  // Adds what so many tiles give; the first ones are not added to anything.
  void add(const Operands<tile>& operands, int64_t tiles, bool first, float* sums) const {
    for (int64_t spot = 0; spot < kSpots<tile>; spot++, sums += rows * right.width()) {
      for (int64_t begin = 0; begin < tiles; begin += kDepth) {
        const float* x = operands.inputs.at(spot, left, begin) + row;
        const float* y = operands.outputs.at(spot, right, begin);
        add(x, y, std::min(kDepth, tiles - begin), first && begin == 0, sums);
      }
    }
  }

  // Transforms the sums back to weights.
  void write(const Layer<tile>& layer, const float* sums, float* result) const {
    const int64_t spot = rows * right.width();
    for (int64_t v = 0; v < right.vectors; v++) {
      const int64_t output = (right.begin + v) * kWidth, filled = std::min(kWidth, layer.outputs - output);
      for (int64_t r = 0; r < rows; r++) {
        const int64_t input = left.begin * kWidth + row + r;
        if (input >= layer.inputs) break;
        Floats weights[3][3];
        back(sums + r * right.width() + v * kWidth, spot, weights);
        put(layer, weights, filled, result + output * layer.of_output + input * layer.of_input);
      }
    }
  }

 private:
  void add(const float* x, const float* y, int64_t depth, bool first, float* sums) const {
    by_vectors(right.vectors, [&](auto of_vectors) {
      constexpr int vectors = decltype(of_vectors)::value;
      by_rows(rows, [&](int64_t begin, auto of_rows) {
        constexpr int many = decltype(of_rows)::value;
        float* at = sums + begin * vectors * kWidth;
        Floats total[many][vectors] = {};
        if (!first) {
          for (int r = 0; r < many; r++) {
            for (int v = 0; v < vectors; v++) total[r][v] = load<Floats>(at + (r * vectors + v) * kWidth);
          }
        }
        multiply<vectors, many>(x + begin, 1, left.width(), depth, y, total);
        for (int r = 0; r < many; r++) {
          for (int v = 0; v < vectors; v++) store(at + (r * vectors + v) * kWidth, total[r][v]);
        }
      });
    });
  }

  static void back(const float* sums, int64_t spot, Floats (&weights)[3][3]) {
    constexpr int size = kPatch<tile>;
    Floats columns[size][3];
    for (int c = 0; c < size; c++) {
      Floats column[size];
      for (int r = 0; r < size; r++) column[r] = load<Floats>(sums + (r * size + c) * spot);
      Line<tile>::sums(column, columns[c]);
    }
    for (int r = 0; r < 3; r++) {
      Floats row[size];
      for (int c = 0; c < size; c++) row[c] = columns[c][r];
      Line<tile>::sums(row, weights[r]);
    }
  }

  static void put(const Layer<tile>& layer, const Floats (&weights)[3][3], int64_t filled, float* to) {
    if (layer.of_output == 1) {
      for (int64_t r = 0; r < 3; r++) {
        for (int64_t c = 0; c < 3; c++) store_some(to + r * layer.of_row + c * layer.of_column, weights[r][c], filled);
      }
      return;
    }
    for (int64_t i = 0; i < filled; i++, to += layer.of_output) {
      for (int64_t r = 0; r < 3; r++) {
        for (int64_t c = 0; c < 3; c++) to[r * layer.of_row + c * layer.of_column] = weights[r][c][i];
      }
    }
  }
};

// All sums in at least so many parts, if there are as many rows.
template <int tile>
std::vector<Sums<tile>> parts_of(const Layer<tile>& layer, int64_t parts) {
  const std::vector<Panel> inputs = panels_of(layer.inputs), outputs = panels_of(layer.outputs);
  const int64_t pairs = inputs.size() * outputs.size(), cuts = (parts + pairs - 1) / pairs;
  std::vector<Sums<tile>> made;
  int64_t offset = 0;
  for (const Panel& left : inputs) {
    const int64_t rows = std::min(left.width(), layer.inputs - left.begin * kWidth);
    in_blocks(rows, std::max(kFewestRows, (rows + cuts - 1) / cuts), [&](int64_t row, int64_t count) {
      for (const Panel& right : outputs) {
        made.push_back({left, row, count, right, offset});
        offset += made.back().size();
      }
    });
  }
  return made;
}

template <int tile>
int64_t sums_size(const std::vector<Sums<tile>>& parts) { return parts.back().offset + parts.back().size(); }

int64_t largest(const std::vector<Block>& blocks) {
  return std::max_element(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) { return a.tiles < b.tiles; })
      ->tiles;
}

struct Arrays {
  const float *source, *target;
  float* result;
};

// Every thread sums over tiles of its own; then these sums are added.
template <int tile>
void each_its_own(ffi::ThreadPool& pool, const Layer<tile>& layer, const std::vector<Sums<tile>>& parts,
                  const Arrays& arrays) {
  const int64_t threads = std::max<int64_t>(1, pool.num_threads()), size = sums_size(parts);
  const int64_t most = tiles_at_once(kSpots<tile> * (layer.width_in() + layer.width_out()));
  const std::vector<Piece> pieces = pieces_of(layer.batch, layer.rows.tiles(), layer.columns.tiles());
  const std::vector<Block> blocks = blocks_of(pieces, rounded((layer.tiles() + most - 1) / most, threads));
  const int64_t shares = std::min<int64_t>(threads, blocks.size()), count = blocks.size();
  const Scratch scratch(shares * size * sizeof(float));
  in_parts(pool, shares, [&](int64_t share) {
    const Operands<tile> operands(layer, largest(blocks));
    const int64_t begin = count * share / shares, end = count * (share + 1) / shares;
    for (int64_t block = begin; block < end; block++) {
      operands.transform(blocks[block], arrays.source, arrays.target, 0);
      for (const Sums<tile>& sums : parts) {
        sums.add(operands, blocks[block].tiles, block == begin, scratch.data<float>() + share * size + sums.offset);
      }
    }
  });
  in_parts(pool, parts.size(), [&](int64_t part) {
    float* total = scratch.data<float>() + parts[part].offset;
    for (int64_t share = 1; share < shares; share++) {
      for (int64_t i = 0; i < parts[part].size(); i++) total[i] += total[share * size + i];
    }
    parts[part].write(layer, total, arrays.result);
  });
}

// Threads transform tiles together, and each sums for some of the channels.
template <int tile>
void together(ffi::ThreadPool& pool, const Layer<tile>& layer, const std::vector<Sums<tile>>& parts,
              const Arrays& arrays) {
  const std::vector<Piece> pieces = pieces_of(layer.batch, layer.rows.tiles(), layer.columns.tiles());
  const std::vector<Block> rounds = blocks_of(pieces, (layer.tiles() + kTilesTogether - 1) / kTilesTogether);
  const Operands<tile> operands(layer, largest(rounds));
  // Sums that are not added to later need no place for all of them at once.
  const bool once = rounds.size() == 1;
  const Scratch kept(once ? 0 : sums_size(parts) * sizeof(float));
  for (const Block& round : rounds) {
    const bool first = &round == &rounds.front(), last = &round == &rounds.back();
    in_parts(pool, round.end - round.begin, [&](int64_t piece) {
      int64_t done = 0;
      for (const Piece* before = round.begin; before < round.begin + piece; before++) done += before->size();
      operands.transform({round.begin + piece, round.begin + piece + 1}, arrays.source, arrays.target, done);
    });
    in_parts(pool, parts.size(), [&](int64_t part) {
      const Sums<tile>& sums = parts[part];
      const Scratch own(once ? sums.size() * sizeof(float) : 0);
      float* all = once ? own.data<float>() : kept.data<float>() + sums.offset;
      sums.add(operands, round.tiles, first, all);
      if (last) sums.write(layer, all, arrays.result);
    });
  }
}

template <int tile>
void compute(ffi::ThreadPool& pool, const Layer<tile>& layer, const Arrays& arrays) {
  const std::vector<Sums<tile>> parts = parts_of(layer, 2 * pool.num_threads());
  const bool few = kSpots<tile> * layer.width_in() * layer.width_out() <= kOwnSums;
  (few ? each_its_own<tile> : together<tile>)(pool, layer, parts, arrays);
}

template <int tile>
ffi::Error winograd_gradient(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> source, ffi::Buffer<ffi::F32> target,
                             ffi::ResultBuffer<ffi::F32> result, Numbers shape, int64_t lanes) {
  return guarded([&] {
    const Layer<tile> layer(shape);
    for (int64_t lane = 0; lane < lanes; lane++) {
      compute(pool, layer, {source.typed_data() + lane * layer.source_size(),
                            target.typed_data() + lane * layer.target_size(),
                            result->typed_data() + lane * layer.weights_size()});
    }
  });
}

auto binding() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Arg<ffi::Buffer<ffi::F32>>()
      .Arg<ffi::Buffer<ffi::F32>>()
      .Ret<ffi::Buffer<ffi::F32>>()
      .Attr<Numbers>("shape")
      .Attr<int64_t>("lanes");
}

}  // namespace
}  // namespace openipu

XLA_FFI_DEFINE_HANDLER_SYMBOL(openipu_convolution_winograd_weight_gradient, openipu::winograd_gradient<2>,
                              openipu::binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(openipu_convolution_wide_winograd_weight_gradient, openipu::winograd_gradient<4>,
                              openipu::binding());

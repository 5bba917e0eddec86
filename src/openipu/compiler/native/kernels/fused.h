// Layers whose results go through what follows them before they leave the registers: bias, rectifier, maxima of 2x2.
#pragma once

#include <algorithm>

#include "parts.h"
#include "scratch.h"
#include "vectors.h"

namespace openipu {

// The larger of two; what is not a number wins, as it does in XLA.
inline Floats larger(Floats a, Floats b) { return (b > a) | (b != b) ? b : a; }

// A bias is added, then `rectify` replaces what is less than zero, then `pool` keeps the maxima of 2x2 windows side
// by side; rows and columns that fill no window are dropped.
struct Epilogue {
  bool rectify, pool;

  Floats operator()(Floats value, Floats bias) const {
    value += bias;
    return rectify ? (value < Floats{} ? Floats{} : value) : value;
  }
};

struct Side {
  int64_t size, windows, kernel, stride, low;
};

// A convolution on activations with the channels innermost. `shape` holds: lanes, batch, inputs, outputs; the numbers
// of `Side` for rows and for columns; of the weights where the first one is and how far apart outputs, inputs, rows
// and columns are (less than nothing where they are used in reverse); whether results are rectified and pooled.
struct FusedLayer {
  int64_t lanes, batch, inputs, outputs;
  Side rows, columns;
  int64_t first, of_output, of_input, of_row, of_column;
  Epilogue epilogue;

  explicit FusedLayer(Numbers shape) {
    const int64_t* next = shape.begin();
    for (int64_t* field : {&lanes, &batch, &inputs, &outputs}) *field = *next++;
    for (Side* s : {&rows, &columns}) {
      for (int64_t* field : {&s->size, &s->windows, &s->kernel, &s->stride, &s->low}) *field = *next++;
    }
    for (int64_t* field : {&first, &of_output, &of_input, &of_row, &of_column}) *field = *next++;
    epilogue.rectify = *next++;
    epilogue.pool = *next++;
  }

  int64_t result_rows() const { return epilogue.pool ? rows.windows / 2 : rows.windows; }
  int64_t result_columns() const { return epilogue.pool ? columns.windows / 2 : columns.windows; }
  int64_t source_size() const { return batch * rows.size * columns.size * inputs; }
  int64_t result_size() const { return batch * result_rows() * result_columns() * outputs; }

  // The weights of an input, a row and a column for a vector of outputs; zeros where there are no more.
  Floats weights(const float* given, int64_t output, int64_t input, int64_t row, int64_t column) const {
    const int64_t filled = std::min(kWidth, outputs - output);
    const float* from = given + first + output * of_output + input * of_input + row * of_row + column * of_column;
    if (of_output == 1) return load_some(from, filled);
    Floats value = {};
    for (int64_t i = 0; i < filled; i++) value[i] = from[i * of_output];
    return value;
  }
};

using FusedArray = ffi::Buffer<ffi::F32>;
using FusedResult = ffi::ResultBuffer<ffi::F32>;

// Lanes are layers of equal shape, one after the other in every array:
//   convolve(pool, layer, source, weights, bias, result).
template <class Convolve>
ffi::Error fused(ffi::ThreadPool& pool, FusedArray& source, FusedArray& weights, FusedArray& bias, FusedResult& result,
                 Numbers shape, Convolve&& convolve) {
  return guarded([&] {
    const FusedLayer layer(shape);
    const int64_t each = weights.element_count() / layer.lanes;
    for (int64_t lane = 0; lane < layer.lanes; lane++) {
      convolve(pool, layer, source.typed_data() + lane * layer.source_size(), weights.typed_data() + lane * each,
               bias.typed_data() + lane * layer.outputs, result->typed_data() + lane * layer.result_size());
    }
  });
}

inline auto fused_binding() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Arg<FusedArray>()
      .Arg<FusedArray>()
      .Arg<FusedArray>()
      .Ret<FusedArray>()
      .Attr<Numbers>("shape");
}

}  // namespace openipu

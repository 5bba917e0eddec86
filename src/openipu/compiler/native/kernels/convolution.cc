// Convolutions and their two gradients, by oneDNN, on activations with the channels innermost.
#include "onednn.h"

namespace openipu {
namespace {

using dnnl::algorithm;
using dnnl::memory;

enum Kind : int64_t { kForward = 0, kDataGradient = 1, kWeightGradient = 2 };

// A layer's convolution. `shape` holds, in this order:
//   rank, groups, batch, inputs, outputs (of all groups), then `rank` numbers each of
//   space, windows, kernel, strides, dilations (1 is none), padding below,
//   then the strides of the weights (groups, outputs of a group, inputs of a group, *kernel).
struct Layer {
  int64_t rank, groups;
  Dims source, weights, target, strides, dilations, low, high;
  memory::desc given_weights;
  memory::data_type type;

  Layer(Numbers shape, memory::data_type type) : type(type) {
    const int64_t* next = shape.begin();
    rank = *next++;
    groups = *next++;
    int64_t batch = *next++, inputs = *next++, outputs = *next++;
    auto take = [&] { Dims taken(next, next + rank); next += rank; return taken; };
    Dims space = take(), windows = take(), kernel = take();
    strides = take();
    dilations = take();
    low = take();
    for (int64_t d = 0; d < rank; d++) {
      high.push_back((windows[d] - 1) * strides[d] + (kernel[d] - 1) * dilations[d] + 1 - space[d] - low[d]);
      dilations[d] -= 1;
    }
    source = {batch, inputs};
    target = {batch, outputs};
    weights = {groups, outputs / groups, inputs / groups};
    source.insert(source.end(), space.begin(), space.end());
    target.insert(target.end(), windows.begin(), windows.end());
    weights.insert(weights.end(), kernel.begin(), kernel.end());
    Dims steps(next, next + rank + 3);
    if (groups == 1) {
      weights.erase(weights.begin());
      steps.erase(steps.begin());
    }
    given_weights = memory::desc(weights, type, steps);
  }

  memory::desc channels_last(const Dims& dims) const {
    using tag = memory::format_tag;
    return memory::desc(dims, type, rank == 1 ? tag::nwc : rank == 2 ? tag::nhwc : tag::ndhwc);
  }
};

struct Prepared {
  dnnl::primitive run;
  memory::desc source, weights, target, given_weights;
  std::string implementation;
};

Prepared prepare(Kind kind, const Layer& layer) {
  memory::desc x = layer.channels_last(layer.source), y = layer.channels_last(layer.target);
  memory::desc w(layer.weights, layer.type, memory::format_tag::any);
  const auto direct = algorithm::convolution_direct;
  dnnl::convolution_forward::primitive_desc forward(
      engine(), dnnl::prop_kind::forward_training, direct, x, w, y, layer.strides, layer.dilations, layer.low,
      layer.high);
  if (kind == kForward) {
    return {dnnl::convolution_forward(forward), x, forward.weights_desc(), y, layer.given_weights,
            forward.impl_info_str()};
  }
  if (kind == kDataGradient) {
    dnnl::convolution_backward_data::primitive_desc data(
        engine(), direct, x, w, y, layer.strides, layer.dilations, layer.low, layer.high, forward);
    return {dnnl::convolution_backward_data(data), x, data.weights_desc(), y, layer.given_weights,
            data.impl_info_str()};
  }
  dnnl::convolution_backward_weights::primitive_desc weights(
      engine(), direct, x, w, y, layer.strides, layer.dilations, layer.low, layer.high, forward);
  return {dnnl::convolution_backward_weights(weights), x, weights.diff_weights_desc(), y, layer.given_weights,
          weights.impl_info_str()};
}

Prepared& prepared(Kind kind, Numbers shape, memory::data_type type) {
  static Store<Prepared> store;
  std::vector<int64_t> key(shape.begin(), shape.end());
  key.push_back(kind);
  key.push_back(static_cast<int64_t>(type));
  return store.find(std::move(key), [&] { return prepare(kind, Layer(shape, type)); });
}

// Runs one lane: x, w and y are the layer's input, weights and output, or their gradients.
void compute(Kind kind, Prepared& p, char* x, char* w, char* y) {
  memory source(p.source, engine(), x), target(p.target, engine(), y), given(p.given_weights, engine(), w);
  const bool as_given = p.weights == p.given_weights;
  memory weights = as_given ? given : Scratch::of(p.weights);
  if (kind == kWeightGradient) {
    p.run.execute(stream(),
                  {{DNNL_ARG_SRC, source}, {DNNL_ARG_DIFF_WEIGHTS, weights}, {DNNL_ARG_DIFF_DST, target}});
    if (!as_given) dnnl::reorder(weights, given).execute(stream(), weights, given);
  } else {
    if (!as_given) dnnl::reorder(given, weights).execute(stream(), given, weights);
    if (kind == kForward) {
      p.run.execute(stream(), {{DNNL_ARG_SRC, source}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, target}});
    } else {
      p.run.execute(stream(),
                    {{DNNL_ARG_DIFF_SRC, source}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DIFF_DST, target}});
    }
  }
  stream().wait();
}

char* bytes(const ffi::AnyBuffer& buffer) { return static_cast<char*>(buffer.untyped_data()); }
char* bytes(ffi::Result<ffi::AnyBuffer>& buffer) { return static_cast<char*>(buffer->untyped_data()); }

// Lanes are layers of equal shape, one after the other in every array.
ffi::Error lanes(Kind kind, int64_t count, Numbers shape, ffi::AnyBuffer& any, char* x, int64_t x_size, char* w,
                 int64_t w_size, char* y, int64_t y_size) {
  return run([&] {
    Prepared& layer = prepared(kind, shape, type_of(any.element_type()));
    for (int64_t i = 0; i < count; i++) {
      compute(kind, layer, x + i * (x_size / count), w + i * (w_size / count), y + i * (y_size / count));
    }
  });
}

using Result = ffi::Result<ffi::AnyBuffer>;

ffi::Error forward(ffi::AnyBuffer x, ffi::AnyBuffer w, Result y, Numbers shape, int64_t count) {
  return lanes(kForward, count, shape, x, bytes(x), x.size_bytes(), bytes(w), w.size_bytes(), bytes(y),
               y->size_bytes());
}

ffi::Error data_gradient(ffi::AnyBuffer y, ffi::AnyBuffer w, Result x, Numbers shape, int64_t count) {
  return lanes(kDataGradient, count, shape, y, bytes(x), x->size_bytes(), bytes(w), w.size_bytes(), bytes(y),
               y.size_bytes());
}

ffi::Error weight_gradient(ffi::AnyBuffer x, ffi::AnyBuffer y, Result w, Numbers shape, int64_t count) {
  return lanes(kWeightGradient, count, shape, x, bytes(x), x.size_bytes(), bytes(w), w->size_bytes(), bytes(y),
               y.size_bytes());
}

auto binding() {
  return ffi::Ffi::Bind()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Ret<ffi::AnyBuffer>()
      .Attr<Numbers>("shape")
      .Attr<int64_t>("lanes");
}

}  // namespace

// What oneDNN would run for a convolution; empty if it has nothing.
extern "C" const char* openipu_convolution_implementation(int64_t kind, const int64_t* shape, int64_t size,
                                                          int64_t type) {
  std::lock_guard<std::mutex> mine(turn());
  try {
    return prepared(static_cast<Kind>(kind), Numbers(shape, size), static_cast<memory::data_type>(type))
        .implementation.c_str();
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace openipu

XLA_FFI_DEFINE_HANDLER_SYMBOL(openipu_convolution_forward, openipu::forward, openipu::binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(openipu_convolution_data_gradient, openipu::data_gradient, openipu::binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(openipu_convolution_weight_gradient, openipu::weight_gradient, openipu::binding());

// Convolutions and their two gradients, by oneDNN, on activations with the channels innermost.
//
// Images are shared out among XLA's own threads, each of which runs oneDNN alone on some of them: nobody is woken, and
// nobody competes with XLA for a core. Where there are fewer images than threads, oneDNN shares out one itself.
#include <functional>
#include <memory>
#include <numeric>

#include "onednn.h"
#include "parts.h"

namespace openipu {
namespace {

using dnnl::algorithm;
using dnnl::memory;

// Where the number of images stands in the numbers of a layer.
constexpr int64_t kBatch = 2;

enum Kind : int64_t { kForward = 0, kDataGradient = 1, kWeightGradient = 2 };

// A layer's convolution. `shape` holds, in this order:
//   rank, groups, batch, inputs, outputs (of all groups), then `rank` numbers each of
//   space, windows, kernel, strides, dilations (1 is none), padding below,
//   then the strides of the weights (groups, outputs of a group, inputs of a group, *kernel).
struct Layer {
  int64_t rank, groups, multiplications;
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
    multiplications = volume(target) * volume(weights) / outputs;
    Dims steps(next, next + rank + 3);
    if (groups == 1) {
      weights.erase(weights.begin());
      steps.erase(steps.begin());
    }
    given_weights = memory::desc(weights, type, steps);
  }

  static int64_t volume(const Dims& dims) {
    return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<int64_t>());
  }

  memory::desc channels_last(const Dims& dims) const {
    using tag = memory::format_tag;
    return memory::desc(dims, type, rank == 1 ? tag::nwc : rank == 2 ? tag::nhwc : tag::ndhwc);
  }
};

struct Prepared {
  dnnl::primitive run;
  memory::desc source, weights, target, given_weights, scratch;
  std::string implementation;
};

Prepared prepare(Kind kind, const Layer& layer) {
  memory::desc x = layer.channels_last(layer.source), y = layer.channels_last(layer.target);
  memory::desc w(layer.weights, layer.type, memory::format_tag::any);
  const auto direct = algorithm::convolution_direct;
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::convolution_forward::primitive_desc forward(
      engine(), dnnl::prop_kind::forward_training, direct, x, w, y, layer.strides, layer.dilations, layer.low,
      layer.high, attributes);
  auto with = [&](auto primitive, const auto& made, memory::desc weights) -> Prepared {
    return {primitive, x, weights, y, layer.given_weights, made.scratchpad_desc(), made.impl_info_str()};
  };
  if (kind == kForward) return with(dnnl::convolution_forward(forward), forward, forward.weights_desc());
  if (kind == kDataGradient) {
    dnnl::convolution_backward_data::primitive_desc data(engine(), direct, x, w, y, layer.strides, layer.dilations,
                                                         layer.low, layer.high, forward, attributes);
    return with(dnnl::convolution_backward_data(data), data, data.weights_desc());
  }
  dnnl::convolution_backward_weights::primitive_desc weights(engine(), direct, x, w, y, layer.strides, layer.dilations,
                                                             layer.low, layer.high, forward, attributes);
  return with(dnnl::convolution_backward_weights(weights), weights, weights.diff_weights_desc());
}

// A convolution of so many images, for so many threads of oneDNN's.
const Prepared& prepared(Kind kind, Numbers shape, memory::data_type type, int64_t images, int64_t threads) {
  static Store<Prepared> store;
  std::vector<int64_t> key(shape.begin(), shape.end());
  key[kBatch] = images;
  const std::vector<int64_t> cut = key;
  key.insert(key.end(), {kind, static_cast<int64_t>(type), threads});
  return store.find(std::move(key), [&] {
    Threads mine(threads);
    return prepare(kind, Layer(Numbers(cut.data(), cut.size()), type));
  });
}

// How the images of all lanes are shared out.
struct Division {
  // Of the images of one lane. None: oneDNN shares out the work itself.
  int64_t parts;
  int64_t images;

  Division(Kind kind, const Layer& layer, int64_t lanes, int64_t threads) : parts(0), images(layer.source[0]) {
    if (images * lanes < threads) return;
    parts = lanes >= threads ? 1 : std::min(images, (threads + lanes - 1) / lanes);
    parts = std::max<int64_t>(1, std::min(parts, layer.multiplications / kPart));
    if (kind != kWeightGradient || parts == 1) return;
    // Every part has sums of its own, which are added: more than the activations would be too much to read again.
    const int64_t sums = parts * Layer::volume(layer.weights);
    if (layer.type != memory::data_type::f32 || sums > Layer::volume(layer.source) + Layer::volume(layer.target)) {
      parts = lanes >= threads ? 1 : 0;
    }
  }

  int64_t first(int64_t part) const { return part * images / parts; }
  int64_t count(int64_t part) const { return first(part + 1) - first(part); }
};

// Weights as oneDNN wants them; the given ones where these are the same.
class Weights {
 public:
  Weights(const Prepared& p, char* given)
      : given_(p.given_weights, engine(), given),
        room_(p.weights == p.given_weights ? memory::desc() : p.weights),
        as_given_(p.weights == p.given_weights) {}

  memory get() const { return as_given_ ? given_ : room_.get(); }
  void read() { copy(given_, get()); }
  void write() { copy(get(), given_); }

 private:
  void copy(memory from, memory to) const {
    if (!as_given_) dnnl::reorder(from, to).execute(stream(), from, to);
  }

  memory given_;
  Room room_;
  bool as_given_;
};

void execute(Kind kind, const Prepared& p, char* x, memory weights, char* y) {
  Room room(p.scratch);
  memory source(p.source, engine(), x), target(p.target, engine(), y);
  const bool data = kind == kDataGradient, sums = kind == kWeightGradient;
  p.run.execute(stream(), {{data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, source},
                           {sums ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, weights},
                           {kind == kForward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, target},
                           {DNNL_ARG_SCRATCHPAD, room.get()}});
}

// One lane by all of oneDNN's threads. x, w and y are the layer's input, weights and output, or their gradients.
void whole(Kind kind, const Prepared& p, char* x, char* w, char* y) {
  Weights weights(p, w);
  if (kind != kWeightGradient) weights.read();
  execute(kind, p, x, weights.get(), y);
  if (kind == kWeightGradient) weights.write();
}

// The arrays of a call: lanes are layers of equal shape, one after the other in each of them.
struct Array {
  char* begin;
  int64_t size;
};

struct Call {
  Kind kind;
  Numbers shape;
  memory::data_type type;
  int64_t lanes, images;
  Array x, w, y;

  char* images_of(const Array& array, int64_t lane, int64_t first = 0) const {
    return begin_of(array, lane) + array.size / lanes / images * first;
  }
  char* begin_of(const Array& array, int64_t lane) const { return array.begin + array.size / lanes * lane; }

  void compute(const Prepared& p, int64_t lane) const {
    whole(kind, p, begin_of(x, lane), begin_of(w, lane), begin_of(y, lane));
  }
  void compute(const Prepared& p, int64_t lane, int64_t first, memory weights) const {
    execute(kind, p, images_of(x, lane, first), weights, images_of(y, lane, first));
  }
};

// XLA may call two at once. Each of them uses all cores, so they take turns.
void by_onednn(const Call& call, int64_t threads) {
  static std::mutex turn;
  std::lock_guard<std::mutex> mine(turn);
  Threads all(threads);
  const Prepared& p = prepared(call.kind, call.shape, call.type, call.images, threads);
  for (int64_t lane = 0; lane < call.lanes; lane++) call.compute(p, lane);
}

using Plans = std::vector<const Prepared*>;

// The weights of a lane are put in oneDNN's order once, for all parts.
void with_weights(ffi::ThreadPool& pool, const Call& call, const Division& division, const Plans& plans) {
  std::vector<std::unique_ptr<Weights>> weights;
  for (int64_t lane = 0; lane < call.lanes; lane++) {
    weights.push_back(std::make_unique<Weights>(*plans[0], call.begin_of(call.w, lane)));
    weights.back()->read();
  }
  in_parts(pool, call.lanes * division.parts, [&](int64_t item) {
    Threads mine(1);
    const int64_t lane = item / division.parts, part = item % division.parts;
    call.compute(*plans[part], lane, division.first(part), weights[lane]->get());
  });
}

// Every part of a lane sums over its own images; then these sums are added.
void sum_over_images(ffi::ThreadPool& pool, const Call& call, const Division& division, const Plans& plans) {
  const memory::desc& order = plans[0]->weights;
  const int64_t parts = division.parts, numbers = order.get_size() / sizeof(float);
  std::vector<std::unique_ptr<Room>> sums;
  for (int64_t item = 0; item < call.lanes * parts; item++) sums.push_back(std::make_unique<Room>(order));
  auto sum = [&](int64_t item) { return static_cast<float*>(sums[item]->get().get_data_handle()); };
  in_parts(pool, call.lanes * parts, [&](int64_t item) {
    Threads mine(1);
    const int64_t lane = item / parts, part = item % parts;
    call.compute(*plans[part], lane, division.first(part), sums[item]->get());
  });
  in_parts(pool, call.lanes, [&](int64_t lane) {
    Threads mine(1);
    for (int64_t part = 1; part < parts; part++) {
      float* total = sum(lane * parts);
      const float* other = sum(lane * parts + part);
      for (int64_t i = 0; i < numbers; i++) total[i] += other[i];
    }
    memory total = sums[lane * parts]->get(), given(plans[0]->given_weights, engine(), call.begin_of(call.w, lane));
    dnnl::reorder(total, given).execute(stream(), total, given);
  });
}

void compute(ffi::ThreadPool& pool, const Call& call) {
  const int64_t threads = std::max<int64_t>(1, pool.num_threads());
  const Division division(call.kind, Layer(call.shape, call.type), call.lanes, threads);
  if (division.parts == 0) return by_onednn(call, threads);
  Plans plans;
  for (int64_t part = 0; part < division.parts; part++) {
    plans.push_back(&prepared(call.kind, call.shape, call.type, division.count(part), 1));
    // Numbers of images that differ by one may want the weights in different orders.
    if (plans[part]->weights != plans[0]->weights) return by_onednn(call, threads);
  }
  if (division.parts == 1) {
    return in_parts(pool, call.lanes, [&](int64_t lane) {
      Threads mine(1);
      call.compute(*plans[0], lane);
    });
  }
  Threads mine(1);
  call.kind == kWeightGradient ? sum_over_images(pool, call, division, plans)
                               : with_weights(pool, call, division, plans);
}

using Result = ffi::Result<ffi::AnyBuffer>;

Array array(const ffi::AnyBuffer& buffer) {
  return {static_cast<char*>(buffer.untyped_data()), static_cast<int64_t>(buffer.size_bytes())};
}

ffi::Error called(ffi::ThreadPool& pool, Kind kind, Numbers shape, int64_t lanes, const ffi::AnyBuffer& x,
                  const ffi::AnyBuffer& w, const ffi::AnyBuffer& y) {
  return guarded([&] {
    compute(pool, {kind, shape, type_of(x.element_type()), lanes, shape[kBatch], array(x), array(w), array(y)});
  });
}

ffi::Error forward(ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::AnyBuffer w, Result y, Numbers shape, int64_t lanes) {
  return called(pool, kForward, shape, lanes, x, w, *y);
}

ffi::Error data_gradient(ffi::ThreadPool pool, ffi::AnyBuffer y, ffi::AnyBuffer w, Result x, Numbers shape,
                         int64_t lanes) {
  return called(pool, kDataGradient, shape, lanes, *x, w, y);
}

ffi::Error weight_gradient(ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::AnyBuffer y, Result w, Numbers shape,
                           int64_t lanes) {
  return called(pool, kWeightGradient, shape, lanes, x, *w, y);
}

auto binding() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
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
  try {
    return prepared(static_cast<Kind>(kind), Numbers(shape, size), static_cast<memory::data_type>(type), shape[kBatch],
                    omp_get_max_threads())
        .implementation.c_str();
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace openipu

XLA_FFI_DEFINE_HANDLER_SYMBOL(openipu_convolution_forward, openipu::forward, openipu::binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(openipu_convolution_data_gradient, openipu::data_gradient, openipu::binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(openipu_convolution_weight_gradient, openipu::weight_gradient, openipu::binding());

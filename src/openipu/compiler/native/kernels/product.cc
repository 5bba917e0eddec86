// Products of matrices, by oneDNN, on all cores; operands are read by their strides, so nothing is transposed first.
#include "onednn.h"

namespace openipu {
namespace {

using dnnl::memory;

// `shape` holds: the number of dimensions, then as many numbers each of
//   left sizes (.., rows, depth), left strides, right sizes (.., depth, columns), right strides;
// the result is stored in order.
struct Operands {
  memory::desc left, right, result;

  Operands(Numbers shape, memory::data_type type) {
    const int64_t* next = shape.begin();
    const int64_t rank = *next++;
    auto take = [&] { Dims taken(next, next + rank); next += rank; return taken; };
    const Dims left_sizes = take(), left_steps = take(), right_sizes = take(), right_steps = take();
    Dims sizes = left_sizes, steps(rank, 1);
    sizes[rank - 1] = right_sizes[rank - 1];
    for (int64_t d = rank - 2; d >= 0; d--) steps[d] = steps[d + 1] * sizes[d + 1];
    left = memory::desc(left_sizes, type, left_steps);
    right = memory::desc(right_sizes, type, right_steps);
    result = memory::desc(sizes, type, steps);
  }
};

struct Prepared {
  Operands operands;
  std::string implementation;
  memory::desc scratch;
  dnnl::matmul run;
};

Prepared make(Numbers shape, memory::data_type type) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  Operands operands(shape, type);
  dnnl::matmul::primitive_desc chosen(engine(), operands.left, operands.right, operands.result, attributes);
  return {operands, chosen.impl_info_str(), chosen.scratchpad_desc(), dnnl::matmul(chosen)};
}

Prepared& prepared(Numbers shape, memory::data_type type) {
  static Store<Prepared> store;
  std::vector<int64_t> key(shape.begin(), shape.end());
  key.push_back(static_cast<int64_t>(type));
  return store.find(std::move(key), [&] { return make(shape, type); });
}

ffi::Error product(ffi::AnyBuffer left, ffi::AnyBuffer right, ffi::Result<ffi::AnyBuffer> result, Numbers shape) {
  return run([&] {
    Prepared& p = prepared(shape, type_of(left.element_type()));
    Scratch scratch(p.scratch);
    memory a(p.operands.left, engine(), left.untyped_data());
    memory b(p.operands.right, engine(), right.untyped_data());
    memory c(p.operands.result, engine(), result->untyped_data());
    p.run.execute(stream(), {{DNNL_ARG_SRC, a},
                             {DNNL_ARG_WEIGHTS, b},
                             {DNNL_ARG_DST, c},
                             {DNNL_ARG_SCRATCHPAD, scratch.get()}});
    stream().wait();
  });
}

}  // namespace

// What oneDNN would run for a product; empty if it has nothing.
extern "C" const char* openipu_product_implementation(const int64_t* shape, int64_t size, int64_t type) {
  std::lock_guard<std::mutex> mine(turn());
  try {
    return prepared(Numbers(shape, size), static_cast<memory::data_type>(type)).implementation.c_str();
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace openipu

XLA_FFI_DEFINE_HANDLER_SYMBOL(openipu_product, openipu::product,
                              openipu::ffi::Ffi::Bind()
                                  .Arg<openipu::ffi::AnyBuffer>()
                                  .Arg<openipu::ffi::AnyBuffer>()
                                  .Ret<openipu::ffi::AnyBuffer>()
                                  .Attr<openipu::Numbers>("shape"));

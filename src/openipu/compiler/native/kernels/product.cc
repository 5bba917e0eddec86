// Products of matrices, by oneDNN, in parts on XLA's threads; operands are read by their strides, so nothing is transposed first.
#include "onednn.h"
#include "parts.h"

namespace openipu {
namespace {

using dnnl::memory;

constexpr int64_t kPartsPerThread = 2;

// `shape` holds: the number of dimensions, then as many numbers each of
//   left sizes (.., rows, depth), left strides, right sizes (.., depth, columns), right strides;
// the result is stored in order.
struct Operands {
  Dims left_sizes, left_steps, right_sizes, right_steps, sizes, steps;

  explicit Operands(Numbers shape) {
    const int64_t* next = shape.begin();
    const int64_t rank = *next++;
    auto take = [&] { Dims taken(next, next + rank); next += rank; return taken; };
    left_sizes = take();
    left_steps = take();
    right_sizes = take();
    right_steps = take();
    sizes = left_sizes;
    sizes[rank - 1] = right_sizes[rank - 1];
    steps = Dims(rank, 1);
    for (int64_t d = rank - 2; d >= 0; d--) steps[d] = steps[d + 1] * sizes[d + 1];
  }

  // The matrices of a stack, or the rows of one matrix: what can be shared out.
  int64_t pieces() const { return sizes[0]; }
  bool stacked() const { return sizes.size() > 2; }
  int64_t multiplications() const {
    int64_t product = right_sizes.back();
    for (int64_t size : left_sizes) product *= size;
    return product;
  }
  Operands of_pieces(int64_t count) const {
    Operands part = *this;
    part.left_sizes[0] = part.sizes[0] = count;
    if (stacked()) part.right_sizes[0] = count;
    return part;
  }
};

struct Prepared {
  memory::desc left, right, result, scratch;
  std::string implementation;
  dnnl::matmul run;
};

Prepared make(const Operands& o, memory::data_type type) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  memory::desc left(o.left_sizes, type, o.left_steps), right(o.right_sizes, type, o.right_steps),
      result(o.sizes, type, o.steps);
  dnnl::matmul::primitive_desc chosen(engine(), left, right, result, attributes);
  return {left, right, result, chosen.scratchpad_desc(), chosen.impl_info_str(), dnnl::matmul(chosen)};
}

// The product of so many pieces, by one thread.
const Prepared& prepared(Numbers shape, const Operands& operands, memory::data_type type, int64_t pieces) {
  static Store<Prepared> store;
  std::vector<int64_t> key(shape.begin(), shape.end());
  key.insert(key.end(), {static_cast<int64_t>(type), pieces});
  return store.find(std::move(key), [&] {
    Threads mine(1);
    return make(operands.of_pieces(pieces), type);
  });
}

ffi::Error product(ffi::ThreadPool pool, ffi::AnyBuffer left, ffi::AnyBuffer right, ffi::Result<ffi::AnyBuffer> result,
                   Numbers shape) {
  return guarded([&] {
    const Operands operands(shape);
    const memory::data_type type = type_of(left.element_type());
    const int64_t size = left.size_bytes() / std::max<int64_t>(1, left.element_count()), pieces = operands.pieces();
    const int64_t parts = parts_for(pool, kPartsPerThread, pieces, operands.multiplications());
    auto at = [&](void* begin, int64_t step, int64_t first) { return static_cast<char*>(begin) + size * step * first; };
    in_parts(pool, parts, [&](int64_t part) {
      Threads mine(1);
      const int64_t first = part * pieces / parts, count = (part + 1) * pieces / parts - first;
      const Prepared& p = prepared(shape, operands, type, count);
      Room room(p.scratch);
      memory a(p.left, engine(), at(left.untyped_data(), operands.left_steps[0], first));
      memory b(p.right, engine(), at(right.untyped_data(), operands.stacked() ? operands.right_steps[0] : 0, first));
      memory c(p.result, engine(), at(result->untyped_data(), operands.steps[0], first));
      p.run.execute(stream(), {{DNNL_ARG_SRC, a},
                               {DNNL_ARG_WEIGHTS, b},
                               {DNNL_ARG_DST, c},
                               {DNNL_ARG_SCRATCHPAD, room.get()}});
    });
  });
}

}  // namespace

// What oneDNN would run for a product; empty if it has nothing.
extern "C" const char* openipu_product_implementation(const int64_t* shape, int64_t size, int64_t type) {
  try {
    const Numbers numbers(shape, size);
    const Operands operands(numbers);
    return prepared(numbers, operands, static_cast<memory::data_type>(type), operands.pieces()).implementation.c_str();
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace openipu

XLA_FFI_DEFINE_HANDLER_SYMBOL(openipu_product, openipu::product,
                              openipu::ffi::Ffi::Bind()
                                  .Ctx<openipu::ffi::ThreadPool>()
                                  .Arg<openipu::ffi::AnyBuffer>()
                                  .Arg<openipu::ffi::AnyBuffer>()
                                  .Ret<openipu::ffi::AnyBuffer>()
                                  .Attr<openipu::Numbers>("shape"));

// What kernels on oneDNN share: its engine, memory for a moment, and primitives that were made before.
#pragma once

#include <map>

#include "dnnl.hpp"
#include "kernel.h"

namespace openipu {

using Dims = dnnl::memory::dims;

inline dnnl::engine& engine() {
  static dnnl::engine made(dnnl::engine::kind::cpu, 0);
  return made;
}

inline dnnl::stream& stream() {
  static dnnl::stream made(engine());
  return made;
}

// Memory that a kernel needs while it runs. There is one for everybody, as large as was ever needed.
class Scratch {
 public:
  static dnnl::memory of(const dnnl::memory::desc& desc) {
    static Scratch shared;
    if (desc.get_size() > shared.size_) {
      shared.memory_ = dnnl::memory(desc, engine());
      shared.size_ = desc.get_size();
    }
    return dnnl::memory(desc, engine(), shared.memory_.get_data_handle());
  }

 private:
  dnnl::memory memory_;
  size_t size_ = 0;
};

inline dnnl::memory::data_type type_of(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F32: return dnnl::memory::data_type::f32;
    case ffi::DataType::F16: return dnnl::memory::data_type::f16;
    case ffi::DataType::BF16: return dnnl::memory::data_type::bf16;
    default: return dnnl::memory::data_type::undef;
  }
}

// Primitives that were made before, by the numbers that describe them.
template <class Primitive>
class Store {
 public:
  template <class Make>
  Primitive& find(std::vector<int64_t> key, Make&& make) {
    auto found = made_.find(key);
    if (found == made_.end()) found = made_.emplace(std::move(key), make()).first;
    return found->second;
  }

 private:
  std::map<std::vector<int64_t>, Primitive> made_;
};

}  // namespace openipu

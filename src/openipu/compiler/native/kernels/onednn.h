// What kernels on oneDNN share: its engine, memory for a moment, and primitives that were made before.
#pragma once

#include <map>
#include <mutex>

#include <omp.h>

#include "dnnl.hpp"
#include "kernel.h"
#include "scratch.h"

namespace openipu {

using Dims = dnnl::memory::dims;

inline dnnl::engine& engine() {
  static dnnl::engine made(dnnl::engine::kind::cpu, 0);
  return made;
}

// Where primitives run: in the thread that asks, whatever else it does.
inline dnnl::stream& stream() {
  thread_local dnnl::stream made(engine());
  return made;
}

// What oneDNN prepares or runs in this thread while it lasts uses so many threads: one where parts of the work run on
// XLA's threads.
class Threads {
 public:
  explicit Threads(int64_t count) : before_(omp_get_max_threads()) { omp_set_num_threads(static_cast<int>(count)); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads() { omp_set_num_threads(before_); }

 private:
  int before_;
};

// Memory of oneDNN's that a kernel needs while it runs.
class Room {
 public:
  explicit Room(const dnnl::memory::desc& desc) : desc_(desc), scratch_(desc.get_size()) {}
  dnnl::memory get() const { return dnnl::memory(desc_, engine(), scratch_.data()); }

 private:
  dnnl::memory::desc desc_;
  Scratch scratch_;
};

inline dnnl::memory::data_type type_of(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F32: return dnnl::memory::data_type::f32;
    case ffi::DataType::F16: return dnnl::memory::data_type::f16;
    case ffi::DataType::BF16: return dnnl::memory::data_type::bf16;
    default: return dnnl::memory::data_type::undef;
  }
}

// Primitives that were made before, by the numbers that describe them. They stay where they are.
template <class Primitive>
class Store {
 public:
  template <class Make>
  Primitive& find(std::vector<int64_t> key, Make&& make) {
    std::lock_guard<std::mutex> mine(lock_);
    auto found = made_.find(key);
    if (found == made_.end()) found = made_.emplace(std::move(key), make()).first;
    return found->second;
  }

 private:
  std::mutex lock_;
  std::map<std::vector<int64_t>, Primitive> made_;
};

}  // namespace openipu

// What kernels on oneDNN share: its engine, memory for a moment, and primitives that were made before.
#pragma once

#include <algorithm>
#include <map>

#include <omp.h>

#include "dnnl.hpp"
#include "kernel.h"

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

// Memory that a kernel needs while it runs. It is kept for those that come later: fresh pages cost as much as the work.
class Scratch {
 public:
  explicit Scratch(const dnnl::memory::desc& desc) : desc_(desc) {
    const size_t size = desc.get_size();
    if (size == 0) return;
    {
      std::lock_guard<std::mutex> mine(lock());
      // The smallest that is large enough, else the largest, which grows.
      if (!kept().empty()) {
        auto found = std::min(at_least(size), kept().end() - 1);
        block_ = std::move(*found);
        kept().erase(found);
      }
    }
    if (block_.size < size) block_ = {dnnl::memory(desc, engine()), size};
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (block_.size == 0) return;
    std::lock_guard<std::mutex> mine(lock());
    kept().insert(at_least(block_.size), std::move(block_));
  }

  dnnl::memory get() const {
    return dnnl::memory(desc_, engine(), block_.size == 0 ? nullptr : block_.memory.get_data_handle());
  }

 private:
  struct Block {
    dnnl::memory memory;
    size_t size = 0;
  };
  static std::mutex& lock() {
    static std::mutex made;
    return made;
  }
  // What nobody uses now, the smallest first.
  static std::vector<Block>& kept() {
    static std::vector<Block> made;
    return made;
  }
  static std::vector<Block>::iterator at_least(size_t size) {
    return std::lower_bound(kept().begin(), kept().end(), size,
                            [](const Block& one, size_t size) { return one.size < size; });
  }

  dnnl::memory::desc desc_;
  Block block_;
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

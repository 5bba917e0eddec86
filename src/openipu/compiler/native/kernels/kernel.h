// What all kernels share: the turn that each takes, and how it tells XLA what went wrong.
#pragma once

#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace openipu {

namespace ffi = xla::ffi;
using Numbers = ffi::Span<const int64_t>;

// XLA may call two kernels at once. Each of them uses all cores, so they take turns.
inline std::mutex& turn() {
  static std::mutex made;
  return made;
}

// Runs a kernel; what it throws becomes an error of the XLA program.
template <class Work>
ffi::Error guarded(Work&& work) {
  try {
    work();
    return ffi::Error::Success();
  } catch (const std::exception& error) {
    return ffi::Error(ffi::ErrorCode::kInternal, std::string("openipu's native kernel: ") + error.what());
  }
}

// Runs a kernel that uses OpenMP's threads when it is its turn.
template <class Work>
ffi::Error run(Work&& work) {
  std::lock_guard<std::mutex> mine(turn());
  return guarded(work);
}

}  // namespace openipu

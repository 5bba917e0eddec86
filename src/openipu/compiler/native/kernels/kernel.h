// What all kernels share: how they tell XLA what went wrong.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace openipu {

namespace ffi = xla::ffi;
using Numbers = ffi::Span<const int64_t>;

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

}  // namespace openipu

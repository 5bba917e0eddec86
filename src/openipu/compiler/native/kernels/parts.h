// Work in parts on XLA's own threads, which look for more before they sleep: to wake others takes as long as a part.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>

#include "kernel.h"

namespace openipu {

// Multiply-adds that are worth another part.
constexpr int64_t kPart = 1 << 18;
// How often to look whether the others have ended before sleeping: some microseconds.
constexpr int64_t kLooks = 10000;

// In how many parts to cut so many pieces of work, several for every thread: one that comes late, as those do that
// slept, or shares its core with other work, takes fewer of them.
inline int64_t parts_for(ffi::ThreadPool& pool, int64_t each, int64_t pieces, int64_t multiplications) {
  const int64_t threads = pool.num_threads();
  return std::max<int64_t>(1, std::min({threads > 1 ? threads * each : 1, pieces, multiplications / kPart}));
}

// Calls `work(part)` for all parts, of which whoever is free takes the next: the caller too, so it waits for nobody who
// has not begun. What a part throws is thrown here, when all that began have ended.
template <class Work>
void in_parts(ffi::ThreadPool& pool, int64_t parts, const Work& work) {
  struct Progress {
    std::atomic<int64_t> next{0}, done{0};
    std::atomic_flag failed = ATOMIC_FLAG_INIT;
    std::exception_ptr error;
    std::mutex lock;
    std::condition_variable ended;
  };
  auto progress = std::make_shared<Progress>();
  // A thread that comes when every part has been taken must not look at `work`, which may be gone by then.
  auto help = [progress, parts, &work] {
    for (int64_t part; (part = progress->next.fetch_add(1)) < parts;) {
      try {
        work(part);
      } catch (...) {
        if (!progress->failed.test_and_set()) progress->error = std::current_exception();
      }
      if (progress->done.fetch_add(1) + 1 == parts) {
        std::lock_guard<std::mutex> mine(progress->lock);
        progress->ended.notify_one();
      }
    }
  };
  for (int64_t other = std::min(parts, pool.num_threads()); other > 1; other--) pool.Schedule(decltype(help)(help));
  help();
  const auto all = [&] { return progress->done.load() == parts; };
  // Mostly the others end at about the same time; otherwise they may need this core.
  for (int64_t looks = 0; looks < kLooks && !all(); looks++) {
  }
  if (!all()) {
    std::unique_lock<std::mutex> mine(progress->lock);
    progress->ended.wait(mine, all);
  }
  if (progress->error) std::rethrow_exception(progress->error);
}

}  // namespace openipu

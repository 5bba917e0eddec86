// Threads for short kernels, which wait a moment for the next one before they sleep.
//
// XLA calls kernels from any of its threads, and OpenMP keeps threads for each of those: the ones that a call finds
// are asleep, and to wake them takes as long as half of a small convolution.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace openipu {

class Pool {
 public:
  // Never destroyed: its threads may wait in it until the process ends.
  static Pool& shared() {
    static Pool* pool = new Pool;
    return *pool;
  }

  // work(0) to work(count - 1), each in a thread of its own; one caller at a time. Throws what one of them threw.
  template <class Work>
  void run(int64_t count, Work& work) {
    for (; threads_ < count - 1; threads_++) std::thread(&Pool::serve, this, threads_ + 1, round_.load()).detach();
    work_ = &work;
    call_ = [](void* given, int64_t number) { (*static_cast<Work*>(given))(number); };
    error_ = nullptr;
    left_ = count - 1;
    round_ = (round_ / kMost + 1) * kMost + count;
    wake();
    one(0);
    wait([&] { return left_.load() == 0; });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  static constexpr std::chrono::microseconds kPatience{50};
  static constexpr int kLooks = 64;
  static constexpr int64_t kMost = 1 << 16;

  void serve(int64_t number, int64_t seen) {
    for (;;) {
      wait([&] { return round_.load() != seen; });
      seen = round_.load();
      // Nobody waits for who has no part in it, and the next one may have begun.
      if (number >= seen % kMost) continue;
      one(number);
      left_--;
      wake();
    }
  }

  void one(int64_t number) {
    try {
      call_(work_, number);
    } catch (...) {
      std::lock_guard<std::mutex> mine(lock_);
      error_ = std::current_exception();
    }
  }

  // After a change of a number that others wait for. Who is about to sleep counts itself first and looks again then.
  void wake() {
    if (asleep_.load() == 0) return;
    std::lock_guard<std::mutex> mine(lock_);
    changed_.notify_all();
  }

  // Looks for a moment, giving way to whoever else wants the core, then sleeps.
  template <class Ready>
  void wait(Ready&& ready) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    do {
      for (int look = 0; look < kLooks; look++) {
        if (ready()) return;
#if defined(__x86_64__)
        _mm_pause();
#endif
      }
      std::this_thread::yield();
    } while (std::chrono::steady_clock::now() < end);
    std::unique_lock<std::mutex> mine(lock_);
    asleep_++;
    changed_.wait(mine, ready);
    asleep_--;
  }

  void* work_ = nullptr;
  void (*call_)(void*, int64_t) = nullptr;
  std::exception_ptr error_;
  int64_t threads_ = 0;
  // A number that grows with every call; what is left of it by `kMost` is the count, so that both change at once.
  std::atomic<int64_t> round_{0};
  std::atomic<int64_t> left_{0}, asleep_{0};
  std::mutex lock_;
  std::condition_variable changed_;
};

}  // namespace openipu

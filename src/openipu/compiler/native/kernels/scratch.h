// Memory that a kernel needs while it runs. It is kept for those that come later: fresh pages cost as much as the work.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

namespace openipu {

class Scratch {
 public:
  explicit Scratch(size_t size) {
    if (size == 0) return;
    {
      std::lock_guard<std::mutex> mine(lock());
      // The smallest that is large enough, else the largest, which makes room for a larger one.
      if (!kept().empty()) {
        auto found = std::min(at_least(size), kept().end() - 1);
        block_ = std::move(*found);
        kept().erase(found);
      }
    }
    if (block_.size < size) {
      block_ = Block();
      block_ = Block(size);
    }
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (block_.size == 0) return;
    std::lock_guard<std::mutex> mine(lock());
    kept().insert(at_least(block_.size), std::move(block_));
  }

  template <class Number = void>
  Number* data() const { return static_cast<Number*>(block_.bytes.get()); }

 private:
  static constexpr size_t kLine = 64;

  struct Free {
    void operator()(void* bytes) const { std::free(bytes); }
  };
  struct Block {
    std::unique_ptr<void, Free> bytes;
    size_t size = 0;

    Block() = default;
    explicit Block(size_t wanted) : size((wanted + kLine - 1) / kLine * kLine) {
      bytes.reset(std::aligned_alloc(kLine, size));
      if (!bytes) throw std::bad_alloc();
    }
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
                            [](const Block& one, size_t wanted) { return one.size < wanted; });
  }

  Block block_;
};

}  // namespace openipu

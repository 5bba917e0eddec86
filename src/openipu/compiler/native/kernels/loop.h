// A loop of small steps, as a list of operations that a team of threads goes through without leaving the kernel.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace openipu::loop {

// Numbers of an array; `compiler/passes/loops/encoding.py` numbers them in the same way. A bool is a byte in an array.
enum Type : int64_t { kFloat, kInt, kUnsigned, kLong, kUnsignedLong, kBool, kDouble };

inline int64_t size_of(Type type) { return type == kBool ? 1 : type >= kLong ? 8 : 4; }

// Reads what describes a loop, number by number.
class Reader {
 public:
  Reader(const int64_t* begin, const int64_t* end) : next_(begin), end_(end) {}

  int64_t number();
  template <class Name>
  Name name() { return static_cast<Name>(number()); }
  // A count and so many numbers.
  std::vector<int64_t> numbers();
  bool done() const { return next_ == end_; }

 private:
  const int64_t *next_, *end_;
};

// The arrays of a loop, where they are at one step.
using Addresses = std::vector<char*>;

// An array: which of all, and how far its first number is from the beginning, in bytes.
struct Array {
  int64_t number, offset;

  explicit Array(Reader& from) : number(from.number()), offset(from.number()) {}
  char* in(const Addresses& addresses) const { return addresses[number] + offset; }
};

// Part of a result, which is rows of columns whatever its shape is. Of a product, a part may be all of it, but not of
// what is summed over.
struct Region {
  int64_t row, row_end, column, column_end;
  int64_t part = 0, parts = 1;
};

// Where the numbers of a part begin: at a cache line if there are enough, for two threads must not write to one.
inline int64_t border(int64_t count, int64_t part, int64_t parts) {
  constexpr int64_t line = 16;
  return count < line * parts ? count * part / parts : std::min(count, (count * part / parts + line - 1) / line * line);
}

// What a thread needs of its own, for operations in turn; and how many threads there are.
struct Room {
  char *tiles, *block;
  float *panel, *sums;
  int64_t threads;
};

class Operation {
 public:
  virtual ~Operation() = default;
  // The size of the result.
  int64_t rows = 1, columns = 1;
  virtual void run(const Addresses& addresses, const Region& region, const Room& room) const = 0;
};

using Made = std::unique_ptr<Operation>;

Made read_elementwise(Reader& from);
Made read_product(Reader& from);
Made read_reduction(Reader& from);
Made read_rows(Reader& from);
Made read_parts(Reader& from);
Made read_joined(Reader& from);

// Numbers that an elementwise operation computes at once: what it makes on the way stays in the first cache.
constexpr int64_t kTileNumbers = 1024;
// Depth of a product that is packed at once, and rows that are summed over all of it.
constexpr int64_t kDepth = 64;
constexpr int64_t kSummedRows = 48;

}  // namespace openipu::loop

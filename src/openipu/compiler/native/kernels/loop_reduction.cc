// Sums and extremes of a loop, rows that are picked by their numbers, and arrays that are put together.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "loop.h"
#include "vectors.h"

namespace openipu::loop {
namespace {

enum Kind : int64_t { kSum, kMost, kLeast, kTimes };

// Dimensions: how many numbers each has, and how far apart they are.
struct Dimensions {
  std::vector<int64_t> sizes, steps;

  explicit Dimensions(Reader& from) : sizes(from.numbers()), steps(from.numbers()) {}

  int64_t count() const {
    int64_t product = 1;
    for (int64_t size : sizes) product *= size;
    return product;
  }
  // Where a number is: of all dimensions, or of all but the last one.
  int64_t at(int64_t number, size_t dimensions) const {
    if (dimensions == 0) return 0;
    int64_t found = 0;
    for (size_t d = dimensions - 1; d > 0; number /= sizes[d--]) found += number % sizes[d] * steps[d];
    return found + number * steps[0];
  }
  bool is_dense() const { return !sizes.empty() && steps.back() == 1; }
};

template <class T, Kind kind>
inline T together(T a, T b) {
  switch (kind) {
    case kSum: return a + b;
    case kTimes: return a * b;
    // What is not a number stays.
    case kMost: return a != a ? a : b != b ? b : a > b ? a : b;
    case kLeast: return a != a ? a : b != b ? b : a < b ? a : b;
  }
}

// All of a row, in as many sums as a cache line has numbers.
template <class T, Kind kind>
T of_row(const T* row, int64_t count) {
  constexpr int64_t many = 64 / sizeof(T);
  if (count < 2 * many) {
    T total = row[0];
    for (int64_t i = 1; i < count; i++) total = together<T, kind>(total, row[i]);
    return total;
  }
  T parts[many];
  std::copy_n(row, many, parts);
  int64_t i = many;
  for (; i + many <= count; i += many) {
    for (int64_t p = 0; p < many; p++) parts[p] = together<T, kind>(parts[p], row[i + p]);
  }
  for (int64_t p = 0; i < count; i++, p++) parts[p] = together<T, kind>(parts[p], row[i]);
  for (int64_t half = many / 2; half > 0; half /= 2) {
    for (int64_t p = 0; p < half; p++) parts[p] = together<T, kind>(parts[p], parts[p + half]);
  }
  return parts[0];
}

template <class T, Kind kind>
class Reduction : public Operation {
 public:
  explicit Reduction(Reader& from) : given_(from), result_(from), kept_(from), gone_(from) { columns = kept_.count(); }

  void run(const Addresses& addresses, const Region& region, const Room&) const override {
    const T* given = reinterpret_cast<const T*>(given_.in(addresses));
    T* result = reinterpret_cast<T*>(result_.in(addresses));
    if (kept_.is_dense() && !gone_.is_dense()) return by_columns(given, result, region);
    if (kept_.sizes.size() == 1 && gone_.sizes.size() == 1 && gone_.sizes[0] < kShort) {
      return by_short_rows(given, result, region);
    }
    const size_t outer = gone_.is_dense() ? gone_.sizes.size() - 1 : gone_.sizes.size();
    const int64_t inner = gone_.is_dense() ? gone_.sizes.back() : 1, count = gone_.count() / inner;
    for (int64_t column = region.column; column < region.column_end; column++) {
      const T* from = given + kept_.at(column, kept_.sizes.size());
      T total = of_row<T, kind>(from, inner);
      for (int64_t i = 1; i < count; i++) {
        total = together<T, kind>(total, of_row<T, kind>(from + gone_.at(i, outer), inner));
      }
      result[column] = total;
    }
  }

 private:
  // Numbers that lie side by side stay so: whole rows are put together.
  void by_columns(const T* given, T* result, const Region& region) const {
    const int64_t inner = kept_.sizes.back(), count = gone_.count();
    for (int64_t column = region.column; column < region.column_end;) {
      const int64_t number = column / inner, first = column % inner;
      const int64_t width = std::min(inner - first, region.column_end - column);
      const T* from = given + kept_.at(number, kept_.sizes.size() - 1) + first;
      T* to = result + column;
      std::copy_n(from, width, to);
      for (int64_t i = 1; i < count; i++) {
        const T* next = from + gone_.at(i, gone_.sizes.size());
        for (int64_t c = 0; c < width; c++) to[c] = together<T, kind>(to[c], next[c]);
      }
      column += width;
    }
  }

  // Several rows side by side: a number waits for the one before in its row.
  void by_short_rows(const T* given, T* result, const Region& region) const {
    const int64_t step = kept_.steps[0], next = gone_.steps[0], count = gone_.sizes[0];
    for (int64_t column = region.column; column < region.column_end; column += kShort) {
      const int64_t rows = std::min(kShort, region.column_end - column);
      const T* from = given + column * step;
      T parts[kShort];
      for (int64_t r = 0; r < rows; r++) parts[r] = from[r * step];
      for (int64_t i = 1; i < count; i++) {
        for (int64_t r = 0; r < rows; r++) parts[r] = together<T, kind>(parts[r], from[r * step + i * next]);
      }
      std::copy_n(parts, rows, result + column);
    }
  }

  // Numbers of a row that is not worth sums of its own.
  static constexpr int64_t kShort = 32;

  Array given_, result_;
  Dimensions kept_, gone_;
};

template <class T>
Made reduction_of(Kind kind, Reader& from) {
  switch (kind) {
    case kSum: return std::make_unique<Reduction<T, kSum>>(from);
    case kMost: return std::make_unique<Reduction<T, kMost>>(from);
    case kLeast: return std::make_unique<Reduction<T, kLeast>>(from);
    case kTimes: return std::make_unique<Reduction<T, kTimes>>(from);
  }
  throw std::invalid_argument("a loop has a reduction that there is not");
}

// Rows of a table by their numbers; those out of range are the nearest.
class Rows : public Operation {
 public:
  explicit Rows(Reader& from)
      : table_(from), numbers_(from), result_(from), wide_numbers_(from.number()), most_(from.number() - 1) {
    rows = from.number(), bytes_ = from.number(), columns = from.number();
  }

  void run(const Addresses& addresses, const Region& region, const Room&) const override {
    const int64_t size = columns * bytes_, first = region.column * bytes_;
    const char* numbers = numbers_.in(addresses);
    for (int64_t row = region.row; row < region.row_end; row++) {
      const int64_t count = region.column_end * bytes_ - first;
      if (row + kAhead < region.row_end) {
        // Tables are seldom in a cache: the first lines of a later row make the processor fetch those that follow.
        const char* later = table_.in(addresses) + number(numbers, row + kAhead) * size + first;
        for (int64_t line = 0; line < std::min(count, 4 * kLine); line += kLine) __builtin_prefetch(later + line);
      }
      const char* from = table_.in(addresses) + number(numbers, row) * size + first;
      std::memcpy(result_.in(addresses) + row * size + first, from, count);
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  static constexpr int64_t kAhead = 4;

  int64_t number(const char* numbers, int64_t row) const {
    const int64_t found = wide_numbers_ ? reinterpret_cast<const int64_t*>(numbers)[row]
                                        : reinterpret_cast<const int32_t*>(numbers)[row];
    return std::clamp<int64_t>(found, 0, most_);
  }

  Array table_, numbers_, result_;
  bool wide_numbers_;
  int64_t most_, bytes_;
};

// Arrays side by side in one.
class Joined : public Operation {
 public:
  explicit Joined(Reader& from) : result_(from), bytes_(from.number()) {
    for (int64_t left = from.number(); left > 0; left--) pieces_.emplace_back(from);
  }

  void run(const Addresses& addresses, const Region&, const Room&) const override {
    for (const Piece& piece : pieces_) {
      const char* from = piece.given.in(addresses);
      char* to = result_.in(addresses) + piece.offset;
      const int64_t inner = piece.source.sizes.back(), outer = piece.source.count() / inner;
      const size_t dimensions = piece.source.sizes.size() - 1;
      for (int64_t row = 0; row < outer; row++) {
        const char* next = from + piece.source.at(row, dimensions) * bytes_;
        char* place = to + piece.target.at(row, dimensions) * bytes_;
        for (int64_t i = 0; i < inner; i++, next += piece.source.steps.back() * bytes_, place += bytes_) {
          std::memcpy(place, next, bytes_);
        }
      }
    }
  }

 private:
  struct Piece {
    Array given;
    int64_t offset;
    Dimensions source, target;

    explicit Piece(Reader& from) : given(from), offset(from.number()), source(from), target(from) {}
  };

  Array result_;
  int64_t bytes_;
  std::vector<Piece> pieces_;
};

}  // namespace

Made read_joined(Reader& from) { return std::make_unique<Joined>(from); }

Made read_reduction(Reader& from) {
  const Type type = from.name<Type>();
  const Kind kind = from.name<Kind>();
  switch (type) {
    case kFloat: return reduction_of<float>(kind, from);
    case kInt: return reduction_of<int32_t>(kind, from);
    case kUnsigned: return reduction_of<uint32_t>(kind, from);
    case kLong: return reduction_of<int64_t>(kind, from);
    case kUnsignedLong: return reduction_of<uint64_t>(kind, from);
    case kBool: return reduction_of<uint8_t>(kind, from);
    case kDouble: return reduction_of<double>(kind, from);
  }
  throw std::invalid_argument("a loop has a type that there is not");
}

Made read_rows(Reader& from) { return std::make_unique<Rows>(from); }

}  // namespace openipu::loop

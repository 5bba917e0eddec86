// Elementwise operations of a loop: several at once, tile by tile, so that nothing on the way leaves the first cache.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "functions.h"
#include "loop.h"

namespace openipu::loop {
namespace {

// What an instruction computes; `compiler/passes/loops/encoding.py` numbers them in the same way.
enum Code : int64_t {
  kFill, kLoad, kStore, kConvert, kSelect,
  kAdd, kSubtract, kMultiply, kDivide, kRemainder, kMaximum, kMinimum, kPower,
  kAnd, kOr, kXor, kNot, kShiftLeft, kShiftRightLogical, kShiftRightArithmetic,
  kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual,
  kNegate, kAbsolute, kSign, kExponential, kExponentialLessOne, kLogarithm, kLogarithmOfOneMore, kTangent, kLogistic,
  kRoot, kReciprocalRoot, kErrorFunction, kErrorFunctionRest, kFloor, kCeiling, kRound, kIsFinite, kSine, kCosine,
};

// In tiles a bool is an int, 0 or 1.
using Function = void (*)(const void* a, const void* b, const void* c, void* result, int64_t count);

template <class T, class R, R (*f)(T)>
void unary(const void* a, const void*, const void*, void* result, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; i++) static_cast<R*>(result)[i] = f(static_cast<const T*>(a)[i]);
}

template <class T, class R, R (*f)(T, T)>
void binary(const void* a, const void* b, const void*, void* result, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; i++) {
    static_cast<R*>(result)[i] = f(static_cast<const T*>(a)[i], static_cast<const T*>(b)[i]);
  }
}

template <Floats (*f)(Floats)>
void of_vectors(const void* a, const void*, const void*, void* result, int64_t count) {
  for (int64_t i = 0; i < count; i += kWidth) {
    const int64_t some = std::min(kWidth, count - i);
    store_some(static_cast<float*>(result) + i, f(load_some(static_cast<const float*>(a) + i, some)), some);
  }
}

template <Floats (*f)(Floats, Floats)>
void of_pairs(const void* a, const void* b, const void*, void* result, int64_t count) {
  const auto *one = static_cast<const float*>(a), *other = static_cast<const float*>(b);
  auto* made = static_cast<float*>(result);
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) store(made + i, f(load<Floats>(one + i), load<Floats>(other + i)));
  if (i == count) return;
  store_some(made + i, f(load_some(one + i, count - i), load_some(other + i, count - i)), count - i);
}

inline Floats sum(Floats a, Floats b) { return a + b; }
inline Floats difference(Floats a, Floats b) { return a - b; }
inline Floats product(Floats a, Floats b) { return a * b; }
inline Floats quotient(Floats a, Floats b) { return a / b; }
// What is not a number is the result, whichever side it is on.
inline Floats larger(Floats a, Floats b) { return (a > b) | (a != a) ? a : b; }
inline Floats smaller(Floats a, Floats b) { return (a < b) | (a != a) ? a : b; }

template <class T>
void select(const void* which, const void* no, const void* yes, void* result, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; i++) {
    static_cast<T*>(result)[i] =
        static_cast<const int32_t*>(which)[i] ? static_cast<const T*>(yes)[i] : static_cast<const T*>(no)[i];
  }
}

template <class T>
using Unsigned = std::make_unsigned_t<std::conditional_t<std::is_integral_v<T>, T, int>>;

// Integers overflow as in two's complement.
template <class T> T add(T a, T b) { if constexpr (std::is_integral_v<T>) return Unsigned<T>(a) + Unsigned<T>(b); else return a + b; }
template <class T> T subtract(T a, T b) { if constexpr (std::is_integral_v<T>) return Unsigned<T>(a) - Unsigned<T>(b); else return a - b; }
template <class T> T multiply(T a, T b) { if constexpr (std::is_integral_v<T>) return Unsigned<T>(a) * Unsigned<T>(b); else return a * b; }
template <class T> T negate(T a) { return subtract(T(0), a); }
template <> float negate(float a) { return -a; }
template <> double negate(double a) { return -a; }

// As XLA: what is divided by 0 has all bits set, and the remainder is what was divided.
template <class T>
T divide(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) return T(-1);
    if constexpr (std::is_signed_v<T>) { if (b == -1) return negate(a); }
  }
  return a / b;
}
template <class T>
T remainder(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>) { if (b == -1) return 0; }
    return a % b;
  } else {
    return std::fmod(a, b);
  }
}
template <class T> T maximum(T a, T b) { return a > b || a != a ? a : b; }
template <class T> T minimum(T a, T b) { return a < b || a != a ? a : b; }
template <class T> T both(T a, T b) { return a & b; }
template <class T> T either(T a, T b) { return a | b; }
template <class T> T one_of(T a, T b) { return a ^ b; }
template <class T> T inverse(T a) { return ~a; }
int32_t opposite(int32_t a) { return a ^ 1; }
template <class T> constexpr Unsigned<T> kBits = 8 * sizeof(T);
template <class T> T shift_left(T a, T b) { return Unsigned<T>(b) >= kBits<T> ? 0 : Unsigned<T>(a) << b; }
template <class T> T shift_right_logical(T a, T b) { return Unsigned<T>(b) >= kBits<T> ? 0 : Unsigned<T>(a) >> b; }
template <class T> T shift_right_arithmetic(T a, T b) {
  return std::make_signed_t<T>(a) >> std::min<Unsigned<T>>(b, kBits<T> - 1);
}
template <class T> int32_t equal(T a, T b) { return a == b; }
template <class T> int32_t not_equal(T a, T b) { return a != b; }
template <class T> int32_t less(T a, T b) { return a < b; }
template <class T> int32_t less_equal(T a, T b) { return a <= b; }
template <class T> int32_t greater(T a, T b) { return a > b; }
template <class T> int32_t greater_equal(T a, T b) { return a >= b; }
template <class T> T absolute(T a) { return a < 0 ? negate(a) : a; }
template <> float absolute(float a) { return std::fabs(a); }
template <> double absolute(double a) { return std::fabs(a); }
template <class T> T sign(T a) { return (a > 0) - (a < 0); }
template <> float sign(float a) { return a > 0 ? 1.0f : a < 0 ? -1.0f : a; }
template <> double sign(double a) { return a > 0 ? 1.0 : a < 0 ? -1.0 : a; }
template <class T> T power(T a, T b) { return std::pow(a, b); }
template <class T> T root(T a) { return std::sqrt(a); }
template <class T> T reciprocal_root(T a) { return T(1) / std::sqrt(a); }
template <class T> T floor_of(T a) { return std::floor(a); }
template <class T> T ceiling_of(T a) { return std::ceil(a); }
template <class T> T rounded_of(T a) { return std::nearbyint(a); }
template <class T> int32_t is_finite(T a) { return std::fabs(a) <= std::numeric_limits<T>::max(); }
template <class T> T sine(T a) { return std::sin(a); }
template <class T> T cosine(T a) { return std::cos(a); }
double exponential_of(double a) { return std::exp(a); }
double exponential_less_one_of(double a) { return std::expm1(a); }
double logarithm_of(double a) { return std::log(a); }
double logarithm_of_one_more_of(double a) { return std::log1p(a); }
double tangent_of(double a) { return std::tanh(a); }
double logistic_of(double a) { return 1 / (1 + std::exp(-a)); }

// As XLA: out of range it is the nearest number, and 0 for what is no number.
template <class From, class To>
To converted(From a) {
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr From most = static_cast<From>(std::numeric_limits<To>::max());
    constexpr From least = static_cast<From>(std::numeric_limits<To>::min());
    if (a != a) return 0;
    return a >= most ? std::numeric_limits<To>::max() : a <= least ? std::numeric_limits<To>::min() : To(a);
  } else {
    return To(a);
  }
}
template <class From>
int32_t truth(From a) { return a != 0; }

template <class From>
Function convert_to(Type to) {
  switch (to) {
    case kFloat: return unary<From, float, converted<From, float>>;
    case kInt: return unary<From, int32_t, converted<From, int32_t>>;
    case kUnsigned: return unary<From, uint32_t, converted<From, uint32_t>>;
    case kLong: return unary<From, int64_t, converted<From, int64_t>>;
    case kUnsignedLong: return unary<From, uint64_t, converted<From, uint64_t>>;
    case kBool: return unary<From, int32_t, truth<From>>;
    case kDouble: return unary<From, double, converted<From, double>>;
  }
  return nullptr;
}

template <class T>
Function of_all(Code code) {
  switch (code) {
    case kAdd: return binary<T, T, add<T>>;
    case kSubtract: return binary<T, T, subtract<T>>;
    case kMultiply: return binary<T, T, multiply<T>>;
    case kDivide: return binary<T, T, divide<T>>;
    case kRemainder: return binary<T, T, remainder<T>>;
    case kMaximum: return binary<T, T, maximum<T>>;
    case kMinimum: return binary<T, T, minimum<T>>;
    case kEqual: return binary<T, int32_t, equal<T>>;
    case kNotEqual: return binary<T, int32_t, not_equal<T>>;
    case kLess: return binary<T, int32_t, less<T>>;
    case kLessEqual: return binary<T, int32_t, less_equal<T>>;
    case kGreater: return binary<T, int32_t, greater<T>>;
    case kGreaterEqual: return binary<T, int32_t, greater_equal<T>>;
    case kNegate: return unary<T, T, negate<T>>;
    case kAbsolute: return unary<T, T, absolute<T>>;
    case kSign: return unary<T, T, sign<T>>;
    case kSelect: return select<T>;
    default: return nullptr;
  }
}

template <class T>
Function of_integers(Code code) {
  switch (code) {
    case kAnd: return binary<T, T, both<T>>;
    case kOr: return binary<T, T, either<T>>;
    case kXor: return binary<T, T, one_of<T>>;
    case kNot: return unary<T, T, inverse<T>>;
    case kShiftLeft: return binary<T, T, shift_left<T>>;
    case kShiftRightLogical: return binary<T, T, shift_right_logical<T>>;
    case kShiftRightArithmetic: return binary<T, T, shift_right_arithmetic<T>>;
    default: return of_all<T>(code);
  }
}

Function of_bools(Code code) {
  switch (code) {
    case kNot: return unary<int32_t, int32_t, opposite>;
    case kAnd: case kOr: case kXor: case kEqual: case kNotEqual: case kMaximum: case kMinimum: case kSelect:
      return of_integers<int32_t>(code);
    default: return nullptr;
  }
}

// Functions that floats and doubles have, but no vectors.
template <class T>
Function of_numbers(Code code) {
  switch (code) {
    case kPower: return binary<T, T, power<T>>;
    case kRoot: return unary<T, T, root<T>>;
    case kReciprocalRoot: return unary<T, T, reciprocal_root<T>>;
    case kFloor: return unary<T, T, floor_of<T>>;
    case kCeiling: return unary<T, T, ceiling_of<T>>;
    case kRound: return unary<T, T, rounded_of<T>>;
    case kIsFinite: return unary<T, int32_t, is_finite<T>>;
    case kSine: return unary<T, T, sine<T>>;
    case kCosine: return unary<T, T, cosine<T>>;
    default: return of_all<T>(code);
  }
}

Function of_floats(Code code) {
  switch (code) {
    case kAdd: return of_pairs<sum>;
    case kSubtract: return of_pairs<difference>;
    case kMultiply: return of_pairs<product>;
    case kDivide: return of_pairs<quotient>;
    case kMaximum: return of_pairs<larger>;
    case kMinimum: return of_pairs<smaller>;
    case kExponential: return of_vectors<exponential>;
    case kExponentialLessOne: return of_vectors<exponential_less_one>;
    case kLogarithm: return of_vectors<logarithm>;
    case kLogarithmOfOneMore: return of_vectors<logarithm_of_one_more>;
    case kTangent: return of_vectors<hyperbolic_tangent>;
    case kLogistic: return of_vectors<sigmoid>;
    case kErrorFunction: return of_vectors<error_function>;
    case kErrorFunctionRest: return of_vectors<error_function_rest>;
    default: return of_numbers<float>(code);
  }
}

Function of_doubles(Code code) {
  switch (code) {
    case kExponential: return unary<double, double, exponential_of>;
    case kExponentialLessOne: return unary<double, double, exponential_less_one_of>;
    case kLogarithm: return unary<double, double, logarithm_of>;
    case kLogarithmOfOneMore: return unary<double, double, logarithm_of_one_more_of>;
    case kTangent: return unary<double, double, tangent_of>;
    case kLogistic: return unary<double, double, logistic_of>;
    default: return of_numbers<double>(code);
  }
}

Function function_of(Code code, Type type, Type to) {
  const bool converts = code == kConvert;
  switch (type) {
    case kFloat: return converts ? convert_to<float>(to) : of_floats(code);
    case kInt: return converts ? convert_to<int32_t>(to) : of_integers<int32_t>(code);
    case kUnsigned: return converts ? convert_to<uint32_t>(to) : of_integers<uint32_t>(code);
    case kLong: return converts ? convert_to<int64_t>(to) : of_integers<int64_t>(code);
    case kUnsignedLong: return converts ? convert_to<uint64_t>(to) : of_integers<uint64_t>(code);
    case kBool: return converts ? convert_to<int32_t>(to) : of_bools(code);
    case kDouble: return converts ? convert_to<double>(to) : of_doubles(code);
  }
  return nullptr;
}

// An array as the operation reads or writes it: steps between numbers along all its dimensions.
struct View {
  Array array;
  Type type;
  std::vector<int64_t> steps;

  explicit View(Reader& from) : array(from), type(from.name<Type>()), steps(from.numbers()) {}

  // The number of the first element of a row.
  int64_t row(int64_t number, const std::vector<int64_t>& sizes) const {
    if (sizes.size() == 1) return 0;
    int64_t at = 0;
    for (size_t d = sizes.size() - 2; d > 0; d--) {
      at += number % sizes[d] * steps[d];
      number /= sizes[d];
    }
    return at + number * steps[0];
  }
};

// A few numbers, vector by vector: they are too few for a call.
template <class Number>
inline void copy_row(const Number* from, Number* to, int64_t count) {
  struct Vector { char bytes[kWidth * sizeof(float)]; };
  constexpr int64_t many = sizeof(Vector) / sizeof(Number);
  for (; count >= many; count -= many, from += many, to += many) {
    Vector moved;
    std::memcpy(&moved, from, sizeof moved);
    std::memcpy(to, &moved, sizeof moved);
  }
  for (int64_t i = 0; i < count; i++) to[i] = from[i];
}

template <class Number>
void copy_in(const void* from, int64_t step, Number* to, int64_t count) {
  const Number* next = static_cast<const Number*>(from);
  if (step == 1) {
    copy_row(next, to, count);
  } else if (step == 0) {
    std::fill_n(to, count, *next);
  } else {
    for (int64_t i = 0; i < count; i++) to[i] = next[i * step];
  }
}

struct Instruction {
  Code code;
  // Of what it is given.
  Type type;
  Function function = nullptr;
  // Values by their numbers; of a fill, a load and a store also which view.
  int64_t a, b, c, result;
};

// Values of one operation at most.
constexpr size_t kMostValues = 256;

class Elementwise : public Operation {
 public:
  explicit Elementwise(Reader& from) : sizes_(from.numbers()) {
    columns = sizes_.back();
    for (size_t d = 0; d + 1 < sizes_.size(); d++) rows *= sizes_[d];
    for (int64_t left = from.number(); left > 0; left--) views_.emplace_back(from);
    tiles_ = from.numbers();
    if (tiles_.size() > kMostValues) throw std::invalid_argument("an operation of a loop has too many values");
    for (int64_t left = from.number(); left > 0; left--) {
      Instruction made{from.name<Code>(), from.name<Type>()};
      const Type to = from.name<Type>();
      made.a = from.number(), made.b = from.number(), made.c = from.number(), made.result = from.number();
      if (made.code > kStore) {
        made.function = function_of(made.code, made.type, to);
        if (!made.function) {
          throw std::invalid_argument("a loop has instruction " + std::to_string(made.code) + " of type " +
                                      std::to_string(made.type) + ", which there is not");
        }
      }
      (made.code == kFill ? fills_ : made.code == kStore ? stores_ : instructions_).push_back(made);
    }
  }

  void run(const Addresses& addresses, const Region& region, const Room& room) const override {
    const int64_t width = region.column_end - region.column;
    std::array<char*, kMostValues> values;
    for (size_t i = 0; i < tiles_.size(); i++) values[i] = room.tiles + tiles_[i];
    // One number in the whole of a tile, which nothing else is written to.
    const int64_t most_numbers = std::min(kTileNumbers, width * (region.row_end - region.row));
    for (const Instruction& i : fills_) load(views_[i.a], addresses, {0, 1, 0, most_numbers}, values[i.result]);
    for (int64_t column = region.column; column < region.column_end; column += kTileNumbers) {
      const int64_t count = std::min(kTileNumbers, region.column_end - column);
      const int64_t most = width > kTileNumbers ? 1 : kTileNumbers / std::max<int64_t>(1, width);
      for (int64_t row = region.row; row < region.row_end; row += most) {
        tile(addresses, {row, std::min(region.row_end, row + most), column, column + count}, room.tiles, values.data());
      }
    }
  }

 private:
  void tile(const Addresses& addresses, const Region& part, char* tiles, char** values) const {
    const int64_t count = (part.row_end - part.row) * (part.column_end - part.column);
    for (const Instruction& i : stores_) {
      const bool in_place = is_made_in_place(i, part);
      values[i.a] = in_place ? at(views_[i.result], addresses, part.row, part.column) : tiles + tiles_[i.a];
    }
    for (const Instruction& i : instructions_) {
      if (i.code == kLoad) {
        const View& view = views_[i.a];
        if (is_row(view, part)) {
          values[i.result] = at(view, addresses, part.row, part.column);
        } else {
          values[i.result] = tiles + tiles_[i.result];
          load(view, addresses, part, values[i.result]);
        }
      } else {
        i.function(values[i.a], values[i.b], values[i.c], values[i.result], count);
      }
    }
    for (const Instruction& i : stores_) {
      if (!is_made_in_place(i, part)) write(views_[i.result], addresses, part, values[i.a]);
    }
  }

  // Whether what is kept is computed where it is kept: nothing that is read later is there.
  bool is_made_in_place(const Instruction& store, const Region& part) const {
    return store.b != 0 && is_row(views_[store.result], part);
  }

  // Whether a part lies in memory as it would in a tile.
  bool is_row(const View& view, const Region& part) const {
    if (view.type == kBool || view.steps.back() != 1) return false;
    return part.row_end - part.row == 1 ||
           (view.steps.size() == 2 && view.steps[0] == columns && part.column_end - part.column == columns);
  }

  char* at(const View& view, const Addresses& addresses, int64_t row, int64_t column) const {
    return view.array.in(addresses) + (view.row(row, sizes_) + column * view.steps.back()) * size_of(view.type);
  }

  void load(const View& view, const Addresses& addresses, const Region& part, char* to) const {
    const int64_t size = size_of(view.type), step = view.steps.back(), count = part.column_end - part.column;
    for (int64_t row = part.row; row < part.row_end; row++) {
      const char* from = at(view, addresses, row, part.column);
      if (view.type == kBool) {
        auto* tile = reinterpret_cast<int32_t*>(to);
        if (step == 1) {
#pragma GCC ivdep
          for (int64_t i = 0; i < count; i++) tile[i] = from[i];
        } else {
          for (int64_t i = 0; i < count; i++) tile[i] = from[i * step];
        }
        to += count * sizeof(int32_t);
      } else if (size == 8) {
        copy_in(from, step, reinterpret_cast<int64_t*>(to), count);
        to += count * size;
      } else {
        copy_in(from, step, reinterpret_cast<int32_t*>(to), count);
        to += count * size;
      }
    }
  }

  void write(const View& view, const Addresses& addresses, const Region& part, const char* from) const {
    const int64_t size = size_of(view.type), count = part.column_end - part.column;
    for (int64_t row = part.row; row < part.row_end; row++) {
      char* to = at(view, addresses, row, part.column);
      if (view.type == kBool) {
        const auto* tile = reinterpret_cast<const int32_t*>(from);
#pragma GCC ivdep
        for (int64_t i = 0; i < count; i++) to[i] = static_cast<char>(tile[i]);
        from += count * sizeof(int32_t);
      } else {
        size == 8 ? copy_row(reinterpret_cast<const int64_t*>(from), reinterpret_cast<int64_t*>(to), count)
                  : copy_row(reinterpret_cast<const int32_t*>(from), reinterpret_cast<int32_t*>(to), count);
        from += count * size;
      }
    }
  }

  std::vector<int64_t> sizes_;
  std::vector<View> views_;
  // Where each value is in a thread's tiles.
  std::vector<int64_t> tiles_;
  std::vector<Instruction> fills_, instructions_, stores_;
};

}  // namespace

Made read_elementwise(Reader& from) { return std::make_unique<Elementwise>(from); }

}  // namespace openipu::loop

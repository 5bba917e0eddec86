// Functions of vectors, with what is not a number kept.
#pragma once

#include "vectors.h"

namespace openipu {

inline Floats chosen(Integers which, Floats one, Floats other) { return which ? one : other; }

inline Integers bits_of(Floats x) {
  Integers bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

inline Floats of_bits(Integers bits) {
  Floats x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// 2^k for k from -126 to 127.
inline Floats power_of_two(Integers k) { return of_bits((k + 127) << 23); }

// e^r - 1 and k, where x = k log 2 + r: what makes e^x and e^x - 1 without loss.
inline void split_exponential(Floats x, Integers& k, Floats& rest) {
  const float rounding = 12582912.0f;  // 1.5 * 2^23: what is added to it is rounded to a whole number.
  const Floats shifted = x * 1.44269504f + rounding;
  const Floats whole = shifted - rounding;
  const Floats r = (x - whole * 0.693145752f) - whole * 1.42860677e-6f;
  k = bits_of(shifted) - 0x4b400000;
  // Fitted at Chebyshev's nodes; the error is below 1e-7.
  const Floats q =
      0.5f + r * (1.666657627e-1f + r * (4.166646302e-2f + r * (8.363335393e-3f + r * 1.393388375e-3f)));
  rest = r + r * r * q;
}

// Numbers from `least` to `most`; what is not a number stays.
inline Floats limited(Floats x, float least, float most) {
  x = x > most ? everywhere(most) : x;
  return x < least ? everywhere(least) : x;
}

// From the smallest denormal number to infinity.
inline Floats exponential(Floats x) {
  Integers k;
  Floats rest;
  split_exponential(limited(x, -104.0f, 89.0f), k, rest);
  // In two factors: each of them is an ordinary number.
  const Integers half = k >> 1;
  return (1.0f + rest) * power_of_two(half) * power_of_two(k - half);
}

inline Floats exponential_less_one(Floats x) {
  Integers k;
  Floats rest;
  split_exponential(limited(x, -87.0f, 88.7f), k, rest);
  // Twice half of it: 2^128 is no number.
  const Floats half = power_of_two(k - 1);
  const Floats made = (half * rest + (half - 0.5f)) * 2.0f;
  return x > 88.7f ? everywhere(__builtin_inff()) : made;
}

inline Floats logarithm(Floats x) {
  const float least = 1.17549435e-38f, infinity = __builtin_inff();
  const Integers is_denormal = x < least;
  const Floats scaled = is_denormal ? x * 8388608.0f : x;
  // x = 2^k m with m around 1: from the root of a half to that of two.
  Integers k = ((bits_of(scaled) - 0x3f3504f3) >> 23);
  const Floats m = of_bits(bits_of(scaled) - (k << 23));
  const Floats s = (m - 1.0f) / (m + 1.0f), t = s * s;
  const Floats tail = t * (0.333333333f + t * (0.2f + t * (0.142857143f + t * 0.111111111f)));
  k = is_denormal ? k - 23 : k;
  const Floats whole = __builtin_convertvector(k, Floats);
  Floats made = (m - 1.0f) - s * ((m - 1.0f) - 2.0f * tail) + whole * 1.42860677e-6f + whole * 0.693145752f;
  made = x == infinity ? everywhere(infinity) : made;
  made = x == 0.0f ? everywhere(-infinity) : made;
  return (x < 0.0f) | (x != x) ? everywhere(__builtin_nanf("")) : made;
}

inline Floats logarithm_of_one_more(Floats x) {
  const Floats u = 1.0f + x;
  // What rounding took from x is given back by the quotient.
  const Floats made = logarithm(u) * (x / (u - 1.0f));
  return (u == 1.0f) | (u == __builtin_inff()) ? x : made;
}

inline Floats sigmoid(Floats x) {
  Integers k;
  Floats rest;
  split_exponential(-limited(x, -87.0f, 87.0f), k, rest);
  const Floats power = power_of_two(k);
  return 1.0f / (1.0f + (power * rest + power));
}

inline Floats hyperbolic_tangent(Floats x) {
  Integers k;
  Floats rest;
  split_exponential(limited(x, -10.0f, 10.0f) * 2.0f, k, rest);
  const Floats power = power_of_two(k);
  const Floats less_one = power * rest + (power - 1.0f);
  return less_one / (less_one + 2.0f);
}

// Fitted at Chebyshev's nodes, to 6e-9 beside the rounding: x times a polynomial of its square.
inline Floats small_error_function(Floats x) {
  const Floats square = x * x;
  return x * (1.1283791065216064f + square * (-0.3761262595653534f + square * (0.11283597350120544f + square *
      (-0.02685432881116867f + square * (0.005189312156289816f + square * (-0.0008018855005502701f + square *
      7.882497448008507e-05f))))));
}

// What is missing of 1, from 1 on: e^(-x*x) / x times a polynomial of 1 / x, one up to 4 and one beyond.
inline Floats large_error_function_rest(Floats x) {
  const Floats s = 1.0f / x;
  const Floats near = 0.5639775395393372f + s * (0.003170531243085861f + s * (-0.2986992299556732f + s *
      (0.016594797372817993f + s * (0.6218023896217346f + s * (-0.982770562171936f + s * (0.7627020478248596f + s *
      (-0.3140592575073242f + s * 0.054865382611751556f)))))));
  const Floats far = 0.5641880035400391f + s * (4.2411251342855394e-05f + s * (-0.2822730839252472f + s *
      (-0.005292813293635845f + s * (0.5018501877784729f + s * -0.4468269348144531f))));
  // The square in two parts: what rounding takes from it would be multiplied.
  const Floats high = of_bits(bits_of(x) & static_cast<int32_t>(0xfffff000));
  return exponential(-high * high) * exponential((high - x) * (high + x)) * s * (x > 4.0f ? far : near);
}

inline Floats error_function(Floats x) {
  const Floats positive = of_bits(bits_of(x) & 0x7fffffff);
  const Floats rest = large_error_function_rest(limited(positive, 1.0f, 4.0f));
  const Floats large = of_bits(bits_of(1.0f - rest) | (bits_of(x) & static_cast<int32_t>(0x80000000)));
  const Floats made = positive < 1.0f ? small_error_function(x) : large;
  return x != x ? x : made;
}

// What is missing of 1.
inline Floats error_function_rest(Floats x) {
  const Floats positive = of_bits(bits_of(x) & 0x7fffffff);
  const Floats rest = large_error_function_rest(limited(positive, 1.0f, 11.0f));
  const Floats large = x < 0.0f ? 2.0f - rest : rest;
  const Floats made = positive < 1.0f ? 1.0f - small_error_function(x) : large;
  return x != x ? x : made;
}

}  // namespace openipu

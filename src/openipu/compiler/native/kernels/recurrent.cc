// The time loops of LSTM and GRU and of their gradients.
//
// Rows of a batch have nothing to do with each other, so every thread takes some of them through all times, and no
// thread waits for another. Weights are packed so that one pass over them makes all gates of the same units, which are
// activated while they are still in registers.
#include <algorithm>

#include "functions.h"
#include "parts.h"
#include "tiles.h"

namespace openipu {
namespace {

// The gradient of what these functions were given, from their result.
inline Floats sigmoid_gradient(Floats y, Floats g) { return g * (y * (1.0f - y)); }
inline Floats tangent_gradient(Floats y, Floats g) { return g * (1.0f - y * y); }

// More would read the weights more often.
constexpr int64_t kPartsPerThread = 2;

// Several lanes of [time, batch, ...]; lanes share the weights.
struct Shape {
  int64_t lanes, times, batch, units;
  // Of the inputs that the loop multiplies itself; 0 where it is given their product.
  int64_t features;
  bool reversed, masked;

  // How the first index of time and the following ones are numbered.
  int64_t time(int64_t step) const { return reversed ? times - 1 - step : step; }
  // The row of an array [lane, time, batch].
  int64_t row(int64_t lane, int64_t time, int64_t number) const { return (lane * times + time) * batch + number; }
};

// Rows of one lane.
struct Rows {
  int64_t lane, begin, end;
  int64_t count() const { return end - begin; }
};

// A matrix [depth, gates * units] as panels: for a vector of units, at every depth, the vectors of all its gates.
class Panels {
 public:
  Panels(const float* from, int64_t depth, int64_t gates, int64_t units)
      : depth_(depth), gates_(gates), groups_((units + kWidth - 1) / kWidth),
        packed_(groups_ * depth * gates * kWidth) {
    float* to = packed_.data();
    for (int64_t group = 0; group < groups_; group++) {
      const int64_t first = group * kWidth, count = std::min(kWidth, units - first);
      for (int64_t d = 0; d < depth; d++) {
        for (int64_t gate = 0; gate < gates; gate++, to += kWidth) {
          store(to, load_some(from + (d * gates + gate) * units + first, count));
        }
      }
    }
  }

  int64_t groups() const { return groups_; }
  const float* group(int64_t number) const { return packed_.data() + number * depth_ * gates_ * kWidth; }

 private:
  int64_t depth_, gates_, groups_;
  Packed packed_;
};

// Goes over all rows of all lanes, in as many parts as it is worth.
template <class Work>
void share_out(ffi::ThreadPool& pool, const Shape& s, int64_t each, const Work& work) {
  const int64_t blocks = (s.batch + kRows - 1) / kRows, all = s.lanes * blocks;
  const int64_t parts = parts_for(pool, kPartsPerThread, all, s.lanes * s.times * s.batch * each);
  in_parts(pool, parts, [&](int64_t part) {
    int64_t block = all * part / parts;
    const int64_t end = all * (part + 1) / parts;
    while (block < end) {
      const int64_t lane = block / blocks, first = block % blocks, last = std::min(blocks, first + end - block);
      work(Rows{lane, first * kRows, std::min(s.batch, last * kRows)});
      block += last - first;
    }
  });
}

// Rows times a matrix [depth, units] that is packed as panels of single vectors.
class Product {
 public:
  Product(const float* matrix, int64_t depth, int64_t units)
      : depth_(depth), units_(units), wide_(pack(matrix, depth, units)) {}

  void operator()(const float* left, int64_t rows, float* result) const {
    const float* panel = wide_.data();
    for (int64_t first = 0; first < units_; first += kColumns * kWidth) {
      const int64_t vectors = std::min<int64_t>(kColumns, (units_ - first + kWidth - 1) / kWidth);
      by_vectors(vectors, [&](auto constant) {
        columns<decltype(constant)::value>(left, rows, panel, result, first);
      });
      panel += depth_ * vectors * kWidth;
    }
  }

 private:
  static Packed pack(const float* from, int64_t depth, int64_t units) {
    const int64_t whole = (units + kWidth - 1) / kWidth * kWidth;
    Packed packed(depth * whole);
    float* to = packed.data();
    for (int64_t first = 0; first < units; first += kColumns * kWidth) {
      const int64_t end = std::min(whole, first + kColumns * kWidth);
      for (int64_t d = 0; d < depth; d++) {
        for (int64_t u = first; u < end; u += kWidth, to += kWidth) {
          store(to, load_some(from + d * units + u, std::min(kWidth, units - u)));
        }
      }
    }
    return packed;
  }

  template <int vectors>
  void columns(const float* left, int64_t rows, const float* panel, float* result, int64_t first) const {
    by_rows(rows, [&](int64_t row, auto constant) {
      constexpr int count = decltype(constant)::value;
      Floats sums[count][vectors] = {};
      multiply<vectors, count>(left + row * depth_, depth_, 1, depth_, panel, sums);
      for (int r = 0; r < count; r++) {
        for (int v = 0; v < vectors; v++) {
          const int64_t unit = first + v * kWidth;
          store_some(result + (row + r) * units_ + unit, sums[r][v], std::min(kWidth, units_ - unit));
        }
      }
    });
  }

  int64_t depth_, units_;
  Packed wide_;
};

// Where the arrays of a call are.
struct Arrays {
  std::vector<float*> in, out;
  const bool* mask;

  Arrays(ffi::RemainingArgs args, ffi::RemainingRets rets, bool masked) : mask(nullptr) {
    for (size_t i = 0; i < args.size(); i++) {
      auto buffer = args.get<ffi::AnyBuffer>(i).value();
      if (masked && i + 1 == args.size()) {
        mask = static_cast<const bool*>(buffer.untyped_data());
      } else {
        in.push_back(static_cast<float*>(buffer.untyped_data()));
      }
    }
    for (size_t i = 0; i < rets.size(); i++) {
      out.push_back(static_cast<float*>(rets.get<ffi::AnyBuffer>(i).value()->untyped_data()));
    }
  }

  // Whether a row's state changes.
  bool on(int64_t row) const { return mask == nullptr || mask[row]; }
};

void keep(const float* before, float* after, int64_t count) { std::memcpy(after, before, count * sizeof(float)); }

// in: gates [.., 4 units], hidden and memory at the beginning, weights [units, 4 units], (mask);
//     with features, inputs [.., features] instead of gates, and after the weights those of the inputs
//     [features, 4 units] and the bias [4 units]
// out: hidden, memory, and at every time the input, forget, new and output gate and what is shown of the memory
void lstm_forward(ffi::ThreadPool& pool, const Shape& s, const Arrays& a) {
  const int64_t units = s.units;
  const Panels weights(a.in[3], units, 4, units);
  const Panels of_inputs(s.features ? a.in[4] : nullptr, s.features, 4, units);
  share_out(pool, s, 4 * units * (units + s.features), [&](Rows rows) {
    for (int64_t step = 0; step < s.times; step++) {
      const int64_t now = s.row(rows.lane, s.time(step), rows.begin);
      const int64_t start = rows.lane * s.batch + rows.begin;
      const bool first = step == 0;
      const int64_t last = first ? start : s.row(rows.lane, s.time(step - 1), rows.begin);
      const float* hidden = (first ? a.in[1] : a.out[0]) + last * units;
      const float* memory = (first ? a.in[2] : a.out[1]) + last * units;
      for (int64_t group = 0; group < weights.groups(); group++) {
        const int64_t unit = group * kWidth;
        by_width(units - unit, [&](auto width) {
          by_rows(rows.count(), [&](int64_t row, auto constant) {
            constexpr int many = decltype(constant)::value;
            Floats sums[many][4];
            for (int r = 0; r < many; r++) {
              const float* gates = s.features ? a.in[5] + unit : a.in[0] + (now + row + r) * 4 * units + unit;
              for (int g = 0; g < 4; g++) sums[r][g] = width.load(gates + g * units);
            }
            if (s.features) {
              const float* inputs = a.in[0] + (now + row) * s.features;
              multiply<4, many>(inputs, s.features, 1, s.features, of_inputs.group(group), sums);
            }
            multiply<4, many>(hidden + row * units, units, 1, units, weights.group(group), sums);
            for (int r = 0; r < many; r++) {
              const int64_t at = (now + row + r) * units + unit;
              const Floats enter = sigmoid(sums[r][0]), forget = sigmoid(sums[r][1]);
              const Floats fresh = hyperbolic_tangent(sums[r][2]), out = sigmoid(sums[r][3]);
              const Floats next = forget * width.load(memory + (row + r) * units + unit) + enter * fresh;
              const Floats shown = hyperbolic_tangent(next);
              const Floats results[] = {out * shown, next, enter, forget, fresh, out, shown};
              for (int i = 0; i < 7; i++) width.store(a.out[i] + at, results[i]);
            }
          });
        });
      }
      for (int64_t row = 0; row < rows.count() && a.mask; row++) {
        if (a.on(now + row)) continue;
        keep(hidden + row * units, a.out[0] + (now + row) * units, units);
        keep(memory + row * units, a.out[1] + (now + row) * units, units);
      }
    }
  });
}

// in: gradients of the last hidden state, of the last memory and of all outputs; the gates that were kept (5);
//     memory before every time; weights [4 units, units]; (mask)
// out: gradients of the first hidden state, of the first memory and of the gates [.., 4 units]
void lstm_backward(ffi::ThreadPool& pool, const Shape& s, const Arrays& a) {
  const int64_t units = s.units;
  const Product back(a.in[9], 4 * units, units);
  share_out(pool, s, 4 * units * units, [&](Rows rows) {
    float* of_hidden = a.out[0] + (rows.lane * s.batch + rows.begin) * units;
    float* of_memory = a.out[1] + (rows.lane * s.batch + rows.begin) * units;
    keep(a.in[0] + (of_hidden - a.out[0]), of_hidden, rows.count() * units);
    keep(a.in[1] + (of_memory - a.out[1]), of_memory, rows.count() * units);
    std::vector<float> stays(a.mask ? rows.count() * units : 0);
    for (int64_t step = s.times - 1; step >= 0; step--) {
      const int64_t now = s.row(rows.lane, s.time(step), rows.begin);
      for (int64_t row = 0; row < rows.count(); row++) {
        const bool on = a.on(now + row);
        for (int64_t unit = 0; unit < units; unit += kWidth) {
          const int64_t here = row * units + unit;
          by_width(units - unit, [&](auto width) {
            const int64_t at = (now + row) * units + unit;
            auto kept = [&](int number) { return width.load(a.in[number] + at); };
            const Floats arrived = width.load(of_hidden + here) + kept(2);
            const Floats enter = kept(3), forget = kept(4), fresh = kept(5), out = kept(6), shown = kept(7);
            Floats memory = width.load(of_memory + here);
            Floats gates[4] = {};
            if (on) {
              memory += tangent_gradient(shown, arrived * out);
              gates[0] = sigmoid_gradient(enter, memory * fresh);
              gates[1] = sigmoid_gradient(forget, memory * kept(8));
              gates[2] = tangent_gradient(fresh, memory * enter);
              gates[3] = sigmoid_gradient(out, arrived * shown);
              memory *= forget;
            }
            width.store(of_memory + here, memory);
            if (a.mask) width.store(stays.data() + here, on ? Floats{} : arrived);
            float* to = a.out[2] + (now + row) * 4 * units + unit;
            for (int g = 0; g < 4; g++) width.store(to + g * units, gates[g]);
          });
        }
      }
      back(a.out[2] + now * 4 * units, rows.count(), of_hidden);
      for (size_t i = 0; i < stays.size(); i++) of_hidden[i] += stays[i];
    }
  });
}

// in: gates (update, reset, new) [.., 3 units], hidden at the beginning, weights [units, 3 units] and bias [3 units] of
//     the state's share, (mask)
// out: hidden, and at every time update, reset, new and the state's share of new
void gru_forward(ffi::ThreadPool& pool, const Shape& s, const Arrays& a) {
  const int64_t units = s.units;
  const Panels weights(a.in[2], units, 3, units);
  share_out(pool, s, 3 * units * units, [&](Rows rows) {
    for (int64_t step = 0; step < s.times; step++) {
      const int64_t now = s.row(rows.lane, s.time(step), rows.begin);
      const bool first = step == 0;
      const int64_t last = first ? rows.lane * s.batch + rows.begin : s.row(rows.lane, s.time(step - 1), rows.begin);
      const float* hidden = (first ? a.in[1] : a.out[0]) + last * units;
      for (int64_t group = 0; group < weights.groups(); group++) {
        const int64_t unit = group * kWidth;
        by_width(units - unit, [&](auto width) {
          Floats bias[3];
          for (int g = 0; g < 3; g++) bias[g] = width.load(a.in[3] + g * units + unit);
          by_rows(rows.count(), [&](int64_t row, auto constant) {
            constexpr int many = decltype(constant)::value;
            Floats sums[many][3];
            for (int r = 0; r < many; r++) {
              for (int g = 0; g < 3; g++) sums[r][g] = bias[g];
            }
            multiply<3, many>(hidden + row * units, units, 1, units, weights.group(group), sums);
            for (int r = 0; r < many; r++) {
              const float* gates = a.in[0] + (now + row + r) * 3 * units + unit;
              const int64_t at = (now + row + r) * units + unit;
              const Floats update = sigmoid(width.load(gates) + sums[r][0]);
              const Floats reset = sigmoid(width.load(gates + units) + sums[r][1]);
              const Floats fresh = hyperbolic_tangent(width.load(gates + 2 * units) + reset * sums[r][2]);
              const Floats old = width.load(hidden + (row + r) * units + unit);
              const Floats results[] = {fresh + update * (old - fresh), update, reset, fresh, sums[r][2]};
              for (int i = 0; i < 5; i++) width.store(a.out[i] + at, results[i]);
            }
          });
        });
      }
      for (int64_t row = 0; row < rows.count() && a.mask; row++) {
        if (!a.on(now + row)) keep(hidden + row * units, a.out[0] + (now + row) * units, units);
      }
    }
  });
}

// in: gradients of the last hidden state and of all outputs; update, reset, new and the share that were kept; hidden
//     before every time; weights [3 units, units]; (mask)
// out: gradients of the first hidden state and of the gates [.., 3 units]
void gru_backward(ffi::ThreadPool& pool, const Shape& s, const Arrays& a) {
  const int64_t units = s.units;
  const Product back(a.in[7], 3 * units, units);
  share_out(pool, s, 3 * units * units, [&](Rows rows) {
    float* of_hidden = a.out[0] + (rows.lane * s.batch + rows.begin) * units;
    keep(a.in[0] + (of_hidden - a.out[0]), of_hidden, rows.count() * units);
    std::vector<float> stays(rows.count() * units), shares(rows.count() * 3 * units);
    for (int64_t step = s.times - 1; step >= 0; step--) {
      const int64_t now = s.row(rows.lane, s.time(step), rows.begin);
      for (int64_t row = 0; row < rows.count(); row++) {
        const bool on = a.on(now + row);
        for (int64_t unit = 0; unit < units; unit += kWidth) {
          const int64_t here = row * units + unit;
          by_width(units - unit, [&](auto width) {
            const int64_t at = (now + row) * units + unit;
            auto kept = [&](int number) { return width.load(a.in[number] + at); };
            const Floats arrived = width.load(of_hidden + here) + kept(1);
            const Floats update = kept(2), reset = kept(3), fresh = kept(4);
            Floats gates[3] = {}, passed = arrived;
            if (on) {
              gates[2] = tangent_gradient(fresh, arrived * (1.0f - update));
              gates[0] = sigmoid_gradient(update, arrived * (kept(6) - fresh));
              gates[1] = sigmoid_gradient(reset, gates[2] * kept(5));
              passed = arrived * update;
            }
            width.store(stays.data() + here, passed);
            float* to = a.out[1] + (now + row) * 3 * units + unit;
            for (int g = 0; g < 3; g++) width.store(to + g * units, gates[g]);
            float* share = shares.data() + row * 3 * units + unit;
            width.store(share, gates[0]);
            width.store(share + units, gates[1]);
            width.store(share + 2 * units, gates[2] * reset);
          });
        }
      }
      back(shares.data(), rows.count(), of_hidden);
      for (size_t i = 0; i < stays.size(); i++) of_hidden[i] += stays[i];
    }
  });
}

template <void (*loop)(ffi::ThreadPool&, const Shape&, const Arrays&)>
ffi::Error call(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets, Numbers shape,
                int64_t reversed, int64_t masked) {
  return guarded([&] {
    const int64_t* n = shape.begin();
    loop(pool, Shape{n[0], n[1], n[2], n[3], n[4], reversed != 0, masked != 0}, Arrays(args, rets, masked != 0));
  });
}

auto binding() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .RemainingArgs()
      .RemainingRets()
      .Attr<Numbers>("shape")
      .Attr<int64_t>("reversed")
      .Attr<int64_t>("masked");
}

}  // namespace
}  // namespace openipu

XLA_FFI_DEFINE_HANDLER_SYMBOL(openipu_lstm_forward, openipu::call<openipu::lstm_forward>, openipu::binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(openipu_lstm_backward, openipu::call<openipu::lstm_backward>, openipu::binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(openipu_gru_forward, openipu::call<openipu::gru_forward>, openipu::binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(openipu_gru_backward, openipu::call<openipu::gru_backward>, openipu::binding());

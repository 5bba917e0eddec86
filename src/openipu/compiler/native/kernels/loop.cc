// A loop of small steps: its threads stay together for all of it, where XLA would wake and lose them in every step.
//
// A step is a row of phases, and a phase is done when all its parts are. Every thread has a part of its own, the same
// in every step, so what it wrote is still in its caches; who has nothing to do takes a part that nobody has begun. So
// nobody waits for a thread that has not come, or that another process keeps from its core.
#include "loop.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>

#include "kernel.h"
#include "scratch.h"
#include "tiles.h"

namespace openipu::loop {

int64_t Reader::number() {
  if (done()) throw std::invalid_argument("the description of a loop ends too early");
  return *next_++;
}

std::vector<int64_t> Reader::numbers() {
  std::vector<int64_t> found(number());
  for (int64_t& one : found) one = number();
  return found;
}

namespace {

// Bytes of a block of rows that goes through all operations of a chain before the next one does. Products pack their
// other side for every block, so it has a good many rows.
constexpr int64_t kBlockBytes = 1 << 14;
constexpr int64_t kLine = 64;
// How often a thread looks for work before it lets others have the core: some tens of microseconds.
constexpr int64_t kLooks = 500;

// Where an array is: given, carried from step to step, one row of what is given or made, or a place of the loop's own;
// of one that only a chain reads, a block of it is in a place of each thread.
enum Kind : int64_t { kGiven, kCarried, kTaken, kMade, kKept, kOwn, kConstant, kPassing };

struct Source {
  Kind kind;
  // The array that is given, or the offset of an own one; the result; bytes from step to step.
  int64_t given, result, step;

  explicit Source(Reader& from)
      : kind(from.name<Kind>()), given(from.number()), result(from.number()), step(from.number()) {}
};

// What parts have of a result: some rows, some columns, or everything, of some of what is summed over.
enum Split : int64_t { kByRows, kByColumns, kByDepth, kWhole };

// Operations that a part goes through one after another: each reads of the one before only what it made itself.
struct Chain {
  Split split;
  // Of all its operations; one that has a row of so many columns has as many rows of one.
  int64_t rows;
  // So many rows go through all operations before the next ones do; 0 if that depends on how many threads there are.
  int64_t block;
  // Arrays that only this chain reads, which hold one block: which, and how many bytes a row has.
  std::vector<int64_t> passing, row_bytes;
  std::vector<int64_t> operations;
};

struct Phase {
  // Whether it is cut into parts; otherwise one thread does it all.
  bool is_shared;
  std::vector<Chain> chains;
};

struct Program {
  // At most so many threads are busy.
  int64_t steps, threads, own_bytes, tile_bytes, block_bytes;
  std::vector<int64_t> constants;
  std::vector<Source> sources;
  std::vector<Made> operations;
  std::vector<Phase> phases;

  explicit Program(Reader from)
      : steps(from.number()), threads(from.number()), own_bytes(from.number()), tile_bytes(from.number()),
        block_bytes(from.number()), constants(from.numbers()) {
    for (int64_t left = from.number(); left > 0; left--) sources.emplace_back(from);
    for (int64_t left = from.number(); left > 0; left--) operations.push_back(operation(from));
    for (int64_t left = from.number(); left > 0; left--) {
      Phase& phase = phases.emplace_back();
      phase.is_shared = from.number() != 0;
      for (int64_t chains = from.number(); chains > 0; chains--) {
        Chain& chain = phase.chains.emplace_back();
        chain.split = from.name<Split>(), chain.rows = from.number(), chain.block = from.number();
        chain.passing = from.numbers(), chain.row_bytes = from.numbers(), chain.operations = from.numbers();
      }
    }
    if (!from.done()) throw std::invalid_argument("the description of a loop is too long");
  }

 private:
  static Made operation(Reader& from) {
    switch (from.number()) {
      case 0: return read_elementwise(from);
      case 1: return read_product(from);
      case 2: return read_reduction(from);
      case 3: return read_rows(from);
      case 4: return read_parts(from);
      case 5: return read_joined(from);
    }
    throw std::invalid_argument("a loop has an operation that there is not");
  }
};

Region part_of(const Chain& chain, const Operation& operation, int64_t part, int64_t parts) {
  const int64_t rows = operation.rows, columns = operation.columns;
  switch (chain.split) {
    case kByRows: return {border(chain.rows, part, parts), border(chain.rows, part + 1, parts), 0, columns};
    case kByColumns: return {0, rows, border(columns, part, parts), border(columns, part + 1, parts)};
    case kByDepth: return {0, rows, 0, columns, part, parts};
    case kWhole: return {0, rows, 0, columns};
  }
  throw std::invalid_argument("a loop is split in a way that there is not");
}

// So many rows of an operation.
Region of_rows(const Chain& chain, const Operation& operation, const Region& some) {
  if (operation.rows == chain.rows) return {some.row, some.row_end, 0, operation.columns};
  return {0, 1, some.row, some.row_end};
}

// Everything that threads share. Whoever comes late finds that nothing is left, even when the call has ended.
class Team {
 public:
  Team(Program program, std::vector<char*> given, std::vector<char*> results, int64_t threads)
      : program_(std::move(program)), given_(std::move(given)), results_(std::move(results)), threads_(threads),
        turns_(program_.steps * static_cast<int64_t>(program_.phases.size())),
        room_(rounded(program_.tile_bytes, kLine) + rounded(program_.block_bytes, kLine) + kPanel + kSums),
        memory_(rounded(program_.own_bytes, kLine) + threads * room_), addresses_(program_.sources.size()),
        taken_(threads) {
    begin(0);
  }

  int64_t threads() const { return threads_; }

  // Takes parts until there are no more; the thread's own first.
  void work(int64_t seat) {
    for (int64_t looks = 0;;) {
      const int64_t turn = turn_.load(std::memory_order_acquire);
      if (turn == turns_) return;
      const Phase& phase = program_.phases[turn % program_.phases.size()];
      const int64_t parts = phase.is_shared ? threads_ : 1;
      bool has_worked = false;
      for (int64_t i = 0; i < parts; i++) {
        const int64_t part = (seat + i) % parts;
        if (!take(part, turn)) continue;
        has_worked = true;
        for (const Chain& chain : phase.chains) run(chain, part, parts, room_of(seat));
        if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == parts) end(turn);
      }
      looks = has_worked ? 0 : looks + 1;
      if (looks > kLooks) {
        std::this_thread::yield();
      } else if (looks > 0) {
        pause();
      }
    }
  }

 private:
  static constexpr int64_t kPanel = kDepth * kColumns * kWidth * sizeof(float);
  static constexpr int64_t kSums = kSummedRows * kColumns * kWidth * sizeof(float);

  struct alignas(kLine) Taken {
    // The last turn in which somebody took the part.
    std::atomic<int64_t> turn{-1};
  };

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  bool take(int64_t part, int64_t turn) {
    int64_t last = taken_[part].turn.load(std::memory_order_relaxed);
    return last < turn && taken_[part].turn.compare_exchange_strong(last, turn, std::memory_order_acq_rel);
  }

  void end(int64_t turn) {
    const int64_t phases = program_.phases.size();
    done_.store(0, std::memory_order_relaxed);
    if ((turn + 1) % phases == 0 && turn + 1 < turns_) begin((turn + 1) / phases);
    turn_.store(turn + 1, std::memory_order_release);
  }

  // Finds the arrays of a step. Nobody works meanwhile.
  void begin(int64_t step) {
    for (size_t i = 0; i < addresses_.size(); i++) {
      const Source& s = program_.sources[i];
      switch (s.kind) {
        case kGiven: addresses_[i] = given_[s.given]; break;
        case kCarried: addresses_[i] = step == 0 ? given_[s.given] : results_[s.result]; break;
        case kTaken: addresses_[i] = given_[s.given] + step * s.step; break;
        case kMade: addresses_[i] = results_[s.result] + step * s.step; break;
        case kKept: addresses_[i] = results_[s.result]; break;
        case kOwn: addresses_[i] = memory_.data<char>() + s.given; break;
        case kConstant: addresses_[i] = reinterpret_cast<char*>(&program_.constants[s.given]); break;
        case kPassing: break;
      }
    }
  }

  void run(const Chain& chain, int64_t part, int64_t parts, const Room& room) const {
    const Operation& first = *program_.operations[chain.operations.front()];
    const Region all = part_of(chain, first, part, parts);
    const int64_t width = all.column_end - all.column;
    if (width == 0) return;
    int64_t block = chain.block ? chain.block : all.row_end - all.row;
    if (chain.block == 0 && chain.operations.size() > 1) {
      block = std::max<int64_t>(rounded(kBlockBytes / (width * sizeof(float)), kRows), kSummedRows);
    }
    Addresses near;
    if (!chain.passing.empty()) near = addresses_;
    const Addresses& addresses = chain.passing.empty() ? addresses_ : near;
    for (int64_t row = all.row; row < all.row_end; row += block) {
      for (size_t i = 0; i < chain.passing.size(); i++) {
        // Where its first row would be.
        near[chain.passing[i]] = room.block + program_.sources[chain.passing[i]].given - row * chain.row_bytes[i];
      }
      Region some = all;
      some.row = row, some.row_end = std::min(all.row_end, row + block);
      for (int64_t number : chain.operations) {
        const Operation& operation = *program_.operations[number];
        operation.run(addresses, chain.split == kByRows ? of_rows(chain, operation, some) : some, room);
      }
    }
  }

  Room room_of(int64_t seat) const {
    char* own = memory_.data<char>() + rounded(program_.own_bytes, kLine) + seat * room_;
    char* tiles = own + kPanel + kSums;
    return {tiles, tiles + rounded(program_.tile_bytes, kLine), reinterpret_cast<float*>(own), reinterpret_cast<float*>(own + kPanel), threads_};
  }

  Program program_;
  std::vector<char*> given_, results_;
  int64_t threads_, turns_, room_;
  Scratch memory_;
  Addresses addresses_;
  std::vector<Taken> taken_;
  alignas(kLine) std::atomic<int64_t> turn_{0};
  alignas(kLine) std::atomic<int64_t> done_{0};
};

ffi::Error run(ffi::ThreadPool pool, ffi::RemainingArgs arguments, ffi::RemainingRets results, Numbers program) {
  return guarded([&] {
    std::vector<char*> given, made;
    for (size_t i = 0; i < arguments.size(); i++) {
      given.push_back(static_cast<char*>(arguments.get<ffi::AnyBuffer>(i).value().untyped_data()));
    }
    for (size_t i = 0; i < results.size(); i++) {
      made.push_back(static_cast<char*>(results.get<ffi::AnyBuffer>(i).value()->untyped_data()));
    }
    Program read(Reader(program.begin(), program.end()));
    const int64_t threads = std::clamp<int64_t>(read.threads, 1, std::max<int64_t>(1, pool.num_threads()));
    auto team = std::make_shared<Team>(std::move(read), std::move(given), std::move(made), threads);
    for (int64_t seat = 1; seat < threads; seat++) pool.Schedule([team, seat] { team->work(seat); });
    team->work(0);
  });
}

}  // namespace
}  // namespace openipu::loop

XLA_FFI_DEFINE_HANDLER_SYMBOL(openipu_loop, openipu::loop::run,
                              openipu::ffi::Ffi::Bind()
                                  .Ctx<openipu::ffi::ThreadPool>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<openipu::Numbers>("program"));

// Runs a grid: starts blocks, gives their warps turns in the chosen order, lands what is in flight
// when nothing else can go on.
#include "tests/support/ptx/run.h"

#include <algorithm>

#include "tests/support/ptx/decode.h"
#include "tests/support/ptx/machine.h"

namespace deltad::ptx {
namespace {

constexpr uint8_t kPoison = 0xff;  // NaN in every float format

std::unique_ptr<Block> start_block(Grid& g, uint64_t number) {
  const Kernel& k = *g.kernel;
  auto b = std::make_unique<Block>();
  b->grid = &g;
  b->index = {static_cast<uint32_t>(number % g.blocks.x),
              static_cast<uint32_t>(number / g.blocks.x % g.blocks.y),
              static_cast<uint32_t>(number / (uint64_t{g.blocks.x} * g.blocks.y))};
  const uint64_t bytes = k.dynamic_shared + g.dynamic_bytes;
  b->shared.assign(bytes, kPoison);
  b->generic_writes.assign(bytes / 16 + 1, {0, nullptr});
  const auto threads = static_cast<uint32_t>(g.threads.count());
  b->warps.resize((threads + 31) / 32);
  b->races.start(bytes, b->warps.size());
  for (uint32_t i = 0; i < b->warps.size(); ++i) {
    Warp& w = b->warps[i];
    w.block = b.get();
    w.kernel = &k;
    w.index = i;
    const uint32_t lanes = std::min(32U, threads - 32 * i);
    w.live = lanes == 32 ? ~0U : (1U << lanes) - 1;
    w.file.assign(4ULL * k.file_words, std::byte{kPoison});
    w.local.assign(32ULL * k.text->local_bytes, kPoison);
    for (const Kernel::Constant& c : k.constants) {
      if (c.wide) {
        std::fill_n(w.u64(c.place), 32, c.value);
      } else {
        std::fill_n(w.u32(c.place), 32, static_cast<uint32_t>(c.value));
      }
    }
    for (const Kernel::Special& s : k.specials) {
      for (uint32_t l = 0; l < 32; ++l) w.u32(s.place)[l] = s.value(w, l);
    }
  }
  return b;
}

class Scheduler {
 public:
  explicit Scheduler(Grid& g) : g_(g) {
    waiting_ = g.options.only_blocks;
    if (waiting_.empty()) {
      for (uint64_t i = 0; i < g.blocks.count(); ++i) waiting_.push_back(i);
    }
    if (g.options.order == Order::kFifo) std::reverse(waiting_.begin(), waiting_.end());
    if (g.options.order == Order::kRandom) std::shuffle(waiting_.begin(), waiting_.end(), g.random);
  }

  void run() {
    for (;;) {
      while (!waiting_.empty() && resident_.size() < std::max(1U, g_.options.resident_blocks)) {
        resident_.push_back(start_block(g_, waiting_.back()));
        waiting_.pop_back();
      }
      if (resident_.empty()) return;
      pass();
      std::erase_if(resident_, [](const auto& b) {
        if (b->live_warps() != 0) return false;
        check_end(*b);
        return true;
      });
    }
  }

 private:
  // A turn for every warp.
  void pass() {
    std::vector<Warp*> warps;
    for (const auto& b : resident_) {
      for (Warp& w : b->warps) warps.push_back(&w);
    }
    const bool random = g_.options.order == Order::kRandom;
    if (g_.options.order == Order::kLifo) std::reverse(warps.begin(), warps.end());
    if (random) std::shuffle(warps.begin(), warps.end(), g_.random);
    const uint64_t events = g_.events;
    bool moved = false;
    for (Warp* w : warps) {
      const bool ended = w->live == 0;
      const auto quantum = random ? static_cast<uint32_t>(1 + g_.random() % 64) : 4096U;
      const Warp::Turn turn = w->run(quantum);
      moved |= turn == Warp::Turn::kProgress || (turn == Warp::Turn::kEnded && !ended);
    }
    if (g_.options.arrival == Arrival::kRandom && g_.random() % 4 == 0) land_one();
    if (!moved && g_.events == events && !land_one()) deadlock();
  }

  bool land_one() {
    for (const auto& b : resident_) {
      const size_t n = b->pending.size();
      if (n == 0) continue;
      b->land(g_.options.order == Order::kFifo   ? 0
              : g_.options.order == Order::kLifo ? n - 1
                                                 : g_.random() % n);
      return true;
    }
    return false;
  }

  // What is in flight at the end would read or write another block's shared memory.
  static void check_end(Block& b) {
    if (!b.pending.empty()) {
      b.pending[0].warp->fault(*b.pending[0].by, "the block ended while this copy was in flight");
    }
    for (Warp& w : b.warps) {
      for (int l = 0; l < 32; ++l) {
        const std::vector<BulkStore>& s = w.stores[static_cast<size_t>(l)];
        if (!s.empty()) w.fault(*s[0].by, "the block ended while this store was in flight", l);
      }
    }
  }

  [[noreturn]] void deadlock() {
    for (const auto& b : resident_) {
      for (Warp& w : b->warps) {
        if (w.live == 0) continue;
        const int lane = __builtin_ctz(w.live);
        const int at = w.lane_pc[static_cast<size_t>(lane)];
        const int pc = w.active != 0 ? w.pc : at;
        w.fault(g_.kernel->code[static_cast<size_t>(std::max(0, pc - 1))],
                "deadlock: no thread can go on; this one waits after this instruction", lane);
      }
    }
    throw Fault{.what = "deadlock", .kernel = g_.kernel->name};
  }

  Grid& g_;
  std::vector<uint64_t> waiting_;
  std::vector<std::unique_ptr<Block>> resident_;
};

}  // namespace

std::string Fault::text() const {
  std::string s = kernel.empty() ? "" : "kernel " + kernel + ", ";
  if (!source.empty()) s += source + ", ";
  if (line > 0) s += "PTX line " + std::to_string(line) + ": ";
  if (!instruction.empty()) s += "'" + instruction + "': ";
  return s + what + (thread.empty() ? "" : " [" + thread + "]");
}

void Outcome::add(Outcome other) {
  if (!fault) fault = std::move(other.fault);
  steps += other.steps;
  auto sum = [](std::vector<uint64_t>& into, const std::vector<uint64_t>& from) {
    into.resize(std::max(into.size(), from.size()));
    for (size_t i = 0; i < from.size(); ++i) into[i] += from[i];
  };
  sum(executed, other.executed);
  sum(refused, other.refused);
  sum(granted, other.granted);
}

Module::Module() = default;
Module::~Module() = default;

Result<std::unique_ptr<Module>> Module::load(const std::string& text) {
  std::unique_ptr<Module> m(new Module());
  try {
    m->text_ = std::make_unique<ModuleText>(parse(text));
  } catch (const Fault& f) {
    return invalid_argument(f.text());
  }
  return m;
}

const std::string& Module::target() const { return text_->target; }

std::vector<std::string> Module::kernels() const {
  std::vector<std::string> names;
  for (const auto& [name, f] : text_->functions) names.push_back(name);
  return names;
}

const Kernel& Module::decoded(const std::string& kernel) {
  for (const auto& k : decoded_) {
    if (k->name == kernel) return *k;
  }
  decoded_.push_back(std::make_unique<Kernel>(decode(*text_, kernel)));
  return *decoded_.back();
}

Outcome Module::run(const std::string& kernel, Dim3 grid, Dim3 block, uint32_t dynamic_shared,
                    std::span<const std::byte> params, Memory& memory, const Options& options) {
  Outcome out;
  Grid g;
  try {
    const Kernel& k = decoded(kernel);
    const uint32_t most = k.text->max_threads;
    if (block.count() == 0 || block.count() > 1024 || (most != 0 && block.count() > most)) {
      throw Fault{.what = "a block of " + std::to_string(block.count()) +
                          " threads; the kernel allows 1 to " +
                          std::to_string(most != 0 ? most : 1024),
                  .kernel = kernel};
    }
    if (params.size() != k.text->param_bytes) {
      throw Fault{.what = "parameters of " + std::to_string(params.size()) +
                          " bytes; the kernel has " + std::to_string(k.text->param_bytes),
                  .kernel = kernel};
    }
    g.kernel = &k;
    g.blocks = grid;
    g.threads = block;
    g.dynamic_bytes = dynamic_shared;
    for (const std::byte b : params) g.params.push_back(static_cast<uint8_t>(b));
    Memory with_tables = memory;
    for (const auto& [name, words] : text_->tables) with_tables.add(name, std::span(words));
    g.memory = &with_tables;
    g.options = options;
    g.random.seed(options.seed);
    g.executed.assign(k.code.size(), 0);
    g.refused.assign(k.code.size(), 0);
    g.granted.assign(k.code.size(), 0);
    Scheduler(g).run();
  } catch (const Fault& f) {
    out.fault = f;
  }
  out.steps = g.steps;
  out.executed = std::move(g.executed);
  out.refused = std::move(g.refused);
  out.granted = std::move(g.granted);
  return out;
}

Result<std::vector<Mutation>> Module::mutations(const std::string& kernel) {
  std::vector<Mutation> all;
  try {
    const Kernel& k = decoded(kernel);
    for (size_t n = 0; n < k.code.size(); ++n) {
      const Instr& i = k.code[n];
      auto add = [&](Mutation::Kind kind, const std::string& how) {
        const Statement& s = k.text->code[n];
        const std::string source = source_of(*text_, s);
        all.push_back({kind,
                       static_cast<int>(n),
                       {},
                       source + (source.empty() ? "" : ", ") + "PTX line " +
                           std::to_string(s.line) + ": " + s.text + " (" + how});
      };
      if (i.removable) add(Mutation::Kind::kSkip, "skipped)");
      if (!k.bounds[n].empty()) {
        add(Mutation::Kind::kTrue, "true) of " + k.bounds[n]);
        add(Mutation::Kind::kFalse, "false) of " + k.bounds[n]);
      }
      const bool plain = i.flow == Flow::kPlain || i.flow == Flow::kConverge;
      if (i.guard != Instr::kNoGuard && plain) add(Mutation::Kind::kAlways, "always)");
    }
  } catch (const Fault& f) {
    return unimplemented(f.text());
  }
  return all;
}

}  // namespace deltad::ptx

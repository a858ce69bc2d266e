// Runs a grid: starts blocks, gives their warps turns in the chosen order, lands what is in flight
// when nothing else can go on.
#include "tests/support/ptx/run.h"

#include <algorithm>

#include "tests/support/ptx/decode.h"
#include "tests/support/ptx/machine.h"

namespace deltad::ptx {
namespace {

constexpr uint8_t kPoison = 0xff;  // NaN in every float format

std::unique_ptr<Block> start_block(Cluster& c, Dim3 index) {
  Grid& g = *c.grid;
  const Kernel& k = *g.kernel;
  auto b = std::make_unique<Block>();
  b->grid = &g;
  b->cluster = &c;
  b->rank = static_cast<uint32_t>(c.blocks.size());
  b->index = index;
  const uint64_t bytes = k.dynamic_shared + g.dynamic_bytes;
  b->shared.assign(bytes, kPoison);
  b->generic_writes.assign(bytes / 16 + 1, {0, nullptr});
  const auto threads = static_cast<uint32_t>(g.threads.count());
  b->warps.resize(g.warps());
  b->races.start(bytes, c.clocks, g.warps());
  b->visits.resize(c.clocks.warps());
  for (uint32_t i = 0; i < b->warps.size(); ++i) {
    Warp& w = b->warps[i];
    w.block = b.get();
    w.kernel = &k;
    w.index = i;
    w.number = b->rank * g.warps() + i;
    w.fenced = c.clocks.start_of(w.number, 1);
    const uint32_t lanes = std::min(32U, threads - 32 * i);
    w.live = lanes == 32 ? ~0U : (1U << lanes) - 1;
    w.file.assign(4ULL * k.file_words, std::byte{kPoison});
    w.local.assign(32ULL * k.text->local_bytes, kPoison);
    for (const Kernel::Constant& v : k.constants) {
      if (v.wide) {
        std::fill_n(w.u64(v.place), 32, v.value);
      } else {
        std::fill_n(w.u32(v.place), 32, static_cast<uint32_t>(v.value));
      }
    }
    for (const Kernel::Special& s : k.specials) {
      for (uint32_t l = 0; l < 32; ++l) w.u32(s.place)[l] = s.value(w, l);
    }
  }
  return b;
}

// The n-th place of an extent, x first.
Dim3 place(Dim3 extent, uint64_t n) {
  return {static_cast<uint32_t>(n % extent.x), static_cast<uint32_t>(n / extent.x % extent.y),
          static_cast<uint32_t>(n / (uint64_t{extent.x} * extent.y))};
}

std::unique_ptr<Cluster> start_cluster(Grid& g, uint64_t number) {
  const Dim3 of = g.cluster;
  const auto blocks = static_cast<uint32_t>(of.count());
  auto c = std::make_unique<Cluster>(Cluster{.grid = &g,
                                             .index = place(g.clusters(), number),
                                             .clocks = Clocks(blocks * g.warps()),
                                             .blocks = {}});
  for (uint64_t rank = 0; rank < blocks; ++rank) {
    const Dim3 at = place(of, rank);
    c->blocks.push_back(start_block(
        *c, {c->index.x * of.x + at.x, c->index.y * of.y + at.y, c->index.z * of.z + at.z}));
  }
  return c;
}

class Scheduler {
 public:
  explicit Scheduler(Grid& g) : g_(g) {
    for (uint64_t i = 0; i < g.clusters().count(); ++i) waiting_.push_back(i);
    if (g.options.order == Order::kFifo) std::reverse(waiting_.begin(), waiting_.end());
    if (g.options.order == Order::kRandom) std::shuffle(waiting_.begin(), waiting_.end(), g.random);
  }

  void run() {
    const size_t most = std::max<uint64_t>(1, g_.options.resident_blocks / g_.cluster.count());
    for (;;) {
      while (!waiting_.empty() && resident_.size() < most) {
        resident_.push_back(start_cluster(g_, waiting_.back()));
        waiting_.pop_back();
      }
      if (resident_.empty()) return;
      pass();
      std::erase_if(resident_, [](const auto& c) { return c->ended(); });
    }
  }

 private:
  // Of the clusters that run; in the order of choice.
  std::vector<Block*> blocks() const {
    std::vector<Block*> all;
    for (const auto& c : resident_) {
      for (const auto& b : c->blocks) all.push_back(b.get());
    }
    if (g_.options.order == Order::kLifo) std::reverse(all.begin(), all.end());
    return all;
  }

  // A turn for every warp.
  void pass() {
    std::vector<Warp*> warps;
    for (Block* b : blocks()) {
      for (Warp& w : b->warps) warps.push_back(&w);
      if (g_.options.order == Order::kLifo) {
        std::reverse(warps.end() - static_cast<std::ptrdiff_t>(b->warps.size()), warps.end());
      }
    }
    const bool random = g_.options.order == Order::kRandom;
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
    std::vector<Block*> all = blocks();
    if (g_.options.order == Order::kRandom) std::shuffle(all.begin(), all.end(), g_.random);
    for (Block* b : all) {
      const size_t n = b->pending.size();
      if (n == 0) continue;
      b->land(g_.options.order == Order::kFifo   ? 0
              : g_.options.order == Order::kLifo ? n - 1
                                                 : g_.random() % n);
      return true;
    }
    return false;
  }

  // Names a thread, and where the other blocks of its cluster wait.
  [[noreturn]] void deadlock() {
    struct Waiting {
      const Warp* warp;
      const Instr* at;
      int lane;
    };
    std::vector<Waiting> first;  // of each block
    for (const auto& b : resident_.front()->blocks) {
      for (const Warp& w : b->warps) {
        if (w.live == 0) continue;
        const int lane = __builtin_ctz(w.live);
        const int pc = w.active != 0 ? w.pc : w.lane_pc[static_cast<size_t>(lane)];
        first.push_back({&w, &g_.kernel->code[static_cast<size_t>(std::max(0, pc - 1))], lane});
        break;
      }
    }
    std::string others;
    for (size_t n = 1; n < first.size(); ++n) {
      const Warp& w = *first[n].warp;
      others += "; " + name_of("block", w.block->index) + " waits after '" +
                w.statement(*first[n].at).text + "'";
    }
    first.at(0).warp->fault(
        *first[0].at,
        "deadlock: no thread can go on; this one waits after this instruction" + others,
        first[0].lane);
  }

  Grid& g_;
  std::vector<uint64_t> waiting_;  // clusters
  std::vector<std::unique_ptr<Cluster>> resident_;
};

std::string text(Dim3 d) {
  return "(" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + ")";
}

void check_cluster(const Kernel& k, Dim3 grid, Dim3 cluster) {
  const Dim3 asked = k.text->cluster;
  std::string wrong;
  if (cluster.count() == 0 || cluster.count() > 8) {
    wrong = "; 1 to 8 blocks make one";
  } else if (grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0) {
    wrong = " do not divide the grid " + text(grid);
  } else if (cluster.count() > 1 && std::stoi(k.target.substr(3)) < 90) {
    wrong = "; " + k.target + " has no clusters";
  } else if (asked.count() != 0 && text(asked) != text(cluster)) {
    wrong = "; the kernel is compiled for " + text(asked);
  }
  if (wrong.empty()) return;
  throw Fault{.what = "clusters of " + text(cluster) + " blocks" + wrong, .kernel = k.name};
}

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
    check_cluster(k, grid, options.cluster);
    g.kernel = &k;
    g.blocks = grid;
    g.threads = block;
    g.cluster = options.cluster;
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
      if (i.weakens) add(Mutation::Kind::kWeaken, "weakened to the block)");
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

// How a warp steps: which lanes run next, branches, and the instructions that lanes execute
// together.
#include <limits>

#include "tests/support/ptx/machine.h"

namespace deltad::ptx {
namespace {
constexpr int kNowhere = std::numeric_limits<int>::max();
}

std::string name_of(const char* what, Dim3 index) {
  return std::string(what) + " (" + std::to_string(index.x) + "," + std::to_string(index.y) + "," +
         std::to_string(index.z) + ")";
}

void Warp::fault(const Instr& i, const std::string& what, int lane) const {
  const Statement& s = statement(i);
  std::string thread = name_of("block", block->index);
  if (lane < 0) {
    thread += " warp " + std::to_string(index);
  } else {
    const Dim3 n = block->grid->threads;
    const uint32_t t = 32 * index + static_cast<uint32_t>(lane);
    thread += " " + name_of("thread", {t % n.x, t / n.x % n.y, t / (n.x * n.y)});
  }
  throw Fault{.what = what,
              .instruction = s.text,
              .line = s.line,
              .source = source_of(*kernel->module, s),
              .kernel = kernel->name,
              .thread = thread};
}

bool Warp::weakened(const Instr& i) const {
  return block->grid->mutated(Mutation::Kind::kWeaken, static_cast<int>(&i - kernel->code.data()));
}

void Warp::park() {
  for_lanes(active, [&](int l) { lane_pc[static_cast<size_t>(l)] = pc; });
  active = 0;
}

// The lanes that are furthest behind go on; so those ahead wait where branches meet.
bool Warp::pick() {
  if (active != 0 && pc < other_pc) return true;
  park();
  uint32_t candidates = live & ~waiting & ~deferred;
  if (candidates == 0) {
    deferred = 0;
    candidates = live & ~waiting;
  }
  if (candidates == 0) return false;
  pc = other_pc = kNowhere;
  for_lanes(candidates, [&](int l) { pc = std::min(pc, lane_pc[static_cast<size_t>(l)]); });
  for_lanes(candidates, [&](int l) {
    const int at = lane_pc[static_cast<size_t>(l)];
    if (at == pc) {
      active |= 1U << l;
    } else {
      other_pc = std::min(other_pc, at);
    }
  });
  return true;
}

void Warp::answer(const Instr& i, uint32_t lanes) {
  Grid& g = *block->grid;
  const bool yes = g.mutated(Mutation::Kind::kTrue, pc), no = g.mutated(Mutation::Kind::kFalse, pc);
  if (yes || no) {
    set_predicate(i.op[0], lanes, yes ? ~0U : 0);
    if (i.aux[2]) set_predicate(i.op[1], lanes, yes ? 0 : ~0U);
  }
  const uint32_t p = predicate(i.op[0]) & lanes;
  g.granted[static_cast<size_t>(pc)] += p != 0;
  g.refused[static_cast<size_t>(pc)] += p != lanes;
}

void Warp::branch(const Instr& i, uint32_t lanes) {
  if (lanes == active) {
    pc = i.target;
    return;
  }
  for_lanes(lanes, [&](int l) { lane_pc[static_cast<size_t>(l)] = i.target; });
  active &= ~lanes;
  other_pc = std::min(other_pc, i.target);
  ++pc;
}

void Warp::exit(uint32_t lanes) {
  live &= ~lanes;
  active &= ~lanes;
  waiting = 0;  // those may have waited for these: they look again
  ++pc;
  park();
  if (live == 0) block->warp_ended();
}

// The lanes that execute the instruction together, if all of them have arrived; else none.
uint32_t Warp::participants(const Instr& i, uint32_t arrived) {
  const int first = __builtin_ctz(arrived);
  uint32_t need = live;
  if (i.mask_op >= 0) {
    const uint32_t mask = mask_of(i, first);
    if (!(mask >> first & 1)) fault(i, "the lane is not in its own mask", first);
    need = mask & live;
    if ((need & arrived) == need) {
      for_lanes(need, [&](int l) {
        if (mask_of(i, l) != mask) fault(i, "lanes that meet here have different masks", l);
      });
    }
  } else if (i.flow == Flow::kConverge && live != ~0U) {
    fault(i, "it needs all 32 lanes; some have ended or were never there");
  }
  return (need & arrived) == need ? need : 0;
}

uint32_t Warp::mask_of(const Instr& i, int lane) {
  return u32(i.op[static_cast<size_t>(i.mask_op)])[lane];
}

void Warp::converge(const Instr& i, uint32_t lanes) {
  const int here = pc;
  uint32_t arrived = lanes;
  for_lanes(waiting, [&](int l) {
    if (lane_pc[static_cast<size_t>(l)] == here) arrived |= 1U << l;
  });
  const uint32_t together = participants(i, arrived);
  if (together == active && lanes == active) {  // the usual case: nobody was or is elsewhere
    ++pc;
    i.run(*this, i, together);
    return;
  }
  ++pc;
  park();  // lanes whose guard says no go on
  for_lanes(arrived, [&](int l) { lane_pc[static_cast<size_t>(l)] = here; });
  if (together == 0) {
    waiting |= arrived;
    return;
  }
  waiting = (waiting | arrived) & ~together;
  for_lanes(together, [&](int l) { lane_pc[static_cast<size_t>(l)] = here + 1; });
  i.run(*this, i, together);
}

Warp::Turn Warp::run(uint32_t quantum) {
  Grid& g = *block->grid;
  if (live == 0) return Turn::kEnded;
  if (at_barrier >= 0) return Turn::kStuck;
  for (; quantum > 0; --quantum) {
    if (!pick()) {
      const int lane = __builtin_ctz(live);
      fault(kernel->code[static_cast<size_t>(lane_pc[static_cast<size_t>(lane)])],
            "its lanes wait for others that never arrive: they wait elsewhere", lane);
    }
    const Instr& i = kernel->code[static_cast<size_t>(pc)];
    uint32_t lanes = active;
    if (i.guard != Instr::kNoGuard && !g.mutated(Mutation::Kind::kAlways, pc)) {
      const uint32_t p = predicate(i.guard);
      lanes &= i.guard_negated ? ~p : p;
      if (lanes != active) ++g.refused[static_cast<size_t>(pc)];
    }
    if (++g.steps > g.options.max_steps) {
      fault(i, "the kernel does not end within " + std::to_string(g.options.max_steps) + " steps",
            __builtin_ctz(active));
    }
    if (lanes == 0) {
      ++pc;
      continue;
    }
    ++g.executed[static_cast<size_t>(pc)];
    if (g.mutated(Mutation::Kind::kSkip, pc)) {
      if (i.done_op >= 0) set_predicate(i.op[i.done_op], lanes, ~0U);
      ++pc;
      continue;
    }
    switch (i.flow) {
      case Flow::kPlain:
        i.run(*this, i, lanes);
        if (!kernel->bounds[static_cast<size_t>(pc)].empty()) answer(i, lanes);
        ++pc;
        if (yielded) {
          yielded = false;
          deferred |= active;
          const bool others = (live & ~waiting & ~deferred) != 0;
          park();
          if (!others) return Turn::kStuck;
        }
        break;
      case Flow::kBranch:
        branch(i, lanes);
        break;
      case Flow::kExit:
        exit(lanes);
        if (live == 0) return Turn::kEnded;
        break;
      case Flow::kConverge:
        converge(i, lanes);
        break;
      case Flow::kBarrier:
        converge(i, lanes);
        if (at_barrier >= 0) return Turn::kStuck;
        break;
    }
  }
  deferred |= active;  // other lanes get their turn, so that none waits for ever for one of them
  park();
  return Turn::kProgress;
}

}  // namespace deltad::ptx

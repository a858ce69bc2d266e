// Branches, ends, barriers, fences, and what has no effect here.
#include "support/ptx/decode.h"

namespace deltad::ptx {
namespace {

void nothing(Warp&, const Instr&, uint32_t) {}
void trap(Warp& w, const Instr& i, uint32_t) { w.fault(i, "the kernel trapped"); }

void build_bra(Decoder& d) {
  d.take("uni");
  d.in.flow = Flow::kBranch;
  d.in.target = d.label(0);
  d.in.kind = d.in.guard == Instr::kNoGuard ? Switch::kNone : Switch::kBranch;
  d.emit(&nothing);
}

void build_ret(Decoder& d) {
  d.take("uni");
  d.in.flow = Flow::kExit;
  if (d.in.guard != Instr::kNoGuard) d.in.kind = Switch::kBranch;
  d.emit(&nothing);
}

// op: id, count. aux[0]: whether it waits.
void at_barrier(Warp& w, const Instr& i, uint32_t lanes) {
  const int l = __builtin_ctz(lanes);
  w.block->arrive(w, i, w.u32(i.op[0])[l], w.u32(i.op[1])[l], i.aux[0] != 0);
}

// aux[1]: 1 popc, 2 and, 3 or. op: id, count, the predicate, then the result.
void build_barrier(Decoder& d) {
  d.take("cta");
  const std::string what = d.next();
  d.in.kind = Switch::kBarrier;
  if (what == "warp") {
    if (!d.take("sync")) d.unknown();
    d.in.flow = Flow::kConverge;
    d.in.mask_op = 0;
    d.src(size_t{0}, Type::kB32);
    return d.emit(&nothing);
  }
  d.in.flow = Flow::kBarrier;
  if (what == "sync" || what == "arrive") {
    d.take("aligned");
    d.in.aux[0] = what == "sync";
    d.src(size_t{0}, Type::kB32);
    if (d.operands() > 1) {
      d.src(1, Type::kB32);
    } else {
      d.constant(0, Type::kB32);
    }
    return d.emit(&at_barrier);
  }
  if (what != "red") d.unknown();
  d.in.aux[0] = 1;
  d.in.aux[1] = d.take("popc") ? 1 : d.take("and") ? 2 : d.take("or") ? 3 : 0;
  if (d.in.aux[1] == 0) d.unknown();
  d.take("aligned");
  const Type t = d.type();
  const size_t last = d.operands() - 1;
  d.src(1, Type::kB32);
  if (last == 3) {
    d.src(2, Type::kB32);
  } else {
    d.constant(0, Type::kB32);
  }
  Operand p = d.operand(last);
  d.in.aux[2] = p.negated;
  p.negated = false;
  d.src(p, Type::kPred);
  d.dst(size_t{0}, t);
  d.emit(&at_barrier);
}

void fence_proxy(Warp& w, const Instr&, uint32_t) { w.proxy_fence = ++w.block->grid->clock; }

void build_fence(Decoder& d) {
  if (d.take("proxy")) {
    if (d.take("async")) {
      d.take("shared::cta");
      d.take("global");
      d.in.kind = Switch::kWait;
      return d.emit(&fence_proxy);
    }
    d.unknown();
  }
  while (d.take("sc") || d.take("acq_rel") || d.take("acquire") || d.take("release") ||
         d.take("cta") || d.take("cluster") || d.take("gpu") || d.take("sys") ||
         d.take("mbarrier_init") || d.take("gl")) {
  }
  d.emit(&nothing);
}

}  // namespace

void add_control_ops(Builders& b) {
  b["bra"] = &build_bra;
  b["ret"] = &build_ret;
  b["exit"] = &build_ret;
  b["bar"] = &build_barrier;
  b["barrier"] = &build_barrier;
  b["fence"] = &build_fence;
  b["membar"] = &build_fence;
  b["trap"] = [](Decoder& d) { d.emit(&trap); };
  b["brkpt"] = b["trap"];
  // Hints: about registers, time, and the kernels before and after.
  b["setmaxnreg"] = b["nanosleep"] = b["griddepcontrol"] = b["createpolicy"] = [](Decoder& d) {
    while (!d.done()) d.next();
    d.emit(&nothing);
  };
}

}  // namespace deltad::ptx

// ld and st in every address space and width, with their hints; the checks of an access.
#include <algorithm>
#include <bit>

#include "tests/support/ptx/decode.h"
#include "tests/support/ptx/lanes.h"

namespace deltad::ptx {

uint8_t* shared_at(Warp& w, const Instr& i, uint64_t address, uint32_t bytes, int lane) {
  const SharedPlace p = shared_place(w, i, address, lane);
  return shared_at(w, i, p, bytes, lane);
}

uint8_t* shared_at(Warp& w, const Instr& i, const SharedPlace& p, uint32_t bytes, int lane) {
  std::vector<uint8_t>& s = p.block->shared;
  if (p.offset + bytes > s.size() || p.offset + bytes < p.offset) {
    w.fault(i,
            "shared memory has " + std::to_string(s.size()) + " bytes, access to " +
                std::to_string(bytes) + " at " + std::to_string(p.offset),
            lane);
  }
  return s.data() + p.offset;
}

const uint8_t* shared_read(Warp& w, const Instr& i, uint64_t address, uint32_t bytes, int lane) {
  const SharedPlace p = shared_place(w, i, address, lane);
  const uint8_t* at = shared_at(w, i, p, bytes, lane);
  const auto conflict = p.block->races.read(w.number, lane, p.offset, bytes);
  if (conflict) w.fault(i, *conflict, lane);
  return at;
}

uint8_t* shared_write(Warp& w, const Instr& i, const SharedPlace& p, uint32_t bytes, int lane) {
  uint8_t* at = shared_at(w, i, p, bytes, lane);
  const int line = w.statement(i).line;
  const auto conflict = p.block->races.write(w.number, lane, p.offset, bytes, line);
  if (conflict) w.fault(i, *conflict, lane);
  return at;
}

uint8_t* shared_for_write(Warp& w, const Instr& i, uint64_t address, uint32_t bytes, int lane) {
  const SharedPlace p = shared_place(w, i, address, lane);
  uint8_t* at = shared_write(w, i, p, bytes, lane);
  const uint64_t now = ++w.block->grid->clock;
  for (uint64_t a = p.offset / 16; a <= (p.offset + bytes - 1) / 16; ++a)
    p.block->generic_writes[a] = {now, &w};
  return at;
}

namespace {
void require_previous_end(Warp& w, const Instr& i, int lane) {
  if (!w.block->grid->options.overlaps_previous || lane < 0) return;
  if (w.saw_previous_end >> lane & 1) return;
  w.fault(i, "the kernel before may not have ended: no griddepcontrol.wait came before this", lane);
}
}  // namespace

const uint8_t* global_at(Warp& w, const Instr& i, uint64_t address, uint32_t bytes, int lane) {
  Memory& m = *w.block->grid->memory;
  if (!m.allows(address, bytes, false))
    w.fault(
        i,
        "no buffer allows a read of " + std::to_string(bytes) + " bytes, at " + m.describe(address),
        lane);
  if (m.last_is_fresh()) require_previous_end(w, i, lane);
  return reinterpret_cast<const uint8_t*>(address);
}

uint8_t* global_for_write(Warp& w, const Instr& i, uint64_t address, uint32_t bytes, int lane) {
  Memory& m = *w.block->grid->memory;
  if (!m.allows(address, bytes, true))
    w.fault(i,
            "no buffer allows a write of " + std::to_string(bytes) + " bytes, at " +
                m.describe(address),
            lane);
  require_previous_end(w, i, lane);
  return reinterpret_cast<uint8_t*>(address);
}

namespace {

enum Space : uint32_t { kGeneric, kGlobal, kShared, kParam, kLocal };

const uint8_t* params_at(Warp& w, const Instr& i, uint64_t address, uint32_t bytes, int lane) {
  const std::vector<uint8_t>& p = w.block->grid->params;
  if (address + bytes > p.size()) {
    w.fault(i,
            "the parameters have " + std::to_string(p.size()) + " bytes, access at " +
                std::to_string(address),
            lane);
  }
  return p.data() + address;
}

uint8_t* local_at(Warp& w, const Instr& i, uint64_t address, uint32_t bytes, int lane) {
  const uint64_t size = w.local.size() / 32;
  if (address + bytes > size || address + bytes < address) {
    w.fault(i,
            "local memory has " + std::to_string(size) + " bytes, access to " +
                std::to_string(bytes) + " at " + std::to_string(address),
            lane);
  }
  return w.local.data() + static_cast<uint64_t>(lane) * size + address;
}

// Checks the alignment; tells what space a generic address lies in.
Space resolve(Warp& w, const Instr& i, uint64_t& a, uint32_t bytes, int lane) {
  if (a % std::bit_floor(bytes) != 0) w.fault(i, "misaligned address " + std::to_string(a), lane);
  const auto space = static_cast<Space>(i.aux[0]);
  if (space != kGeneric || a < kLocalWindow) return space == kGeneric ? kGlobal : space;
  const uint64_t window = a >= kSharedWindow  ? kSharedWindow
                          : a >= kParamWindow ? kParamWindow
                                              : kLocalWindow;
  a -= window;
  return window == kSharedWindow ? kShared : window == kParamWindow ? kParam : kLocal;
}

const uint8_t* readable(Warp& w, const Instr& i, uint64_t a, uint32_t bytes, int lane) {
  switch (resolve(w, i, a, bytes, lane)) {
    case kShared:
      return shared_read(w, i, a, bytes, lane);
    case kParam:
      return params_at(w, i, a, bytes, lane);
    case kLocal:
      return local_at(w, i, a, bytes, lane);
    default:
      return global_at(w, i, a, bytes, lane);
  }
}

uint8_t* writable(Warp& w, const Instr& i, uint64_t a, uint32_t bytes, int lane) {
  switch (resolve(w, i, a, bytes, lane)) {
    case kShared:
      return shared_for_write(w, i, a, bytes, lane);
    case kParam:
      w.fault(i, "parameters are read only", lane);
    case kLocal:
      return local_at(w, i, a, bytes, lane);
    default:
      return global_for_write(w, i, a, bytes, lane);
  }
}

// n values of type M to registers of 32 or 64 bits. aux[0]: the space.
template <typename M, typename S>
void load(Warp& w, const Instr& i, uint32_t lanes) {
  for_lanes(lanes, [&](int l) {
    const uint8_t* p = readable(w, i, address_of(w, i, 0, l), i.n * sizeof(M), l);
    for (uint32_t e = 0; e < i.n; ++e) {
      M v;
      std::memcpy(&v, p + e * sizeof(M), sizeof v);
      slots<S>(w, i.op[e])[l] = static_cast<S>(v);
    }
  });
}

// Two lanes of one store must not write the same bytes: which of them stays is not said. Local
// memory is each lane's own.
void check_overlap(Warp& w, const Instr& i, uint32_t lanes, uint32_t bytes) {
  if (i.aux[0] == kLocal || (lanes & (lanes - 1)) == 0) return;
  std::array<uint64_t, 32> at;
  size_t n = 0;
  bool ascending = true;
  for_lanes(lanes, [&](int l) {
    at[n] = address_of(w, i, 0, l);
    ascending &= n == 0 || at[n] >= at[n - 1] + bytes;
    ++n;
  });
  if (ascending) return;
  std::sort(at.begin(), at.begin() + static_cast<std::ptrdiff_t>(n));
  for (size_t k = 1; k < n; ++k) {
    if (at[k] < at[k - 1] + bytes && at[k] < kLocalWindow) {
      w.fault(i, "two lanes store to the same bytes, at " + std::to_string(at[k]));
    }
  }
}

template <typename M, typename S>
void store(Warp& w, const Instr& i, uint32_t lanes) {
  check_overlap(w, i, lanes, i.n * sizeof(M));
  for_lanes(lanes, [&](int l) {
    uint8_t* p = writable(w, i, address_of(w, i, 0, l), i.n * sizeof(M), l);
    for (uint32_t e = 0; e < i.n; ++e) {
      const auto v = static_cast<M>(slots<S>(w, i.op[e])[l]);
      std::memcpy(p + e * sizeof(M), &v, sizeof v);
    }
  });
}

// Order, scope, hints: they change when and how, not what, except that our memory has one order.
bool hint(Decoder& d) {
  for (const char* h : {"weak",
                        "volatile",
                        "relaxed",
                        "acquire",
                        "release",
                        "cta",
                        "cluster",
                        "gpu",
                        "sys",
                        "ca",
                        "cg",
                        "cs",
                        "lu",
                        "cv",
                        "wb",
                        "wt",
                        "nc",
                        "L1::evict_normal",
                        "L1::evict_unchanged",
                        "L1::evict_first",
                        "L1::evict_last",
                        "L1::no_allocate",
                        "L2::64B",
                        "L2::128B",
                        "L2::256B",
                        "L2::evict_first",
                        "L2::evict_last",
                        "L2::evict_normal",
                        "L2::cache_hint"}) {
    if (d.take(h)) return true;
  }
  return false;
}

struct Form {
  Space space = kGeneric;
  uint32_t n = 1;
  Type type = Type::kB32;
};

Form form(Decoder& d) {
  Form f;
  for (bool more = true; more;) {
    if (d.take("global") || d.take("const")) {
      f.space = kGlobal;
    } else if (d.take("shared") || d.take("shared::cta")) {
      f.space = kShared;
    } else if (d.take("shared::cluster")) {
      f.space = kShared;
      d.in.beyond = true;
    } else if (d.take("param") || d.take("param::entry")) {
      f.space = kParam;
    } else if (d.take("local")) {
      f.space = kLocal;
    } else {
      more = hint(d);
    }
  }
  for (const uint32_t n : {2U, 4U, 8U}) {
    if (d.take("v" + std::to_string(n))) f.n = n;
  }
  f.type = d.type();
  d.in.n = f.n;
  d.in.aux[0] = f.space;
  d.in.beyond |= f.space == kGeneric;
  return f;
}

// The C++ type in memory. Signed ones extend their sign.
template <typename Make>
Handler for_memory(Decoder& d, Type t, Make make) {
  switch (t) {
    case Type::kB8:
    case Type::kU8:
      return make(uint8_t{});
    case Type::kS8:
      return make(int8_t{});
    case Type::kB16:
    case Type::kU16:
    case Type::kF16:
    case Type::kBF16:
      return make(uint16_t{});
    case Type::kS16:
      return make(int16_t{});
    case Type::kB32:
    case Type::kU32:
    case Type::kF32:
      return make(uint32_t{});
    case Type::kS32:
      return make(int32_t{});
    case Type::kB64:
    case Type::kU64:
    case Type::kF64:
    case Type::kS64:
      return make(uint64_t{});
    default:
      d.unknown("its type");
  }
}

// Registers may be wider than what is loaded or stored.
bool wide_registers(const Decoder& d, const Operand& o) {
  return o.kind == Operand::Kind::kVector ? d.wide(o.parts[0]) : d.wide(o);
}

void build_ld(Decoder& d) {
  const Form f = form(d);
  const bool wide = wide_registers(d, d.operand(0));
  d.dst(0, wide ? Type::kB64 : bits_of(f.type) == 64 ? f.type : Type::kB32);
  d.address(1);
  d.emit(for_memory(d, f.type, [&](auto m) -> Handler {
    using M = decltype(m);
    if constexpr (sizeof(M) == 8)
      return &load<M, uint64_t>;
    else
      return wide ? &load<M, uint64_t> : &load<M, uint32_t>;
  }));
}

void build_st(Decoder& d) {
  const Form f = form(d);
  if (f.space == kParam) d.unknown();
  const bool wide = wide_registers(d, d.operand(1));
  d.address(0);
  d.src(1, wide ? Type::kB64 : bits_of(f.type) == 64 ? f.type : Type::kB32);
  d.emit(for_memory(d, f.type, [&](auto m) -> Handler {
    using M = decltype(m);
    if constexpr (sizeof(M) == 8)
      return &store<M, uint64_t>;
    else
      return wide ? &store<M, uint64_t> : &store<M, uint32_t>;
  }));
}

void nothing(Warp&, const Instr&, uint32_t) {}

}  // namespace

void add_memory_ops(Builders& b) {
  b["ld"] = &build_ld;
  b["ldu"] = &build_ld;
  b["st"] = &build_st;
  b["prefetch"] = b["prefetchu"] = [](Decoder& d) {
    while (!d.done()) d.next();
    d.emit(&nothing);
  };
}

}  // namespace deltad::ptx

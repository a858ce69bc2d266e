// cp.async and its groups, bulk copies, bulk stores. A copy in flight leaves poison at its
// destination until what makes it visible; its source is read then. That is as late as the hardware
// may be.
#include <algorithm>

#include "tests/support/ptx/lanes.h"

namespace deltad::ptx {

void land(Warp& w, const CopyIn& c) {
  // A bulk copy's place was checked when it was issued.
  uint8_t* to =
      c.bulk ? c.into->shared.data() + c.to : shared_for_write(w, *c.by, c.to, c.bytes, c.lane);
  std::memset(to, 0, c.bytes);
  if (c.filled > 0) std::memcpy(to, global_at(w, *c.by, c.from, c.filled, c.lane), c.filled);
}

namespace {

void poison(uint8_t* to, uint32_t bytes) { std::memset(to, 0xff, bytes); }

// Addresses: to, from. op: bytes read. n: bytes written.
void copy(Warp& w, const Instr& i, uint32_t lanes) {
  for_lanes(lanes, [&](int l) {
    const uint64_t to = to_shared(address_of(w, i, 0, l)), from = address_of(w, i, 1, l);
    const uint32_t filled = w.u32(i.op[0])[l];
    if (to % i.n != 0 || from % i.n != 0) w.fault(i, "misaligned address", l);
    if (filled > i.n) w.fault(i, "it reads more than it writes", l);
    poison(shared_for_write(w, i, to, i.n, l), i.n);
    if (filled > 0) global_at(w, i, from, filled, l);
    const CopyIn c{w.block, static_cast<uint32_t>(to), i.n, filled, from, l, &i};
    if (w.block->grid->lands_early()) {
      land(w, c);
    } else {
      w.copies[static_cast<size_t>(l)].push_back(c);
    }
  });
}

void commit(Warp& w, const Instr&, uint32_t lanes) {
  for_lanes(lanes, [&](int l) {
    const auto n = static_cast<uint32_t>(w.copies[static_cast<size_t>(l)].size());
    w.copy_groups[static_cast<size_t>(l)].push_back(n);
  });
}

// n: groups that may stay in flight.
void wait_group(Warp& w, const Instr& i, uint32_t lanes) {
  for_lanes(lanes, [&](int lane) {
    const auto l = static_cast<size_t>(lane);
    std::vector<uint32_t>& groups = w.copy_groups[l];
    if (groups.size() <= i.n) return;
    const auto done = static_cast<std::ptrdiff_t>(groups.size() - i.n);
    const uint32_t copies = groups[static_cast<size_t>(done) - 1];
    for (uint32_t c = 0; c < copies; ++c) land(w, w.copies[l][c]);
    w.copies[l].erase(w.copies[l].begin(), w.copies[l].begin() + copies);
    groups.erase(groups.begin(), groups.begin() + done);
    for (uint32_t& g : groups) g -= copies;
  });
}

void wait_all(Warp& w, const Instr& i, uint32_t lanes) {
  commit(w, i, lanes);
  wait_group(w, i, lanes);
}

// Tells the mbarrier when this lane's copies so far have landed. aux[0]: the arrival is among those
// that the mbarrier expects.
void arrive_later(Warp& w, const Instr& i, uint32_t lanes) {
  for_lanes(lanes, [&](int lane) {
    const uint64_t a = to_shared(address_of(w, i, 0, lane));
    MBarrier& m = w.block->mbarrier_at(w, i, a, lane);
    if (!i.aux[0]) ++m.pending;
    w.block->pending.push_back({.warp = &w,
                                .copies = w.copies[static_cast<size_t>(lane)],
                                .mbarrier = static_cast<uint32_t>(a),
                                .arrivals = 1,
                                .by = &i});
    if (w.block->grid->lands_early()) w.block->land(w.block->pending.size() - 1);
  });
}

void build_async(Decoder& d) {
  if (d.take("commit_group")) return d.emit(&commit);
  if (d.take("wait_all")) {
    d.in.removable = true;
    return d.emit(&wait_all);
  }
  if (d.take("wait_group")) {
    d.in.removable = true;
    d.in.n = static_cast<uint32_t>(d.immediate(0));
    return d.emit(&wait_group);
  }
  if (d.take("mbarrier")) {
    if (!d.take("arrive")) d.unknown();
    d.in.aux[0] = d.take("noinc");
    d.take("shared") || d.take("shared::cta");
    if (d.type() != Type::kB64) d.unknown("its type");
    d.address(0);
    return d.emit(&arrive_later);
  }
  if (!d.take("ca") && !d.take("cg")) d.unknown();
  if (!(d.take("shared") || d.take("shared::cta")) || !d.take("global")) d.unknown();
  const bool policy = d.take("L2::cache_hint");
  d.take("L2::64B") || d.take("L2::128B") || d.take("L2::256B");
  d.address(0);
  d.address(1);
  d.in.n = static_cast<uint32_t>(d.immediate(2));
  if (d.in.n != 4 && d.in.n != 8 && d.in.n != 16) d.unknown("size");
  if (d.operands() > (policy ? 4 : 3)) {
    d.src(3, Type::kB32);
  } else {
    d.constant(d.in.n, Type::kB32);
  }
  d.emit(&copy);
}

void check_bulk(Warp& w, const Instr& i, uint64_t shared, uint64_t global, uint32_t bytes, int l) {
  if (bytes == 0 || bytes % 16 != 0 || shared % 16 != 0 || global % 16 != 0) {
    w.fault(i, "addresses and size must be multiples of 16", l);
  }
}

// Addresses: to, from, mbarrier. op: bytes [, mask]. aux[0]: to each block of the mask, at the same
// place, and to its mbarrier at the same place. Each has the copy in flight for itself.
void bulk_load(Warp& w, const Instr& i, uint32_t lanes) {
  for_lanes(lanes, [&](int l) {
    const SharedPlace to = shared_place(w, i, to_shared(address_of(w, i, 0, l)), l),
                      mbarrier = shared_place(w, i, to_shared(address_of(w, i, 2, l)), l);
    const uint64_t from = address_of(w, i, 1, l);
    const uint32_t bytes = w.u32(i.op[0])[l];
    if (to.block != mbarrier.block) w.fault(i, "the mbarrier is in another block than the copy", l);
    check_bulk(w, i, to.offset, from, bytes, l);
    global_at(w, i, from, bytes, l);
    const auto& blocks = w.block->cluster->blocks;
    const uint32_t mask = i.aux[0] ? w.u32(i.op[1])[l] & 0xffff : 1U << to.block->rank;
    if (mask == 0 || mask >> blocks.size() != 0) {
      w.fault(i,
              "mask " + std::to_string(mask) + " in a cluster of " + std::to_string(blocks.size()) +
                  " blocks",
              l);
    }
    for (uint32_t m = mask; m != 0; m &= m - 1) {
      Block& b = *blocks[static_cast<size_t>(__builtin_ctz(m))];
      if (&b != w.block) visit(w, i, b, l);
      b.mbarrier_at(w, i, mbarrier.offset, l);
      poison(shared_write(w, i, SharedPlace{&b, to.offset}, bytes, l), bytes);
      b.require_proxy_fence(w, i, to.offset, bytes, l);
      b.forget_generic_writes(to.offset, bytes);
    }
    const Clock known = w.clocks().release(w.number);
    for (uint32_t m = mask; m != 0; m &= m - 1) {
      Block& b = *blocks[static_cast<size_t>(__builtin_ctz(m))];
      const auto place = static_cast<uint32_t>(to.offset);
      b.pending.push_back({.warp = &w,
                           .copies = {{&b, place, bytes, bytes, from, l, &i, true}},
                           .mbarrier = static_cast<uint32_t>(mbarrier.offset),
                           .bytes = bytes,
                           .by = &i,
                           .known = known});
      if (b.grid->lands_early()) b.land(b.pending.size() - 1);
    }
  });
}

void finish(Warp& w, const BulkStore& s) {
  const uint8_t* from = shared_read(w, *s.by, s.from, s.bytes, s.lane);
  std::memcpy(global_for_write(w, *s.by, s.to, s.bytes, s.lane), from, s.bytes);
}

// Two stores in flight to one place may land in any order.
void check_overlap(Warp& w, const BulkStore& s, int lane) {
  for (const Warp& other : w.block->warps) {
    for (const auto& stores : other.stores) {
      for (const BulkStore& t : stores) {
        if (s.to < t.to + t.bytes && t.to < s.to + s.bytes) {
          w.fault(*s.by, "another bulk store to the same bytes is in flight", lane);
        }
      }
    }
  }
}

// Addresses: to, from. op: bytes.
void bulk_store(Warp& w, const Instr& i, uint32_t lanes) {
  for_lanes(lanes, [&](int l) {
    const uint64_t to = address_of(w, i, 0, l), from = to_shared(address_of(w, i, 1, l));
    const uint32_t bytes = w.u32(i.op[0])[l];
    check_bulk(w, i, from, to, bytes, l);
    shared_read(w, i, from, bytes, l);
    global_for_write(w, i, to, bytes, l);
    w.block->require_proxy_fence(w, i, from, bytes, l);
    const BulkStore s{to, static_cast<uint32_t>(from), bytes, l, &i};
    check_overlap(w, s, l);
    if (w.block->grid->lands_early()) {
      finish(w, s);
    } else {
      w.stores[static_cast<size_t>(l)].push_back(s);
    }
  });
}

void bulk_commit(Warp& w, const Instr&, uint32_t lanes) {
  for_lanes(lanes, [&](int l) {
    const auto n = static_cast<uint32_t>(w.stores[static_cast<size_t>(l)].size());
    w.store_groups[static_cast<size_t>(l)].push_back(n);
  });
}

void bulk_wait(Warp& w, const Instr& i, uint32_t lanes) {
  for_lanes(lanes, [&](int lane) {
    const auto l = static_cast<size_t>(lane);
    std::vector<uint32_t>& groups = w.store_groups[l];
    if (groups.size() <= i.n) return;
    const auto done = static_cast<std::ptrdiff_t>(groups.size() - i.n);
    const uint32_t stores = groups[static_cast<size_t>(done) - 1];
    for (uint32_t s = 0; s < stores; ++s) finish(w, w.stores[l][s]);
    w.stores[l].erase(w.stores[l].begin(), w.stores[l].begin() + stores);
    groups.erase(groups.begin(), groups.begin() + done);
    for (uint32_t& g : groups) g -= stores;
  });
}

// Address: from. op: bytes. They must be there; nothing else comes of it.
void prefetch(Warp& w, const Instr& i, uint32_t lanes) {
  for_lanes(lanes, [&](int l) {
    const uint64_t from = address_of(w, i, 0, l);
    const uint32_t bytes = w.u32(i.op[0])[l];
    check_bulk(w, i, 0, from, bytes, l);
    global_at(w, i, from, bytes, l);
  });
}

void build_bulk(Decoder& d) {
  if (d.take("commit_group")) return d.emit(&bulk_commit);
  if (d.take("wait_group")) {
    d.take("read");
    d.in.removable = true;
    d.in.n = static_cast<uint32_t>(d.immediate(0));
    return d.emit(&bulk_wait);
  }
  if (d.take("prefetch")) {
    if (!d.take("L2") || !d.take("global")) d.unknown();
    d.take("L2::cache_hint");
    d.address(0);
    d.src(1, Type::kB32);
    return d.emit(&prefetch);
  }
  d.in.beyond = d.take("shared::cluster");
  if (d.in.beyond || d.take("shared::cta")) {
    if (!d.take("global") || !d.take("mbarrier::complete_tx::bytes")) d.unknown();
    const bool multicast = d.in.beyond && d.take("multicast::cluster");
    d.take("L2::cache_hint");
    d.address(0);
    d.address(1);
    d.src(2, Type::kB32);
    d.address(3);
    if (multicast) {
      d.in.aux[0] = 1;
      d.in.removable = true;
      d.src(4, Type::kB16);
    }
    return d.emit(&bulk_load);
  }
  if (!d.take("global") || !d.take("shared::cta") || !d.take("bulk_group")) d.unknown();
  d.take("L2::cache_hint");
  d.address(0);
  d.address(1);
  d.src(2, Type::kB32);
  d.emit(&bulk_store);
}

}  // namespace

void add_copy_ops(Builders& b) {
  b["cp"] = [](Decoder& d) {
    if (!d.take("async")) d.unknown();
    return d.take("bulk") ? build_bulk(d) : build_async(d);
  };
}

}  // namespace deltad::ptx

// wgmma: products of a warpgroup, read from shared memory by descriptors. Each warp computes its 16
// rows of the 64. The sums come back to the registers at the wait, which hold poison until then;
// operands, in shared memory or registers, are read at the wait too, as late as may be. Every
// type's K is 32 bytes: 8 words a row.
#include <algorithm>

#include "tests/support/ptx/lanes.h"
#include "tests/support/ptx/tensor_elements.h"

namespace deltad::ptx {
namespace {

using Row = Product::Rows::value_type;

// aux[0]: columns; aux[1]: flags.
enum : uint32_t { kARegisters = 1, kATransposed = 2, kBTransposed = 4, kNegated = 8 };

// Offsets are in units of 16 bytes. i: index along M or N (transposed: in groups of 8 elements), k:
// index along K in 16 bytes (transposed: in elements). PTX ISA, "Strides" and "Swizzling modes".
struct Descriptor {
  uint64_t start, leading, stride, swizzle;
  explicit Descriptor(uint64_t d)
      : start(d & 0x3fff), leading(d >> 16 & 0x3fff), stride(d >> 32 & 0x3fff), swizzle(d >> 62) {}
  // 16-byte chunks in a row of the swizzled atom: 1, 8, 4, 2.
  uint64_t chunks() const { return swizzle == 0 ? 1 : 16 >> swizzle; }
  uint64_t swizzled(uint64_t chunk) const { return chunk ^ (chunk >> 3 & (chunks() - 1)); }
  uint64_t along_k(uint64_t i, uint64_t k) const {
    const uint64_t at =
        start + i % 8 * chunks() + i / 8 * stride + k * (swizzle == 0 ? leading : 1);
    return 16 * swizzled(at);
  }
  uint64_t across_k(uint64_t i, uint64_t k) const {
    const uint64_t c = chunks();
    const uint64_t at = swizzle == 0 ? start + i * stride + k % 8 + k / 8 * leading
                                     : start + i % c + i / c * leading + k % 8 * c + k / 8 * stride;
    return 16 * swizzled(at);
  }
};

// Rows first … first + count of an operand. `visit` sees each 16 bytes' address.
template <typename Visit>
void visit_rows(uint64_t descriptor, bool transposed, uint32_t first, uint32_t count, Visit visit) {
  const Descriptor d(descriptor);
  if (transposed) {
    for (uint32_t i = first / 8; i < (first + count) / 8; ++i) {
      for (uint32_t k = 0; k < 16; ++k) visit(8 * i - first, k, d.across_k(i, k));
    }
  } else {
    for (uint32_t i = first; i < first + count; ++i) {
      for (uint32_t k = 0; k < 2; ++k) visit(i - first, k, d.along_k(i, k));
    }
  }
}

std::vector<Row> read_rows(Warp& w, const Instr& i, uint64_t descriptor, bool transposed,
                           uint32_t first, uint32_t count) {
  std::vector<Row> rows(count);
  visit_rows(descriptor, transposed, first, count, [&](uint32_t r, uint32_t k, uint64_t address) {
    const uint8_t* p = shared_read(w, i, address, 16, -1);
    if (!transposed) {
      std::memcpy(&rows[r][4 * k], p, 16);
      return;
    }
    for (uint32_t e = 0; e < 8; ++e) {
      uint16_t half;
      std::memcpy(&half, p + 2 * e, 2);
      uint32_t& word = rows[r + e][k / 2];
      word = k % 2 == 0 ? half : word | uint32_t{half} << 16;
    }
  });
  return rows;
}

std::vector<Row> rows_of_registers(Warp& w, const uint32_t* places) {
  std::vector<Row> rows(16);
  for (uint32_t l = 0; l < 32; ++l) {
    for (uint32_t e = 0; e < 4; ++e) {
      rows[l / 4 + 8 * (e % 2)][l % 4 + 4 * (e / 2)] = w.u32(places[e])[l];
    }
  }
  return rows;
}

// Where the sums of a warp lie in Product::sums: column after column, of 16 rows each, as sums of
// rows are independent of each other. Register e of lane 4g + t is row g + 8·(e / 2 % 2), column
// 8·(e / 4) + 2t + e % 2.
uint32_t place_of_sum(uint32_t e, uint32_t lane) {
  return 16 * (8 * (e / 4) + lane % 4 * 2 + e % 2) + lane / 4 + 8 * (e / 2 % 2);
}

// Each sum in the order of K. 16 rows are four vectors, for as many sums at a time.
template <typename E, typename Sum>
void multiply(Product& p, const std::vector<Row>& a, const std::vector<Row>& b) {
  constexpr size_t kK = 8 * E::kPerWord;
  using Vector __attribute__((vector_size(16))) = Sum;
  constexpr size_t kVectors = 4, kLanes = 4;
  const auto sign = static_cast<Sum>(p.by->aux[1] & kNegated ? -1 : 1);
  Sum turned[kK][16];  // A, the rows side by side
  for (size_t r = 0; r < 16; ++r) {
    for (size_t k = 0; k < kK; ++k) {
      turned[k][r] = sign * E::get(a[r][k / E::kPerWord], static_cast<int>(k % E::kPerWord));
    }
  }
  Vector x[kK][kVectors];
  std::memcpy(x, turned, sizeof x);
  for (size_t c = 0; c < b.size(); ++c) {
    Sum y[kK];
    for (size_t k = 0; k < kK; ++k) {
      y[k] = E::get(b[c][k / E::kPerWord], static_cast<int>(k % E::kPerWord));
    }
    uint32_t* const at = p.sums.data() + kVectors * kLanes * c;
    Vector s0, s1, s2, s3;
    std::memcpy(&s0, at, sizeof s0);
    std::memcpy(&s1, at + kLanes, sizeof s1);
    std::memcpy(&s2, at + 2 * kLanes, sizeof s2);
    std::memcpy(&s3, at + 3 * kLanes, sizeof s3);
    for (size_t k = 0; k < kK; ++k) {
      s0 += x[k][0] * y[k];
      s1 += x[k][1] * y[k];
      s2 += x[k][2] * y[k];
      s3 += x[k][3] * y[k];
    }
    std::memcpy(at, &s0, sizeof s0);
    std::memcpy(at + kLanes, &s1, sizeof s1);
    std::memcpy(at + 2 * kLanes, &s2, sizeof s2);
    std::memcpy(at + 3 * kLanes, &s3, sizeof s3);
  }
}

void multiply_bits(Product& p, const std::vector<Row>& a, const std::vector<Row>& b) {
  for (size_t c = 0; c < b.size(); ++c) {
    for (size_t r = 0; r < 16; ++r) {
      uint32_t& sum = p.sums[16 * c + r];
      for (size_t k = 0; k < 8; ++k) {
        sum += static_cast<uint32_t>(std::popcount(a[r][k] & b[c][k]));
      }
    }
  }
}

bool same_sums(const Product& p, const Product& q) { return p.by->op[0] == q.by->op[0]; }

// Computes products [0, count) in order; sums go on to the next product that adds to them, or back
// to the registers.
void complete(Warp& w, size_t count) {
  for (size_t n = 0; n < count; ++n) {
    Product& p = w.products[n];
    const uint32_t flags = p.by->aux[1];
    const auto a = p.a_registers == nullptr
                       ? read_rows(w, *p.by, p.a, flags & kATransposed, 16 * (w.index % 4), 16)
                       : rows_of_registers(w, p.a_registers);
    if (!p.accumulates) std::fill(p.sums.begin(), p.sums.end(), 0);  // of float, too
    p.multiply(p, a, read_rows(w, *p.by, p.b, flags & kBTransposed, 0, p.by->aux[0]));
    const auto next =
        std::find_if(w.products.begin() + static_cast<std::ptrdiff_t>(n) + 1, w.products.end(),
                     [&](const Product& q) { return same_sums(p, q); });
    if (next != w.products.end()) {
      next->sums = std::move(p.sums);
      continue;
    }
    for (uint32_t e = 0; e < p.by->aux[0] / 2; ++e) {
      uint32_t* const to = w.u32(p.by->op[e]);
      for (uint32_t l = 0; l < 32; ++l) to[l] = p.sums[place_of_sum(e, l)];
    }
  }
  w.products.erase(w.products.begin(), w.products.begin() + static_cast<std::ptrdiff_t>(count));
}

uint64_t uniform(Warp& w, const Instr& i, uint32_t place) {
  const uint64_t* d = w.u64(place);
  for (int l = 1; l < 32; ++l) {
    if (d[l] != d[0]) w.fault(i, "lanes have different descriptors", l);
  }
  if (d[0] >> 49 & 7) w.fault(i, "a descriptor with a base offset is not supported");
  return d[0];
}

// op: the sums, A (a descriptor or four registers), B's descriptor, the predicate.
template <void (*kMultiply)(Product&, const std::vector<Row>&, const std::vector<Row>&)>
void issue(Warp& w, const Instr& i, uint32_t) {
  const uint32_t sums = i.aux[0] / 2, flags = i.aux[1];
  if (w.block->warps.size() < 4 * (w.index / 4 + 1)) w.fault(i, "its warpgroup is not complete");
  if (!w.products_fenced) w.fault(i, "no wgmma.fence since the registers were last in use");
  Product p{.multiply = kMultiply, .by = &i};
  auto fenced = [&](uint32_t, uint32_t, uint64_t address) {
    shared_read(w, i, address, 16, -1);
    w.block->require_proxy_fence(w, i, address, 16, -1);
  };
  const uint32_t* op = i.op + sums;
  if (flags & kARegisters) {
    p.a_registers = op;
    op += 4;
  } else {
    p.a = uniform(w, i, *op++);
    visit_rows(p.a, flags & kATransposed, 16 * (w.index % 4), 16, fenced);
  }
  p.b = uniform(w, i, *op++);
  visit_rows(p.b, flags & kBTransposed, 0, i.aux[0], fenced);
  p.accumulates = w.predicate(*op) & 1;
  if (std::none_of(w.products.begin(), w.products.end(),
                   [&](const Product& q) { return same_sums(p, q); })) {
    p.sums.resize(32ULL * sums);
    for (uint32_t e = 0; e < sums; ++e) {
      uint32_t* const from = w.u32(i.op[e]);
      for (uint32_t l = 0; l < 32; ++l) p.sums[place_of_sum(e, l)] = from[l];
      std::fill_n(from, 32, ~0U);  // NaN
    }
  }
  w.products.push_back(std::move(p));
}

void fence(Warp& w, const Instr&, uint32_t) { w.products_fenced = true; }

void commit(Warp& w, const Instr&, uint32_t) {
  w.product_groups.push_back(static_cast<uint32_t>(w.products.size()));
}

void wait(Warp& w, const Instr& i, uint32_t) {
  w.products_fenced = false;
  std::vector<uint32_t>& groups = w.product_groups;
  if (groups.size() <= i.n) return;
  const auto done = static_cast<std::ptrdiff_t>(groups.size() - i.n);
  const uint32_t products = groups[static_cast<size_t>(done) - 1];
  complete(w, products);
  groups.erase(groups.begin(), groups.begin() + done);
  for (uint32_t& g : groups) g -= products;
}

void build_mma(Decoder& d) {
  const std::string shape = d.next();
  const size_t n = shape.find('n'), k = shape.find('k');
  if (shape.rfind("m64n", 0) != 0 || k == std::string::npos) d.unknown("shape " + shape);
  d.in.aux[0] = static_cast<uint32_t>(std::stoul(shape.substr(n + 1, k - n - 1)));
  const std::string to = d.next(), a = d.next(), b = d.next();
  if (a == "b1" && (!d.take("and") || !d.take("popc"))) d.unknown();
  static const std::map<std::string, Handler> all = {
      {"k16.f32.bf16.bf16", &issue<&multiply<BrainElements, float>>},
      {"k16.f32.f16.f16", &issue<&multiply<HalfElements, float>>},
      {"k32.s32.s8.s8", &issue<&multiply<Bytes<int8_t>, int32_t>>},
      {"k32.s32.u8.u8", &issue<&multiply<Bytes<uint8_t>, int32_t>>},
      {"k256.s32.b1.b1", &issue<&multiply_bits>}};
  const std::string key = shape.substr(k) + "." + to + "." + a + "." + b;
  const auto it = all.find(key);
  if (it == all.end()) d.unknown("shape and types " + key);
  d.dst(size_t{0}, Type::kB32);
  if (d.operand(1).kind == Operand::Kind::kVector) {
    d.in.aux[1] |= kARegisters;
    d.src(1, Type::kB32);
  } else {
    d.src(1, Type::kB64);
  }
  d.src(2, Type::kB64);
  d.src(3, Type::kPred);
  // Signs of A and B, then whether they are transposed (A only if it is in shared memory).
  size_t next = 4;
  if (to == "f32") {
    if (d.immediate(4) != d.immediate(5)) d.in.aux[1] |= kNegated;
    next = 6;
    if (!(d.in.aux[1] & kARegisters) && d.operands() > next && d.immediate(next++)) {
      d.in.aux[1] |= kATransposed;
    }
    if (d.operands() > next && d.immediate(next++)) d.in.aux[1] |= kBTransposed;
  }
  if (next != d.operands()) d.unknown("its operands");
  d.emit(it->second);
}

void build(Decoder& d) {
  const std::string what = d.next();
  if (!d.take("sync") || !d.take("aligned")) d.unknown();
  d.in.flow = Flow::kConverge;
  if (what == "mma_async") return build_mma(d);
  if (what == "fence" || what == "wait_group") d.in.removable = true;
  if (what == "fence") return d.emit(&fence);
  if (what == "commit_group") return d.emit(&commit);
  if (what != "wait_group") d.unknown();
  d.in.n = static_cast<uint32_t>(d.immediate(0));
  d.emit(&wait);
}

}  // namespace

void add_wgmma_ops(Builders& b) { b["wgmma"] = &build; }

}  // namespace deltad::ptx

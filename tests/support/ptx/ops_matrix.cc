// ldmatrix, stmatrix and mma.sync. Fragments are made of 32-bit words along K: for g = lane / 4 and
// t = lane % 4, word i of A is row g + 8·(i % 2), word t + 4·(i / 2) along K; word i of B is column
// g, word t + 4·i; element i of C is row g + 8·(i / 2), column 2t + i % 2.
#include <array>

#include "tests/support/ptx/lanes.h"
#include "tests/support/ptx/tensor_elements.h"

namespace deltad::ptx {
namespace {

// aux[0]: transposed. n matrices of 8 × 8 elements of 16 bits; lane 8m + r holds the address of row
// r of matrix m.
void load_matrix(Warp& w, const Instr& i, uint32_t) {
  uint32_t out[4][32];  // written last: a destination may be the address
  for (uint32_t m = 0; m < i.n; ++m) {
    const uint8_t* rows[8];
    for (uint32_t r = 0; r < 8; ++r) {
      const int lane = static_cast<int>(8 * m + r);
      const uint64_t a = to_shared(address_of(w, i, 0, lane));
      if (a % 16 != 0) w.fault(i, "misaligned row", lane);
      rows[r] = shared_read(w, i, a, 16, lane);
    }
    for (uint32_t l = 0; l < 32; ++l) {
      if (i.aux[0]) {
        uint16_t low, high;
        std::memcpy(&low, rows[l % 4 * 2] + 2 * (l / 4), 2);
        std::memcpy(&high, rows[l % 4 * 2 + 1] + 2 * (l / 4), 2);
        out[m][l] = low | uint32_t{high} << 16;
      } else {
        std::memcpy(&out[m][l], rows[l / 4] + 4 * (l % 4), 4);
      }
    }
  }
  for (uint32_t m = 0; m < i.n; ++m) std::copy_n(out[m], 32, w.u32(i.op[m]));
}

void store_matrix(Warp& w, const Instr& i, uint32_t) {
  for (uint32_t m = 0; m < i.n; ++m) {
    for (uint32_t l = 0; l < 32; ++l) {
      const uint32_t v = w.u32(i.op[m])[l];
      for (uint32_t h = 0; h < 2; ++h) {
        const uint32_t row = i.aux[0] ? l % 4 * 2 + h : l / 4,
                       column = i.aux[0] ? l / 4 : l % 4 * 2 + h;
        const int lane = static_cast<int>(8 * m + row);
        const uint64_t a = to_shared(address_of(w, i, 0, lane));
        if (a % 16 != 0) w.fault(i, "misaligned row", lane);
        const auto half = static_cast<uint16_t>(v >> (16 * h));
        std::memcpy(shared_for_write(w, i, a + 2 * column, 2, lane), &half, 2);
      }
    }
  }
}

template <bool kStore>
void build_rows(Decoder& d) {
  if (!d.take("sync") || !d.take("aligned") || !d.take("m8n8")) d.unknown();
  const std::string count = d.next();
  d.in.n = count == "x1" ? 1 : count == "x2" ? 2 : count == "x4" ? 4 : 0;
  if (d.in.n == 0) d.unknown();
  d.in.aux[0] = d.take("trans");
  if (!d.take("shared") && !d.take("shared::cta")) d.unknown();
  if (d.type() != Type::kB16) d.unknown("its type");
  d.in.flow = Flow::kConverge;
  if (kStore) {
    d.src(1, Type::kB32);
    d.address(0);
    d.emit(&store_matrix);
  } else {
    d.dst(size_t{0}, Type::kB32);
    d.address(1);
    d.emit(&load_matrix);
  }
}

template <int kWords>
struct Fragments {
  uint32_t a[16][kWords], b[8][kWords];
};

template <int kWords>
Fragments<kWords> gather(Warp& w, const Instr& i, uint32_t first) {
  constexpr int kA = kWords / 2, kB = kWords / 4;
  Fragments<kWords> f;
  for (int l = 0; l < 32; ++l) {
    const int g = l / 4, t = l % 4;
    for (int e = 0; e < kA; ++e) f.a[g + 8 * (e % 2)][t + 4 * (e / 2)] = w.u32(i.op[first + e])[l];
    for (int e = 0; e < kB; ++e) f.b[g][t + 4 * e] = w.u32(i.op[first + kA + e])[l];
  }
  return f;
}

// fp32 sums in the order of K: the hardware's order is not documented, its precision is at least
// this.
template <typename E, int kWords, typename Sum>
void multiply(Warp& w, const Instr& i, uint32_t) {
  constexpr int kA = kWords / 2, kB = kWords / 4, kK = kWords * E::kPerWord;
  const Fragments<kWords> f = gather<kWords>(w, i, 4);
  Sum b[kK][8];
  for (int c = 0; c < 8; ++c) {
    for (int k = 0; k < kK; ++k) b[k][c] = E::get(f.b[c][k / E::kPerWord], k % E::kPerWord);
  }
  Sum sums[16][8];
  for (int l = 0; l < 32; ++l) {
    for (int e = 0; e < 4; ++e) {
      sums[l / 4 + 8 * (e / 2)][l % 4 * 2 + e % 2] =
          from_slot<Sum>(w.u32(i.op[4 + kA + kB + e])[l]);
    }
  }
  for (int r = 0; r < 16; ++r) {
    for (int k = 0; k < kK; ++k) {
      const Sum a = E::get(f.a[r][k / E::kPerWord], k % E::kPerWord);
      for (int c = 0; c < 8; ++c) sums[r][c] += a * b[k][c];
    }
  }
  for (int l = 0; l < 32; ++l) {
    for (int e = 0; e < 4; ++e) {
      w.u32(i.op[e])[l] = to_slot<Sum>(sums[l / 4 + 8 * (e / 2)][l % 4 * 2 + e % 2]);
    }
  }
}

// f16 accumulators: element i of C is row g + 8i, columns 2t and 2t + 1; rounded once an
// instruction.
template <int kWords>
void multiply_half(Warp& w, const Instr& i, uint32_t) {
  constexpr int kA = kWords / 2, kB = kWords / 4;
  const Fragments<kWords> f = gather<kWords>(w, i, 2);
  uint32_t out[2][32];
  for (int l = 0; l < 32; ++l) {
    for (int e = 0; e < 2; ++e) {
      out[e][l] = 0;
      for (int h = 0; h < 2; ++h) {
        float sum = f16_to_float(w.u32(i.op[2 + kA + kB + e])[l] >> (16 * h) & 0xffff);
        for (int k = 0; k < kWords * 2; ++k) {
          sum += HalfElements::get(f.a[l / 4 + 8 * e][k / 2], k % 2) *
                 HalfElements::get(f.b[l % 4 * 2 + h][k / 2], k % 2);
        }
        out[e][l] |= to_f16(sum) << (16 * h);
      }
    }
  }
  for (int e = 0; e < 2; ++e) std::copy_n(out[e], 32, w.u32(i.op[e]));
}

template <int kWords, bool kXor>
void multiply_bits(Warp& w, const Instr& i, uint32_t) {
  constexpr int kA = kWords / 2, kB = kWords / 4;
  const Fragments<kWords> f = gather<kWords>(w, i, 4);
  uint32_t out[4][32];
  for (int l = 0; l < 32; ++l) {
    for (int e = 0; e < 4; ++e) {
      uint32_t sum = w.u32(i.op[4 + kA + kB + e])[l];
      const uint32_t *a = f.a[l / 4 + 8 * (e / 2)], *b = f.b[l % 4 * 2 + e % 2];
      for (int k = 0; k < kWords; ++k)
        sum += static_cast<uint32_t>(std::popcount(kXor ? a[k] ^ b[k] : a[k] & b[k]));
      out[e][l] = sum;
    }
  }
  for (int e = 0; e < 4; ++e) std::copy_n(out[e], 32, w.u32(i.op[e]));
}

void build_mma(Decoder& d) {
  if (!d.take("sync") || !d.take("aligned")) d.unknown();
  const std::string shape = d.next();
  if (!d.take("row") || !d.take("col")) d.unknown();
  d.take("satfinite");
  const Type to = d.type();
  const std::string a = d.next(), b = d.next();
  const Type sum = d.type();
  std::string bits;
  if (a == "b1") {
    bits = d.next();
    if (!d.take("popc")) d.unknown();
  }
  if (to != sum || (a != b && !(a[0] == 's' || a[0] == 'u'))) d.unknown("its types");
  for (size_t o = 0; o < 4; ++o) {
    if (o == 0) {
      d.dst(o, Type::kB32);
    } else {
      d.src(o, Type::kB32);
    }
  }
  d.in.flow = Flow::kConverge;
  const std::string key =
      shape + "." + a + (a == "b1" ? "." + bits : "") + (to == Type::kF16 ? ".f16" : "");
  static const std::map<std::string, Handler> all = {
      {"m16n8k16.bf16", &multiply<BrainElements, 8, float>},
      {"m16n8k8.bf16", &multiply<BrainElements, 4, float>},
      {"m16n8k16.f16", &multiply<HalfElements, 8, float>},
      {"m16n8k8.f16", &multiply<HalfElements, 4, float>},
      {"m16n8k16.f16.f16", &multiply_half<8>},
      {"m16n8k8.f16.f16", &multiply_half<4>},
      {"m16n8k8.tf32", &multiply<TensorFloat, 8, float>},
      {"m16n8k4.tf32", &multiply<TensorFloat, 4, float>},
      {"m16n8k32.s8", &multiply<Bytes<int8_t>, 8, int32_t>},
      {"m16n8k16.s8", &multiply<Bytes<int8_t>, 4, int32_t>},
      {"m16n8k32.u8", &multiply<Bytes<uint8_t>, 8, int32_t>},
      {"m16n8k16.u8", &multiply<Bytes<uint8_t>, 4, int32_t>},
      {"m16n8k256.b1.and", &multiply_bits<8, false>},
      {"m16n8k256.b1.xor", &multiply_bits<8, true>},
      {"m16n8k128.b1.and", &multiply_bits<4, false>},
      {"m16n8k128.b1.xor", &multiply_bits<4, true>}};
  const auto it = all.find(key);
  if (it == all.end() || a != b) d.unknown("shape and types " + key);
  d.emit(it->second);
}

}  // namespace

void add_matrix_ops(Builders& b) {
  b["ldmatrix"] = &build_rows<false>;
  b["stmatrix"] = &build_rows<true>;
  b["mma"] = &build_mma;
}

}  // namespace deltad::ptx

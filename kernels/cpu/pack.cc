// Whole tiles go through 16-byte vectors of the compiler (they become whatever the machine has);
// what is left over, element by element.
#include "kernels/cpu/pack.h"

#include <cstring>

#include "kernels/cpu/layout.h"

namespace deltad::cpu {
namespace {

typedef uint8_t Bytes __attribute__((vector_size(16)));
typedef uint16_t Halves __attribute__((vector_size(16)));
typedef uint32_t Words __attribute__((vector_size(16)));
typedef uint64_t Longs __attribute__((vector_size(16)));

template <typename V>
V load(const void* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
template <typename V>
void store(void* to, V v) {
  std::memcpy(to, &v, sizeof v);
}

// The elements of the low (or high) halves of a and b, taking turns.
Bytes zip_low(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
Bytes zip_high(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                 31);
}
Halves zip_low(Halves a, Halves b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
Halves zip_high(Halves a, Halves b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
Words zip_low(Words a, Words b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
Words zip_high(Words a, Words b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
Longs zip_low(Longs a, Longs b) { return __builtin_shufflevector(a, b, 0, 2); }
Longs zip_high(Longs a, Longs b) { return __builtin_shufflevector(a, b, 1, 3); }

// in: 8 rows of 16 bytes; out[i]: the 8 bytes of columns 2i and 2i+1.
void transpose(const Bytes in[8], Longs out[8]) {
  Halves pairs[2][4];  // [columns 0-7, 8-15][rows 2i, 2i+1]
  for (int i = 0; i < 4; ++i) {
    pairs[0][i] = reinterpret_cast<Halves>(zip_low(in[2 * i], in[2 * i + 1]));
    pairs[1][i] = reinterpret_cast<Halves>(zip_high(in[2 * i], in[2 * i + 1]));
  }
  for (int h = 0; h < 2; ++h) {
    const Halves* p = pairs[h];
    const Words first[2] = {reinterpret_cast<Words>(zip_low(p[0], p[1])),
                            reinterpret_cast<Words>(zip_high(p[0], p[1]))};
    const Words last[2] = {reinterpret_cast<Words>(zip_low(p[2], p[3])),
                           reinterpret_cast<Words>(zip_high(p[2], p[3]))};
    for (int i = 0; i < 2; ++i) {
      out[4 * h + 2 * i] = reinterpret_cast<Longs>(zip_low(first[i], last[i]));
      out[4 * h + 2 * i + 1] = reinterpret_cast<Longs>(zip_high(first[i], last[i]));
    }
  }
}

// 16 rows of 16 bytes, row_bytes apart: 32 words.
void pack_sign_block(uint64_t* words, const uint8_t* bits, int64_t row_bytes) {
  Bytes low[8], high[8];
  for (int i = 0; i < 8; ++i) {
    const Bytes a = load<Bytes>(bits + 2 * i * row_bytes);
    const Bytes b = load<Bytes>(bits + (2 * i + 1) * row_bytes);
    low[i] = (a & 0x0f) | ((b & 0x0f) << 4);
    high[i] = (a >> 4) | (b & 0xf0);
  }
  Longs even[8], odd[8];  // words 2j and 2j+1 of byte j
  transpose(low, even);
  transpose(high, odd);
  for (int i = 0; i < 8; ++i) {
    store(words + 4 * i, zip_low(even[i], odd[i]));
    store(words + 4 * i + 2, zip_high(even[i], odd[i]));
  }
}

// Bytes from `first` on of count rows.
void pack_sign_bytes(uint64_t* tile, const uint8_t* bits, int64_t count, int64_t columns,
                     int64_t first) {
  const int64_t row_bytes = (columns + 7) / 8;
  const int64_t words = padded_columns(columns) / 4;
  const uint8_t last_mask =
      columns % 8 == 0 ? uint8_t{0xff} : static_cast<uint8_t>((1u << (columns % 8)) - 1u);
  for (int64_t r = 0; r < count; ++r) {
    const uint8_t* row = bits + r * row_bytes;
    const int shift = static_cast<int>(4 * r);
    const uint64_t keep = ~(uint64_t{0xf} << shift);
    for (int64_t j = first; j < row_bytes; ++j) {
      const uint8_t byte = j + 1 == row_bytes ? row[j] & last_mask : row[j];
      tile[2 * j] = (tile[2 * j] & keep) | (static_cast<uint64_t>(byte & 0xf) << shift);
      if (2 * j + 1 < words)
        tile[2 * j + 1] = (tile[2 * j + 1] & keep) | (static_cast<uint64_t>(byte >> 4) << shift);
    }
  }
}

}  // namespace

void pack_base_tile(uint16_t* tile, const uint16_t* values, int64_t count, int64_t columns) {
  int64_t done = 0;  // columns
  if (count == kTileRows) {
    // Pairs of columns are what moves: four rows of four pairs at a time.
    for (; done + 8 <= columns; done += 8) {
      uint16_t* to = tile + base_index(0, done, columns);
      for (int64_t r = 0; r < kTileRows; r += 4) {
        Words row[4];
        for (int64_t i = 0; i < 4; ++i) row[i] = load<Words>(values + (r + i) * columns + done);
        const Longs a = reinterpret_cast<Longs>(zip_low(row[0], row[1]));
        const Longs b = reinterpret_cast<Longs>(zip_low(row[2], row[3]));
        const Longs c = reinterpret_cast<Longs>(zip_high(row[0], row[1]));
        const Longs d = reinterpret_cast<Longs>(zip_high(row[2], row[3]));
        store(to + 2 * r, zip_low(a, b));
        store(to + 2 * r + 32, zip_high(a, b));
        store(to + 2 * r + 64, zip_low(c, d));
        store(to + 2 * r + 96, zip_high(c, d));
      }
    }
  }
  for (int64_t r = 0; r < count; ++r) {
    const uint16_t* row = values + r * columns;
    for (int64_t c = done; c < columns; ++c) tile[base_index(r, c, columns)] = row[c];
  }
}

void pack_sign_tile(uint64_t* tile, const uint8_t* bits, int64_t count, int64_t columns) {
  int64_t done = 0;  // bytes of a row
  if (count == kTileRows) {
    const int64_t row_bytes = (columns + 7) / 8;
    for (; done + 16 <= columns / 8; done += 16)
      pack_sign_block(tile + 2 * done, bits + done, row_bytes);
  }
  pack_sign_bytes(tile, bits, count, columns, done);
}

}  // namespace deltad::cpu

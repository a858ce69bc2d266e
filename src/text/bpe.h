// Bpe: the merges of a byte-pair encoding. Splits a word into symbols (bytes or characters), then
// joins the neighbours with the best rank until none can be joined. Immutable but for a memo that
// only saves time; any number of threads may encode at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/token_table.h"

namespace deltad {

struct Merge {
  int32_t left, right, joined;
};

struct BpeOptions {
  bool byte_level = true;      // symbols are bytes; otherwise characters
  bool ignore_merges = false;  // a word that is a token is that token, merges or not
  int32_t unknown = -1;        // for a symbol without a token; -1: dropped
  bool fuse_unknown = false;   // a run of such symbols is one
};

class Bpe {
 public:
  // words: the vocabulary as words spell it (bytes, where byte_level). merges: best first; of equal
  // pairs the last counts. alphabet: the token of each byte, or -1 (used where byte_level).
  Bpe(TokenTable words, const std::vector<Merge>& merges, std::vector<int32_t> alphabet,
      const BpeOptions& options);

  // Appends the word's tokens. Takes O(n log n). A word is UTF-8 and not empty.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  struct Pair {
    uint64_t key = kFree;  // left << 32 | right
    uint32_t rank = 0;
    int32_t joined = -1;
  };
  static constexpr uint64_t kFree = UINT64_MAX;

  size_t slot(uint64_t key) const;
  const Pair* find(int32_t left, int32_t right) const;
  void append_symbols(std::string_view word, std::vector<int32_t>& symbols) const;
  void merge_short(std::vector<int32_t>& symbols, size_t begin) const;
  void merge_long(std::vector<int32_t>& symbols, size_t begin) const;

  TokenTable words_;
  std::vector<Pair> pairs_;  // open addressing, a power of two
  std::vector<int32_t> alphabet_;
  BpeOptions options_;
  // By id: 0 not known, 1 the word's merges lead to this one token, 2 they do not.
  std::unique_ptr<std::atomic<uint8_t>[]> whole_;
};

}  // namespace deltad

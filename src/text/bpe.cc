// Bpe: see bpe.h.
#include "text/bpe.h"

#include <algorithm>
#include <array>
#include <bit>
#include <queue>

#include "text/utf8.h"

namespace deltad {
namespace {

// Up to here looking through all pairs for the best beats keeping them in a heap.
constexpr size_t kShort = 32;

uint64_t key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

Bpe::Bpe(TokenTable words, const std::vector<Merge>& merges, std::vector<int32_t> alphabet,
         const BpeOptions& options)
    : words_(std::move(words)),
      pairs_(std::bit_ceil(2 * merges.size() + 2)),
      alphabet_(std::move(alphabet)),
      options_(options),
      whole_(std::make_unique<std::atomic<uint8_t>[]>(words_.ids())) {
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    uint64_t key = key_of(merges[rank].left, merges[rank].right);
    pairs_[slot(key)] = {key, static_cast<uint32_t>(rank), merges[rank].joined};
  }
}

size_t Bpe::slot(uint64_t key) const {
  size_t mask = pairs_.size() - 1;
  size_t at = (key * 0x9E3779B97F4A7C15u) >> 20 & mask;
  while (pairs_[at].key != kFree && pairs_[at].key != key) at = (at + 1) & mask;
  return at;
}

const Bpe::Pair* Bpe::find(int32_t left, int32_t right) const {
  const Pair& pair = pairs_[slot(key_of(left, right))];
  return pair.key == kFree ? nullptr : &pair;
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& ids) const {
  // Most words of a text are tokens.
  int32_t whole = words_.find(word);
  std::atomic<uint8_t>* known = whole < 0 ? nullptr : &whole_[static_cast<size_t>(whole)];
  if (known != nullptr && (options_.ignore_merges || known->load(std::memory_order_relaxed) == 1)) {
    ids.push_back(whole);
    return;
  }
  size_t begin = ids.size();
  append_symbols(word, ids);
  if (ids.size() - begin <= kShort) {
    merge_short(ids, begin);
  } else {
    merge_long(ids, begin);
  }
  if (known != nullptr) {
    bool same = ids.size() == begin + 1 && ids.back() == whole;
    known->store(same ? 1 : 2, std::memory_order_relaxed);
  }
}

void Bpe::append_symbols(std::string_view word, std::vector<int32_t>& symbols) const {
  bool after_unknown = false;
  for (size_t at = 0; at < word.size();) {
    int32_t id;
    if (options_.byte_level) {
      id = alphabet_[static_cast<unsigned char>(word[at++])];
    } else {
      size_t begin = at;
      next_char(word, at);
      id = words_.find(word.substr(begin, at - begin));
    }
    bool is_unknown = id < 0;
    if (is_unknown) id = options_.unknown;
    bool dropped = id < 0 || (is_unknown && after_unknown && options_.fuse_unknown);
    if (!dropped) symbols.push_back(id);
    after_unknown = is_unknown;
  }
}

// O(n²), for few symbols.
void Bpe::merge_short(std::vector<int32_t>& symbols, size_t begin) const {
  size_t count = symbols.size() - begin;
  if (count < 2) return;
  int32_t* symbol = &symbols[begin];
  constexpr uint32_t kNever = UINT32_MAX;
  std::array<uint32_t, kShort> rank;  // of symbol i and the next
  std::array<int32_t, kShort> joined;
  auto look = [&](size_t i) {
    const Pair* pair = find(symbol[i], symbol[i + 1]);
    rank[i] = pair ? pair->rank : kNever;
    joined[i] = pair ? pair->joined : -1;
  };
  for (size_t i = 0; i + 1 < count; ++i) look(i);
  while (count > 1) {
    size_t best = static_cast<size_t>(
        std::min_element(rank.begin(), rank.begin() + static_cast<ptrdiff_t>(count) - 1) -
        rank.begin());
    if (rank[best] == kNever) break;
    symbol[best] = joined[best];
    for (size_t i = best + 1; i + 1 < count; ++i) {
      symbol[i] = symbol[i + 1];
      rank[i - 1] = rank[i];
      joined[i - 1] = joined[i];
    }
    --count;
    if (best > 0) look(best - 1);
    if (best + 1 < count) look(best);
  }
  symbols.resize(begin + count);
}

// O(n log n): the symbols are a list, the pairs that may be joined a heap. A pair that changed
// since it was put there no longer joins to the same token, and is passed over.
void Bpe::merge_long(std::vector<int32_t>& symbols, size_t begin) const {
  struct Candidate {
    uint32_t rank, position;
    int32_t joined;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  size_t count = symbols.size() - begin;
  CHECK(count < UINT32_MAX, "a word of more than 4 GiB");
  int32_t* symbol = &symbols[begin];
  constexpr int32_t kGone = -1;
  auto size = static_cast<uint32_t>(count);
  std::vector<uint32_t> next(size), previous(size);
  std::vector<Candidate> heap;
  auto candidate = [&](uint32_t left, uint32_t right) {
    const Pair* pair = find(symbol[left], symbol[right]);
    return Candidate{pair ? pair->rank : 0, left, pair ? pair->joined : kGone};
  };
  for (uint32_t i = 0; i < size; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;  // of the first: UINT32_MAX
    if (i + 1 == size) break;
    Candidate found = candidate(i, i + 1);
    if (found.joined != kGone) heap.push_back(found);
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(std::greater<>(),
                                                                               std::move(heap));
  while (!queue.empty()) {
    Candidate top = queue.top();
    queue.pop();
    uint32_t left = top.position;
    if (symbol[left] == kGone || next[left] == size) continue;
    uint32_t right = next[left];
    if (candidate(left, right).joined != top.joined) continue;
    symbol[left] = top.joined;
    symbol[right] = kGone;
    next[left] = next[right];
    if (next[left] < size) previous[next[left]] = left;
    if (previous[left] < size) {
      Candidate found = candidate(previous[left], left);
      if (found.joined != kGone) queue.push(found);
    }
    if (next[left] < size) {
      Candidate found = candidate(left, next[left]);
      if (found.joined != kGone) queue.push(found);
    }
  }
  symbols.erase(std::remove(symbols.begin() + static_cast<ptrdiff_t>(begin), symbols.end(), kGone),
                symbols.end());
}

}  // namespace deltad

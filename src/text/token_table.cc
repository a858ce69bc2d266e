// TokenTable: see token_table.h.
#include "text/token_table.h"

#include <xxhash.h>

#include "base/check.h"

namespace deltad {

namespace {

constexpr size_t kFirstSlots = 1024;

}  // namespace

// The slots grow with the texts, not with the ids, of which a broken file may leave most out.
TokenTable::TokenTable(size_t ids) : spans_(ids), slots_(kFirstSlots, -1) {}

bool TokenTable::add(std::string_view text, int32_t id) {
  CHECK(id >= 0 && static_cast<size_t>(id) < spans_.size(), "a token id outside the table");
  CHECK(block_.size() + text.size() < kNone, "more than 4 GiB of tokens");
  Span& span = spans_[static_cast<size_t>(id)];
  if (span.length != kNone) return false;
  span = {static_cast<uint32_t>(block_.size()), static_cast<uint32_t>(text.size())};
  block_ += text;
  int32_t& entry = slots_[slot(text)];
  if (entry >= 0) return true;
  entry = id;
  if (2 * ++used_ > slots_.size()) grow();
  return true;
}

bool TokenTable::has(int32_t id) const {
  return id >= 0 && static_cast<size_t>(id) < spans_.size() &&
         spans_[static_cast<size_t>(id)].length != kNone;
}

std::string_view TokenTable::text(int32_t id) const {
  if (!has(id)) return {};
  Span span = spans_[static_cast<size_t>(id)];
  return std::string_view(block_).substr(span.begin, span.length);
}

int32_t TokenTable::find(std::string_view text) const { return slots_[slot(text)]; }

void TokenTable::grow() {
  std::vector<int32_t> old(2 * slots_.size(), -1);
  old.swap(slots_);
  for (int32_t id : old) {
    if (id >= 0) slots_[slot(text(id))] = id;
  }
}

// Where text is, or the free slot where it would be.
size_t TokenTable::slot(std::string_view wanted) const {
  size_t mask = slots_.size() - 1;
  size_t at = XXH3_64bits(wanted.data(), wanted.size()) & mask;
  while (slots_[at] >= 0 && text(slots_[at]) != wanted) at = (at + 1) & mask;
  return at;
}

}  // namespace deltad

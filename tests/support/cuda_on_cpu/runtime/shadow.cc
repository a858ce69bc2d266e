#include "tests/support/cuda_on_cpu/runtime/shadow.h"

#include <algorithm>
#include <iterator>

namespace deltad::emulated_gpu {
namespace {

bool knows(const Clock& clock, const Moment& moment) {
  return moment.work == nullptr || clock.knows(moment.timeline, moment.time);
}

bool same(const Moment& a, const Moment& b) {
  return a.timeline == b.timeline && a.time == b.time && a.work == b.work;
}

}  // namespace

void Shadow::split(size_t offset) {
  auto found = cells_.upper_bound(offset);
  if (found == cells_.begin()) return;
  --found;
  if (found->first == offset || found->second.end <= offset) return;
  Cell upper = found->second;
  found->second.end = offset;
  cells_.emplace_hint(std::next(found), offset, std::move(upper));
}

std::optional<Shadow::Conflict> Shadow::note(emulator::Interval bytes, bool write,
                                             const Moment& moment, const Clock& known) {
  std::optional<Conflict> conflict;
  if (bytes.begin == bytes.end) return conflict;
  const auto check = [&](const Moment& other, bool other_wrote, size_t begin, size_t end) {
    if (conflict || knows(known, other) || same(other, moment)) return;
    conflict = {other, other_wrote, {begin, end}};
  };
  split(bytes.begin);
  split(bytes.end);
  size_t at = bytes.begin;
  auto cell = cells_.lower_bound(at);
  while (at < bytes.end) {
    if (cell == cells_.end() || cell->first > at) {  // a gap
      const size_t end = cell == cells_.end() ? bytes.end : std::min(bytes.end, cell->first);
      cell = cells_.emplace_hint(cell, at, Cell{end, {}, {}});
    }
    Cell& here = cell->second;
    check(here.writer, true, cell->first, here.end);
    if (write) {
      for (const Moment& reader : here.readers) check(reader, false, cell->first, here.end);
      here.readers.clear();
      here.writer = moment;
    } else {
      // A read that this one knows of says nothing that this one does not.
      std::erase_if(here.readers, [&](const Moment& r) { return knows(known, r); });
      here.readers.push_back(moment);
    }
    at = here.end;
    ++cell;
  }
  if (write) {  // the cells are equal now: one
    auto first = cells_.find(bytes.begin);
    first->second.end = bytes.end;
    cells_.erase(std::next(first), cells_.lower_bound(bytes.end));
  }
  return conflict;
}

std::optional<Shadow::Conflict> Shadow::unknown(const Clock& known) const {
  for (const auto& [begin, cell] : cells_) {
    if (!knows(known, cell.writer)) return Conflict{cell.writer, true, {begin, cell.end}};
    for (const Moment& reader : cell.readers) {
      if (!knows(known, reader)) return Conflict{reader, false, {begin, cell.end}};
    }
  }
  return std::nullopt;
}

}  // namespace deltad::emulated_gpu

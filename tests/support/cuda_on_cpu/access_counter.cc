#include "tests/support/cuda_on_cpu/access_counter.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "tests/support/cuda_on_cpu/site.h"

namespace deltad::emulator {

std::string AccessCount::text() const {
  const bool shared = kind == AccessKind::kSharedRead || kind == AccessKind::kSharedWrite;
  const bool read = kind == AccessKind::kSharedRead || kind == AccessKind::kGlobalRead;
  std::string all = text_of(where) + " " + (shared ? "shared " : "global ") +
                    (read ? "read" : "write") + ": " + std::to_string(instructions) +
                    " instructions, ";
  if (shared) {
    return all + std::to_string(passes) + " passes, " + std::to_string(conflicts()) + " conflicts";
  }
  return all + std::to_string(sectors) + " sectors, " +
         std::to_string(static_cast<int>(100 * used())) + " % used";
}

void AccessCounter::note(AccessKind kind, uint32_t lane, uint64_t address, size_t bytes,
                         Where where) {
  const auto [found, added] = lines_.try_emplace({{where.file, where.line}, kind});
  Line& line = found->second;
  if (added) {
    line.count.kind = kind;
    line.count.where = where;
  }
  const auto index = static_cast<size_t>(line.of_lane[lane]++ - line.done);
  if (index >= line.open.size()) line.open.resize(index + 1);
  Instruction& instruction = line.open[index];
  instruction.lanes |= 1u << lane;
  instruction.bytes = bytes;
  instruction.address[lane] = address;
  while (!line.open.empty() && line.open.front().lanes == 0xffffffffu) {
    finish(line.count, line.open.front());
    line.open.pop_front();
    ++line.done;
  }
}

void AccessCounter::finish(AccessCount& count, const Instruction& instruction) {
  if (instruction.lanes == 0) return;
  ++count.instructions;
  const uint64_t bytes = instruction.bytes;
  if (count.kind == AccessKind::kGlobalRead || count.kind == AccessKind::kGlobalWrite) {
    std::set<uint64_t> sectors, starts;
    for (uint32_t lane = 0; lane < 32; ++lane) {
      if ((instruction.lanes >> lane & 1) == 0) continue;
      const uint64_t at = instruction.address[lane];
      starts.insert(at);
      for (uint64_t s = at / 32; s <= (at + bytes - 1) / 32; ++s) sectors.insert(s);
    }
    count.sectors += sectors.size();
    count.bytes += starts.size() * bytes;
    return;
  }
  const auto together = static_cast<uint32_t>(bytes <= 4 ? 32 : 128 / bytes);
  for (uint32_t first = 0; first < 32; first += together) {
    std::set<uint64_t> of_bank[32];
    bool any = false;
    for (uint32_t lane = first; lane < first + together; ++lane) {
      if ((instruction.lanes >> lane & 1) == 0) continue;
      any = true;
      const uint64_t word = instruction.address[lane] / 4;
      for (uint64_t w = word; w < word + (bytes + 3) / 4; ++w) of_bank[w % 32].insert(w);
    }
    size_t most = 0;
    for (const auto& words : of_bank) most = std::max(most, words.size());
    count.passes += most;
    count.least_passes += any;
  }
}

void AccessCounter::add_to(std::vector<AccessCount>& counts) {
  for (auto& entry : lines_) {
    Line& line = entry.second;
    for (const Instruction& instruction : line.open) finish(line.count, instruction);
    const auto same = std::find_if(counts.begin(), counts.end(), [&](const AccessCount& c) {
      return c.kind == line.count.kind && c.where.line == line.count.where.line &&
             std::strcmp(c.where.file, line.count.where.file) == 0;
    });
    if (same == counts.end()) {
      counts.push_back(line.count);
      continue;
    }
    same->instructions += line.count.instructions;
    same->passes += line.count.passes;
    same->least_passes += line.count.least_passes;
    same->sectors += line.count.sectors;
    same->bytes += line.count.bytes;
  }
}

}  // namespace deltad::emulator

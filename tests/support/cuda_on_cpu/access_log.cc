#include "tests/support/cuda_on_cpu/access_log.h"

#include <algorithm>
#include <bit>

namespace deltad::emulator {

AccessLog::AccessLog(size_t bytes) : count_(bytes / kBlockBytes + 1) {}

void AccessLog::note(size_t offset, size_t bytes, bool write, bool early) {
  Marks& marks = marks_[(write ? 1 : 0) + (early ? 2 : 0)];
  if (marks.blocks.empty()) marks.blocks.resize(count_);
  for (const size_t end = offset + bytes; offset < end;) {
    std::unique_ptr<Block>& block = marks.blocks[offset / kBlockBytes];
    if (!block) {
      block = std::make_unique<Block>();
      marks.dirty.push_back(offset / kBlockBytes);
    }
    const size_t bit = offset % 64, count = std::min(64 - bit, end - offset);
    (*block)[offset % kBlockBytes / 64] |= (~uint64_t{0} >> (64 - count)) << bit;
    offset += count;
  }
}

std::vector<Interval> AccessLog::take(Marks& marks) {
  std::vector<Interval> all;
  std::sort(marks.dirty.begin(), marks.dirty.end());
  for (const size_t number : marks.dirty) {
    const Block& block = *marks.blocks[number];
    for (size_t word = 0; word < block.size(); ++word) {
      const size_t base = number * kBlockBytes + word * 64;
      for (uint64_t left = block[word]; left != 0;) {
        const auto first = static_cast<size_t>(std::countr_zero(left));
        const auto count = static_cast<size_t>(std::countr_one(left >> first));
        const size_t begin = base + first;
        if (!all.empty() && all.back().end == begin) {
          all.back().end += count;
        } else {
          all.push_back({begin, begin + count});
        }
        left = first + count == 64 ? 0 : left & (~uint64_t{0} << (first + count));
      }
    }
    marks.blocks[number] = nullptr;
  }
  marks.dirty.clear();
  return all;
}

AccessLog::Touched AccessLog::take() {
  return {take(marks_[0]), take(marks_[1]), take(marks_[2]), take(marks_[3])};
}

bool AccessLog::empty() const {
  return std::all_of(std::begin(marks_), std::end(marks_),
                     [](const Marks& marks) { return marks.dirty.empty(); });
}

}  // namespace deltad::emulator

#include "tests/support/ptx/race_detector.h"

#include <algorithm>
#include <bit>

namespace deltad::ptx {
namespace {

// Calls f(word, mask of bytes in it) until it says false; the word at which it did, or -1.
template <typename F>
inline int64_t for_words(uint64_t address, uint32_t bytes, F f) {
  if (address % 4 == 0 && bytes % 4 == 0) {
    for (uint64_t word = address / 4; word < (address + bytes) / 4; ++word) {
      if (!f(word, uint8_t{15})) return static_cast<int64_t>(word);
    }
    return -1;
  }
  for (uint64_t at = address; at < address + bytes;) {
    const auto first = static_cast<uint32_t>(at % 4);
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(4 - first, address + bytes - at));
    if (!f(at / 4, static_cast<uint8_t>(((1U << count) - 1) << first))) {
      return static_cast<int64_t>(at / 4);
    }
    at += count;
  }
  return -1;
}

}  // namespace

void join(Clock& into, const Clock& other) {
  into.resize(std::max(into.size(), other.size()));
  for (size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}

Clocks::Clocks(uint32_t warps) : warps_(warps), clocks_(3ULL * warps * warps, 0) {
  for (uint32_t w = 0; w < warps; ++w) row(w)[w] = row(w)[2 * warps + w] = 1;
}

Clock Clocks::release(uint32_t warp) {
  Clock known(row(warp), row(warp) + 3ULL * warps_);
  known[warps_ + warp] = known[warp];
  ++row(warp)[warp];
  return known;
}

void Clocks::acquire(uint32_t warp, const Clock& known) {
  for (size_t i = 0; i < known.size(); ++i) row(warp)[i] = std::max(row(warp)[i], known[i]);
}

void Clocks::acquire_ends(uint32_t warp, const Clock& known) {
  const size_t last = std::min<size_t>(known.size(), 2ULL * warps_);
  for (size_t i = warps_; i < last; ++i) row(warp)[i] = std::max(row(warp)[i], known[i]);
}

Clock Clocks::start_of(uint32_t warp, uint32_t mbarriers) const {
  Clock known(3ULL * warps_, 0);
  known[2 * warps_ + warp] = mbarriers;
  return known;
}

void RaceDetector::start(uint64_t bytes, const Clocks& clocks, uint32_t per_block) {
  clocks_ = &clocks;
  per_block_ = per_block;
  writes_.assign(bytes / 4 + 1, {});
  const size_t reads = writes_.size() * clocks.warps();
  // Without a reader's bit of its own nothing says whether what is there was ever set.
  reads_ = clocks.warps() > 64 ? std::make_unique<Read[]>(reads)
                               : std::make_unique_for_overwrite<Read[]>(reads);
}

std::string RaceDetector::name(uint32_t warp) const {
  const bool alone = clocks_->warps() == per_block_;
  return "warp " + std::to_string(warp % per_block_) +
         (alone ? "" : " of the cluster's block " + std::to_string(warp / per_block_));
}

std::string RaceDetector::after_write(uint64_t word, const std::string& access) const {
  const Write& w = writes_[word];
  return "race: " + name(w.warp) + " wrote shared address " + std::to_string(4 * word) + " (line " +
         std::to_string(w.line) + "), and no barrier orders that before this " + access;
}

std::optional<std::string> RaceDetector::read(uint32_t warp, int lane, uint64_t address,
                                              uint32_t bytes) {
  const uint32_t now = clocks_->now(warp);
  Read* const reads = reads_.get() + writes_.size() * warp;
  const uint64_t bit = uint64_t{1} << warp % 64;
  const int64_t conflict = for_words(address, bytes, [&](uint64_t word, uint8_t mask) {
    Write& w = writes_[word];
    if (w.mask & mask && !ordered(w, warp, lane)) return false;
    Read& r = reads[word];
    if (w.readers & bit && r.interval == now) {
      if (r.lane != lane) r.lane = kSeveral;
      r.mask |= mask;
    } else {
      r = {now, static_cast<uint8_t>(lane), mask};
      w.readers |= bit;
    }
    return true;
  });
  if (conflict < 0) return std::nullopt;
  return after_write(static_cast<uint64_t>(conflict), "read");
}

std::optional<std::string> RaceDetector::write(uint32_t warp, int lane, uint64_t address,
                                               uint32_t bytes, int line) {
  const Write now = {
      clocks_->now(warp), static_cast<uint16_t>(warp), static_cast<uint8_t>(lane), 0, line, 0};
  uint32_t reader = 0;  // past the last: it is the write before that is in the way
  const int64_t conflict = for_words(address, bytes, [&](uint64_t word, uint8_t mask) {
    Write& w = writes_[word];
    reader = clocks_->warps();
    if (w.mask & mask && !ordered(w, warp, lane)) return false;
    for (uint64_t bits = w.readers; bits != 0; bits &= bits - 1) {
      for (reader = static_cast<uint32_t>(std::countr_zero(bits)); reader < clocks_->warps();
           reader += 64) {
        const Read& r = reads_[writes_.size() * reader + word];
        if (r.mask & mask && !ordered(r, reader, warp, lane)) return false;
      }
    }
    const uint64_t readers = mask == 15 ? 0 : w.readers;
    w = now;
    w.mask = mask;
    w.readers = readers;
    return true;
  });
  if (conflict < 0) return std::nullopt;
  const auto word = static_cast<uint64_t>(conflict);
  if (reader == clocks_->warps()) return after_write(word, "write");
  return "race: " + name(reader) + " read shared address " + std::to_string(4 * word) +
         ", and no barrier orders that before this write";
}

}  // namespace deltad::ptx

#include "tests/support/ptx/race_detector.h"

#include <algorithm>

namespace deltad::ptx {
namespace {

// Calls f(word, mask of bytes in it); stops if it gives something.
template <typename F>
std::optional<std::string> for_words(uint64_t address, uint32_t bytes, F f) {
  for (uint64_t at = address; at < address + bytes;) {
    const auto first = static_cast<uint32_t>(at % 4);
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(4 - first, address + bytes - at));
    const auto mask = static_cast<uint8_t>(((1U << count) - 1) << first);
    if (auto conflict = f(at / 4, mask)) return conflict;
    at += count;
  }
  return std::nullopt;
}

}  // namespace

void join(Clock& into, const Clock& other) {
  into.resize(std::max(into.size(), other.size()));
  for (size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}

void RaceDetector::start(uint64_t bytes, size_t warps) {
  clocks_.assign(warps, Clock(warps, 0));
  for (size_t w = 0; w < warps; ++w) clocks_[w][w] = 1;
  writes_.assign(bytes / 4 + 1, {});
  reads_.assign(writes_.size() * warps, {});
}

Clock RaceDetector::release(uint32_t warp) {
  Clock known = clocks_[warp];
  ++clocks_[warp][warp];
  return known;
}

bool RaceDetector::ordered(uint32_t interval, uint32_t by, int by_lane, uint32_t warp,
                           int lane) const {
  if (by == warp) return interval < clocks_[warp][warp] || by_lane == lane;
  return interval <= clocks_[warp][by];
}

std::optional<std::string> RaceDetector::read(uint32_t warp, int lane, uint64_t address,
                                              uint32_t bytes) {
  return for_words(address, bytes, [&](uint64_t word, uint8_t mask) -> std::optional<std::string> {
    const Write& w = writes_[word];
    if (w.mask & mask && !ordered(w.interval, w.warp, w.lane, warp, lane)) {
      return "race: warp " + std::to_string(w.warp) + " wrote shared address " +
             std::to_string(4 * word) + " (line " + std::to_string(w.line) +
             "), and no barrier orders that before this read";
    }
    Read& r = reads_[word * clocks_.size() + warp];
    if (r.interval == clocks_[warp][warp]) {
      if (r.lane != lane) r.lane = kSeveral;
      r.mask |= mask;
    } else {
      r = {clocks_[warp][warp], static_cast<uint8_t>(lane), mask};
    }
    return std::nullopt;
  });
}

std::optional<std::string> RaceDetector::write(uint32_t warp, int lane, uint64_t address,
                                               uint32_t bytes, int line) {
  return for_words(address, bytes, [&](uint64_t word, uint8_t mask) -> std::optional<std::string> {
    Write& w = writes_[word];
    if (w.mask & mask && !ordered(w.interval, w.warp, w.lane, warp, lane)) {
      return "race: warp " + std::to_string(w.warp) + " wrote shared address " +
             std::to_string(4 * word) + " (line " + std::to_string(w.line) +
             "), and no barrier orders that before this write";
    }
    for (uint32_t other = 0; other < clocks_.size(); ++other) {
      const Read& r = reads_[word * clocks_.size() + other];
      if (r.mask & mask && !ordered(r.interval, other, r.lane, warp, lane)) {
        return "race: warp " + std::to_string(other) + " read shared address " +
               std::to_string(4 * word) + ", and no barrier orders that before this write";
      }
    }
    w = {clocks_[warp][warp], static_cast<uint16_t>(warp), static_cast<uint8_t>(lane), mask, line};
    return std::nullopt;
  });
}

}  // namespace deltad::ptx

#include "tests/support/cuda_on_cpu/runtime/pinned.h"

#include <algorithm>
#include <cstring>

namespace deltad::emulated_gpu {
namespace {

constexpr int kPoison = 0xff;  // NaN, or a token that there is not

bool seen(const Operation& operation, const Clock& host) {
  return operation.done() && host.knows(operation.timeline, operation.time);
}

}  // namespace

void PinnedWatch::forget(const Clock& host) {
  std::erase_if(uses_, [&](const Use& use) { return seen(*use.operation, host); });
}

std::optional<std::string> PinnedWatch::hand_over(emulator::Interval bytes, bool device_writes,
                                                  const std::shared_ptr<Operation>& operation,
                                                  const Clock& host) {
  forget(host);
  // The parts that earlier work still has.
  std::vector<emulator::Interval> held;
  for (const Use& use : uses_) {
    const size_t begin = std::max(use.bytes.begin, bytes.begin);
    const size_t end = std::min(use.bytes.end, bytes.end);
    if (begin < end) held.push_back({begin, end});
  }
  std::sort(held.begin(), held.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::optional<std::string> wrong;
  const auto is_ours = [&](size_t begin, size_t end) {
    if (begin >= end) return;
    if (device_writes) std::memset(base_ + begin, kPoison, end - begin);
    std::memcpy(mirror_.get() + begin, base_ + begin, end - begin);
  };
  size_t at = bytes.begin;
  for (const emulator::Interval& part : held) {
    is_ours(at, part.begin);
    if (!wrong) wrong = check(part);
    at = std::max(at, part.end);
  }
  is_ours(at, bytes.end);
  uses_.push_back({bytes, operation});
  return wrong;
}

std::optional<std::string> PinnedWatch::check(emulator::Interval bytes) const {
  const std::byte* now = base_ + bytes.begin;
  const std::byte* then = mirror_.get() + bytes.begin;
  const size_t count = bytes.end - bytes.begin;
  if (std::memcmp(now, then, count) == 0) return std::nullopt;
  const size_t first = static_cast<size_t>(std::mismatch(now, now + count, then).first - now);
  return "the host wrote to byte " + std::to_string(bytes.begin + first);
}

void PinnedWatch::wrote(emulator::Interval bytes) {
  std::memcpy(mirror_.get() + bytes.begin, base_ + bytes.begin, bytes.end - bytes.begin);
}

std::string PinnedWatch::in_use(const Clock& host) const {
  for (const Use& use : uses_) {
    if (!seen(*use.operation, host)) return use.operation->work->text();
  }
  return "";
}

}  // namespace deltad::emulated_gpu

// Meter: what one compilation or rendering may still do: steps, nesting, bytes. Every part of the
// interpreter that loops, recurses or allocates asks it first, so a hostile template ends in a
// message and not in a hang. Used by the one thread that renders.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>

#include "text/jinja/failure.h"
#include "text/template_limits.h"

namespace deltad::jinja {

class Meter {
 public:
  explicit Meter(const TemplateLimits& limits) : limits_(limits), steps_left_(limits.steps) {}
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  void step(int64_t n = 1) {
    steps_left_ -= n;
    if (steps_left_ < 0) fail(fmt::format("the template needs more than {} steps", limits_.steps));
  }
  // Copying or searching this many bytes costs steps too, or long strings would make steps slow.
  void work(size_t bytes) { step(static_cast<int64_t>(bytes >> 10)); }

  // Whether a string, or the text produced, may be this long.
  void check_size(size_t bytes) const {
    if (bytes > limits_.output_bytes) {
      fail(fmt::format("text longer than the limit of {} bytes", limits_.output_bytes));
    }
  }

  // Bytes held by living values.
  void hold(size_t bytes) {
    if (bytes > kHeldPerOutput * limits_.output_bytes - held_) {
      fail(fmt::format("the template holds more than {} bytes of values",
                       kHeldPerOutput * limits_.output_bytes));
    }
    held_ += bytes;
  }
  void drop(size_t bytes) { held_ -= bytes; }

  const TemplateLimits& limits() const { return limits_; }
  // Nesting of everything that recurses while rendering: calls, statements and expressions.
  int max_nesting() const { return kNestingPerCall * limits_.depth; }

  int nesting = 0;
  int calls = 0;

 private:
  static constexpr size_t kHeldPerOutput = 8;
  static constexpr int kNestingPerCall = 5;

  TemplateLimits limits_;
  int64_t steps_left_;
  size_t held_ = 0;
};

// One level of nesting (count: meter.nesting or meter.calls) while it lives.
class Level {
 public:
  Level(int* count, int max, const char* what) : count_(count) {
    if (*count_ >= max) fail(fmt::format("{} nested deeper than {}", what, max));
    ++*count_;
  }
  ~Level() { --*count_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  int* count_;
};

}  // namespace deltad::jinja

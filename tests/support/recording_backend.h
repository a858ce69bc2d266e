// RecordingBackend: a Backend that only keeps the rows it is given, to test loading. It checks what
// every backend may rely on: that rows come once, within their part, in blocks that begin at
// multiples of 16.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/mutex.h"

namespace deltad::testing {

class RecordingBackend final : public Backend {
 public:
  Status declare_weights(const std::vector<WeightSpec>& specs) override {
    specs_ = specs;
    return declared_;
  }
  Status put_rows(WeightId weight, int part, int64_t first, int64_t count,
                  const uint16_t* values) override {
    MutexLock lock(mutex_);
    ++calls_;
    if (fail_after_ >= 0 && calls_ > fail_after_) return resource_exhausted("no room");
    const WeightSpec& spec = specs_.at(static_cast<size_t>(weight));
    const int64_t rows = spec.parts.at(static_cast<size_t>(part)).rows;
    EXPECT_EQ(spec.alias, -1);
    EXPECT_EQ(first % 16, 0);
    EXPECT_TRUE(first >= 0 && count > 0 && first + count <= rows) << first << "+" << count;
    EXPECT_TRUE(count % 16 == 0 || first + count == rows);
    auto& part_rows = values_[{weight, part}];
    part_rows.resize(static_cast<size_t>(rows));
    for (int64_t i = 0; i < count; ++i) {
      auto& row = part_rows[static_cast<size_t>(first + i)];
      EXPECT_TRUE(row.empty()) << "row " << first + i << " came twice";
      row.assign(values + i * spec.columns, values + (i + 1) * spec.columns);
    }
    most_rows_ = std::max(most_rows_, count);
    return {};
  }
  Result<std::unique_ptr<VariantWeights>> new_variant(const VariantContent&) override {
    return unimplemented("a RecordingBackend has no variants");
  }
  Result<size_t> variant_bytes(const VariantContent&) const override { return size_t{0}; }
  Status finish_weights() override {
    finished_ = true;
    return {};
  }
  Result<Buffer> allocate(size_t bytes) override { return Buffer::cpu(bytes); }
  Status upload(void*, const void*, size_t) override {
    return unimplemented("a RecordingBackend has no memory");
  }
  std::optional<int64_t> device_free_bytes() const override { return std::nullopt; }
  Status health() const override { return {}; }
  Ops& ops() override { CHECK(false, "a RecordingBackend computes nothing"); }
  size_t weight_bytes() const override { return 0; }
  std::string description() const override { return "recording"; }

  // bf16 values of a part, all rows after each other.
  std::vector<uint16_t> part(WeightId weight, int part) {
    MutexLock lock(mutex_);
    std::vector<uint16_t> out;
    for (const auto& row : values_[{weight, part}]) out.insert(out.end(), row.begin(), row.end());
    return out;
  }
  int64_t most_rows() {
    MutexLock lock(mutex_);
    return most_rows_;
  }
  int calls() {
    MutexLock lock(mutex_);
    return calls_;
  }
  // From this call on put_rows fails.
  void fail_after(int calls) {
    MutexLock lock(mutex_);
    fail_after_ = calls;
  }
  bool finished() const { return finished_; }  // finish_weights() was called
  void refuse_declaration() { declared_ = resource_exhausted("no memory for the weights"); }

 private:
  bool finished_ = false;
  std::vector<WeightSpec> specs_;
  Status declared_;
  Mutex mutex_;
  std::map<std::pair<WeightId, int>, std::vector<std::vector<uint16_t>>> values_ GUARDED_BY(mutex_);
  int64_t most_rows_ GUARDED_BY(mutex_) = 0;
  int calls_ GUARDED_BY(mutex_) = 0;
  int fail_after_ GUARDED_BY(mutex_) = -1;
};

}  // namespace deltad::testing

// Shape: up to four sizes, outermost first. A value.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/check.h"

namespace deltad {

class Shape {
 public:
  static constexpr int kMaxRank = 4;
  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes) {
    CHECK(sizes.size() <= kMaxRank, "rank over 4");
    for (int64_t s : sizes) sizes_[static_cast<size_t>(rank_++)] = s;
  }
  int rank() const { return rank_; }
  int64_t operator[](int i) const { return sizes_[static_cast<size_t>(i)]; }
  int64_t& operator[](int i) { return sizes_[static_cast<size_t>(i)]; }
  void append(int64_t size) {
    CHECK(rank_ < kMaxRank, "rank over 4");
    sizes_[static_cast<size_t>(rank_++)] = size;
  }
  int64_t count() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= (*this)[i];
    return n;
  }
  bool operator==(const Shape&) const = default;
  std::string str() const {  // "[2, 3]"
    std::string out = "[";
    for (int i = 0; i < rank_; ++i) out += (i ? ", " : "") + std::to_string((*this)[i]);
    return out + "]";
  }

 private:
  std::array<int64_t, kMaxRank> sizes_{};
  int rank_ = 0;
};

}  // namespace deltad

// The matrices and results that tests/golden/make/merge.py wrote.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "io/safetensors.h"
#include "merge/matrix.h"

namespace deltad::testing {

class Reference {
 public:
  Reference() {
    auto file = SafetensorsFile::open(DELTAD_GOLDEN "/merge/matrices.safetensors");
    EXPECT_TRUE(file.ok()) << file.status().message();
    file_ = std::move(*file);
  }
  // A vector is a matrix of one row.
  Matrix matrix(const std::string& name) const {
    const SafetensorsEntry* entry = file_.find(name);
    EXPECT_NE(entry, nullptr) << name;
    const bool is_matrix = entry->shape.rank() == 2;
    Matrix out(is_matrix ? entry->shape[0] : 1, entry->shape[is_matrix ? 1 : 0]);
    EXPECT_TRUE(file_.read(*entry, 0, entry->bytes, out.values.data()).ok());
    return out;
  }

 private:
  SafetensorsFile file_;
};

inline constexpr const char* kMatrices[] = {"square", "wide", "tall",   "deficient", "equal",
                                            "zero",   "row",  "column", "zero_rows", "tiny"};

// Largest difference over the largest size of the reference.
inline void expect_close(const Matrix& found, const Matrix& expected, double tolerance,
                         const std::string& what) {
  ASSERT_EQ(found.rows, expected.rows) << what;
  ASSERT_EQ(found.columns, expected.columns) << what;
  double worst = 0, size = 0;
  for (size_t i = 0; i < found.values.size(); ++i) {
    const double x = found.values[i], y = expected.values[i];
    ASSERT_TRUE(std::isfinite(x)) << what;
    worst = std::max(worst, std::abs(x - y));
    size = std::max(size, std::abs(y));
  }
  EXPECT_LE(worst, tolerance * size) << what;
}

}  // namespace deltad::testing

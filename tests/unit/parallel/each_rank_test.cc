// Work of all ranks at once: what one of them throws is its failure, and the others end first.
#include "parallel/each_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <new>
#include <string>

namespace deltad {
namespace {

using ::testing::HasSubstr;

TEST(EachRank, EndsWithTheFailureOfTheFirst) {
  std::array<int, 3> worked{};
  const Status status = each_rank(3, [&](int rank) -> Status {
    worked[static_cast<size_t>(rank)] = rank + 1;
    return rank == 0 ? Status() : internal_error("no more");
  });
  EXPECT_EQ(worked, (std::array<int, 3>{1, 2, 3}));
  EXPECT_EQ(status.message(), "rank 1 of 3: no more");
  EXPECT_TRUE(each_rank(3, [](int) { return Status(); }).ok());
}

TEST(EachRank, EndsWithWhatAnyOfThemThrows) {
  for (const int throws : {0, 1}) {
    std::atomic<int> others = 0;
    const Status status = each_rank(2, [&](int rank) -> Status {
      if (rank == throws) throw std::bad_alloc();
      ++others;
      return {};
    });
    EXPECT_EQ(status.code(), Code::kInternal);
    EXPECT_THAT(status.message(), HasSubstr("rank " + std::to_string(throws) + " of 2: "));
    EXPECT_EQ(others, 1);
  }
}

}  // namespace
}  // namespace deltad

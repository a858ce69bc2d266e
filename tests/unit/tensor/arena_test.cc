// Arena: sizes known before, places, alignment, and that populated memory is resident.
#include "tensor/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace deltad {
namespace {

size_t page() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

size_t resident_pages(const MemoryPiece& memory) {
  std::vector<unsigned char> pages(memory.bytes() / page());
  EXPECT_EQ(mincore(memory.data(), memory.bytes(), pages.data()), 0);
  size_t count = 0;
  for (const unsigned char p : pages) count += p & 1;
  return count;
}

TEST(ArenaTest, PlacesFollowEachOtherAtCacheLines) {
  ArenaPlan plan;
  EXPECT_EQ(plan.bytes(), 0u);
  const auto a = plan.add(1), b = plan.add(64), c = plan.add(0), d = plan.add(65);
  EXPECT_EQ(a.offset, 0u);
  EXPECT_EQ(b.offset, 64u);
  EXPECT_EQ(c.offset, 128u);
  EXPECT_EQ(d.offset, 128u);
  EXPECT_EQ(plan.bytes(), page());
  const auto arena = Arena::make(plan);
  ASSERT_TRUE(arena.ok());
  EXPECT_EQ(arena->bytes(), plan.bytes());
  EXPECT_EQ(arena->at(d).as<char>() - arena->at(a).as<char>(), 128);
  EXPECT_EQ(arena->at(d).bytes(), 65u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->at(a).data()) % kArenaAlignment, 0u);
}

TEST(ArenaTest, LargeOnesBeginAtAHugePageAndTakeWhatWasPlanned) {
  for (const size_t bytes : {kHugePageBytes, 3 * kHugePageBytes + 5 * page() + 1}) {
    ArenaPlan plan;
    const auto all = plan.add(bytes);
    const auto arena = Arena::make(plan);
    ASSERT_TRUE(arena.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->at(all).data()) % kHugePageBytes, 0u);
    EXPECT_EQ(arena->bytes(), (bytes + page() - 1) / page() * page());
    EXPECT_EQ(arena->at(all).as<char>()[bytes - 1], 0);
  }
}

TEST(ArenaTest, PopulatingMakesEveryPageResidentAndKeepsWhatIsThere) {
  ArenaPlan plan;
  const auto all = plan.add(20 * kHugePageBytes + 7 * page());
  auto arena = Arena::make(plan);
  ASSERT_TRUE(arena.ok());
  const MemoryPiece memory = arena->at(all);
  memory.as<char>()[page()] = 'x';
  EXPECT_LT(resident_pages(memory), memory.bytes() / page());
  ASSERT_TRUE(arena->populate().ok());
  EXPECT_EQ(resident_pages(memory), memory.bytes() / page());
  EXPECT_EQ(memory.as<char>()[page()], 'x');
}

TEST(ArenaTest, PopulatesByHugePagesUntilToldToStop) {
  ArenaPlan plan;
  const auto all = plan.add(3 * kHugePageBytes + page());
  auto arena = Arena::make(plan);
  ASSERT_TRUE(arena.ok());
  const MemoryPiece memory = arena->at(all);
  std::vector<size_t> resident;
  const Status stopped = arena->populate([&]() -> Status {
    resident.push_back(resident_pages(memory) * page());
    return resident.size() < 2 ? Status() : cancelled("enough");
  });
  EXPECT_EQ(stopped.code(), Code::kCancelled);
  EXPECT_EQ(resident, (std::vector<size_t>{kHugePageBytes, 2 * kHugePageBytes}));
  int steps = 0;
  ASSERT_TRUE(arena->populate([&] { return ++steps, Status(); }).ok());
  EXPECT_EQ(steps, 4);
  EXPECT_EQ(resident_pages(memory), memory.bytes() / page());
}

TEST(ArenaTest, IsFreedAsAWholeByItsLastHolder) {
  ArenaPlan plan;
  const auto all = plan.add(4 * kHugePageBytes);
  auto made = Arena::make(plan);
  ASSERT_TRUE(made.ok());
  Arena first = std::move(*made);
  const MemoryPiece memory = first.at(all);
  Arena second;
  second = std::move(first);
  EXPECT_EQ(first.bytes(), 0u);
  memory.as<char>()[0] = 1;  // still there
  second = Arena();
  std::vector<unsigned char> pages(memory.bytes() / page());
  EXPECT_NE(mincore(memory.data(), memory.bytes(), pages.data()), 0);  // not mapped any more
}

TEST(ArenaTest, SaysHowMuchItCouldNotGet) {
  ArenaPlan plan;
  plan.add(size_t{1} << 60);
  const auto arena = Arena::make(plan);
  ASSERT_FALSE(arena.ok());
  EXPECT_EQ(arena.status().code(), Code::kResourceExhausted);
  EXPECT_NE(arena.status().message().find("1152921504606846976"), std::string::npos);
}

}  // namespace
}  // namespace deltad

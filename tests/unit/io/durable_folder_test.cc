#include "io/durable_folder.h"

#include <gmock/gmock.h>

#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

using ::testing::HasSubstr;

TEST(DurableFolder, HasOneOwner) {
  testing::TempFolder folder;
  const std::string path = folder.file("state");
  auto first = DurableFolder::open(path);
  ASSERT_TRUE(first.ok()) << first.status().message();
  const auto second = DurableFolder::open(path);
  EXPECT_EQ(second.status().code(), Code::kConflict);
  EXPECT_THAT(second.status().message(), HasSubstr(path));
  first->reset();
  EXPECT_TRUE(DurableFolder::open(path).ok());
}

}  // namespace
}  // namespace deltad

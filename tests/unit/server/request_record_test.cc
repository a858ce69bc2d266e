#include "server/observe/request_record.h"

#include <gtest/gtest.h>

#include <string>

#include "server/observe/observer.h"
#include "tests/unit/server/sample.h"

namespace deltad::testing {
namespace {

double counted(Observer& observer, const std::string& endpoint, const std::string& code) {
  return sample(observer.metrics().render({}),
                "deltad_requests_total{endpoint=\"" + endpoint + "\",code=\"" + code + "\"}");
}

TEST(RequestRecord, IsCountedOnceWhateverIsCalledLater) {
  Observer observer;
  {
    const auto record = observer.begin(Route::kChat, "a", {});
    record->end(200);
    record->end(503);
    EXPECT_TRUE(record->ended());
  }
  EXPECT_EQ(counted(observer, "/v1/chat/completions", "200"), 1);
  EXPECT_EQ(counted(observer, "/v1/chat/completions", "503"), -1);
}

TEST(RequestRecord, OneThatNobodyEndsIsAFailure) {
  Observer observer;
  { const auto record = observer.begin(Route::kModels, "a", {}); }
  EXPECT_EQ(counted(observer, "/v1/models", "500"), 1);
}

TEST(RequestRecord, CodesOfBothProtocolsHaveTheirNames) {
  EXPECT_EQ(code_label(404), "404");
  EXPECT_EQ(code_label(0), "OK");
  EXPECT_EQ(code_label(16), "UNAUTHENTICATED");
  EXPECT_EQ(code_label(17), "17");
}

}  // namespace
}  // namespace deltad::testing

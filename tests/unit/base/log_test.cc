#include "base/log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/json_quoted.h"

namespace deltad {
namespace {

const std::vector<LogField> kFields = {
    {"id", std::string("req-1")}, {"why", std::string("a \"b\"")}, {"none", {}},
    {"empty", std::string()},     {"tokens", int64_t{7}},          {"ms", 1.25},
    {"nan", std::nan("")}};

TEST(LogEvent, AsText) {
  EXPECT_EQ(event_text(LogFormat::kPlain, "request", kFields),
            R"(request id=req-1 why="a \"b\"" none=- empty=- tokens=7 ms=1.2 nan=-)");
}

TEST(LogEvent, AsMembersOfAnObjectWithoutWhatIsMissing) {
  EXPECT_EQ(event_text(LogFormat::kJson, "request", kFields),
            R"("request","id":"req-1","why":"a \"b\"","empty":"","tokens":7,"ms":1.2)");
}

// A value can neither end its line nor begin another field.
TEST(LogEvent, AValueStaysOneValue) {
  EXPECT_EQ(event_text(LogFormat::kPlain, "e", {{"v", std::string("x\nstatus=200")}}),
            R"(e v="x\u000astatus=200")");
}

TEST(JsonQuoted, KeepsUtf8AndReplacesWhatIsNone) {
  EXPECT_EQ(json_quoted("ä€𝄞"), "\"ä€𝄞\"");
  EXPECT_EQ(json_quoted("a\\\x7f\t"), R"("a\\\u007f\u0009")");
  EXPECT_EQ(json_quoted("\xff"), "\"\xef\xbf\xbd\"");
  EXPECT_EQ(json_quoted("\xc3"), "\"\xef\xbf\xbd\"");                  // cut off
  EXPECT_EQ(json_quoted("\xc0\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\"");  // too long a form
  EXPECT_EQ(json_quoted("\xed\xa0\x80").size(), 2 + 3 * 3u);           // half a surrogate
  EXPECT_EQ(json_quoted("\xf4\x90\x80\x80").size(), 2 + 4 * 3u);       // beyond Unicode
}

}  // namespace
}  // namespace deltad

#include "server/observe/trace_context.h"

#include <gtest/gtest.h>

#include <string>

namespace deltad {
namespace {

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736", kSpan = "00f067aa0ba902b7";
const std::string kParent = "00-" + kTrace + "-" + kSpan + "-01";

bool parses(const std::string& text) { return TraceContext::parse({text, ""}).has_value(); }

TEST(TraceContext, ReadsWhatW3CGivesAsExample) {
  const auto context = TraceContext::parse({kParent, "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"});
  ASSERT_TRUE(context);
  EXPECT_EQ(hex_of(context->trace), kTrace);
  EXPECT_EQ(hex_of(context->span), kSpan);
  EXPECT_TRUE(context->sampled);
  EXPECT_EQ(context->state, "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7");
}

TEST(TraceContext, OnlyTheLowestFlagSays) {
  EXPECT_FALSE(TraceContext::parse({"00-" + kTrace + "-" + kSpan + "-fe", ""})->sampled);
  EXPECT_TRUE(TraceContext::parse({"00-" + kTrace + "-" + kSpan + "-ff", ""})->sampled);
}

TEST(TraceContext, RefusesWhatIsNone) {
  for (const std::string& text :
       {std::string(), kTrace, "ff-" + kTrace + "-" + kSpan + "-01", kParent + "-extra",
        "00-" + std::string(32, '0') + "-" + kSpan + "-01",
        "00-" + kTrace + "-" + std::string(16, '0') + "-01", "00_" + kTrace + "-" + kSpan + "-01",
        "00-" + kTrace + "-" + kSpan + "-0g",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + kSpan + "-01",
        kParent.substr(0, kParent.size() - 1)})
    EXPECT_FALSE(parses(text)) << text;
}

TEST(TraceContext, ALaterVersionMayGoOn) {
  EXPECT_TRUE(parses("01-" + kTrace + "-" + kSpan + "-01-what-comes-next"));
  EXPECT_TRUE(parses("01-" + kTrace + "-" + kSpan + "-01"));
  EXPECT_FALSE(parses("01-" + kTrace + "-" + kSpan + "-01.x"));
}

TEST(TraceContext, StateThatIsTooLongOrNoTextIsLeftOut) {
  EXPECT_EQ(TraceContext::parse({kParent, std::string(513, 'a')})->state, "");
  EXPECT_EQ(TraceContext::parse({kParent, "a=\x01"})->state, "");
}

TEST(TraceContext, TheRatioIsThatOfTheTraces) {
  int kept = 0;
  for (int i = 0; i < 4000; ++i) {
    const TraceId id = random_trace_id();
    EXPECT_FALSE(sampled_by_ratio(id, 0));
    EXPECT_TRUE(sampled_by_ratio(id, 1));
    kept += sampled_by_ratio(id, 0.25);
  }
  EXPECT_NEAR(kept, 1000, 200);  // seven standard deviations
}

}  // namespace
}  // namespace deltad

#include "server/openai/json_reader.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace deltad {
namespace {

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

ApiError parse(const std::string& text, Json* out) { return parse_json(text, "", out); }

TEST(JsonReader, BuildsWhatTheTextSays) {
  const std::string text =
      R"({"a":[1,-2,3.5,true,null,"x\né"],"b":{"z":{},"y":[]},"c":18446744073709551615})";
  Json json;
  ASSERT_FALSE(parse(text, &json));
  EXPECT_EQ(json, Json::parse(text));
  EXPECT_EQ(json.dump(), Json::parse(text).dump());  // the order of keys too
}

TEST(JsonReader, RefusesDepth) {
  Json json;
  EXPECT_FALSE(parse(repeated("[", 100) + repeated("]", 100), &json));
  for (const char* level : {"[", R"({"a":)"}) {
    const ApiError error = parse(repeated(level, 1000), &json);
    EXPECT_EQ(error.status, 400);
    EXPECT_NE(error.message.find("100 levels"), std::string::npos) << error.message;
  }
  EXPECT_EQ(parse(repeated("[", 5'000'000), &json).status, 400);
}

TEST(JsonReader, RefusesInvalidText) {
  Json json;
  for (const std::string text :
       {"", "{", "{]", "[1,]", "nul", "\"\xff\"", "\"\xc3\"", "\"\xed\xa0\x80\"", R"("\ud800")",
        "{\"a\":1} x", "'a'", "{\"a\":1e999}", "01", "\"\t\""}) {
    const ApiError error = parse(text, &json);
    EXPECT_EQ(error.status, 400) << text;
    EXPECT_EQ(error.code, "invalid_json") << text;
    EXPECT_TRUE(json.is_null());
  }
}

TEST(JsonReader, DoesNotRepeatTheText) {
  Json json;
  const ApiError error = parse(R"({"secret": hunter2})", &json);
  EXPECT_EQ(error.message.find("hunter"), std::string::npos) << error.message;
}

TEST(JsonReader, RefusesTheSameKeyTwice) {
  Json json;
  EXPECT_EQ(parse(R"({"a":1,"b":2,"a":3})", &json).status, 400);
  EXPECT_EQ(parse(R"({"o":{"a":1,"a":1}})", &json).status, 400);
  EXPECT_FALSE(parse(R"({"a":{"a":1},"b":{"a":1}})", &json));
}

TEST(JsonReader, ManyKeysTakeLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 300'000; ++i) text += "\"k" + std::to_string(i) + "\":1,";
  text.back() = '}';
  Json json;
  ASSERT_FALSE(parse(text, &json));  // would not end for hours if it were quadratic
  EXPECT_EQ(json.size(), 300'000u);
}

TEST(JsonReader, BoundsTheNumberOfValues) {
  Json json;
  JsonLimits limits;
  limits.values = 10;
  EXPECT_FALSE(parse_json("[1,2,3,4,5,6,7,8,9]", "", &json, limits));
  EXPECT_EQ(parse_json("[1,2,3,4,5,6,7,8,9,10]", "", &json, limits).status, 400);
}

TEST(JsonReader, NamesTheParameter) {
  Json json;
  const ApiError error = parse_json("{", "messages[0].x", &json);
  EXPECT_EQ(error.param, "messages[0].x");
}

}  // namespace
}  // namespace deltad

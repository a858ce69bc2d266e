// Event streams, cut everywhere.
#include "loadgen/sse_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace deltad::loadgen {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> parse(const std::vector<std::string_view>& parts) {
  SseParser parser;
  std::vector<std::string> events;
  for (std::string_view part : parts) {
    const Status status = parser.push(part, [&](std::string_view data) {
      events.emplace_back(data);
      return Status();
    });
    EXPECT_TRUE(status.ok()) << status.message();
  }
  EXPECT_TRUE(parser.finish().ok());
  return events;
}

TEST(SseParser, AnySplitGivesTheSameEvents) {
  const std::string text =
      ": a comment\n\ndata: one\n\nevent: x\r\ndata:two\r\ndata:  more\r\n\r\nid: 4\n\n"
      "data: three\r\rdata\n\ndataset: no\n\ndata: [DONE]\n\n";
  const std::vector<std::string> events = parse({text});
  EXPECT_THAT(events, ElementsAre("one", "two\n more", "three", "", "[DONE]"));
  const std::string_view view = text;
  for (size_t i = 0; i <= view.size(); ++i) {
    for (size_t j = i; j <= view.size(); ++j) {
      ASSERT_EQ(parse({view.substr(0, i), view.substr(i, j - i), view.substr(j)}), events)
          << i << " " << j;
    }
  }
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < view.size(); ++i) bytes.push_back(view.substr(i, 1));
  EXPECT_EQ(parse(bytes), events);
}

TEST(SseParser, AStreamThatBreaksOffInsideAnEventIsAnError) {
  const auto nothing = [](std::string_view) { return Status(); };
  for (const char* text : {"data: x", "data: x\n", "data: x\n\nda"}) {
    SseParser parser;
    ASSERT_TRUE(parser.push(text, nothing).ok());
    EXPECT_THAT(parser.finish().message(), HasSubstr("inside an event")) << text;
  }
}

TEST(SseParser, TheReadersErrorEndsTheParsing) {
  SseParser parser;
  int seen = 0;
  const Status status = parser.push("data: a\n\ndata: b\n\n", [&](std::string_view) {
    ++seen;
    return invalid_argument("enough");
  });
  EXPECT_EQ(status.message(), "enough");
  EXPECT_EQ(seen, 1);
}

TEST(SseParser, EndlessLinesAndEventsAreRefused) {
  const std::string megabyte(1 << 20, 'x');
  const auto nothing = [](std::string_view) { return Status(); };
  SseParser line, event;
  Status of_line, of_event;
  for (int i = 0; i < 20 && of_line.ok(); ++i) of_line = line.push(megabyte, nothing);
  for (int i = 0; i < 20 && of_event.ok(); ++i) {
    of_event = event.push("data: " + megabyte + "\n", nothing);
  }
  EXPECT_THAT(of_line.message(), HasSubstr("16 MiB"));
  EXPECT_THAT(of_event.message(), HasSubstr("16 MiB"));
}

}  // namespace
}  // namespace deltad::loadgen

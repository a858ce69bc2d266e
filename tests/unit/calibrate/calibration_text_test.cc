// Reading calibration text: which tokens come out, and what is refused.
#include "calibrate/calibration_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/support/golden_lines.h"

namespace deltad {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const TextAssets> smollm2() {
  static const std::shared_ptr<const TextAssets> text = *load_text_assets(
      [](const std::string& name) {
        const std::string path = "smollm2/" + name;
        if (name == "tokenizer.json") return read_golden(path + ".gz");
        return std::filesystem::exists(DELTAD_GOLDEN "/" + path) ? read_golden(path)
                                                                 : std::string();
      },
      nullptr);
  return text;
}

std::string decoded(const TokenSequence& ids) { return smollm2()->tokenizer->decode(ids, false); }

constexpr CalibrationTokens kAll = {1 << 20, 1 << 20};

TEST(CalibrationText, TheShippedTextIsReadWhole) {
  auto set = read_calibration(*smollm2(), "shipped", shipped_calibration_text(), kAll);
  ASSERT_TRUE(set.ok()) << set.status().message();
  EXPECT_GT(set->fit.size(), 80u);
  EXPECT_EQ(set->held.size(), 12u);
  EXPECT_GT(set->fit_tokens(), 5000);
  EXPECT_GT(set->held_tokens(), 500);
  EXPECT_THAT(decoded(set->fit[0]), HasSubstr("<|im_start|>user\nWhy does bread rise?<|im_end|>\n"
                                              "<|im_start|>assistant\nYeast eats"));
}

TEST(CalibrationText, OfALongTextSequencesFromAllOfItAreTaken) {
  const auto all = read_calibration(*smollm2(), "shipped", shipped_calibration_text(), kAll);
  const auto set = read_calibration(*smollm2(), "shipped", shipped_calibration_text(), {900, 300});
  ASSERT_TRUE(all.ok() && set.ok());
  EXPECT_LE(set->fit_tokens(), 900);
  EXPECT_GT(set->fit_tokens(), 700);
  EXPECT_LE(set->held_tokens(), 300);
  EXPECT_EQ(set->fit.front(), all->fit.front());
  // In their order, the last one from the last quarter.
  auto at = all->fit.begin();
  for (const TokenSequence& sequence : set->fit) {
    at = std::find(at, all->fit.end(), sequence);
    ASSERT_NE(at, all->fit.end());
  }
  EXPECT_GT(at - all->fit.begin(), static_cast<int64_t>(all->fit.size() * 3 / 4));
}

TEST(CalibrationText, OneChatInEightIsHeldOut) {
  std::string lines;
  for (int i = 0; i < 20; ++i)
    lines += R"({"prompt": "p)" + std::to_string(i) +
             R"(", "answer": "a"})"
             "\n\n";
  auto set = read_calibration(*smollm2(), "f", lines, kAll);
  ASSERT_TRUE(set.ok()) << set.status().message();
  EXPECT_EQ(set->fit.size(), 18u);
  ASSERT_EQ(set->held.size(), 2u);
  EXPECT_THAT(decoded(set->held[0]), HasSubstr("p7"));
  EXPECT_THAT(decoded(set->held[1]), HasSubstr("p15"));
}

TEST(CalibrationText, PlainTextIsCutIntoPieces) {
  std::string text;
  for (int i = 0; i < 2500; ++i) text += "word ";
  auto set = read_calibration(*smollm2(), "f", text);
  ASSERT_TRUE(set.ok()) << set.status().message();
  EXPECT_EQ(set->held.size(), 1u);
  for (const TokenSequence& piece : set->fit) EXPECT_LE(piece.size(), 256u);
}

TEST(CalibrationText, ALongChatIsCutAtTheLongestSequence) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "word ";
  std::string lines;
  for (int i = 0; i < 8; ++i) lines += R"({"prompt": "p", "answer": ")" + text + "\"}\n";
  auto set = read_calibration(*smollm2(), "f", lines);
  ASSERT_TRUE(set.ok()) << set.status().message();
  EXPECT_EQ(set->fit[0].size(), static_cast<size_t>(LayerWalk::kMaxTokens));
}

TEST(CalibrationText, AShortTextIsTakenWithANote) {
  const auto read = [](const std::string& content) {
    auto set = read_calibration(*smollm2(), "f", content);
    EXPECT_TRUE(set.ok()) << set.status().message();
    return std::move(*set);
  };
  const std::string chat = "{\"prompt\": \"p\", \"answer\": \"one two three four five\"}\n";
  const CalibrationSet one = read(chat), three = read(chat + chat + chat);
  EXPECT_EQ(one.fit.size(), 1u) << "the end of the only chat is held out";
  EXPECT_EQ(one.held.size(), 1u);
  EXPECT_GT(one.fit_tokens(), 5 * one.held_tokens());
  EXPECT_EQ(three.fit.size(), 2u);
  EXPECT_EQ(three.held.size(), 1u);
  EXPECT_THAT(three.note,
              ::testing::AllOf(HasSubstr("f: a short text"),
                               HasSubstr(std::to_string(three.fit_tokens())), HasSubstr("256")));
  std::string text;
  for (int i = 0; i < 20; ++i) text += "word ";
  const CalibrationSet pieces = read(text);
  EXPECT_GE(pieces.held.size(), 1u);
  EXPECT_GE(pieces.fit_tokens(), 16);
  for (int i = 0; i < 500; ++i) text += "word ";
  EXPECT_EQ(read(text).note, "");
}

TEST(CalibrationText, SaysWhatIsWrong) {
  const auto message = [](const std::string& content) {
    auto set = read_calibration(*smollm2(), "my.jsonl", content);
    return set.ok() ? std::string("ok") : set.status().message();
  };
  EXPECT_THAT(message("{\"prompt\": \"a\", \"answer\": \"b\"}\n{oh\n"),
              ::testing::AllOf(HasSubstr("my.jsonl"), HasSubstr("line 2"), HasSubstr("prompt")));
  EXPECT_THAT(message("{\"messages\": [{\"role\": \"user\"}]}"), HasSubstr("line 1"));
  EXPECT_THAT(message("{\"messages\": []}"), HasSubstr("line 1"));
  EXPECT_THAT(message("{\"prompt\": 3, \"answer\": \"b\"}"), HasSubstr("line 1"));
  EXPECT_THAT(message(""), HasSubstr("0 tokens of calibration text; 16 are the least"));
  EXPECT_THAT(message("a short text"), HasSubstr("3 tokens of calibration text"));
  EXPECT_THAT(message("\xff\xfe\x80 binary"), HasSubstr("UTF-8"));
  EXPECT_THAT(message(std::string((1 << 20) + 1, 'a')), HasSubstr("at most 1048576"));
}

}  // namespace
}  // namespace deltad

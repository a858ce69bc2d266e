// StreamDecoder: pieces equal the whole, characters stay whole, stop strings never leak.
#include "text/stream_decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/support/golden_lines.h"
#include "text/utf8.h"

namespace deltad {
namespace {

using Ids = std::vector<int32_t>;
using Strings = std::vector<std::string>;

class StreamDecoderTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    tokenizer_ = *Tokenizer::from_json(read_golden("smollm2/tokenizer.json.gz"));
  }
  static void TearDownTestSuite() { tokenizer_.reset(); }

  // The pieces, and what finish() gave as the last one.
  static Strings pieces(StreamDecoder& decoder, const Ids& ids) {
    Strings out;
    for (int32_t id : ids) out.push_back(decoder.push(id));
    out.push_back(decoder.finish());
    return out;
  }
  static std::string joined(const Strings& pieces) {
    std::string text;
    for (const std::string& piece : pieces) text += piece;
    return text;
  }
  // A token for each byte, so that every stop string spans tokens.
  static Ids letters(std::string_view text) {
    Ids ids;
    for (char c : text) ids.push_back(tokenizer_->token_id(c == ' ' ? "Ġ" : std::string(1, c)));
    return ids;
  }
  struct Outcome {
    std::string text, stop;
    bool operator==(const Outcome& other) const = default;
  };
  static Outcome run(std::string_view text, Strings stops, bool include = false) {
    StreamDecoder decoder(tokenizer_, std::move(stops), true, include);
    std::string out = joined(pieces(decoder, letters(text)));
    EXPECT_EQ(decoder.stopped(), !decoder.stop_string().empty());
    return {out, decoder.stop_string()};
  }

  static std::shared_ptr<const Tokenizer> tokenizer_;
};
std::shared_ptr<const Tokenizer> StreamDecoderTest::tokenizer_;

TEST_F(StreamDecoderTest, PiecesOfAnyTokensEqualTheWhole) {
  std::mt19937 random(7);
  // Tokens that are parts of characters, which a random choice would seldom bring together.
  Ids parts;
  for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
    if (!is_utf8(tokenizer_->token_bytes(id))) parts.push_back(id);
  }
  ASSERT_GT(parts.size(), 100u);
  auto pick = [&](size_t n) { return static_cast<int32_t>(random() % n); };
  for (int round = 0; round < 3000; ++round) {
    Ids ids(random() % 30);
    for (int32_t& id : ids) {
      id = random() % 2   ? parts[static_cast<size_t>(pick(parts.size()))]
           : random() % 4 ? pick(49152)
                          : pick(17);
    }
    bool skip = random() % 2;
    // A stop string that only holds text back: it ends with what no token has.
    std::string whole = tokenizer_->decode(ids, skip);
    Strings stops;
    if (random() % 2 && !whole.empty()) {
      stops.push_back(whole.substr(previous_char(whole, (whole.size() + 1) / 2)) + "\x01never");
    }
    StreamDecoder decoder(tokenizer_, stops, skip, false);
    Strings out = pieces(decoder, ids);
    EXPECT_EQ(joined(out), whole);
    for (const std::string& piece : out) EXPECT_TRUE(is_utf8(piece)) << testing::PrintToString(out);
  }
}

TEST_F(StreamDecoderTest, HoldsBackHalfACharacter) {
  Ids ids = tokenizer_->encode("\U0001F99B", {});
  ASSERT_GT(ids.size(), 1u);
  StreamDecoder decoder(tokenizer_, {}, true, false);
  for (size_t i = 0; i + 1 < ids.size(); ++i) EXPECT_EQ(decoder.push(ids[i]), "");
  EXPECT_EQ(decoder.push(ids.back()), "\U0001F99B");
  EXPECT_EQ(decoder.push(ids[0]), "");
  EXPECT_EQ(decoder.push(letters("a")[0]), "\uFFFDa");
  EXPECT_EQ(decoder.push(ids[0]), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
}

TEST_F(StreamDecoderTest, StopsAtTheStringThatIsCompleteFirst) {
  EXPECT_EQ(run("one END two", {"END"}), (Outcome{"one ", "END"}));
  EXPECT_EQ(run("one END two", {"END"}, true), (Outcome{"one END", "END"}));
  EXPECT_EQ(run("one END two", {"two", "END"}), (Outcome{"one ", "END"}));
  EXPECT_EQ(run("abcd", {"abcd", "bc"}), (Outcome{"a", "bc"}));
  EXPECT_EQ(run("abcd", {"cd", "abcd", "bcd"}), (Outcome{"", "abcd"}));
  EXPECT_EQ(run("aaab", {"aab"}), (Outcome{"a", "aab"}));
  EXPECT_EQ(run("ababac", {"abac"}), (Outcome{"ab", "abac"}));
  EXPECT_EQ(run("xEN", {"END"}), (Outcome{"xEN", ""}));
  EXPECT_EQ(run("ENENDx", {"END", "ENX"}), (Outcome{"EN", "END"}));
  EXPECT_EQ(run("abc", {"", "c"}), (Outcome{"ab", "c"}));
  EXPECT_EQ(run("abc", {""}), (Outcome{"abc", ""}));
  EXPECT_EQ(run("abc", {"c\x80", "\xFF"}), (Outcome{"abc", ""}));
}

TEST_F(StreamDecoderTest, HoldsBackWhatMayBecomeAStop) {
  StreamDecoder decoder(tokenizer_, {"###", "\n\nQ"}, true, false);
  auto push = [&](const char* token) { return decoder.push(tokenizer_->token_id(token)); };
  EXPECT_EQ(push("a"), "a");
  EXPECT_EQ(push("#"), "");
  EXPECT_EQ(push("#"), "");
  EXPECT_EQ(push("b"), "##b");
  EXPECT_EQ(push("Ċ"), "");
  EXPECT_EQ(push("Ċ"), "");
  EXPECT_EQ(push("Ċ"), "\n");
  EXPECT_EQ(push("Q"), "");
  EXPECT_TRUE(decoder.stopped());
  EXPECT_EQ(decoder.stop_string(), "\n\nQ");
  EXPECT_EQ(push("a"), "");
  EXPECT_EQ(decoder.finish(), "");
}

TEST_F(StreamDecoderTest, WhereItStopsDoesNotDependOnTheTokens) {
  std::mt19937 random(11);
  std::string alphabet = "ab#";
  for (int round = 0; round < 2000; ++round) {
    auto text = [&](size_t length) {
      std::string s;
      while (s.size() < length) s += alphabet[random() % alphabet.size()];
      return s;
    };
    std::string whole = text(20);
    Strings stops = {text(1 + random() % 4), text(2 + random() % 4)};
    // The earliest end, then the longest, by trying every place.
    Outcome expected{whole, ""};
    for (size_t end = 1; end <= whole.size() && expected.stop.empty(); ++end) {
      for (const std::string& stop : stops) {
        if (whole.substr(0, end).ends_with(stop) && stop.size() > expected.stop.size()) {
          expected = {whole.substr(0, end - stop.size()), stop};
        }
      }
    }
    EXPECT_EQ(run(whole, stops), expected) << whole << " " << testing::PrintToString(stops);
    // The same text from the tokens that the tokenizer would choose.
    StreamDecoder decoder(tokenizer_, stops, true, false);
    EXPECT_EQ(joined(pieces(decoder, tokenizer_->encode(whole, {}))), expected.text);
  }
}

}  // namespace
}  // namespace deltad

#include "server/generation/choice_stream.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/unit/server/fake_text.h"

namespace deltad {
namespace {

using testing::kEos;
using testing::kHello;
using testing::kWorld;

TokenEvent token(int32_t id, float logprob = -0.5f) {
  TokenEvent event;
  event.token = id;
  event.logprob = logprob;
  return event;
}

struct Fed {
  std::vector<std::string> pieces;
  Piece whole;
  bool stopped = false;
};

// Feeds tokens and takes after each, as a stream does.
Fed feed(const std::vector<int32_t>& ids, ChoiceOptions options) {
  ChoiceStream stream(std::make_shared<testing::FakeTokenizer>(), options, 0);
  Fed out;
  const auto take = [&](bool at_end) {
    if (!at_end && !stream.has_text()) return;
    Piece piece = stream.take();
    out.pieces.push_back(piece.text);
    out.whole.append(std::move(piece));
  };
  for (const int32_t id : ids) {
    stream.push(token(id));
    if (stream.stopped()) break;
    take(false);
  }
  out.stopped = stream.stopped();
  stream.finish();
  take(true);
  return out;
}

std::string joined(const std::vector<TokenText>& tokens) {
  std::string out;
  for (const TokenText& t : tokens) out += t.text;
  return out;
}
std::string joined_bytes(const std::vector<TokenText>& tokens) {
  std::string out;
  for (const TokenText& t : tokens) out += t.bytes;
  return out;
}

ChoiceOptions with_logprobs(std::vector<std::string> stop = {}) {
  ChoiceOptions options;
  options.stop = std::move(stop);
  options.logprobs = true;
  return options;
}

TEST(ChoiceStream, HoldsBackHalfACharacter) {
  const Fed out = feed({'a', 0xC3, 0xA9, 'b'}, with_logprobs());
  EXPECT_EQ(out.pieces, (std::vector<std::string>{"a", "é", "b", ""}));
  ASSERT_EQ(out.whole.tokens.size(), 4u);
  EXPECT_EQ(joined(out.whole.tokens), out.whole.text);
  EXPECT_EQ(out.whole.tokens[1].text, "");
  EXPECT_EQ(out.whole.tokens[1].bytes, "\xC3");
  EXPECT_EQ(out.whole.tokens[2].bytes, "\xA9");
  EXPECT_EQ(joined_bytes(out.whole.tokens), out.whole.text);
  EXPECT_EQ(out.whole.tokens[3].offset, 2u);  // characters, not bytes
}

TEST(ChoiceStream, UnfinishedCharacterAtTheEnd) {
  const Fed out = feed({'a', 0xE2, 0x82}, with_logprobs());
  EXPECT_EQ(out.whole.text.substr(0, 1), "a");
  EXPECT_NE(out.whole.text.find("\xEF\xBF\xBD"), std::string::npos);
  EXPECT_EQ(joined(out.whole.tokens), out.whole.text);
  EXPECT_EQ(out.whole.tokens.size(), 3u);
}

TEST(ChoiceStream, StopStringOverTokensNeverLeaks) {
  const Fed out = feed({'x', 'E', 'N', 'D', 'y'}, with_logprobs({"END"}));
  EXPECT_TRUE(out.stopped);
  EXPECT_EQ(out.pieces, (std::vector<std::string>{"x", ""}));
  EXPECT_EQ(joined(out.whole.tokens), "x");
}

TEST(ChoiceStream, TextHeldForAStopComesOutIfItDoesNotCome) {
  const Fed out = feed({'x', 'E', 'N', 'q'}, with_logprobs({"END"}));
  EXPECT_FALSE(out.stopped);
  EXPECT_EQ(out.whole.text, "xENq");
  EXPECT_EQ(joined(out.whole.tokens), "xENq");
  const Fed at_end = feed({'x', 'E', 'N'}, with_logprobs({"END"}));
  EXPECT_EQ(at_end.whole.text, "xEN");
  EXPECT_EQ(joined(at_end.whole.tokens), "xEN");
}

TEST(ChoiceStream, StopInsideATokenCutsIt) {
  const Fed out = feed({kHello, kWorld, '!'}, with_logprobs({"lo w"}));
  EXPECT_TRUE(out.stopped);
  EXPECT_EQ(out.whole.text, "Hel");
  EXPECT_EQ(joined(out.whole.tokens), "Hel");
  EXPECT_EQ(out.whole.tokens.size(), 1u);

  ChoiceOptions included = with_logprobs({"lo w"});
  included.include_stop = true;
  const Fed kept = feed({kHello, kWorld, '!'}, included);
  EXPECT_EQ(kept.whole.text, "Hello w");
  EXPECT_EQ(joined(kept.whole.tokens), "Hello w");
}

TEST(ChoiceStream, SpecialTokens) {
  ChoiceOptions options = with_logprobs();
  const Fed skipped = feed({'a', kEos, 'b'}, options);
  EXPECT_EQ(skipped.whole.text, "ab");
  EXPECT_EQ(joined(skipped.whole.tokens), "ab");
  EXPECT_EQ(joined_bytes(skipped.whole.tokens), "ab");
  EXPECT_EQ(skipped.whole.ids, (std::vector<int32_t>{'a', kEos, 'b'}));
  options.skip_special = false;
  EXPECT_EQ(feed({'a', kEos, 'b'}, options).whole.text, "a<eos>b");
}

TEST(ChoiceStream, LogprobsAreNumbersUpToZero) {
  ChoiceStream stream(std::make_shared<testing::FakeTokenizer>(), with_logprobs(), 0);
  TokenEvent event = token('a', 1e-7f);
  event.top = {{'a', 1e-7f}, {0xC3, -std::numeric_limits<float>::infinity()}};
  stream.push(event);
  stream.push(token('b', std::numeric_limits<float>::quiet_NaN()));
  stream.finish();
  const Piece piece = stream.take();
  EXPECT_EQ(piece.tokens[0].logprob, 0.0f);
  EXPECT_FALSE(std::signbit(*piece.tokens[0].logprob));
  EXPECT_EQ(piece.tokens[0].top[1].logprob, -9999.0f);
  EXPECT_EQ(piece.tokens[0].top[1].bytes, "\xC3");
  EXPECT_EQ(piece.tokens[0].top[1].text, "\xEF\xBF\xBD");
  EXPECT_EQ(piece.tokens[1].logprob, -9999.0f);
}

TEST(ChoiceStream, TheTokenHasOneNameAlsoAmongItsAlternatives) {
  ChoiceStream stream(std::make_shared<testing::FakeTokenizer>(), with_logprobs(), 0);
  for (const int32_t id : {0xC3, 0xA9}) {
    TokenEvent event = token(id);
    event.top = {{'x', -0.1f}, {id, -0.5f}};
    stream.push(event);
  }
  stream.finish();
  const Piece piece = stream.take();
  EXPECT_EQ(piece.tokens[0].top[1].text, "");
  EXPECT_EQ(piece.tokens[1].top[1].text, "é");
  EXPECT_EQ(piece.tokens[1].top[1].bytes, "\xA9");
  EXPECT_EQ(piece.tokens[1].top[0].text, "x");
}

TEST(ChoiceStream, EchoedPromptTokens) {
  TokenEvent event;
  event.prompt = {{'a', -1.0f}, {0xC3, -2.0f}, {0xA9, -3.0f}};
  event.prompt_top = {{{'a', -1.0f}}, {{'x', -0.1f}}, {}};
  const auto tokens = prompt_tokens(std::make_shared<testing::FakeTokenizer>(),
                                    {testing::kBos, 'a', 0xC3, 0xA9}, 1, 4, event);
  ASSERT_EQ(tokens.size(), 4u);
  EXPECT_EQ(joined(tokens), "aé");
  EXPECT_FALSE(tokens[0].logprob.has_value());
  EXPECT_EQ(tokens[3].logprob, -3.0f);
  EXPECT_EQ(tokens[2].top[0].text, "x");
  EXPECT_EQ(tokens[3].offset, 1u);
}

}  // namespace
}  // namespace deltad

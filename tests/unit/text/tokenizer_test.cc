// Tokenizer against vectors made with the `tokenizers` library.
#include "text/tokenizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "golden_lines.h"

namespace deltad {
namespace {

using Ids = std::vector<int32_t>;
using nlohmann::json;
using testing::HasSubstr;

std::shared_ptr<const Tokenizer> load(const std::string& name) {
  auto tokenizer = Tokenizer::from_json(read_golden(name));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return *tokenizer;
}

void expect_vectors(const Tokenizer& tokenizer, const std::string& name, size_t count) {
  std::vector<json> lines = golden_lines(name);
  EXPECT_EQ(lines.size(), count);
  for (const json& line : lines) {
    std::string text = line["text"];
    Ids ids = line["ids"];
    SCOPED_TRACE(line["text"].dump());
    EXPECT_EQ(tokenizer.encode(text, {}), ids);
    EXPECT_EQ(tokenizer.encode(text, {.add_special = true}), Ids(line["ids_with_special"]));
    EXPECT_EQ(tokenizer.encode(text, {.parse_special = false}),
              Ids(line.value("ids_special_as_text", line["ids"])));
  }
}

TEST(Tokenizer, EncodesAsTheLibrary) {
  expect_vectors(*load("smollm2/tokenizer.json"), "tokenizer/smollm2/vectors.jsonl", 1200);
  expect_vectors(*load("models/llama/tokenizer.json"), "gguf/tokenizer-bytes512.jsonl", 120);
}

TEST(Tokenizer, DecodesAsTheLibrary) {
  auto tokenizer = load("smollm2/tokenizer.json");
  for (const json& line : golden_lines("tokenizer/smollm2/decode.jsonl")) {
    SCOPED_TRACE(line["ids"].dump());
    Ids ids = line["ids"];
    EXPECT_EQ(tokenizer->decode(ids, false), line["text"]);
    EXPECT_EQ(tokenizer->decode(ids, true), line["text_skip_special"]);
  }
}

TEST(Tokenizer, KnowsItsTokens) {
  auto tokenizer = load("smollm2/tokenizer.json");
  EXPECT_EQ(tokenizer->vocab_size(), 49152);
  for (const json& line : golden_lines("tokenizer/smollm2/tokens.jsonl")) {
    int32_t id = line["id"];
    SCOPED_TRACE(id);
    std::string hex;
    for (unsigned char byte : tokenizer->token_bytes(id)) hex += fmt::format("{:02x}", byte);
    EXPECT_EQ(hex, line["bytes"]);
    EXPECT_EQ(tokenizer->token_text(id), line["token"]);
    EXPECT_EQ(tokenizer->token_id(std::string(line["token"])), id);
    EXPECT_EQ(tokenizer->is_special(id), line.value("special", false));
  }
  for (int32_t id : {-1, 49152, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer->token_text(id), "");
    EXPECT_EQ(tokenizer->token_bytes(id), "");
    EXPECT_FALSE(tokenizer->is_special(id));
  }
  EXPECT_EQ(tokenizer->token_id("no such token"), -1);
}

}  // namespace
}  // namespace deltad

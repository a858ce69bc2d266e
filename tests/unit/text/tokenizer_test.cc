// Tokenizer against vectors made with the `tokenizers` library.
#include "text/tokenizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "io/gguf.h"
#include "tests/support/golden_lines.h"

namespace deltad {
namespace {

using Ids = std::vector<int32_t>;
using nlohmann::json;
using testing::AllOf;
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
    SCOPED_TRACE(line["text"].dump());
    EXPECT_EQ(tokenizer.encode(text, {}), Ids(line["ids"]));
    EXPECT_EQ(tokenizer.encode(text, {.add_special = true}), Ids(line["ids_with_special"]));
    EXPECT_EQ(tokenizer.encode(text, {.parse_special = false}),
              Ids(line.value("ids_special_as_text", line["ids"])));
  }
}

void expect_decoding(const Tokenizer& tokenizer, const std::string& name) {
  std::vector<json> lines = golden_lines(name);
  EXPECT_GT(lines.size(), 100u);
  for (const json& line : lines) {
    SCOPED_TRACE(line["ids"].dump());
    Ids ids = line["ids"];
    EXPECT_EQ(tokenizer.decode(ids, false), line["text"]);
    EXPECT_EQ(tokenizer.decode(ids, true), line["text_skip_special"]);
  }
}

void expect_tokens(const Tokenizer& tokenizer, const std::string& name) {
  for (const json& line : golden_lines(name)) {
    int32_t id = line["id"];
    SCOPED_TRACE(id);
    std::string hex;
    for (unsigned char byte : tokenizer.token_bytes(id)) hex += fmt::format("{:02x}", byte);
    EXPECT_EQ(hex, line["bytes"]);
    EXPECT_EQ(tokenizer.token_text(id), line["token"]);
    EXPECT_EQ(tokenizer.token_id(std::string(line["token"])), id);
    EXPECT_EQ(tokenizer.is_special(id), line.value("special", false));
  }
}

// A file of the golden folder with one thing changed.
std::string changed(const std::string& name, const std::string& pointer, const json& value) {
  json document = json::parse(read_golden(name));
  document[json::json_pointer(pointer)] = value;
  return document.dump();
}

Status status_of(const std::string& tokenizer_json) {
  return Tokenizer::from_json(tokenizer_json).status();
}

TEST(Tokenizer, SmolLm2) {
  auto tokenizer = load("smollm2/tokenizer.json.gz");
  EXPECT_EQ(tokenizer->vocab_size(), 49152);
  expect_vectors(*tokenizer, "tokenizer/smollm2/vectors.jsonl.gz", 1200);
  expect_decoding(*tokenizer, "tokenizer/smollm2/decode.jsonl.gz");
  expect_tokens(*tokenizer, "tokenizer/smollm2/tokens.jsonl.gz");
}

// Added tokens of all kinds, and the pre-tokenizers and normalizers of other families.
TEST(Tokenizer, OtherLayouts) {
  for (std::string name : {"gpt2", "smollm", "llama3", "qwen2"}) {
    SCOPED_TRACE(name);
    auto tokenizer = load("tokenizer/" + name + "/tokenizer.json");
    expect_vectors(*tokenizer, "tokenizer/" + name + "/vectors.jsonl.gz", 150);
    expect_decoding(*tokenizer, "tokenizer/" + name + "/decode.jsonl.gz");
    expect_tokens(*tokenizer, "tokenizer/" + name + "/tokens.jsonl.gz");
  }
}

TEST(Tokenizer, Bytes512FromJsonAndGguf) {
  expect_vectors(*load("models/llama/tokenizer.json"), "gguf/tokenizer-bytes512.jsonl", 120);
  auto gguf = GgufFile::open(DELTAD_GOLDEN "/gguf/llama-q4_0.gguf");
  ASSERT_TRUE(gguf.ok()) << gguf.status().message();
  auto tokenizer = Tokenizer::from_gguf(**gguf);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  expect_vectors(**tokenizer, "gguf/tokenizer-bytes512.jsonl", 120);
  EXPECT_TRUE((*tokenizer)->is_special(4));
  EXPECT_FALSE((*tokenizer)->is_special(510));

  auto written = gguf_tokenizer_json(**gguf);
  ASSERT_TRUE(written.ok()) << written.status().message();
  // Nothing but the order of keys may differ from the file the GGUF was made from.
  json ours = json::parse(*written);
  json original = json::parse(read_golden("models/llama/tokenizer.json"));
  EXPECT_EQ(ours["model"]["merges"], original["model"]["merges"]);
  EXPECT_EQ(ours["added_tokens"], original["added_tokens"]);
  EXPECT_EQ(ours["pre_tokenizer"], original["pre_tokenizer"]);
  EXPECT_EQ(ours["post_processor"], original["post_processor"]);
  EXPECT_EQ(ours["decoder"], original["decoder"]);
  auto again = Tokenizer::from_json(*written);
  ASSERT_TRUE(again.ok()) << again.status().message();
  expect_vectors(**again, "gguf/tokenizer-bytes512.jsonl", 120);
}

TEST(Tokenizer, IdsThatDoNotExistAreNothing) {
  auto tokenizer = load("models/llama/tokenizer.json");
  for (int32_t id : {-1, 512, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer->token_text(id), "");
    EXPECT_EQ(tokenizer->token_bytes(id), "");
    EXPECT_FALSE(tokenizer->is_special(id));
    EXPECT_EQ(tokenizer->decode(Ids{id, 5}, false), tokenizer->decode(Ids{5}, false));
  }
  EXPECT_EQ(tokenizer->token_id("no such token"), -1);
}

TEST(Tokenizer, ReplacesInvalidUtf8) {
  auto tokenizer = load("smollm2/tokenizer.json.gz");
  auto same = [&](std::string_view bytes, std::string_view text) {
    EXPECT_EQ(tokenizer->encode(bytes, {}), tokenizer->encode(text, {})) << text;
  };
  same(
      "a\xFF"
      "b",
      "a\uFFFDb");
  same(
      "a\xE2\x82"
      "b",
      "a\uFFFDb");               // a maximal part is one
  same("a\xE2\x82", "a\uFFFD");  // also at the end
  same("\xF0\x9F\xA6 \xC0\xAF", "\uFFFD \uFFFD\uFFFD");
  same("\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD");  // a surrogate
  same("\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(Tokenizer, LongWordsTakeNoLongTime) {
  auto tokenizer = load("smollm2/tokenizer.json.gz");
  // One word each; time that grows with the square of the length would not end. Decoding gives
  // back what was encoded, and a small part is encoded like the whole.
  for (std::string unit : {"a", "ab", "é", " ", "\n", "'", "0", "x\u0301"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    Ids ids = tokenizer->encode(text, {});
    EXPECT_EQ(tokenizer->decode(ids, false), text) << unit;
  }
}

// The two ways to merge, for short words and for long ones, are one rule: a word of any length is
// the merges of the library, which the vectors hold for words of up to 80 letters.
TEST(Tokenizer, WordsAroundTheBorderOfShort) {
  auto tokenizer = load("smollm2/tokenizer.json.gz");
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::string word;
    for (size_t n = 20 + random() % 30; word.size() < n;) word += "etaoins"[random() % 7];
    // Only neighbours without a merge may meet at a seam: "Q" joins with nothing in front.
    Ids ids = tokenizer->encode(word, {});
    EXPECT_EQ(tokenizer->decode(ids, false), word);
    std::string longer = word + std::string(40, 'Q');
    Ids with = tokenizer->encode(longer, {});
    Ids front(with.begin(), with.begin() + static_cast<ptrdiff_t>(ids.size()));
    EXPECT_EQ(front, ids) << word;
  }
}

TEST(Tokenizer, ManyThreadsAgree) {
  auto tokenizer = load("smollm2/tokenizer.json.gz");
  std::string text = read_golden("smollm2/reference.jsonl").substr(0, 20000);
  Ids expected = tokenizer->encode(text, {});
  std::vector<Ids> got(4);
  auto fresh = load("smollm2/tokenizer.json.gz");
  std::vector<std::thread> threads;
  for (Ids& ids : got) threads.emplace_back([&] { ids = fresh->encode(text, {}); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& ids : got) EXPECT_EQ(ids, expected);
}

TEST(Tokenizer, RegularExpressionsThatNeverEndDoNotHang) {
  json step = {{"type", "Split"},
               {"pattern", {{"Regex", "(x+x+)+y|(a|aa)+$"}}},
               {"behavior", "Isolated"},
               {"invert", false}};
  json steps = {
      {"type", "Sequence"},
      {"pretokenizers",
       {step, {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  auto tokenizer =
      Tokenizer::from_json(changed("models/llama/tokenizer.json", "/pre_tokenizer", steps));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  std::string text = std::string(5000, 'x') + std::string(5000, 'a') + "b";
  EXPECT_EQ((*tokenizer)->decode((*tokenizer)->encode(text, {}), false), text);
}

TEST(Tokenizer, RefusesByName) {
  const std::string file = "models/llama/tokenizer.json";
  auto expect = [&](const std::string& pointer, const json& value, Code code,
                    const std::string& part) {
    Status status = status_of(changed(file, pointer, value));
    EXPECT_EQ(status.code(), code) << pointer << ": " << status.message();
    EXPECT_THAT(status.message(), HasSubstr(part)) << pointer;
  };
  const Code no = Code::kUnimplemented, bad = Code::kInvalidArgument;
  const json lowercase = {{"type", "Lowercase"}};
  expect("/model/type", "Unigram", no, "model 'Unigram'");
  expect("/model/byte_fallback", true, no, "model.byte_fallback");
  expect("/model/end_of_word_suffix", "</w>", no, "model.end_of_word_suffix");
  expect("/normalizer", {{"type", "NFKC"}}, no, "normalizer 'NFKC'");
  expect("/normalizer", {{"type", "Sequence"}, {"normalizers", json::array({lowercase})}}, no,
         "normalizer.normalizers[0] 'Lowercase'");
  expect("/pre_tokenizer/type", "Metaspace", no, "pre_tokenizer 'Metaspace'");
  expect("/post_processor/type", "BertProcessing", no, "post_processor 'BertProcessing'");
  expect("/decoder/type", "WordPiece", no, "decoder 'WordPiece'");
  expect("/decoder", nullptr, no, "decoder");
  json split = {{"type", "Split"}, {"behavior", "Isolated"}, {"invert", false}};
  split["pattern"] = {{"Regex", "a(?P<name>b)"}};
  expect("/pre_tokenizer", split, no, "(?P");
  split["pattern"] = {{"Regex", "[a&&b]"}};
  expect("/pre_tokenizer", split, no, "&& inside a class");
  split["pattern"] = {{"Regex", "(ab"}};
  expect("/pre_tokenizer", split, bad, "'(ab'");
  split["pattern"] = {{"Regex", std::string(100'000, 'a')}};
  expect("/pre_tokenizer", split, bad, "100000 bytes");
  split["behavior"] = "Sideways";
  expect("/pre_tokenizer", split, bad, "pre_tokenizer.behavior 'Sideways'");
  expect("/model/vocab/!", -1, bad, "model.vocab['!'] is not an id");
  expect("/model/vocab/!", 4'000'000'000, bad, "model.vocab['!'] is not an id");
  expect("/model/vocab/!", 6, bad, "has the id 6");
  expect("/model/merges/3", {"nothing", "t"}, bad, "model.merges[3]: 'nothing'");
  expect("/model/merges/3", {"a"}, bad, "model.merges[3] is not a pair");
  expect("/model/unk_token", "nothing", bad, "model.unk_token 'nothing'");
  expect("/added_tokens/1/content", 7, bad, "added_tokens[1].content is a number");
  expect("/added_tokens/1/content", std::string(5000, 'x'), bad, "added_tokens[1]");
  expect("/model", "x", bad, "model is a string");
  json around = json::parse(read_golden("tokenizer/llama3/tokenizer.json"))["post_processor"];
  around["processors"][1]["special_tokens"]["<|begin|>"]["ids"] = json::array({600});
  expect("/post_processor", around, bad, "the id 600");
  expect("/model/vocab", nullptr, bad, "model.vocab is missing");
}

TEST(Tokenizer, SaysWhereTheJsonIsBroken) {
  EXPECT_THAT(status_of("{\"model\":\n {\"type\": }").message(),
              AllOf(HasSubstr("not JSON"), HasSubstr("line 2, column 11")));
  EXPECT_FALSE(status_of("").ok());
  EXPECT_FALSE(status_of("[]").ok());
  EXPECT_FALSE(status_of(std::string(100'000, '[')).ok());
  std::string whole = read_golden("models/llama/tokenizer.json");
  for (size_t length = 0; length < whole.size(); length += 97) {
    EXPECT_EQ(status_of(whole.substr(0, length)).code(), Code::kInvalidArgument) << length;
  }
}

}  // namespace
}  // namespace deltad

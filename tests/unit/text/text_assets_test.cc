// TextAssets: which file says what, and what a variant takes from its base.
#include "text/text_assets.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "io/gguf.h"
#include "tests/support/golden_lines.h"

namespace deltad {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Files = std::map<std::string, std::string>;
using Assets = std::shared_ptr<const TextAssets>;

Result<Assets> load(const Files& files, const TextAssets* base = nullptr) {
  return load_text_assets(
      [&](const std::string& name) {
        auto found = files.find(name);
        return found == files.end() ? "" : found->second;
      },
      base);
}

Assets must(Result<Assets> assets) {
  EXPECT_TRUE(assets.ok()) << assets.status().message();
  return assets.ok() ? *assets : nullptr;
}

Files llama() {
  Files files;
  for (std::string name :
       {"tokenizer.json", "tokenizer_config.json", "generation_config.json", "config.json"}) {
    files[name] = read_golden("models/llama/" + name);
  }
  return files;
}

std::string rendered(const TextAssets& assets) {
  using nlohmann::ordered_json;
  const ordered_json message = {{"role", "user"}, {"content", "Hi"}};
  auto text = assets.chat_template->render(
      {{"messages", ordered_json::array({message})}, {"add_generation_prompt", true}}, 0);
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? *text : "";
}

// What transformers writes for a tokenizer without a limit of its own.
TEST(TextAssets, IntegersBeyond64Bits) {
  Files files = llama();
  std::string& settings = files["tokenizer_config.json"];
  ASSERT_EQ(settings.front(), '{');
  settings.insert(
      1, R"("model_max_length": 1000000000000000019884624838656, "least":-99999999999999999999,
                        "text": "\"123456789012345678901234567890", "fraction": 1.0000000000000000000001e-3,)");
  EXPECT_EQ(must(load(files))->eos_token, "<|end|>");
  settings.insert(1, R"("bad": 10000000000000000000000x, )");
  EXPECT_THAT(load(files).status().message(), HasSubstr("not JSON at line 1"));
}

const std::string kRendered = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";

TEST(TextAssets, FromAFolder) {
  Assets assets = must(load(llama()));
  EXPECT_EQ(assets->tokenizer->vocab_size(), 512);
  EXPECT_EQ(assets->bos_token, "<|begin|>");
  EXPECT_EQ(assets->eos_token, "<|end|>");
  EXPECT_THAT(assets->eos_ids, ElementsAre(2));
  EXPECT_EQ(rendered(*assets), kRendered);
  EXPECT_EQ(assets->defaults.temperature, 0.6);
  EXPECT_EQ(assets->defaults.top_p, 0.9);
  EXPECT_EQ(assets->defaults.top_k, std::nullopt);
}

TEST(TextAssets, FromAGguf) {
  auto gguf = GgufFile::open(DELTAD_GOLDEN "/gguf/llama-bf16.gguf");
  ASSERT_TRUE(gguf.ok()) << gguf.status().message();
  Assets assets = must(load_text_assets(**gguf));
  EXPECT_EQ(assets->tokenizer->vocab_size(), 512);
  EXPECT_EQ(assets->bos_token, "<|begin|>");
  EXPECT_EQ(assets->eos_token, "<|end|>");
  EXPECT_THAT(assets->eos_ids, ElementsAre(2));
  EXPECT_EQ(rendered(*assets), kRendered);
  EXPECT_EQ(assets->chat_template_source, must(load(llama()))->chat_template_source);
}

TEST(TextAssets, ATemplateFileWins) {
  Files files = llama();
  files["chat_template.jinja"] = "{{ messages[0].content }}!";
  EXPECT_EQ(rendered(*must(load(files))), "Hi!");
}

TEST(TextAssets, TheDefaultOfSeveralTemplatesHolds) {
  Files files = llama();
  json config = json::parse(files["tokenizer_config.json"]);
  json other = {{"name", "tool_use"}, {"template", "tools"}};
  config["chat_template"] = {other, {{"name", "default"}, {"template", "plain"}}};
  files["tokenizer_config.json"] = config.dump();
  EXPECT_EQ(rendered(*must(load(files))), "plain");
  config["chat_template"] = json::array({other});
  files["tokenizer_config.json"] = config.dump();
  EXPECT_THAT(load(files).status().message(),
              AllOf(HasSubstr("tokenizer_config.json: chat_template"), HasSubstr("default")));
}

TEST(TextAssets, AModelMayHaveNoTemplateAndNoTokens) {
  Files files = {{"tokenizer.json", llama()["tokenizer.json"]}};
  Assets assets = must(load(files));
  EXPECT_EQ(assets->chat_template, nullptr);
  EXPECT_EQ(assets->bos_token, "");
  EXPECT_THAT(assets->eos_ids, ElementsAre());
  EXPECT_EQ(load({}).status().code(), Code::kNotFound);
}

TEST(TextAssets, TokensMayBeObjects) {
  Files files = llama();
  json config = json::parse(files["tokenizer_config.json"]);
  config["bos_token"] = nullptr;
  config["eos_token"] = {{"content", "<|im_end|>"}, {"lstrip", false}};
  files["tokenizer_config.json"] = config.dump();
  Assets assets = must(load(files));
  EXPECT_EQ(assets->bos_token, "");
  EXPECT_EQ(assets->eos_token, "<|im_end|>");
  EXPECT_THAT(assets->eos_ids, ElementsAre(2, 4));  // generation_config.json's, and this one
}

TEST(TextAssets, EndsOfGeneration) {
  Files files = llama();
  files["generation_config.json"] = R"({"eos_token_id": [4, 3], "top_k": -1, "min_p": 0.1})";
  Assets assets = must(load(files));
  EXPECT_THAT(assets->eos_ids, ElementsAre(4, 3, 2));  // the last is eos_token
  EXPECT_EQ(assets->defaults.top_k, 0);
  EXPECT_EQ(assets->defaults.min_p, 0.1);
  EXPECT_EQ(assets->defaults.temperature, std::nullopt);
  files["generation_config.json"] = "{}";
  files["config.json"] = R"({"eos_token_id": 3})";
  EXPECT_THAT(must(load(files))->eos_ids, ElementsAre(3, 2));
}

TEST(TextAssets, AVariantTakesWhatItLacksFromTheBase) {
  Assets base = must(load(llama()));
  Assets same = must(load({}, base.get()));
  EXPECT_EQ(same->tokenizer, base->tokenizer);
  EXPECT_EQ(same->chat_template, base->chat_template);
  EXPECT_EQ(same->chat_template_source, base->chat_template_source);
  EXPECT_EQ(same->eos_token, "<|end|>");
  EXPECT_THAT(same->eos_ids, ElementsAre(2));
  EXPECT_EQ(same->defaults.temperature, 0.6);

  Assets other = must(load({{"chat_template.jinja", "own"},
                            {"tokenizer_config.json", R"({"eos_token": "<|im_end|>"})"},
                            {"generation_config.json", R"({"eos_token_id": 4})"}},
                           base.get()));
  EXPECT_EQ(rendered(*other), "own");
  EXPECT_EQ(other->bos_token, "<|begin|>");
  EXPECT_EQ(other->eos_token, "<|im_end|>");
  EXPECT_THAT(other->eos_ids, ElementsAre(4));
  EXPECT_EQ(other->defaults.temperature, std::nullopt);  // its file holds as a whole

  // A config without a template does not take the base's away.
  Assets config = must(load({{"tokenizer_config.json", "{}"}}, base.get()));
  EXPECT_EQ(rendered(*config), kRendered);
}

TEST(TextAssets, EndsKeepTheirTextWhereTheVocabularyMoves) {
  Assets base = must(load(llama()));
  json tokenizer = json::parse(llama()["tokenizer.json"]);
  // "<|end|>" moves from 2 to behind all others.
  tokenizer["model"]["vocab"]["filler"] = 2;
  tokenizer["model"]["vocab"].erase("<|end|>");
  Assets moved = must(load({{"tokenizer.json", tokenizer.dump()}}, base.get()));
  EXPECT_EQ(moved->eos_token, "<|end|>");
  int32_t id = moved->tokenizer->token_id("<|end|>");
  EXPECT_NE(id, 2);
  EXPECT_THAT(moved->eos_ids, ElementsAre(id));
}

TEST(TextAssets, ErrorsNameFileAndKey) {
  auto expect = [](const std::string& name, const std::string& content, const std::string& part) {
    Files files = llama();
    files[name] = content;
    Status status = load(files).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << content;
    EXPECT_THAT(status.message(), AllOf(HasSubstr(name), HasSubstr(part))) << content;
  };
  expect("tokenizer.json", "{", "not JSON");
  expect("tokenizer.json", "{}", "model is missing");
  expect("tokenizer_config.json", "[]", "an array, an object was expected");
  expect("tokenizer_config.json", R"({"bos_token": 3})", "bos_token");
  expect("tokenizer_config.json", R"({"eos_token": {"text": "x"}})", "eos_token.content");
  expect("tokenizer_config.json", R"({"chat_template": 3})", "chat_template is a number");
  expect("tokenizer_config.json", R"({"chat_template": "{% if %}"})", "chat_template: line 1");
  expect("tokenizer_config.json", R"({"chat_template": [{"name": 1}]})", "chat_template[0].name");
  expect("chat_template.jinja", "one\n{{ }", "line 2");
  expect("generation_config.json", R"({"eos_token_id": "2"})", "eos_token_id is a string");
  expect("generation_config.json", R"({"eos_token_id": [1, -5]})", "eos_token_id[1] is -5");
  expect("generation_config.json", R"({"temperature": -1})", "temperature is -1");
  expect("generation_config.json", R"({"temperature": "hot"})", "temperature is a string");
  expect("generation_config.json", R"({"top_p": 1.5})", "top_p is 1.5");
  expect("generation_config.json", R"({"top_k": 0.5})", "top_k");
  expect("generation_config.json", R"({"repetition_penalty": 0})", "repetition_penalty is 0");
}

}  // namespace
}  // namespace deltad

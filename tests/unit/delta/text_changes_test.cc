// Which text files of a fine-tune go with its variant, and where compress puts them.
#include "delta/text_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "delta/tokenizer_difference.h"
#include "delta/variant_output.h"
#include "delta/variant_path.h"
#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TempFolder;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string golden(const std::string& path) { return DELTAD_GOLDEN "/" + path; }

class TextChangesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    tuned_ = folder_.file("tuned");
    fs::copy(golden("models/llama"), tuned_);
  }
  void edit(const std::string& name, const std::function<void(Json*)>& change) {
    Json json = Json::parse(testing::slurp(tuned_ + "/" + name));
    change(&json);
    folder_.write("tuned/" + name, json.dump(1));
  }
  std::vector<std::string> changes(const std::string& base = "models/llama") {
    auto checkpoint = Checkpoint::open(golden(base));
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    auto tune = open_tuned_model(**checkpoint, tuned_);
    EXPECT_TRUE(tune.ok()) << tune.status().message();
    auto found = text_changes(**checkpoint, **tune);
    EXPECT_TRUE(found.ok()) << found.status().message();
    std::vector<std::string> names;
    if (!found.ok()) return names;
    for (const TextChange& change : *found) {
      names.push_back(change.name);
      content_[change.name] = change.content;
      EXPECT_FALSE(change.reason.empty());
    }
    return names;
  }

  TempFolder folder_;
  std::string tuned_;
  std::map<std::string, std::string> content_;
};

TEST_F(TextChangesTest, SameFilesAreNoChange) { EXPECT_THAT(changes(), IsEmpty()); }

TEST_F(TextChangesTest, OtherSpellingIsNoChange) {
  edit("tokenizer.json", [](Json* json) {
    Json merges = Json::array();
    for (const auto& merge : (*json)["model"]["merges"]) {
      if (!merge.is_string()) return;
      const std::string pair = merge.get<std::string>();
      merges.push_back({pair.substr(0, pair.find(' ')), pair.substr(pair.find(' ') + 1)});
    }
    (*json)["model"]["merges"] = merges;
  });
  edit("generation_config.json", [](Json* json) { (*json)["transformers_version"] = "9.9"; });
  edit("tokenizer_config.json", [](Json* json) { (*json)["is_local"] = true; });
  EXPECT_THAT(changes(), IsEmpty());
}

TEST_F(TextChangesTest, AGgufBaseWithTheSameTokenizerIsNoChange) {
  fs::remove(tuned_ + "/generation_config.json");  // a GGUF has no sampling settings
  EXPECT_THAT(changes("gguf/llama-bf16.gguf"), IsEmpty());
}

TEST_F(TextChangesTest, OtherTemplate) {
  edit("tokenizer_config.json", [](Json* json) { (*json)["chat_template"] = "{{ 'other' }}"; });
  EXPECT_THAT(changes(), ElementsAre("tokenizer_config.json"));
  EXPECT_THAT(changes("gguf/llama-bf16.gguf"),
              ElementsAre("tokenizer_config.json", "generation_config.json"));
  folder_.write("tuned/chat_template.jinja", "{{ 'another' }}");
  EXPECT_THAT(changes(), ElementsAre("chat_template.jinja"));
  EXPECT_EQ(content_["chat_template.jinja"], "{{ 'another' }}");
}

TEST_F(TextChangesTest, OtherSpecialToken) {
  edit("tokenizer_config.json", [](Json* json) { (*json)["bos_token"] = "<|im_start|>"; });
  EXPECT_THAT(changes(), ElementsAre("tokenizer_config.json"));
}

TEST_F(TextChangesTest, MoreTokens) {
  edit("tokenizer.json", [](Json* json) {
    (*json)["added_tokens"].push_back({{"id", 512},
                                       {"content", "<|x|>"},
                                       {"single_word", false},
                                       {"lstrip", false},
                                       {"rstrip", false},
                                       {"normalized", false},
                                       {"special", true}});
  });
  EXPECT_THAT(changes(), ElementsAre("tokenizer.json"));
}

TEST_F(TextChangesTest, OtherMergesAndOtherPreTokenizer) {
  edit("tokenizer.json", [](Json* json) {
    Json& merges = (*json)["model"]["merges"];
    std::swap(merges[0], merges[1]);
  });
  EXPECT_THAT(changes(), ElementsAre("tokenizer.json"));
  fs::copy_file(golden("models/llama/tokenizer.json"), tuned_ + "/tokenizer.json",
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(changes(), IsEmpty());
  edit("tokenizer.json", [](Json* json) {
    const Json before = (*json)["pre_tokenizer"];
    (*json)["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, before}}};
  });
  EXPECT_THAT(changes(), ElementsAre("tokenizer.json"));
}

TEST_F(TextChangesTest, OtherGenerationSettings) {
  edit("generation_config.json", [](Json* json) { (*json)["temperature"] = 0.7; });
  EXPECT_THAT(changes(), ElementsAre("generation_config.json"));
  edit("generation_config.json", [](Json* json) { (*json)["eos_token_id"] = {2, 4}; });
  EXPECT_THAT(changes(), ElementsAre("generation_config.json"));
}

TEST_F(TextChangesTest, EndTokensThatOnlyTheConfigSays) {
  fs::remove(tuned_ + "/generation_config.json");
  EXPECT_THAT(changes(), IsEmpty());
  edit("config.json", [](Json* json) { (*json)["eos_token_id"] = 4; });
  EXPECT_THAT(changes(), ElementsAre("generation_config.json"));
  EXPECT_EQ(Json::parse(content_["generation_config.json"])["eos_token_id"], Json({2, 4}));
}

TEST(VariantOutput, FileOrFolder) {
  TempFolder folder;
  const VariantOutput file = variant_output(folder.file("sql.delta.safetensors"), "");
  EXPECT_FALSE(file.is_folder);
  EXPECT_EQ(file.name, "sql");
  EXPECT_EQ(file.file, folder.file("sql.delta.safetensors"));
  const VariantOutput made = variant_output(folder.file("sql/"), "");
  EXPECT_TRUE(made.is_folder);
  EXPECT_EQ(made.name, "sql");
  EXPECT_EQ(fs::path(made.file).filename(), "sql.delta.safetensors");
  EXPECT_EQ(variant_output(folder.file("x"), "named").name, "named");
}

TEST(VariantOutput, ASingleFileCannotHoldTextFiles) {
  TempFolder folder;
  const std::vector<TextChange> changes = {{"tokenizer.json", "{}", "token 5 is 'x'"}};
  const VariantOutput file = variant_output(folder.file("sql.delta.safetensors"), "");
  EXPECT_TRUE(check_output(file, {}).ok());
  const Status status = check_output(file, changes);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), ::testing::AllOf(HasSubstr("tokenizer.json: token 5 is 'x'"),
                                                 HasSubstr("--weights-only")));
}

TEST(VariantOutput, WhatCannotBeWrittenIsKnownBeforeTheWork) {
  TempFolder folder;
  folder.write("file", "");
  for (const char* path :
       {"missing/sql.delta.safetensors", "file/sql.delta.safetensors", "file/a/sql"}) {
    const Status status = check_output(variant_output(folder.file(path), ""), {});
    EXPECT_EQ(status.code(), Code::kNotFound) << path;
    EXPECT_THAT(status.message(), HasSubstr("cannot write " + folder.file("")));
  }
  EXPECT_TRUE(check_output(variant_output(folder.file("a/b/sql"), ""), {}).ok());
  EXPECT_EQ(folder.count(), 1) << "the check left something";
}

TEST(VariantOutput, FoldersAreNotMixed) {
  TempFolder folder;
  const std::vector<TextChange> changes = {{"tokenizer.json", "new", "differs"}};
  const VariantOutput output = variant_output(folder.file("sql"), "");
  EXPECT_TRUE(check_output(output, changes).ok());
  ASSERT_TRUE(write_text_changes(output, changes).ok());
  EXPECT_EQ(testing::slurp(folder.file("sql/tokenizer.json")), "new");
  folder.write("sql/sql.delta.safetensors", "");
  EXPECT_TRUE(check_output(output, changes).ok());  // the same again
  EXPECT_THAT(check_output(output, {}).message(), HasSubstr("already holds a tokenizer.json"));
  folder.write("sql/other.delta.safetensors", "");
  EXPECT_THAT(check_output(output, changes).message(), HasSubstr("another variant"));
  EXPECT_EQ(variant_text_file(folder.file("sql"), "tokenizer.json").value(), "new");
  EXPECT_EQ(variant_text_file(folder.file("sql"), "chat_template.jinja").value(), "");
  EXPECT_EQ(variant_text_file(folder.file("sql/sql.delta.safetensors"), "tokenizer.json").value(),
            "");
}

}  // namespace
}  // namespace deltad

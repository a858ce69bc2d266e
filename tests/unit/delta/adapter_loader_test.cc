// Loading LoRA adapters as they are: what is handed to the backend, what is refused, and what their
// digest is of. Their arithmetic: tests/contract/golden_model_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "backend/backend.h"
#include "delta/loader.h"
#include "delta/variant_path.h"
#include "model/checkpoint.h"
#include "raw_file.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

using ::testing::AllOf;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::RawFile;
using testing::TempFolder;
using Json = nlohmann::ordered_json;

class AdapterLoaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto base = Checkpoint::open(golden("models/llama"));
    ASSERT_TRUE(base.ok());
    table_ = make_weight_table((*base)->config());
    CpuBackendOptions options;
    options.threads = 1;
    options.pin = false;
    backend_ = std::move(*make_cpu_backend(options));
    ASSERT_TRUE(load_base(**base, table_, *backend_, 1, nullptr).ok());
    raw_ = testing::read_raw(golden("lora/plain/adapter_model.safetensors"));
    config_ = Json::parse(testing::slurp(golden("lora/plain/adapter_config.json")));
  }
  static std::string golden(const std::string& name) { return DELTAD_GOLDEN "/" + name; }
  Result<VariantRef> load(const std::string& path) {
    return load_variant("v", path, table_, *backend_, options_);
  }
  // Of the folder with raw_ and config_.
  Result<VariantRef> load_changed() {
    folder_.write(kAdapterConfig, config_.dump());
    testing::write_raw(folder_.file(kAdapterWeights), raw_);
    return load(folder_.path());
  }
  std::string refusal() {
    const auto variant = load_changed();
    return variant.ok() ? "it was loaded" : variant.status().message();
  }

  TempFolder folder_;
  WeightTable table_;
  std::unique_ptr<Backend> backend_;
  VariantLoadOptions options_;
  RawFile raw_;
  Json config_;
};

constexpr const char* kFirst = "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight";

TEST_F(AdapterLoaderTest, TheDigestIsOfTensorsAndScales) {
  const auto first = load_changed(), original = load(golden("lora/plain"));
  ASSERT_TRUE(first.ok()) << first.status().message();
  ASSERT_TRUE(original.ok());
  EXPECT_EQ((*first)->digest.size(), 32u);
  EXPECT_EQ((*first)->digest, (*original)->digest);
  EXPECT_EQ((*first)->vocab, 512);
  const auto measured = measure_variant(folder_.path(), table_, *backend_, options_);
  ASSERT_TRUE(measured.ok());
  EXPECT_EQ(measured->bytes, static_cast<int64_t>((*first)->bytes));
  EXPECT_EQ(measured->digest, "");  // nothing in the folder claims one
  EXPECT_TRUE(verify_variant(folder_.path(), table_, options_).ok());

  config_["lora_dropout"] = 0.5;  // says nothing about what is computed
  EXPECT_EQ((*load_changed())->digest, (*first)->digest);
  config_["lora_alpha"] = 9;
  const auto scaled = load_changed();
  ASSERT_TRUE(scaled.ok());
  EXPECT_NE((*scaled)->digest, (*first)->digest);
  config_["lora_alpha"] = 8;
  raw_.tensors.at(kFirst).bytes[0] ^= 1;
  const auto changed = load_changed();
  ASSERT_TRUE(changed.ok());
  EXPECT_NE((*changed)->digest, (*first)->digest);
}

TEST_F(AdapterLoaderTest, RefusesValuesThatAreNotFinite) {
  auto& tensor = raw_.tensors.at(kFirst);
  const uint16_t nan = 0x7fc0;
  std::memcpy(tensor.bytes.data() + tensor.bytes.size() - 2, &nan, 2);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("down_proj.lora_A"), HasSubstr("a value is nan")));
  EXPECT_THAT(verify_variant(folder_.path(), table_, options_).status().message(),
              HasSubstr("nan"));
  const uint16_t infinite = 0xff80;
  std::memcpy(tensor.bytes.data() + tensor.bytes.size() - 2, &infinite, 2);
  EXPECT_THAT(refusal(), HasSubstr("a value is -inf"));
}

TEST_F(AdapterLoaderTest, RefusesWhatDoesNotFit) {
  const auto with = [&](const char* key, const Json& value) {
    const Json kept = config_;
    config_[key] = value;
    const std::string message = refusal();
    config_ = kept;
    return message;
  };
  EXPECT_THAT(with("use_dora", true), HasSubstr("use_dora is true"));
  EXPECT_THAT(with("bias", "all"), HasSubstr("bias is \"all\""));
  EXPECT_THAT(with("r", 8), HasSubstr("its shape is [4, 160], expected [8, 160]"));
  EXPECT_THAT(with("r", 50000), HasSubstr("its rank is 50000, expected 1 to 1024"));
  EXPECT_THAT(with("lora_alpha", 1e300), HasSubstr("its scale is"));
  EXPECT_THAT(with("target_modules", Json{"q_proj"}), HasSubstr("does not name its module"));
  raw_.tensors["base_model.model.model.layers.7.mlp.up_proj.lora_A.weight"] =
      raw_.tensors.at(kFirst);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("belong to no module"), HasSubstr("layers.7")));
  EXPECT_THAT(measure_variant(folder_.path(), table_, *backend_, options_).status().message(),
              HasSubstr("belong to no module"));
}

TEST_F(AdapterLoaderTest, StaysWithinWhatWasSetAside) {
  const auto size = measure_variant(golden("lora/plain"), table_, *backend_, options_);
  ASSERT_TRUE(size.ok());
  options_.max_bytes = static_cast<size_t>(size->bytes);
  EXPECT_TRUE(load(golden("lora/plain")).ok());
  options_.max_bytes -= 1;
  EXPECT_EQ(load(golden("lora/plain")).status().code(), Code::kResourceExhausted);
  options_.max_bytes = 0;
  std::atomic<bool> cancelled{true};
  options_.cancelled = &cancelled;
  EXPECT_EQ(load(golden("lora/plain")).status().code(), Code::kCancelled);
}

TEST_F(AdapterLoaderTest, FoldersThatAreIncomplete) {
  folder_.write(kAdapterConfig, config_.dump());
  EXPECT_EQ(load(folder_.path()).status().code(), Code::kNotFound);
  EXPECT_THAT(find_variant_file(folder_.path()).status().message(),
              HasSubstr("without adapter_model.safetensors"));
  folder_.write(kAdapterWeights, "no tensors");
  EXPECT_THAT(load(folder_.path()).status().message(), HasSubstr("adapter_model.safetensors"));
  EXPECT_TRUE(is_adapter(folder_.path()));
  EXPECT_TRUE(is_adapter(golden("lora/plain.gguf")));
  EXPECT_FALSE(is_adapter(golden("lora/none.gguf")));
  EXPECT_FALSE(is_adapter(golden("models/llama")));
  EXPECT_EQ(variant_name_of("a/plain.gguf"), "plain");
  EXPECT_EQ(*tune_form(folder_.path()), TuneForm::kAdapter);
  EXPECT_EQ(*tune_form(golden("lora/plain.gguf")), TuneForm::kAdapter);
  EXPECT_EQ(*tune_form(golden("gguf/llama-q8_0.gguf")), TuneForm::kModel);
  EXPECT_EQ(*tune_form(golden("models/llama")), TuneForm::kModel);
  EXPECT_EQ(*tune_form(golden("variants/llama/llama-row-1.delta.safetensors")), TuneForm::kVariant);
  EXPECT_EQ(tune_form(golden("lora/none.gguf")).status().code(), Code::kNotFound);
  folder_.write("v.delta.safetensors", "");  // with a variant file in it, it is that
  EXPECT_EQ(*tune_form(folder_.path()), TuneForm::kVariant);
}

class GgufAdapterTest : public AdapterLoaderTest {
 protected:
  void SetUp() override {
    AdapterLoaderTest::SetUp();
    writer_.string("general.type", "adapter");
    writer_.string("general.architecture", "llama");
    writer_.string("adapter.type", "lora");
    writer_.f32("adapter.lora.alpha", 8);
    add("blk.1.ffn_up.weight", 64, 160, 2);
  }
  void add(const std::string& name, uint64_t inputs, uint64_t outputs, uint64_t rank) {
    writer_.tensor(name + ".lora_a", {inputs, rank}, 0, std::string(inputs * rank * 4, 0));
    writer_.tensor(name + ".lora_b", {rank, outputs}, 0, std::string(outputs * rank * 4, 0));
  }
  std::string refusal() {
    folder_.write("a.gguf", writer_.bytes());
    const auto variant = load(folder_.file("a.gguf"));
    return variant.ok() ? "it was loaded" : variant.status().message();
  }
  GgufWriter writer_;
};

TEST_F(GgufAdapterTest, RefusesWhatIsNoLoraOfThisBase) {
  EXPECT_EQ(refusal(), "it was loaded");
  writer_.string("general.type", "model");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("general.type"), HasSubstr("'adapter'")));
  writer_.string("general.type", "adapter");
  writer_.string("general.architecture", "gemma");
  EXPECT_THAT(refusal(), HasSubstr("general.architecture"));
  writer_.string("general.architecture", "llama");
  writer_.remove("adapter.lora.alpha");
  EXPECT_THAT(refusal(), HasSubstr("adapter.lora.alpha"));
  writer_.f32("adapter.lora.alpha", INFINITY);
  EXPECT_THAT(refusal(), HasSubstr("its scale is inf"));
  writer_.f32("adapter.lora.alpha", 8);
  writer_.remove("blk.1.ffn_up.weight.lora_b");
  EXPECT_THAT(refusal(), HasSubstr("other factor"));
}

TEST_F(GgufAdapterTest, RefusesMatricesThatDoNotFit) {
  add("blk.1.ffn_gate.weight", 64, 150, 2);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("ffn_gate.weight.lora_b"), HasSubstr("[160, 2]")));
}

TEST_F(GgufAdapterTest, RefusesTensorsOfNoModule) {
  add("blk.9.ffn_up.weight", 64, 160, 2);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("blk.9"), HasSubstr("belongs to no module")));
}

TEST_F(GgufAdapterTest, RefusesFactorsOfTheEmbeddings) {
  add("token_embd.weight", 64, 512, 2);
  EXPECT_THAT(refusal(), HasSubstr("PEFT folders only"));
}

}  // namespace
}  // namespace deltad

// Whole models against references computed by other implementations (tests/golden/README.md):
// logits, hidden states and greedy tokens of tiny models in every form they are read in, and of
// their variant files, on every instruction set that this machine has.
#include <gtest/gtest.h>

#include <map>

#include "base/cpu_features.h"
#include "delta/loader.h"
#include "engine/base_model.h"
#include "engine/direct_runner.h"
#include "tensor/float16.h"
#include "tests/support/golden_gguf.h"
#include "tests/support/golden_reference.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/delta/raw_file.h"

namespace deltad {
namespace {

using testing::largest_difference;
using testing::read_ids;
using testing::read_tensor;

const std::string kGolden = DELTAD_GOLDEN;

std::vector<std::string> instruction_sets() {
  std::vector<std::string> out;
  for (Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16})
    if (isa <= best_isa()) out.push_back(isa_name(isa));
  return out;
}

std::unique_ptr<BaseModel> load(const std::string& path, const std::string& isa) {
  CpuBackendOptions options;
  options.isa = isa;
  options.threads = 2;
  options.pin = false;
  auto model = load_base_model(path, options, nullptr);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? std::move(*model) : nullptr;
}

struct Tolerance {
  float logits;  // twice what a run with bf16 activations is off by (the references' own README)
  float margin;  // greedy tokens are compared up to the first step whose margin is below this
};

// Returns how many steps were compared.
size_t check_greedy(DirectRunner& runner, const SafetensorsFile& reference,
                    const std::string& prefix, const std::vector<int32_t>& prompt, float margin) {
  const std::vector<int32_t> expected = read_ids(reference, prefix + "greedy_ids");
  const std::vector<float> margins = read_tensor<float>(reference, prefix + "greedy_margins");
  runner.reset();
  auto logits = runner.append(0, prompt, false);
  size_t compared = 0;
  for (size_t i = 0; i < expected.size() && margins[i] >= margin; ++i, ++compared) {
    EXPECT_TRUE(logits.ok());
    if (!logits.ok()) break;
    const int32_t token = greedy_token(*logits, 0);
    EXPECT_EQ(token, expected[i]) << prefix << " step " << i << ", margin " << margins[i];
    if (token != expected[i]) break;
    logits = runner.step(std::vector<int32_t>{token});
  }
  return compared;
}

// One prompt of a reference: all logits, in chunks of odd size, then the greedy continuation.
void check_prompt(const BaseModel& model, const VariantRef& variant,
                  const SafetensorsFile& reference, const std::string& ids_name,
                  const std::string& prefix, const Tolerance& tolerance) {
  const std::vector<int32_t> prompt = read_ids(reference, ids_name);
  const std::vector<float> expected = read_tensor<float>(reference, prefix + "logits");
  const int64_t vocab = static_cast<int64_t>(expected.size() / prompt.size());
  auto runner = DirectRunner::make(model.config(), model.table, *model.backend, {variant},
                                   static_cast<int64_t>(prompt.size()) + 32, 64);
  ASSERT_TRUE(runner.ok());
  float worst = 0;
  for (size_t at = 0; at < prompt.size(); at += 7) {
    const size_t n = std::min<size_t>(7, prompt.size() - at);
    const auto logits = (*runner)->append(0, std::span(prompt).subspan(at, n), true);
    ASSERT_TRUE(logits.ok());
    ASSERT_EQ(logits->vocab[0], vocab);
    const std::vector<float> part(expected.begin() + static_cast<int64_t>(at) * vocab,
                                  expected.begin() + static_cast<int64_t>(at + n) * vocab);
    worst = std::max(worst, largest_difference(logits->values, part, vocab));
  }
  EXPECT_LE(worst, tolerance.logits) << prefix;
  std::printf("    %-24s off by %.4f (allowed %.4f)\n", (prefix + "logits").c_str(), worst,
              tolerance.logits);
  const size_t compared = check_greedy(**runner, reference, prefix, prompt, tolerance.margin);
  // The short prompts of a batch may begin with a close call.
  if (ids_name == "input_ids") {
    EXPECT_GT(compared, 0u);
  }
}

class Golden : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Isa, Golden, ::testing::ValuesIn(instruction_sets()),
                         [](const auto& info) { return info.param; });

TEST_P(Golden, ModelFolders) {
  const std::map<std::string, Tolerance> models = {
      {"llama", {0.252f, 0.1f}}, {"awkward", {0.21f, 0.1f}}, {"llama_f16", {0.25f, 0.1f}}};
  for (const auto& [name, tolerance] : models) {
    SCOPED_TRACE(name);
    const std::string folder = kGolden + "/models/" + name;
    const auto model = load(folder, GetParam());
    ASSERT_NE(model, nullptr);
    const auto reference = SafetensorsFile::open(folder + "/reference.safetensors");
    ASSERT_TRUE(reference.ok());
    check_prompt(*model, nullptr, *reference, "input_ids", "", tolerance);
    if (name == "llama_f16") continue;  // llama in another type: one prompt shows it
    for (const char* batch : {"batch.0.", "batch.1.", "batch.2."})
      check_prompt(*model, nullptr, *reference, batch + std::string("input_ids"), batch, tolerance);
  }
}

TEST_P(Golden, HiddenStates) {
  const std::map<std::string, float> models = {{"llama", 0.252f}, {"awkward", 0.21f}};
  for (const auto& item : models) {
    const std::string& name = item.first;
    const float tolerance = item.second;
    SCOPED_TRACE(name);
    const std::string folder = kGolden + "/models/" + name;
    const auto model = load(folder, GetParam());
    ASSERT_NE(model, nullptr);
    const auto reference = SafetensorsFile::open(folder + "/reference.safetensors");
    ASSERT_TRUE(reference.ok());
    const std::vector<int32_t> prompt = read_ids(*reference, "input_ids");
    const int64_t layers = model->config().layers, hidden = model->config().hidden;
    auto runner =
        DirectRunner::make(model->config(), model->table, *model->backend, {nullptr}, 64, 64);
    ASSERT_TRUE(runner.ok());
    int seen = 0;
    const Transformer::Observer observer = [&](int index, TensorView values) {
      const std::string tensor = index < 0         ? "hidden.embed"
                                 : index == layers ? "hidden.norm"
                                                   : "hidden.layer." + std::to_string(index);
      EXPECT_LE(largest_difference(values, read_tensor<float>(*reference, tensor), hidden),
                tolerance)
          << tensor;
      ++seen;
    };
    ASSERT_TRUE((*runner)->append(0, prompt, false, &observer).ok());
    EXPECT_EQ(seen, layers + 2);
  }
}

TEST_P(Golden, GgufFiles) {
  for (const char* type : {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1"}) {
    SCOPED_TRACE(type);
    const auto model = load(testing::golden_gguf(type), GetParam());
    ASSERT_NE(model, nullptr);
    const std::string values = type == std::string("bf16") ? "f32" : type;  // the same values
    const auto reference =
        SafetensorsFile::open(kGolden + "/gguf/llama-" + values + ".reference.safetensors");
    ASSERT_TRUE(reference.ok());
    check_prompt(*model, nullptr, *reference, "input_ids", "", {0.252f, 0.1f});
  }
}

struct VariantCase {
  const char* variant;
  const char* base;
  const char* kind;
  float bf16_max;
};

TEST_P(Golden, VariantFiles) {
  const VariantCase cases[] = {
      {"awkward", "awkward", "matrix-1", 0.120f}, {"awkward", "awkward", "matrix-2", 0.106f},
      {"awkward", "awkward", "row-1", 0.115f},    {"awkward", "awkward", "row-2", 0.130f},
      {"llama", "llama", "matrix-1", 0.106f},     {"llama", "llama", "matrix-2", 0.114f},
      {"llama", "llama", "row-1", 0.111f},        {"llama", "llama", "row-2", 0.115f},
      {"llama_vocab", "llama", "row-1", 0.114f},  {"llama_vocab", "llama", "matrix-2", 0.145f},
  };
  std::map<std::string, std::unique_ptr<BaseModel>> bases;
  for (const VariantCase& c : cases) {
    SCOPED_TRACE(std::string(c.variant) + " " + c.kind);
    auto& base = bases[c.base];
    if (!base) base = load(kGolden + "/models/" + c.base, GetParam());
    ASSERT_NE(base, nullptr);
    const std::string folder = kGolden + "/variants/" + c.variant;
    VariantLoadOptions options;
    options.base_digest = base->digest;
    options.architecture = base->config().architecture;
    const auto variant =
        load_variant(c.variant, folder + "/" + c.variant + "-" + c.kind + ".delta.safetensors",
                     base->table, *base->backend, options);
    ASSERT_TRUE(variant.ok()) << variant.status().message();
    const auto reference = SafetensorsFile::open(folder + "/reference.safetensors");
    ASSERT_TRUE(reference.ok());
    check_prompt(*base, *variant, *reference, "input_ids", c.kind + std::string("."),
                 {2 * c.bf16_max, 0.1f});
  }
}

// LoRA adapters as they are against PEFT's logits (tests/golden/make/lora.py), one for each thing
// that an adapter may say.
TEST_P(Golden, LoraAdapters) {
  const std::pair<const char*, const char*> adapters[] = {
      {"plain", "llama"},    {"scales", "llama"},   {"regex", "llama"},     {"saved", "llama"},
      {"layers", "awkward"}, {"tables", "awkward"}, {"plain.gguf", "llama"}};
  std::map<std::string, std::unique_ptr<BaseModel>> bases;
  for (const auto& [name, base_name] : adapters) {
    SCOPED_TRACE(name);
    auto& base = bases[base_name];
    if (!base) base = load(kGolden + "/models/" + base_name, GetParam());
    ASSERT_NE(base, nullptr);
    const std::string path = kGolden + "/lora/" + name;
    const auto variant = load_variant(name, path, base->table, *base->backend, {});
    ASSERT_TRUE(variant.ok()) << variant.status().message();
    const std::string folder = path.substr(0, path.find(".gguf"));
    const auto reference = SafetensorsFile::open(folder + "/reference.safetensors");
    ASSERT_TRUE(reference.ok());
    // Off by 0.08 with bf16 activations; with fp32 ones, by what the KV cache rounds.
    const bool bf16 = base->backend->ops().activation_type() == DType::kBF16;
    check_prompt(*base, *variant, *reference, "input_ids", "", {bf16 ? 0.16f : 0.06f, 0.2f});
  }
}

// Tokens that the adapter adds: their embeddings, saved whole under both names of the tied table.
TEST_P(Golden, LoraWithAddedTokens) {
  constexpr int64_t kAdded = 5;
  const auto base = load(kGolden + "/models/llama", GetParam());
  ASSERT_NE(base, nullptr);
  const int64_t vocab = base->config().vocab, columns = base->config().hidden;
  std::vector<uint16_t> table(static_cast<size_t>((vocab + kAdded) * columns));
  ASSERT_TRUE(
      base->checkpoint->read_rows_bf16("model.embed_tokens.weight", 0, vocab, table.data()).ok());
  for (int64_t r = vocab; r < vocab + kAdded; ++r)  // added_rows of lora.py
    for (int64_t c = 0; c < columns; ++c)
      table[static_cast<size_t>(r * columns + c)] =
          f32_to_bf16(static_cast<float>((31 * r + 17 * c) % 64 - 32) / 128);
  const std::string folder = kGolden + "/lora/added";
  testing::RawFile raw = testing::read_raw(folder + "/adapter_model.safetensors");
  for (const char* name : {"model.embed_tokens", "lm_head"})
    raw.tensors[std::string("base_model.model.") + name + ".weight"] = {
        DType::kBF16, Shape{vocab + kAdded, columns},
        std::string(reinterpret_cast<const char*>(table.data()), table.size() * 2)};
  testing::TempFolder made;
  made.write("adapter_config.json", testing::slurp(folder + "/adapter_config.json"));
  testing::write_raw(made.file("adapter_model.safetensors"), raw);
  const auto variant = load_variant("added", made.path(), base->table, *base->backend, {});
  ASSERT_TRUE(variant.ok()) << variant.status().message();
  EXPECT_EQ((*variant)->vocab, vocab + kAdded);
  const auto reference = SafetensorsFile::open(folder + "/reference.safetensors");
  ASSERT_TRUE(reference.ok());
  const bool bf16 = base->backend->ops().activation_type() == DType::kBF16;
  check_prompt(*base, *variant, *reference, "input_ids", "", {bf16 ? 0.16f : 0.06f, 0.2f});
}

// Sequences of the base and of several variants in one batch: each gets, bit for bit, the logits
// that it gets alone.
TEST_P(Golden, MixedBatchesChangeNothing) {
  const auto base = load(kGolden + "/models/llama", GetParam());
  ASSERT_NE(base, nullptr);
  std::vector<VariantRef> variants = {nullptr};
  const std::pair<const char*, const char*> files[] = {{"llama", "matrix-1"},
                                                       {"llama", "row-2"},
                                                       {"llama_vocab", "row-1"},
                                                       {"llama_vocab", "matrix-2"}};
  for (const auto& [name, kind] : files) {
    const auto variant = load_variant(
        name, kGolden + "/variants/" + name + "/" + name + "-" + kind + ".delta.safetensors",
        base->table, *base->backend, {});
    ASSERT_TRUE(variant.ok()) << variant.status().message();
    variants.push_back(*variant);
    variants.push_back(*variant);
  }
  for (const char* name : {"plain", "scales", "saved", "plain", "regex"}) {
    const auto variant =
        load_variant(name, kGolden + "/lora/" + name, base->table, *base->backend, {});
    ASSERT_TRUE(variant.ok()) << variant.status().message();
    variants.push_back(*variant);
  }
  const int count = static_cast<int>(variants.size());
  const auto prompt_of = [](int s) {
    std::vector<int32_t> ids;
    for (int i = 0; i < 5 + 3 * s; ++i) ids.push_back((17 * s + 31 * i) % 500 + 3);
    return ids;
  };
  auto together = DirectRunner::make(base->config(), base->table, *base->backend, variants, 64, 64);
  ASSERT_TRUE(together.ok()) << together.status().message();
  for (int s = 0; s < count; ++s) ASSERT_TRUE((*together)->append(s, prompt_of(s), false).ok());
  std::vector<std::unique_ptr<DirectRunner>> alone;
  for (int s = 0; s < count; ++s) {
    auto one = DirectRunner::make(base->config(), base->table, *base->backend,
                                  {variants[static_cast<size_t>(s)]}, 64, 64);
    ASSERT_TRUE(one.ok());
    const auto prompt = prompt_of(s);
    for (int32_t id : prompt)
      ASSERT_TRUE((*one)->append(0, std::vector<int32_t>{id}, false).ok());  // token by token
    alone.push_back(std::move(*one));
  }
  std::vector<int32_t> next(static_cast<size_t>(count), 7);
  for (int step = 0; step < 12; ++step) {
    const auto mixed = (*together)->step(next);
    ASSERT_TRUE(mixed.ok());
    // The mixed logits live until the next step on the same backend's runner: copy before stepping
    // the others.
    std::vector<std::vector<float>> rows;
    for (int s = 0; s < count; ++s) {
      const float* row = mixed->values.row<float>(s);
      rows.emplace_back(row, row + mixed->vocab[static_cast<size_t>(s)]);
    }
    for (int s = 0; s < count; ++s) {
      const auto single =
          alone[static_cast<size_t>(s)]->step(std::vector<int32_t>{next[static_cast<size_t>(s)]});
      ASSERT_TRUE(single.ok());
      const float* row = single->values.row<float>(0);
      const std::vector<float> expected(row, row + single->vocab[0]);
      ASSERT_EQ(rows[static_cast<size_t>(s)], expected) << "sequence " << s << " step " << step;
      next[static_cast<size_t>(s)] = greedy_token(*single, 0);
    }
  }
}

}  // namespace
}  // namespace deltad

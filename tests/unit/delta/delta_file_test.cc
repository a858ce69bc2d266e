// Damaged, foreign and hostile variant files: each is refused with a message that names the file,
// the tensor and what was expected.
#include "delta/delta_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "backend/backend.h"
#include "delta/delta_reader.h"
#include "delta/low_rank_part.h"
#include "model/checkpoint.h"
#include "raw_file.h"
#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::RawFile;
using testing::RawTensor;
using testing::TempFolder;

constexpr const char* kQ = "model.layers.0.self_attn.q_proj";
constexpr const char* kNorm = "model.norm.weight";

std::string golden(const std::string& path) { return DELTAD_GOLDEN "/" + path; }

// What loading does, short of a backend: header, base, shapes, values, digest.
Status check(const std::string& path, const std::string& architecture = "LlamaForCausalLM",
             const std::string& base_digest = "") {
  auto base = Checkpoint::open(golden("models/awkward"));
  EXPECT_TRUE(base.ok());
  const WeightTable table = make_weight_table((*base)->config());
  ASSIGN_OR_RETURN(const DeltaFile delta, DeltaFile::open(path));
  RETURN_IF_ERROR(delta.check_base(architecture, base_digest));
  RETURN_IF_ERROR(delta.check_shapes(table));
  DeltaReadOptions options;
  options.table = &table;
  options.threads = 2;
  return read_delta(delta, options);
}

class VariantFileTest : public ::testing::Test {
 protected:
  // The golden file with a change and, unless told otherwise, a digest that fits it.
  Status changed(const std::function<void(RawFile*)>& change, bool new_digest = true,
                 const char* kind = "row-2") {
    RawFile raw =
        testing::read_raw(golden("variants/awkward/awkward-") + kind + ".delta.safetensors");
    change(&raw);
    if (new_digest) raw.metadata["digest"] = testing::digest_of(raw);
    path_ = folder_.file("v.delta.safetensors");
    testing::write_raw(path_, raw);
    return check(path_);
  }
  void expect_error(const Status& status, const std::string& tensor, const std::string& what) {
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), AllOf(HasSubstr(path_), HasSubstr(tensor), HasSubstr(what)));
  }
  static RawTensor& at(RawFile* raw, const std::string& name) {
    EXPECT_EQ(raw->tensors.count(name), 1u) << name;
    return raw->tensors[name];
  }
  static void set_float(RawTensor* tensor, size_t index, float value) {
    tensor->bytes.replace(index * sizeof value, sizeof value, reinterpret_cast<const char*>(&value),
                          sizeof value);
  }

  TempFolder folder_;
  std::string path_;
};

TEST_F(VariantFileTest, GoodFilesPass) {
  for (const char* kind : {"row-1", "row-2", "matrix-1", "matrix-2"}) {
    const Status status = changed([](RawFile*) {}, true, kind);
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST_F(VariantFileTest, NamesOfTensors) {
  const TensorPlace sign = place_of_tensor("a.b.sign"), alpha = place_of_tensor("a.b.alpha.3"),
                    dense = place_of_tensor("a.b.weight"), odd = place_of_tensor("a.b.sign.12");
  EXPECT_EQ(sign.role, TensorRole::kSign);
  EXPECT_EQ(sign.weight, "a.b.weight");
  EXPECT_EQ(sign.level, 0);
  EXPECT_EQ(alpha.role, TensorRole::kAlpha);
  EXPECT_EQ(alpha.weight, "a.b.weight");
  EXPECT_EQ(alpha.level, 3);
  EXPECT_EQ(dense.role, TensorRole::kDense);
  EXPECT_EQ(dense.weight, "a.b.weight");
  EXPECT_EQ(odd.role, TensorRole::kDense);
  const TensorPlace factors = place_of_tensor(low_rank_name("a.b.weight"));
  EXPECT_EQ(factors.role, TensorRole::kLowRank);
  EXPECT_EQ(factors.weight, "a.b.weight");
  EXPECT_EQ(sign_name("a.b.weight", 0), "a.b.sign");
  EXPECT_EQ(alpha_name("a.b.weight", 2), "a.b.alpha.2");
}

TEST_F(VariantFileTest, Metadata) {
  const struct {
    const char *key, *value, *expected;
  } cases[] = {{"format", "pt", "'deltad.delta'"},
               {"version", "3", "expected '1'"},
               {"version", "", "expected '1'"},
               {"alpha", "column", "'matrix' or 'row'"},
               {"levels", "0", "1 to 4"},
               {"levels", "5", "1 to 4"},
               {"levels", "two", "1 to 4"},
               {"architecture", "", "a model's class"},
               {"base_digest", "xyz", "32 lower-case hex digits"},
               {"tie_word_embeddings", "yes", "'true' or 'false'"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.key);
    expect_error(changed([&](RawFile* raw) { raw->metadata[c.key] = c.value; }), c.key, c.expected);
  }
  expect_error(changed([](RawFile* raw) { raw->metadata["digest"] = "0123"; }, false), "digest",
               "32 lower-case hex digits");
}

TEST_F(VariantFileTest, AnotherBase) {
  ASSERT_TRUE(changed([](RawFile*) {}).ok());
  expect_error(check(path_, "LlamaForCausalLM", std::string(32, 'a')), "", "made for another base");
  expect_error(check(path_, "Qwen2ForCausalLM"), "LlamaForCausalLM", "expected Qwen2ForCausalLM");
  // A file that does not say its base is not held against it.
  ASSERT_TRUE(changed([](RawFile* raw) { raw->metadata["base_digest"] = ""; }).ok());
  EXPECT_TRUE(check(path_, "LlamaForCausalLM", std::string(32, 'a')).ok());
}

TEST_F(VariantFileTest, LevelsMustBeWhole) {
  const std::string q = kQ;
  expect_error(changed([&](RawFile* raw) { raw->tensors.erase(q + ".alpha.1"); }), q + ".alpha.1",
               "missing");
  expect_error(changed([&](RawFile* raw) { raw->tensors.erase(q + ".sign.1"); }), q + ".sign.1",
               "missing");
  expect_error(changed([&](RawFile* raw) { raw->tensors.erase(q + ".sign"); }), q + ".sign",
               "missing");
  expect_error(changed([&](RawFile* raw) {
                 raw->tensors.erase(q + ".sign");
                 raw->tensors.erase(q + ".alpha");
               }),
               q + ".sign", "missing");
  expect_error(changed([&](RawFile* raw) {
                 raw->tensors[q + ".sign.2"] = at(raw, q + ".sign");
                 raw->tensors[q + ".alpha.2"] = at(raw, q + ".alpha");
               }),
               q + ".alpha.2", "levels = 2");
  expect_error(changed([&](RawFile* raw) { raw->metadata["levels"] = "1"; }), ".1", "levels = 1");
  // One matrix with fewer levels than the file's most is fine.
  EXPECT_TRUE(changed([&](RawFile* raw) {
                raw->tensors.erase(q + ".sign.1");
                raw->tensors.erase(q + ".alpha.1");
              }).ok());
}

TEST_F(VariantFileTest, TypesAndShapes) {
  const std::string q = kQ;
  expect_error(changed([&](RawFile* raw) { at(raw, q + ".sign").dtype = DType::kI8; }), q + ".sign",
               "expected U8");
  expect_error(changed([&](RawFile* raw) { at(raw, q + ".alpha").dtype = DType::kI32; }),
               q + ".alpha", "expected F32");
  expect_error(changed([&](RawFile* raw) {
                 at(raw, kNorm).dtype = DType::kU8;
                 at(raw, kNorm).shape = Shape{144};
               }),
               kNorm, "expected F32, F16 or BF16");
  expect_error(changed([&](RawFile* raw) {
                 at(raw, q + ".sign").shape = Shape{36, 18};
               }),
               q, "expected [36]");
  expect_error(changed([&](RawFile* raw) { at(raw, q + ".sign").shape = Shape{648}; }), q + ".sign",
               "[d_out, ⌈d_in/8⌉]");
  expect_error(changed([&](RawFile* raw) {
                 at(raw, q + ".alpha").shape = Shape{72, 1};
               }),
               q + ".alpha", "expected [72]");
  expect_error(changed([&](RawFile* raw) { raw->metadata["alpha"] = "matrix"; }), ".alpha",
               "expected [1]");
  expect_error(changed([&](RawFile* raw) {
                 at(raw, q + ".sign.1").shape = Shape{36, 18};
               }),
               q + ".sign.1", "that of the first level");
  expect_error(changed([&](RawFile* raw) {
                 at(raw, kNorm).shape = Shape{36, 2};
               }),
               kNorm, "expected [72] for this base");
  const char* embeddings = "model.embed_tokens.weight";
  expect_error(changed([&](RawFile* raw) {
                 at(raw, embeddings).shape = Shape{508, 72};
                 at(raw, embeddings).bytes.resize(508 * 72 * 2);
               }),
               embeddings, "expected [509, 72] or more rows");
  // A consistent file for a matrix of another size.
  expect_error(changed([&](RawFile* raw) {
                 for (const char* level : {"", ".1"}) {
                   at(raw, q + ".sign" + level) = {DType::kU8, Shape{80, 9}, std::string(720, 0)};
                   at(raw, q + ".alpha" + level) = {DType::kF32, Shape{80}, std::string(320, 0)};
                 }
               }),
               q + ".sign", "expected [72, 9] for this base");
}

TEST_F(VariantFileTest, LowRankParts) {
  const std::string part = std::string(kQ) + ".low_rank";
  // bad: the scale of one row of A or column of B, all others are 0.5.
  const auto with = [&](const std::string& name, int64_t rank, int64_t more_bytes, float bad,
                        int64_t at_rank = 0, int64_t at_byte = 0) {
    return changed([&](RawFile* raw) {
      raw->metadata["version"] = "2";
      const Shape signs = at(raw, std::string(kQ) + ".sign").shape;
      const auto base = std::move(*Checkpoint::open(golden("models/awkward")));
      const int64_t columns = base->config().hidden;
      RawTensor tensor{DType::kU8, {rank, low_rank_row_bytes(columns, signs[0]) + more_bytes}, ""};
      tensor.bytes.assign(static_cast<size_t>(tensor.shape.count()), '\2');
      for (int64_t k = 0; k < rank; ++k)
        for (const int64_t i : {0, 4}) {
          const float scale = k == at_rank && i == at_byte ? bad : 0.5f;
          tensor.bytes.replace(static_cast<size_t>(k * tensor.shape[1] + i), sizeof scale,
                               reinterpret_cast<const char*>(&scale), sizeof scale);
        }
      raw->tensors[name] = tensor;
    });
  };
  const Status good = with(part, 3, 0, 0.5f);
  EXPECT_TRUE(good.ok()) << good.message();
  expect_error(with(part, 3, 1, 0.5f), part, "expected [3, ");
  expect_error(with(part, kMaxLowRank + 1, 0, 0.5f), part, "rank 1 to 1024");
  expect_error(with(part, 0, 0, 0.5f), part, "rank 1 to 1024");
  for (const float bad : {-0.5f, NAN, INFINITY})
    for (const int64_t at_byte : {0, 4}) {
      expect_error(with(part, 3, 0, bad, 2, at_byte), part, "rank vector 2");
      // Without a base too.
      const auto file = DeltaFile::open(path_);
      ASSERT_TRUE(file.ok()) << file.status().message();
      expect_error(read_delta(*file, {}), part, "rank vector 2");
    }
  for (const auto& [type, shape] :
       {std::pair{DType::kF32, Shape{3, 2}}, std::pair{DType::kU8, Shape{24}},
        std::pair{DType::kU8, Shape{3, 4, 2}}, std::pair{DType::kU8, Shape{3, 9}}})
    expect_error(changed([&, type = type, shape = shape](RawFile* raw) {
                   const int64_t bytes = shape.count() * static_cast<int64_t>(dtype_size(type));
                   raw->tensors[part] = {type, shape, std::string(static_cast<size_t>(bytes), 0)};
                 }),
                 part, type == DType::kF32 ? "expected U8" : "expected [rank, n]");
  expect_error(with(part, 3, 0, 3e38f), part, "bf16");
  expect_error(with("lm_head.low_rank", 3, 0, 0.5f), "lm_head.weight",
               "both a low-rank part and a dense");
  const Status head = changed([](RawFile* raw) {
    raw->tensors.erase("lm_head.weight");
    raw->tensors["lm_head.low_rank"] = {DType::kU8, {1, 20}, std::string(20, '\0')};
  });
  expect_error(head, "lm_head.low_rank", "inside the blocks");
  expect_error(with("model.layers.9.mlp.up_proj.low_rank", 3, 0, 0.5f), "layers.9", "no matrix");
  // Beside what the matrix has of its own.
  expect_error(changed([&](RawFile* raw) {
                 const std::string q = kQ;
                 const int64_t rows = at(raw, q + ".sign").shape[0];
                 for (const char* of : {".sign", ".alpha", ".sign.1", ".alpha.1"})
                   raw->tensors.erase(q + of);
                 raw->tensors[q + ".weight"] = {DType::kBF16, Shape{rows, 72},
                                                std::string(static_cast<size_t>(rows * 144), 0)};
                 raw->tensors[part] = {
                     DType::kU8, {1, 80 + rows}, std::string(static_cast<size_t>(80 + rows), 0)};
               }),
               std::string(kQ) + ".weight", "both a low-rank part and a dense");
}

TEST_F(VariantFileTest, TensorsThatTheBaseLacks) {
  const std::string q = kQ;
  const auto rename = [](RawFile* raw, const std::string& from, const std::string& to) {
    for (const char* part : {".sign", ".alpha", ".sign.1", ".alpha.1"}) {
      raw->tensors[to + part] = raw->tensors.at(from + part);
      raw->tensors.erase(from + part);
    }
  };
  expect_error(changed([&](RawFile* raw) { rename(raw, q, "model.layers.7.self_attn.q_proj"); }),
               "model.layers.7.self_attn.q_proj.sign", "the base has no matrix");
  expect_error(changed([&](RawFile* raw) { rename(raw, q, "model.embed_tokens"); }),
               "model.embed_tokens", "");
  expect_error(
      changed([&](RawFile* raw) { raw->tensors["model.layers.0.extra"] = at(raw, kNorm); }),
      "model.layers.0.extra", "the base has no tensor");
  expect_error(
      changed([&](RawFile* raw) {
        raw->tensors[q + ".weight"] = {DType::kBF16, Shape{72, 72}, std::string(72 * 72 * 2, 0)};
      }),
      q + ".weight", "both a sign delta and a dense value");
}

TEST_F(VariantFileTest, Values) {
  const std::string q = kQ;
  for (const float bad : {NAN, INFINITY, -INFINITY})
    expect_error(changed([&](RawFile* raw) { set_float(&at(raw, q + ".alpha"), 5, bad); }),
                 q + ".alpha", "expected finite");
  expect_error(changed([&](RawFile* raw) {
                 at(raw, kNorm).bytes[3] = '\x7f';
                 at(raw, kNorm).bytes[2] = '\xc0';
               }),
               kNorm, "expected finite");
  // Matrices of 100 columns have four padding bits in the last byte of a row.
  const std::string down = "model.layers.1.mlp.down_proj.sign.1";
  expect_error(changed([&](RawFile* raw) { at(raw, down).bytes[13 * 3 - 1] |= '\x10'; }), down,
               "row 2 has padding bits set");
}

TEST_F(VariantFileTest, FlippedBitsAreFound) {
  const std::string q = kQ;
  expect_error(changed([&](RawFile* raw) { at(raw, q + ".sign").bytes[100] ^= 1; }, false), "",
               "damaged");
  expect_error(changed([&](RawFile* raw) { at(raw, q + ".alpha").bytes[0] ^= 1; }, false), "",
               "damaged");
  expect_error(changed([&](RawFile* raw) { at(raw, kNorm).bytes[0] ^= 1; }, false), "", "damaged");
  // A tensor left out, or another name, is another content as well.
  expect_error(changed([&](RawFile* raw) { raw->tensors.erase(kNorm); }, false), "", "damaged");
}

TEST_F(VariantFileTest, CutShort) {
  const std::string whole =
      testing::slurp(golden("variants/awkward/awkward-row-1.delta.safetensors"));
  for (const size_t size :
       {size_t{0}, size_t{4}, size_t{100}, whole.size() / 2, whole.size() - 1}) {
    path_ = folder_.write("v.delta.safetensors", whole.substr(0, size));
    const Status status = check(path_);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << size;
    EXPECT_THAT(status.message(), HasSubstr(path_));
  }
}

TEST_F(VariantFileTest, EveryFlippedHeaderByteIsRefusedOrHarmless) {
  const std::string whole =
      testing::slurp(golden("variants/awkward/awkward-matrix-1.delta.safetensors"));
  uint64_t header = 0;
  memcpy(&header, whole.data(), sizeof header);
  int refused = 0, flips = 0;
  for (size_t at = 0; at < 8 + header; at += 31, ++flips) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 7)));
    refused += !check(folder_.write("v.delta.safetensors", damaged)).ok();
  }
  // Only free text (names of variant, base, creator) and spaces may change unnoticed.
  EXPECT_GT(refused, flips * 9 / 10);
}

TEST_F(VariantFileTest, ReadingCanBeCancelled) {
  auto delta = DeltaFile::open(golden("variants/awkward/awkward-row-1.delta.safetensors"));
  ASSERT_TRUE(delta.ok());
  std::atomic<bool> cancelled{true};
  DeltaReadOptions options;
  options.cancelled = &cancelled;
  EXPECT_EQ(read_delta(*delta, options).code(), Code::kCancelled);
}

TEST_F(VariantFileTest, WithoutABaseTheDigestIsStillChecked) {
  auto good = DeltaFile::open(golden("variants/awkward/awkward-row-1.delta.safetensors"));
  ASSERT_TRUE(good.ok());
  EXPECT_TRUE(read_delta(*good, {}).ok());
  (void)changed([](RawFile* raw) { raw->tensors.begin()->second.bytes[0] ^= 1; }, false);
  auto bad = DeltaFile::open(path_);
  ASSERT_TRUE(bad.ok());
  expect_error(read_delta(*bad, {}), "", "damaged");
}

TEST_F(VariantFileTest, WhereTheHeadComesFrom) {
  const auto source = [&](bool base_tied, const char* tied, bool embeddings, bool head) {
    RawFile raw;
    raw.metadata = {{"format", "deltad.delta"},
                    {"version", "1"},
                    {"alpha", "row"},
                    {"levels", "1"},
                    {"architecture", "LlamaForCausalLM"}};
    if (*tied != 0) raw.metadata["tie_word_embeddings"] = tied;
    const RawTensor table{DType::kBF16, Shape{2, 4}, std::string(16, 0)};
    if (embeddings) raw.tensors["model.embed_tokens.weight"] = table;
    if (head) raw.tensors["lm_head.weight"] = table;
    raw.tensors["model.norm.weight"] = {DType::kBF16, Shape{4}, std::string(8, 0)};
    raw.metadata["digest"] = testing::digest_of(raw);
    testing::write_raw(folder_.file("h.delta.safetensors"), raw);
    auto delta = DeltaFile::open(folder_.file("h.delta.safetensors"));
    EXPECT_TRUE(delta.ok()) << delta.status().message();
    return delta->head_source(base_tied);
  };
  EXPECT_EQ(source(true, "", true, true), HeadSource::kFileHead);
  EXPECT_EQ(source(true, "true", false, true), HeadSource::kFileHead);
  EXPECT_EQ(source(true, "", true, false), HeadSource::kFileEmbeddings);
  EXPECT_EQ(source(false, "", true, false), HeadSource::kBaseHead);
  EXPECT_EQ(source(false, "true", true, false), HeadSource::kFileEmbeddings);
  EXPECT_EQ(source(true, "false", true, false), HeadSource::kBaseHead);
  EXPECT_EQ(source(true, "", false, false), HeadSource::kBaseHead);
}

}  // namespace
}  // namespace deltad

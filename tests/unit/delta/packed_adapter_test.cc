// Packed adapters: what 16, 8 and 4 bits keep, and files that are refused.
#include "delta/packed_adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "delta/loader.h"
#include "delta/variant_path.h"
#include "model/checkpoint.h"
#include "raw_file.h"
#include "tests/support/small_adapter.h"
#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

using ::testing::HasSubstr;
using testing::RawFile;
using testing::small_factors;
using testing::SmallAdapter;
using testing::TempFolder;

constexpr const char* kModule = "model.layers.0.mlp.down_proj";

class PackedAdapterTest : public ::testing::Test {
 protected:
  std::string write(int bits, const AdapterFactorSet& set, const std::string& base = "") {
    const std::string path = folder_.file("x.lora.safetensors");
    const auto bytes = write_packed_adapter(pack_adapter(bits, base, set), path);
    EXPECT_TRUE(bytes.ok()) << bytes.status().message();
    EXPECT_EQ(*bytes, static_cast<int64_t>(std::filesystem::file_size(path)));
    return path;
  }
  AdapterFactorSet read(const std::string& path) {
    auto adapter = LoraAdapter::open(path, table_);
    EXPECT_TRUE(adapter.ok()) << adapter.status().message();
    if (!adapter.ok()) return {};
    auto set = read_factors(*adapter);
    EXPECT_TRUE(set.ok()) << set.status().message();
    return set.ok() ? *set : AdapterFactorSet();
  }
  // What opening, or reading all values, says of a file with this changed.
  std::string refusal(const std::function<void(RawFile*)>& change) {
    RawFile raw = testing::read_raw(write(8, small_factors(table_, {1, 4})));
    change(&raw);
    const std::string path = folder_.file("bad.lora.safetensors");
    testing::write_raw(path, raw);
    const Status status = verify_variant(path, table_, {}).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.message();
    EXPECT_THAT(status.message(), HasSubstr("bad.lora.safetensors"));
    return status.message();
  }

  TempFolder folder_;
  WeightTable table_ = testing::small_table();
};

TEST_F(PackedAdapterTest, SixteenBitsHoldABf16AdapterAsItIs) {
  AdapterFactorSet set =
      small_factors(table_, {.seed = 1, .rank = 5, .scale = 16 / std::sqrt(5.0)});
  set.begin()->second.scale = 1.0 / 3;  // a module with a scale of its own
  const AdapterFactorSet found = read(write(16, set));
  ASSERT_EQ(found.size(), set.size());
  for (const auto& [weight, f] : set) {
    EXPECT_EQ(found.at(weight).a, f.a) << weight;
    EXPECT_EQ(found.at(weight).b, f.b) << weight;
    EXPECT_EQ(found.at(weight).scale, f.scale) << weight;
    EXPECT_EQ(found.at(weight).rank, 5);
  }
}

TEST_F(PackedAdapterTest, FewerBitsErrByAtMostHalfAStep) {
  for (const int bits : {8, 4}) {
    AdapterFactorSet set = small_factors(table_, {2, 3});
    set.at("model.layers.1.mlp.up_proj.weight").a.assign(3 * 24, 0);  // a vector of zeros
    const AdapterFactorSet found = read(write(bits, set));
    double worst = 0;
    for (const auto& [weight, f] : set) {
      const AdapterFactors& g = found.at(weight);
      for (int64_t i = 0; i < f.rank; ++i) {
        double most = 0, error = 0, squares = 0, off_squares = 0;
        for (int64_t c = 0; c < f.inputs; ++c) {
          const auto at = static_cast<size_t>(i * f.inputs + c);
          const double x = f.a[at], off = x - static_cast<double>(g.a[at]);
          most = std::max(most, std::abs(x));
          error = std::max(error, std::abs(off));
          squares += x * x;
          off_squares += off * off;
        }
        // In 4 bits the largest may be clipped at 60 %.
        EXPECT_LE(error, most * (bits == 8 ? 0.5001 / 127 : 0.41)) << weight;
        // Never worse than unclipped rounding.
        EXPECT_LE(off_squares,
                  static_cast<double>(f.inputs) * std::pow(most / (bits == 8 ? 127 : 7) / 2, 2));
        if (squares > 0) worst = std::max(worst, std::sqrt(off_squares / squares));
      }
    }
    EXPECT_LT(worst, bits == 8 ? 0.006 : 0.11) << bits;
    EXPECT_GT(worst, bits == 8 ? 0.001 : 0.02) << bits;
  }
}

TEST_F(PackedAdapterTest, PackingAgainChangesNothing) {
  for (const int bits : {16, 8}) {
    const AdapterFactorSet once = read(write(bits, small_factors(table_, {3, 4})));
    const AdapterFactorSet twice = read(write(bits, once));
    for (const auto& [weight, f] : once)
      for (size_t i = 0; i < f.a.size(); ++i)
        ASSERT_FLOAT_EQ(twice.at(weight).a[i], f.a[i]) << weight << bits;
  }
}

TEST_F(PackedAdapterTest, HasHalfAndAQuarterOfTheBytes) {
  const AdapterFactorSet set = small_factors(table_, {1, 4});
  const auto values = [&](int bits) {
    size_t bytes = 0;
    for (const auto& module : pack_adapter(bits, "", set).modules) bytes += module.rows.size();
    return bytes;
  };
  const size_t scales = set.size() * 4 * 2 * 4;
  EXPECT_EQ(2 * (values(8) - scales), values(16));
  EXPECT_EQ(4 * (values(4) - scales), values(16));
}

// The loader knows the form by its name and gives it the digest that it claims.
TEST_F(PackedAdapterTest, IsLoadedAsAVariant) {
  auto base = Checkpoint::open(DELTAD_GOLDEN "/models/llama");
  ASSERT_TRUE(base.ok());
  table_ = make_weight_table((*base)->config());
  CpuBackendOptions options;
  options.threads = 1;
  options.pin = false;
  const auto backend = std::move(*make_cpu_backend(options));
  ASSERT_TRUE(load_base(**base, table_, *backend, 1, nullptr).ok());
  std::set<std::string> digests;
  for (const int bits : {16, 8, 4}) {
    const std::string path = write(bits, small_factors(table_, {4, 4}), "the base");
    EXPECT_TRUE(is_adapter(path));
    EXPECT_EQ(variant_name_of(path), "x");
    VariantLoadOptions load;
    load.base_digest = "the base";
    const auto variant = load_variant("x", path, table_, *backend, load);
    ASSERT_TRUE(variant.ok()) << variant.status().message();
    const auto measured = measure_variant(path, table_, *backend, load);
    ASSERT_TRUE(measured.ok());
    EXPECT_EQ((*variant)->digest, measured->digest);
    EXPECT_EQ((*variant)->bytes, static_cast<size_t>(measured->bytes));
    digests.insert((*variant)->digest);
    load.base_digest = "another";
    EXPECT_THAT(load_variant("x", path, table_, *backend, load).status().message(),
                HasSubstr("made for the base with digest the base"));
  }
  EXPECT_EQ(digests.size(), 3u);
}

TEST_F(PackedAdapterTest, HostileFilesAreRefused) {
  const auto set = [](const char* key, const std::string& value) {
    return [=](RawFile* raw) { raw->metadata[key] = value; };
  };
  EXPECT_THAT(refusal(set("format", "other")), HasSubstr("format is 'other'"));
  EXPECT_THAT(refusal(set("version", "2")), HasSubstr("version is '2'"));
  EXPECT_THAT(refusal(set("bits", "7")), HasSubstr("expected 16, 8 or 4"));
  EXPECT_THAT(refusal(set("bits", "4")), HasSubstr("expected U8 [rank, "));
  EXPECT_THAT(refusal(set("scale", "2x")), HasSubstr("expected a number"));
  EXPECT_THAT(refusal(set("scale", "nan")), HasSubstr("its scale is nan"));
  EXPECT_THAT(refusal(set("scale", "1e300")), HasSubstr("its scale is 1e+300"));
  EXPECT_THAT(refusal(set("scale", "3")), HasSubstr("the file is damaged"));
  EXPECT_THAT(refusal(set("digest", std::string(32, '0'))), HasSubstr("the file is damaged"));
  EXPECT_THAT(refusal([](RawFile* raw) { raw->metadata.erase("bits"); }),
              HasSubstr("metadata has no 'bits'"));
  EXPECT_THAT(refusal([](RawFile* raw) { raw->tensors.clear(); }), HasSubstr("no tensors"));
  const auto rename = [](const std::string& to) {
    return [=](RawFile* raw) {
      raw->tensors[to] = raw->tensors.at(kModule);
      raw->tensors.erase(kModule);
    };
  };
  EXPECT_THAT(refusal(rename("../../etc/passwd")), HasSubstr("belongs to no module"));
  EXPECT_THAT(refusal(rename("model.norm")), HasSubstr("linear layers only"));
  EXPECT_THAT(refusal(rename("model.embed_tokens")), HasSubstr("linear layers only"));
  EXPECT_THAT(refusal([](RawFile* raw) {
                auto& tensor = raw->tensors.at(kModule);
                tensor.shape = Shape{tensor.shape[0] / 2, tensor.shape[1] * 2};
              }),
              HasSubstr("expected U8 [rank, 72]"));
  EXPECT_THAT(refusal([](RawFile* raw) {
                auto& tensor = raw->tensors.at(kModule);
                tensor.shape = Shape{2000, tensor.shape[1]};
                tensor.bytes.resize(static_cast<size_t>(tensor.shape.count()));
              }),
              HasSubstr("its rank is 2000"));
  for (const float scale :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -1.0f})
    EXPECT_THAT(refusal([=](RawFile* raw) {
                  std::memcpy(raw->tensors.at(kModule).bytes.data() + 4, &scale, sizeof scale);
                }),
                HasSubstr("a scale of rank vector 0 is"));
  const float huge = 3e38f;
  EXPECT_THAT(refusal([=](RawFile* raw) {
                std::memcpy(raw->tensors.at(kModule).bytes.data(), &huge, sizeof huge);
              }),
              HasSubstr("expected finite numbers"));
}

}  // namespace
}  // namespace deltad

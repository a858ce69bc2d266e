// base_digest: equal to what the reference variant files say of their base, and to itself across
// forms of storage.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <filesystem>
#include <vector>

#include "io/safetensors.h"
#include "model/checkpoint.h"
#include "tests/support/golden_gguf.h"
#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

std::string golden(const std::string& name) { return DELTAD_GOLDEN "/" + name; }

std::string digest_of_path(const std::string& path) {
  const auto checkpoint = Checkpoint::open(path);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const auto digest = base_digest(**checkpoint);
  EXPECT_TRUE(digest.ok()) << digest.status().message();
  return *digest;
}

std::string digest_of(const std::string& model) { return digest_of_path(golden(model)); }

std::string digest_said_by(const std::string& variant) {
  const auto file = SafetensorsFile::open(golden("variants/" + variant));
  EXPECT_TRUE(file.ok()) << file.status().message();
  return file->metadata().at("base_digest");
}

TEST(BaseDigest, IsTheOneOfTheReferenceVariants) {
  EXPECT_EQ(digest_of("models/llama"), digest_said_by("llama/llama-row-1.delta.safetensors"));
  EXPECT_EQ(digest_of("models/llama"), digest_said_by("llama/llama-matrix-2.delta.safetensors"));
  EXPECT_EQ(digest_of("models/llama"),
            digest_said_by("llama_vocab/llama_vocab-row-1.delta.safetensors"));
  EXPECT_EQ(digest_of("models/awkward"),
            digest_said_by("awkward/awkward-matrix-1.delta.safetensors"));
}

TEST(BaseDigest, IsTheSameForTheSameValuesInAnotherForm) {
  EXPECT_EQ(digest_of("gguf/llama-bf16.gguf"), digest_of("models/llama"));
  EXPECT_EQ(digest_of_path(testing::golden_gguf("f32")), digest_of("models/llama"));
  EXPECT_NE(digest_of("gguf/llama-q8_0.gguf"), digest_of("models/llama"));
}

// Above 256 KiB blocks are hashed, which begin and end within rows.
TEST(BaseDigest, OfALargeTensorTakesBlocks) {
  testing::TempFolder folder;
  std::filesystem::copy(golden("models/llama/config.json"), folder.file("config.json"));
  const int64_t rows = 1001, columns = 333;
  std::vector<uint16_t> values(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i * 40503u % 30011u);
  auto writer = SafetensorsWriter::create(folder.file("model.safetensors"), {},
                                          {{"w", DType::kBF16, Shape{rows, columns}}});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->write("w", 0, values.data(), rows * columns * 2).ok());
  ASSERT_TRUE((*writer)->finish().ok());
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();

  std::string hashed("w\0", 2);
  hashed += std::string("1001,333\0", 9);
  const auto* bytes = reinterpret_cast<const char*>(values.data());
  const int64_t size = rows * columns * 2;
  for (int64_t i = 0; i < 64; ++i)
    hashed.append(bytes + (i * (size - 4096) / 63 & ~int64_t{1}), 4096);
  const XXH128_hash_t hash = XXH3_128bits(hashed.data(), hashed.size());
  EXPECT_EQ(*base_digest(**checkpoint), fmt::format("{:016x}{:016x}", hash.high64, hash.low64));
}

TEST(BaseDigest, DependsOnNamesShapesAndValues) {
  const auto digest = [](const std::string& name, const Shape& shape, char fill) {
    testing::TempFolder folder;
    std::filesystem::copy(golden("models/llama/config.json"), folder.file("config.json"));
    auto writer = SafetensorsWriter::create(folder.file("model.safetensors"), {},
                                            {{name, DType::kBF16, shape}});
    EXPECT_TRUE(writer.ok());
    const std::string data(static_cast<size_t>(shape.count()) * 2, fill);
    EXPECT_TRUE((*writer)->write(name, 0, data.data(), shape.count() * 2).ok());
    EXPECT_TRUE((*writer)->finish().ok());
    const auto checkpoint = Checkpoint::open(folder.path());
    return *base_digest(**checkpoint);
  };
  const std::string one = digest("w", Shape{2, 3}, 1);
  EXPECT_EQ(one.size(), 32u);
  EXPECT_NE(digest("v", Shape{2, 3}, 1), one);
  EXPECT_NE(digest("w", Shape{3, 2}, 1), one);
  EXPECT_NE(digest("w", Shape{6}, 1), one);
  EXPECT_NE(digest("w", Shape{2, 3}, 2), one);
  EXPECT_EQ(digest("w", Shape{2, 3}, 1), one);
}

}  // namespace
}  // namespace deltad

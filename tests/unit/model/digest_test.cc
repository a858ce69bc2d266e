// base_digest: equal to what the reference variant files say of their base, and to itself across
// forms of storage.
#include <gtest/gtest.h>

#include "io/safetensors.h"
#include "model/checkpoint.h"

namespace deltad {
namespace {

std::string golden(const std::string& name) { return std::string(DELTAD_GOLDEN) + "/" + name; }

std::string digest_of(const std::string& model) {
  const auto checkpoint = Checkpoint::open(golden(model));
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const auto digest = base_digest(**checkpoint);
  EXPECT_TRUE(digest.ok()) << digest.status().message();
  return *digest;
}

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

}  // namespace
}  // namespace deltad

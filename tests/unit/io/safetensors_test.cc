// Reading safetensors files: good ones, and every way in which a header can lie.
#include "io/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

using ::testing::HasSubstr;

std::string with_length(uint64_t length, const std::string& rest) {
  std::string out(8, '\0');
  for (size_t i = 0; i < 8; ++i) out[i] = static_cast<char>(length >> (8 * i) & 0xff);
  return out + rest;
}

Result<SafetensorsFile> open_bytes(std::string bytes) {
  return SafetensorsFile::open(FileReader::in_memory("made.safetensors", std::move(bytes)));
}

// A file with this header and data_bytes bytes of data.
Result<SafetensorsFile> open_header(const std::string& header, size_t data_bytes) {
  return open_bytes(with_length(header.size(), header + std::string(data_bytes, 'x')));
}

// The header of one tensor "a" must be refused with a message that names the file and holds
// `expected`.
void expect_refused(const std::string& header, size_t data_bytes, const std::string& expected,
                    Code code = Code::kInvalidArgument) {
  const auto file = open_header(header, data_bytes);
  ASSERT_FALSE(file.ok()) << header;
  EXPECT_EQ(file.status().code(), code) << header;
  EXPECT_THAT(file.status().message(), HasSubstr("made.safetensors"));
  EXPECT_THAT(file.status().message(), HasSubstr(expected)) << header;
}

TEST(Safetensors, ReadsAModel) {
  const auto file = SafetensorsFile::open(DELTAD_GOLDEN "/models/awkward/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const SafetensorsEntry* k = file->find("model.layers.2.self_attn.k_proj.weight");
  ASSERT_NE(k, nullptr);
  EXPECT_EQ(k->dtype, DType::kBF16);
  EXPECT_EQ(k->shape, (Shape{24, 72}));
  EXPECT_EQ(k->bytes, 24 * 72 * 2);
  EXPECT_EQ(file->find("model.layers.3.self_attn.k_proj.weight"), nullptr);
  EXPECT_EQ(file->find("lm_head.weight")->shape, (Shape{509, 72}));
}

TEST(Safetensors, ReadsMetadataAndValues) {
  const auto file = SafetensorsFile::open(DELTAD_GOLDEN "/models/llama/reference.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const SafetensorsEntry* ids = file->find("input_ids");
  ASSERT_NE(ids, nullptr);
  EXPECT_EQ(ids->dtype, DType::kI64);
  ASSERT_EQ(ids->shape, Shape{48});
  std::vector<int64_t> values(48);
  ASSERT_TRUE(file->read(*ids, 0, 48 * 8, values.data()).ok());
  for (int64_t id : values) EXPECT_TRUE(id >= 3 && id < 512) << id;
  int64_t third = 0;
  ASSERT_TRUE(file->read(*ids, 16, 8, &third).ok());
  EXPECT_EQ(third, values[2]);
  EXPECT_FALSE(file->metadata().empty());
}

TEST(Safetensors, AcceptsNoTensorsAndEmptyTensors) {
  EXPECT_TRUE(open_header("{}", 0).ok());
  const auto file = open_header(
      R"({"__metadata__":{"k":"v"},"e":{"dtype":"F32","shape":[0,5],"data_offsets":[4,4]},)"
      R"("s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}   )",
      4);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->find("s")->shape.rank(), 0);
  EXPECT_EQ(file->metadata().at("k"), "v");
}

TEST(Safetensors, RefusesWrongLengths) {
  const auto message = [](std::string bytes) {
    const auto file = open_bytes(std::move(bytes));
    return file.ok() ? std::string("accepted") : file.status().message();
  };
  EXPECT_THAT(message(""), HasSubstr("0 bytes"));
  EXPECT_THAT(message("1234567"), HasSubstr("8 bytes of header length"));
  EXPECT_THAT(message(with_length(0, "")), HasSubstr("no valid JSON"));
  EXPECT_THAT(message(with_length(3, "{}")), HasSubstr("beyond the file's 10 bytes"));
  EXPECT_THAT(message(with_length(100'000'001, "{}")), HasSubstr("at most 100000000"));
  EXPECT_THAT(message(with_length(UINT64_MAX, "{}")), HasSubstr("at most 100000000"));
  EXPECT_THAT(message(with_length(uint64_t{1} << 60, "{}")), HasSubstr("at most 100000000"));
}

TEST(Safetensors, RefusesWrongJson) {
  for (const char* header :
       {"", "{", "nonsense", R"({"a":)", R"({"a":{"dtype":"F32"}} x)", "{\"\xff\":1}",
        R"({"a":{"dtype":"F32","shape":[1e400],"data_offsets":[0,4]}})"})
    expect_refused(header, 4, "no valid JSON");
  expect_refused("[]", 0, "expected an object");
  expect_refused("7", 0, "expected an object");
  expect_refused(std::string(5000, '['), 0, "expected an object");
  expect_refused(R"({"a":)" + std::string(5000, '['), 0, "tensor 'a'");
  expect_refused(R"({"a":7})", 0, "tensor 'a' is a number; expected an object");
  expect_refused(R"({"__metadata__":{"k":7}})", 0,
                 "metadata key 'k' is a number; expected a string");
  expect_refused(R"({"__metadata__":{"k":{}}})", 0, "metadata key 'k'");
  expect_refused(R"({"__metadata__":{},"__metadata__":{}})", 0, "'__metadata__' is there twice");
  expect_refused(R"({"__metadata__":{"k":"a","k":"b"}})", 0, "metadata key 'k' is there twice");
}

TEST(Safetensors, RefusesWrongDescriptions) {
  expect_refused(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "tensor 'a' lacks 'dtype'");
  expect_refused(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "tensor 'a' lacks 'shape'");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1]}})", 4, "tensor 'a' lacks 'data_offsets'");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}})", 4,
                 "tensor 'a' has a key 'more'");
  expect_refused(R"({"a":{"dtype":4,"shape":[1],"data_offsets":[0,4]}})", 4, "expected a string");
  expect_refused(R"({"a":{"dtype":"F32","shape":"1","data_offsets":[0,4]}})", 4, "tensor 'a'");
  expect_refused(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "negative");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4,
                 "no 64-bit integer");
  expect_refused(R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4,
                 "'shape' has a list");
  expect_refused(R"({"a":{"dtype":"F32","shape":[null],"data_offsets":[0,4]}})", 4, "null");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})", 4,
                 "'shape' is there twice");
  expect_refused(R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4,
                 "'dtype' is there twice");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "expected 2");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", 4, "expected 2");
  expect_refused(R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", 8, "type 'F64'",
                 Code::kUnimplemented);
  expect_refused(R"({"a":{"dtype":"F32","shape":[1,1,1,1,1],"data_offsets":[0,4]}})", 4,
                 "5 dimensions", Code::kUnimplemented);
  std::string long_shape = R"({"a":{"dtype":"F32","shape":[1)";
  for (int i = 0; i < 100; ++i) long_shape += ",1";
  expect_refused(long_shape + R"(],"data_offsets":[0,4]}})", 4, "more than 32 numbers");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                 R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                 2, "tensor 'a' is there twice");
}

TEST(Safetensors, RefusesShapesThatDoNotFit) {
  expect_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
                 "tensor 'a': data_offsets span 4 bytes, but F32 of shape [2] has 8");
  expect_refused(R"({"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,16]}})", 16, "has 12");
  // The product is a multiple of 2^64: without the overflow check it would be 0 bytes.
  expect_refused(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
                 "tensor 'a': the sizes of its shape multiply to more than 2^63 bytes");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1152921504606846976],"data_offsets":[0,4]}})", 4,
                 "span 4 bytes");
  expect_refused(R"({"a":{"dtype":"U8","shape":[0,18446744073709551615],"data_offsets":[0,0]}})", 0,
                 "more than 2^63");
}

TEST(Safetensors, RefusesOffsetsThatDoNotFit) {
  const auto two = [](int64_t a0, int64_t a1, int64_t b0, int64_t b1) {
    return fmt::format(R"({{"a":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}},)"
                       R"("b":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}}}})",
                       a1 - a0, a0, a1, b1 - b0, b0, b1);
  };
  EXPECT_TRUE(open_header(two(0, 4, 4, 8), 8).ok());
  EXPECT_TRUE(open_header(two(4, 8, 0, 4), 8).ok());
  expect_refused(two(0, 4, 3, 8), 8, "tensor 'b' begins at 3, inside tensor 'a' that ends at 4");
  expect_refused(two(0, 8, 0, 8), 8, "inside tensor");
  expect_refused(two(0, 4, 5, 8), 8, "tensor 'b' begins at 5; expected 4");
  expect_refused(two(1, 4, 4, 8), 8, "tensor 'a' begins at 1; expected 0");
  expect_refused(two(0, 4, 4, 8), 9, "end at byte 8 of the data, but the file has 9");
  expect_refused(two(0, 4, 4, 8), 7, "tensor 'b': its data_offsets [4, 8] are not within the 7");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[2,1]}})", 4, "not within");
  expect_refused(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1152921504606846975,1152921504606846976]}})",
      4, "not within the 4 bytes");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551616]}})", 4,
                 "no 64-bit integer");
}

TEST(Safetensors, EveryTruncationAndBitFlipIsAnErrorOrAWholeFile) {
  const std::string header =
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::string good = with_length(header.size(), header + "12345678");
  ASSERT_TRUE(open_bytes(good).ok());
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(open_bytes(good.substr(0, length)).ok()) << length;
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string flipped = good;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const auto file = open_bytes(flipped);
    if (!file.ok()) continue;
    // What is still a valid header describes exactly the data that is there.
    int64_t bytes = 0;
    for (const auto& [name, entry] : file->tensors()) {
      std::vector<char> out(static_cast<size_t>(entry.bytes));
      EXPECT_TRUE(file->read(entry, 0, entry.bytes, out.data()).ok());
      bytes += entry.bytes;
    }
    EXPECT_EQ(bytes, 8) << bit;
  }
}

TEST(Safetensors, MissingFilesAndFoldersAreNamed) {
  testing::TempFolder folder;
  const auto missing = SafetensorsFile::open(folder.file("none.safetensors"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), Code::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr("none.safetensors"));
  const auto a_folder = SafetensorsFile::open(folder.path());
  ASSERT_FALSE(a_folder.ok());
  EXPECT_THAT(a_folder.status().message(), HasSubstr("a folder"));
}

}  // namespace
}  // namespace deltad

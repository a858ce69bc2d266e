// Reading GGUF files: values of metadata, and every way in which a header can lie.
#include "io/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "tensor/float16.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

using ::deltad::testing::GgufWriter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string error_of(const std::string& bytes) {
  const auto file = GgufFile::parse(bytes, "made.gguf");
  if (file.ok()) return "accepted";
  EXPECT_THAT(file.status().message(), HasSubstr("made.gguf"));
  return file.status().message();
}
std::string error_of(const GgufWriter& writer) { return error_of(writer.bytes()); }

// Two tensors and one of each kind of metadata.
GgufWriter good() {
  GgufWriter gguf;
  gguf.string("name", "x");
  gguf.u32("small", 7);
  gguf.i32("negative", -7);
  gguf.f32("half", 0.5f);
  gguf.raw("yes", 7, "\1");
  gguf.raw("byte", 0, "\xff");
  gguf.raw("signed byte", 1, "\xff");
  gguf.raw("large", 10, GgufWriter::number(UINT64_MAX));
  gguf.raw("long", 10, GgufWriter::number(uint64_t{1} << 40));
  gguf.raw("double", 12, GgufWriter::number(0.25));
  gguf.list("names", 8, 2, GgufWriter::text("a") + GgufWriter::text(""));
  gguf.list("numbers", 5, 2, GgufWriter::number(int32_t{-1}) + GgufWriter::number(int32_t{5}));
  gguf.list("scores", 6, 1, GgufWriter::number(1.5f));
  gguf.list("none", 8, 0, "");
  gguf.tensor("a", {2, 3}, 0, std::string(24, '\0'));
  gguf.tensor("b", {4}, 1, std::string(8, '\0'));
  return gguf;
}

TEST(Gguf, ReadsMetadata) {
  const auto opened = GgufFile::parse(good().bytes(), "made.gguf");
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const GgufFile& file = **opened;
  EXPECT_EQ(*file.string("name"), "x");
  EXPECT_EQ(*file.integer("small"), 7);
  EXPECT_EQ(*file.integer("negative"), -7);
  EXPECT_EQ(*file.integer("byte"), 255);
  EXPECT_EQ(*file.integer("signed byte"), -1);
  EXPECT_EQ(*file.integer("long"), int64_t{1} << 40);
  EXPECT_EQ(std::get<uint64_t>(file.metadata().at("large")), UINT64_MAX);
  EXPECT_TRUE(std::get<bool>(file.metadata().at("yes")));
  EXPECT_EQ(*file.number("half"), 0.5);
  EXPECT_EQ(*file.number("double"), 0.25);
  EXPECT_EQ(*file.number("small"), 7.0);
  EXPECT_THAT(*file.strings("names"), ElementsAre("a", ""));
  EXPECT_THAT(*file.integers("numbers"), ElementsAre(-1, 5));
  EXPECT_THAT(std::get<std::vector<double>>(file.metadata().at("scores")), ElementsAre(1.5));
  EXPECT_THAT(*file.strings("none"), ElementsAre());
  EXPECT_TRUE(file.has("yes"));
  EXPECT_FALSE(file.has("no"));
}

TEST(Gguf, MetadataErrorsNameKeyAndFile) {
  const auto opened = GgufFile::parse(good().bytes(), "made.gguf");
  ASSERT_TRUE(opened.ok());
  const GgufFile& file = **opened;
  EXPECT_EQ(file.string("missing").status().code(), Code::kNotFound);
  EXPECT_THAT(file.string("missing").status().message(),
              ::testing::AllOf(HasSubstr("made.gguf"), HasSubstr("'missing'")));
  EXPECT_THAT(file.string("small").status().message(), HasSubstr("expected a string"));
  EXPECT_THAT(file.integer("large").status().message(), HasSubstr("expected an integer"));
  EXPECT_THAT(file.integer("half").status().message(), HasSubstr("expected an integer"));
  EXPECT_THAT(file.number("name").status().message(), HasSubstr("expected a number"));
  EXPECT_THAT(file.strings("numbers").status().message(), HasSubstr("a list of strings"));
  EXPECT_THAT(file.integers("scores").status().message(), HasSubstr("a list of integers"));
}

TEST(Gguf, ReadsTensors) {
  GgufWriter gguf;
  std::string q4_1;  // two rows of one block
  for (uint16_t row = 0; row < 2; ++row) {
    q4_1 += GgufWriter::number(uint16_t{0x3800});                         // d = 0.5
    q4_1 += GgufWriter::number(static_cast<uint16_t>(row ? 0xbc00 : 0));  // m = -1 or 0
    for (int i = 0; i < 16; ++i) q4_1 += static_cast<char>(i | (15 - i) << 4);
  }
  gguf.tensor("q", {32, 2}, 3, q4_1);
  gguf.tensor("v", {3}, 30, std::string("\x80\x3f\0\x40\x40\x40", 6));
  const auto opened = GgufFile::parse(gguf.bytes(), "made.gguf");
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const GgufTensor& q = (*opened)->tensors().at("q");
  EXPECT_THAT(q.shape, ElementsAre(2, 32));
  EXPECT_EQ(q.bytes, 40);
  float row[32];
  ASSERT_TRUE((*opened)->read_rows_f32(q, 1, 1, row).ok());
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(row[i], 0.5f * static_cast<float>(i) - 1.0f);
    EXPECT_EQ(row[i + 16], 0.5f * static_cast<float>(15 - i) - 1.0f);
  }
  const GgufTensor& v = (*opened)->tensors().at("v");
  EXPECT_EQ(v.rows(), 3);
  EXPECT_EQ(v.columns(), 1);
  float values[2];
  ASSERT_TRUE((*opened)->read_rows_f32(v, 1, 2, values).ok());
  EXPECT_THAT(values, ElementsAre(2.0f, 3.0f));
  EXPECT_FALSE((*opened)->read_rows_f32(v, 2, 2, values).ok());
  EXPECT_FALSE((*opened)->read_rows_f32(v, -1, 1, values).ok());
  EXPECT_FALSE((*opened)->read_rows_f32(v, 1, INT64_MAX, values).ok());
}

// All values of a small exhaustive Q8_0, Q4_0 and Q4_1 tensor, in fp32 and rounded to bf16, over
// more blocks than one piece of the staging holds.
TEST(Gguf, DequantisesLongRowsInPieces) {
  for (const uint32_t type : {2u, 3u, 8u}) {
    const GgufBlock& block = *gguf_block(type);
    const int64_t columns = 32 * 70'000;  // 1.3 MB to 2.4 MB a row: longer than the staging
    const int64_t blocks = 2 * columns / 32;
    std::string data;
    data.reserve(static_cast<size_t>(blocks * block.bytes));
    uint32_t random = 1;
    for (int64_t i = 0; i < blocks * block.bytes; ++i) {
      random = random * 1664525u + 1013904223u;
      data += static_cast<char>(random >> 24);
    }
    // Finite scales.
    for (int64_t i = 0; i < blocks; ++i)
      for (int64_t at : {int64_t{1}, type == 3 ? int64_t{3} : int64_t{1}})
        data[static_cast<size_t>(i * block.bytes + at)] &= '\x3f';
    GgufWriter gguf;
    gguf.tensor("t", {static_cast<uint64_t>(columns), 2}, type, data);
    const auto file = GgufFile::parse(gguf.bytes(), "made.gguf");
    ASSERT_TRUE(file.ok()) << file.status().message();
    std::vector<float> values(static_cast<size_t>(2 * columns));
    const GgufTensor& tensor = (*file)->tensors().at("t");
    ASSERT_TRUE((*file)->read_rows_f32(tensor, 0, 2, values.data()).ok());
    std::vector<uint16_t> rounded(values.size());
    gguf_dequantise(type, reinterpret_cast<const uint8_t*>(data.data()), 2 * columns,
                    rounded.data());
    const auto half_at = [&](int64_t at) {
      uint16_t half;
      std::memcpy(&half, data.data() + at, 2);
      return f16_to_f32(half);
    };
    for (int64_t i = 0; i < 2 * columns; ++i) {
      const int64_t at = i / 32 * block.bytes, j = i % 32;
      const auto byte = [&](int64_t k) {
        return static_cast<uint8_t>(data[static_cast<size_t>(at + k)]);
      };
      const float d = half_at(at);
      float expected = 0;
      if (type == 8) expected = d * static_cast<float>(static_cast<int8_t>(byte(2 + j)));
      const int64_t head = type == 3 ? 4 : 2;
      const int nibble = j < 16 ? byte(head + j % 16) & 15 : byte(head + j % 16) >> 4;
      if (type == 2) expected = d * static_cast<float>(nibble - 8);
      if (type == 3) expected = d * static_cast<float>(nibble) + half_at(at + 2);
      ASSERT_EQ(values[static_cast<size_t>(i)], expected) << type << " " << i;
      ASSERT_EQ(rounded[static_cast<size_t>(i)], f32_to_bf16(expected)) << type << " " << i;
    }
  }
}

TEST(Gguf, RefusesWrongBeginnings) {
  const std::string bytes = good().bytes();
  EXPECT_THAT(error_of(std::string()), HasSubstr("magic number of 4 bytes at 0"));
  EXPECT_THAT(error_of("GGML" + bytes.substr(4)), HasSubstr("begins with 'GGML'"));
  EXPECT_THAT(error_of(std::string("\0\1\2\xff", 4)), HasSubstr("\\x00\\x01\\x02\\xff"));
  EXPECT_THAT(error_of("GGUF\2" + bytes.substr(5)), HasSubstr("version 2"));
  EXPECT_THAT(error_of(std::string("GGUF\0\0\0\3", 8) + bytes.substr(8)), HasSubstr("big-endian"));
  const uint64_t huge = uint64_t{1} << 60;
  std::string counts = bytes;
  std::memcpy(counts.data() + 8, &huge, 8);
  EXPECT_THAT(error_of(counts), HasSubstr("1152921504606846976 tensors are more than"));
  counts = bytes;
  std::memcpy(counts.data() + 16, &huge, 8);
  EXPECT_THAT(error_of(counts), HasSubstr("1152921504606846976 metadata entries"));
}

TEST(Gguf, RefusesWrongMetadata) {
  const auto with = [](const std::function<void(GgufWriter&)>& spoil) {
    GgufWriter gguf = good();
    spoil(gguf);
    return error_of(gguf);
  };
  EXPECT_EQ(with([](GgufWriter&) {}), "accepted");
  EXPECT_THAT(with([](auto& g) { g.repeat("small"); }), HasSubstr("'small' is there twice"));
  EXPECT_THAT(with([](auto& g) { g.raw("odd", 13, ""); }),
              HasSubstr("'odd' has the unknown value type 13"));
  EXPECT_THAT(with([](auto& g) { g.raw("odd", 7, "\2"); }), HasSubstr("boolean of value 2"));
  EXPECT_THAT(with([](auto& g) { g.raw("odd", 8, GgufWriter::number(uint64_t{1} << 60)); }),
              HasSubstr("metadata 'odd' of 1152921504606846976 bytes"));
  EXPECT_THAT(with([](auto& g) { g.list("odd", 8, uint64_t{1} << 60, ""); }),
              HasSubstr("'odd' is a list of 1152921504606846976 elements"));
  EXPECT_THAT(with([](auto& g) { g.list("odd", 0, UINT64_MAX, ""); }),
              HasSubstr("'odd' is a list"));
  EXPECT_THAT(with([](auto& g) { g.list("odd", 8, 2, GgufWriter::text("a") + "\xff"); }),
              HasSubstr("'odd'"));
  EXPECT_THAT(with([](auto& g) { g.list("odd", 9, 1, ""); }),
              HasSubstr("'odd' is a list of lists"));
  EXPECT_THAT(with([](auto& g) { g.list("odd", 99, 1, ""); }), HasSubstr("unknown value type 99"));
  EXPECT_THAT(with([](auto& g) { g.list("odd", 10, 1, GgufWriter::number(UINT64_MAX)); }),
              HasSubstr("'odd' has a number above 2^63"));
  EXPECT_THAT(with([](auto& g) { g.u32(std::string(65536, 'k'), 1); }),
              HasSubstr("a metadata key at"));
  for (const uint32_t alignment : {0u, 24u, 33u, 1u << 21})
    EXPECT_THAT(with([&](auto& g) { g.u32("general.alignment", alignment); }),
                HasSubstr("expected a power of two"));
  EXPECT_THAT(with([&](auto& g) { g.string("general.alignment", "x"); }), HasSubstr("no integer"));
  EXPECT_EQ(with([&](auto& g) { g.u32("general.alignment", 32); }), "accepted");
}

TEST(Gguf, RefusesWrongTensors) {
  const auto with = [](const std::function<void(GgufWriter&)>& spoil) {
    GgufWriter gguf = good();
    spoil(gguf);
    return error_of(gguf);
  };
  const uint64_t huge = uint64_t{1} << 60;
  EXPECT_THAT(with([](auto& g) { g.repeat("a"); }), HasSubstr("tensor 'a' is there twice"));
  EXPECT_THAT(with([](auto& g) { g.tensor_at("c", {}, 0, 64); }),
              HasSubstr("'c' has 0 dimensions"));
  EXPECT_THAT(with([](auto& g) {
                g.tensor_at("c", {1, 1, 1, 1, 1}, 0, 64);
              }),
              HasSubstr("'c' has 5 dimensions"));
  EXPECT_THAT(with([](auto& g) { g.tensor_at("c", {0, 4}, 0, 64); }), HasSubstr("'c': size 0"));
  EXPECT_THAT(with([&](auto& g) { g.tensor_at("c", {huge, 16}, 0, 64); }), HasSubstr("2^63"));
  EXPECT_THAT(with([&](auto& g) { g.tensor_at("c", {huge, 4}, 0, 64); }), HasSubstr("2^63 bytes"));
  EXPECT_THAT(with([&](auto& g) { g.tensor_at("c", {UINT64_MAX}, 0, 64); }), HasSubstr("2^63"));
  EXPECT_THAT(with([&](auto& g) { g.tensor_at("c", {huge}, 0, 64); }), HasSubstr("beyond the"));
  EXPECT_THAT(with([](auto& g) {
                g.tensor_at("c", {31, 2}, 8, 64);
              }),
              HasSubstr("'c' has rows of 31; Q8_0 needs a multiple of 32"));
  EXPECT_THAT(with([](auto& g) { g.tensor_at("c", {1}, 0, 64); }),
              HasSubstr("'c' of 4 bytes at 64 is beyond the 40 bytes of data"));
  EXPECT_THAT(with([](auto& g) { g.tensor_at("c", {1}, 0, UINT64_MAX); }), HasSubstr("beyond"));
  EXPECT_THAT(with([](auto& g) { g.tensor_at("c", {1}, 0, 4); }),
              HasSubstr("'c' is at 4; expected a multiple of 32"));
  EXPECT_THAT(with([](auto& g) { g.tensor_at("c", {1}, 0, 0); }), HasSubstr("is inside tensor"));
  EXPECT_THAT(with([](auto& g) {
                g.remove("b");
                g.tensor("c", {1}, 0, std::string(64, 'x'));
                g.tensor("d", {1}, 0, "1234");
                g.remove("c");
              }),
              HasSubstr("'d' is at 128; expected 32"));
  EXPECT_THAT(with([](auto& g) { g.tensor_at(std::string(2000, 'n'), {1}, 0, 64); }),
              HasSubstr("the name of a tensor"));
  // A type that is not supported is for the reader of the tensor to refuse; its place is checked.
  GgufWriter other = good();
  other.tensor("c", {256, 1}, 12, std::string(144, 'x'));
  other.tensor("d", {1}, 0, "1234");
  const auto file = GgufFile::parse(other.bytes(), "made.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->tensors().at("c").bytes, 0);
  float out[256];
  const Status status = (*file)->read_rows_f32((*file)->tensors().at("c"), 0, 1, out);
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("Q4_K"));
  EXPECT_EQ(gguf_type_name(4242), "type 4242");
}

TEST(Gguf, EveryTruncationIsAnErrorAndEveryBitFlipIsSafe) {
  const std::string bytes = good().bytes();
  ASSERT_EQ(error_of(bytes), "accepted");
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_NE(error_of(bytes.substr(0, length)), "accepted") << length;
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const auto file = GgufFile::parse(flipped, "made.gguf");
    if (!file.ok()) continue;
    for (const auto& [name, tensor] : (*file)->tensors()) {
      if (gguf_block(tensor.type) == nullptr) continue;
      EXPECT_LE(tensor.offset + tensor.bytes, static_cast<int64_t>(bytes.size()));
      std::vector<float> out(static_cast<size_t>(tensor.rows() * tensor.columns()));
      EXPECT_TRUE((*file)->read_rows_f32(tensor, 0, tensor.rows(), out.data()).ok()) << bit;
    }
  }
}

TEST(Gguf, AHeaderHasALimit) {
  // 65 MiB of text: more than any header needs.
  GgufWriter gguf = good();
  gguf.string("text", std::string(size_t{65} << 20, 'x'));
  EXPECT_THAT(error_of(gguf), HasSubstr("longer than the 67108864 bytes that are allowed"));
}

}  // namespace
}  // namespace deltad

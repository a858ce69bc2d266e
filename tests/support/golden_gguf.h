// The GGUF files of tests/golden/gguf by the type of their values. Those of fp32 and fp16 are made
// here from that of bf16, whose values they have (fp16 rounds the smallest): they are too large to
// keep.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "io/gguf.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/ptx/minifloat.h"
#include "tests/support/temp_folder.h"

namespace deltad::testing {

inline void write_metadata(GgufWriter& out, const std::string& key, const GgufValue& value) {
  const auto number = [](auto n) { return GgufWriter::number(n); };
  if (const auto* flag = std::get_if<bool>(&value)) out.raw(key, 7, number(char{*flag}));
  if (const auto* whole = std::get_if<int64_t>(&value)) out.raw(key, 11, number(*whole));
  if (const auto* real = std::get_if<double>(&value)) out.raw(key, 12, number(*real));
  if (const auto* text = std::get_if<std::string>(&value)) out.string(key, *text);
  std::string elements;
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) {
    for (const std::string& text : *texts) elements += GgufWriter::text(text);
    out.list(key, 8, texts->size(), elements);
  } else if (const auto* wholes = std::get_if<std::vector<int64_t>>(&value)) {
    for (const int64_t whole : *wholes) elements += number(whole);
    out.list(key, 11, wholes->size(), elements);
  } else if (const auto* reals = std::get_if<std::vector<double>>(&value)) {
    for (const double real : *reals) elements += number(real);
    out.list(key, 12, reals->size(), elements);
  }
}

inline std::string as_f16(const std::string& f32) {
  std::string f16;
  for (size_t at = 0; at < f32.size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, f32.data() + at, sizeof value);
    f16 += GgufWriter::number(static_cast<uint16_t>(ptx::to_f16(double{value})));
  }
  return f16;
}

// type: "f32", "f16", "bf16", "q8_0", "q4_0" or "q4_1".
inline std::string golden_gguf(const std::string& type) {
  const std::string folder = DELTAD_GOLDEN "/gguf/llama-";
  if (type != "f32" && type != "f16") return folder + type + ".gguf";
  static const TempFolder made;
  static std::map<std::string, std::string> paths;
  std::string& path = paths[type];
  if (!path.empty()) return path;
  const auto source = GgufFile::open(folder + "bf16.gguf");
  EXPECT_TRUE(source.ok()) << source.status().message();
  GgufWriter out;
  for (const auto& [key, value] : (*source)->metadata()) write_metadata(out, key, value);
  for (const auto& [name, tensor] : (*source)->tensors()) {
    std::string data(static_cast<size_t>(tensor.rows() * tensor.columns()) * sizeof(float), '\0');
    const Status read =
        (*source)->read_rows_f32(tensor, 0, tensor.rows(), reinterpret_cast<float*>(data.data()));
    EXPECT_TRUE(read.ok()) << read.message();
    // Norms stay as they are.
    const bool narrow = type == "f16" && tensor.type == static_cast<uint32_t>(GgufType::kBF16);
    if (narrow) data = as_f16(data);
    out.tensor(name, {tensor.shape.rbegin(), tensor.shape.rend()}, narrow ? 1 : 0, data);
  }
  return path = made.write("llama-" + type + ".gguf", out.bytes());
}

}  // namespace deltad::testing

#include "delta/packed_adapter.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "delta/digest.h"
#include "io/safetensors.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

constexpr int64_t kScaleBytes = 8;  // of a row: two fp32

int64_t value_bytes(int bits, int64_t count) { return bits == 4 ? (count + 1) / 2 : count; }

float largest(const std::vector<float>& values) {
  float most = 0;
  for (const float x : values) most = std::max(most, std::abs(x));
  return most;
}

int quantised(float x, float scale, int limit) {
  if (scale == 0) return 0;
  const float q = std::nearbyint(x / scale);  // half to even
  return static_cast<int>(std::clamp(q, static_cast<float>(-limit), static_cast<float>(limit)));
}

// In 4 bits clipping the few largest values makes the others finer: of some scales the one with the
// smallest squared error, the largest of equals.
float scale_of(int bits, const std::vector<float>& values) {
  const float most = largest(values);
  if (bits == 8) return most / 127;
  float best = 0;
  double least = 0;
  for (int percent = 100; percent >= 60; percent -= 5) {
    const float scale = most * (static_cast<float>(percent) / 100) / 7;
    double error = 0;
    for (const float x : values) {
      const double off =
          static_cast<double>(x) - static_cast<double>(scale) * quantised(x, scale, 7);
      error += off * off;
    }
    if (percent == 100 || error < least) {
      least = error;
      best = scale;
    }
  }
  return best;
}

void put_values(int bits, float scale, const std::vector<float>& values, uint8_t* out) {
  if (bits == 8) {
    for (size_t i = 0; i < values.size(); ++i)
      out[i] = static_cast<uint8_t>(static_cast<int8_t>(quantised(values[i], scale, 127)));
    return;
  }
  for (size_t i = 0; i < values.size(); i += 2) {
    const int low = quantised(values[i], scale, 7) + 8;
    const int high = (i + 1 < values.size() ? quantised(values[i + 1], scale, 7) : 0) + 8;
    out[i / 2] = static_cast<uint8_t>(low | high << 4);
  }
}

float value_at(int bits, float scale, const uint8_t* in, int64_t i) {
  if (bits == 8) return scale * static_cast<float>(static_cast<int8_t>(in[i]));
  return scale * static_cast<float>((in[i / 2] >> (i % 2 * 4) & 15) - 8);
}

std::string digest_of(const PackedAdapter& adapter) {
  std::map<std::string, HashedTensor> hashes;
  const auto add = [&](const std::string& name, const Shape& shape, const void* data,
                       int64_t bytes) {
    TensorHasher hasher;
    hasher.update(data, bytes);
    hashes.insert_or_assign(name, HashedTensor{DType::kU8, shape, hasher.finish()});
  };
  for (const PackedAdapter::Module& m : adapter.modules) {
    const auto bytes = static_cast<int64_t>(m.rows.size());
    add(m.name, Shape{m.rank, bytes / m.rank}, m.rows.data(), bytes);
    const auto scale = std::bit_cast<std::array<uint8_t, sizeof(double)>>(m.scale);
    add(m.name + ".scale", Shape{static_cast<int64_t>(scale.size())}, scale.data(),
        static_cast<int64_t>(scale.size()));
  }
  const auto bits = static_cast<uint8_t>(adapter.bits);
  add("bits", Shape{1}, &bits, 1);
  return variant_digest(hashes);
}

}  // namespace

int64_t packed_row_bytes(int bits, int64_t inputs, int64_t outputs) {
  if (bits == 16) return 2 * (inputs + outputs);
  return kScaleBytes + value_bytes(bits, inputs) + value_bytes(bits, outputs);
}

std::vector<uint8_t> pack_factors(int bits, const AdapterFactors& f) {
  const int64_t row_bytes = packed_row_bytes(bits, f.inputs, f.outputs);
  std::vector<uint8_t> rows(static_cast<size_t>(f.rank * row_bytes));
  std::vector<float> a(static_cast<size_t>(f.inputs)), b(static_cast<size_t>(f.outputs));
  for (int64_t i = 0; i < f.rank; ++i) {
    uint8_t* out = rows.data() + i * row_bytes;
    std::copy_n(f.a.begin() + i * f.inputs, f.inputs, a.begin());
    for (int64_t r = 0; r < f.outputs; ++r)
      b[static_cast<size_t>(r)] = f.b[static_cast<size_t>(r * f.rank + i)];
    if (bits == 16) {
      std::vector<uint16_t> rounded(a.size() + b.size());
      std::transform(a.begin(), a.end(), rounded.begin(), f32_to_bf16);
      std::transform(b.begin(), b.end(), rounded.begin() + f.inputs, f32_to_bf16);
      std::memcpy(out, rounded.data(), 2 * rounded.size());
      continue;
    }
    const float scales[2] = {scale_of(bits, a), scale_of(bits, b)};
    std::memcpy(out, scales, kScaleBytes);
    put_values(bits, scales[0], a, out + kScaleBytes);
    put_values(bits, scales[1], b, out + kScaleBytes + value_bytes(bits, f.inputs));
  }
  return rows;
}

Status check_packed_scales(const uint8_t* raw, int64_t rank, int64_t row_bytes) {
  for (int64_t i = 0; i < rank; ++i) {
    float scales[2];
    std::memcpy(scales, raw + i * row_bytes, kScaleBytes);
    for (const float scale : scales)
      if (!std::isfinite(scale) || scale < 0)
        return invalid_argument(fmt::format(
            "a scale of rank vector {} is {}, expected a finite number, not negative", i, scale));
  }
  return {};
}

Status unpack_factors(int bits, const uint8_t* raw, AdapterFactors* f) {
  const int64_t row_bytes = packed_row_bytes(bits, f->inputs, f->outputs);
  if (bits != 16) RETURN_IF_ERROR(check_packed_scales(raw, f->rank, row_bytes));
  f->a.resize(static_cast<size_t>(f->rank * f->inputs));
  f->b.resize(static_cast<size_t>(f->outputs * f->rank));
  for (int64_t i = 0; i < f->rank; ++i) {
    const uint8_t* row = raw + i * row_bytes;
    float* a = f->a.data() + i * f->inputs;
    float* b = f->b.data() + i;  // every rank-th
    if (bits == 16) {
      std::vector<uint16_t> values(static_cast<size_t>(f->inputs + f->outputs));
      std::memcpy(values.data(), row, 2 * values.size());
      for (int64_t c = 0; c < f->inputs; ++c) a[c] = bf16_to_f32(values[static_cast<size_t>(c)]);
      for (int64_t r = 0; r < f->outputs; ++r)
        b[r * f->rank] = bf16_to_f32(values[static_cast<size_t>(f->inputs + r)]);
      continue;
    }
    float scales[2];
    std::memcpy(scales, row, kScaleBytes);
    const uint8_t* q = row + kScaleBytes;
    for (int64_t c = 0; c < f->inputs; ++c) a[c] = value_at(bits, scales[0], q, c);
    q += value_bytes(bits, f->inputs);
    for (int64_t r = 0; r < f->outputs; ++r) b[r * f->rank] = value_at(bits, scales[1], q, r);
  }
  return {};
}

PackedAdapter pack_adapter(int bits, const std::string& base_digest, const AdapterFactorSet& set) {
  PackedAdapter adapter;
  adapter.bits = bits;
  adapter.base_digest = base_digest;
  for (const auto& [weight, factors] : set)
    adapter.modules.push_back({weight.substr(0, weight.rfind('.')), factors.rank, factors.scale,
                               pack_factors(bits, factors)});
  adapter.digest = digest_of(adapter);
  return adapter;
}

Result<int64_t> write_packed_adapter(const PackedAdapter& adapter, const std::string& path) {
  std::map<double, int64_t> uses;
  for (const PackedAdapter::Module& m : adapter.modules) ++uses[m.scale];
  const auto common = std::max_element(
      uses.begin(), uses.end(), [](const auto& x, const auto& y) { return x.second < y.second; });
  std::map<std::string, std::string> metadata = {{"format", kPackedFormat},
                                                 {"version", kPackedVersion},
                                                 {"bits", std::to_string(adapter.bits)},
                                                 {"base_digest", adapter.base_digest},
                                                 {"scale", fmt::format("{}", common->first)},
                                                 {"digest", adapter.digest}};
  std::vector<SafetensorsWriter::Tensor> tensors;
  for (const PackedAdapter::Module& m : adapter.modules) {
    if (m.scale != common->first) metadata["scale." + m.name] = fmt::format("{}", m.scale);
    const auto size = static_cast<int64_t>(m.rows.size());
    tensors.push_back({m.name, DType::kU8, Shape{m.rank, size / m.rank}});
  }
  ASSIGN_OR_RETURN(const auto writer, SafetensorsWriter::create(path, metadata, tensors));
  for (const PackedAdapter::Module& m : adapter.modules)
    RETURN_IF_ERROR(writer->write(m.name, 0, m.rows.data(), static_cast<int64_t>(m.rows.size())));
  RETURN_IF_ERROR(writer->finish());
  ASSIGN_OR_RETURN(const auto file, FileReader::open(path));
  return file->size();
}

}  // namespace deltad

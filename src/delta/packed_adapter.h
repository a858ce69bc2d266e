// Packed LoRA adapters, NAME.lora.safetensors: low-rank factors of linear layers in 16, 8 or 4
// bits, in few bytes beside the values. Pure functions, any thread. LoraAdapter opens such a file.
//
// A safetensors file. Metadata, all strings:
//   format       "deltad.lora"
//   version      "1"
//   bits         "16", "8" or "4"
//   base_digest  of the base that it was made for; "" if unknown
//   scale        s of Δ = s·B·A, a decimal number that gives the double back
//   scale.MODULE s of a module that has another
//   digest       32 hex digits (delta/digest.h) over the tensors and, as if they were tensors of
//                bytes, MODULE.scale (s as a little-endian double) of each and "bits" (one byte)
// One U8 tensor [rank, n] for each adapted module, named as the base's weight without ".weight".
// Its row i holds row i of A (d_in values), then column i of B (d_out values), little-endian:
//   16 bits  bf16 values
//   8 bits   the fp32 scales of the two, then the values as int8: value = scale·q, |q| ≤ 127
//   4 bits   the same with |q| ≤ 7, two in a byte, the first in the low half, as q + 8. A begins
//            and B begins with a byte of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "delta/adapter_factors.h"

namespace deltad {

inline constexpr const char* kPackedFormat = "deltad.lora";
inline constexpr const char* kPackedVersion = "1";

// n, the bytes of a row.
int64_t packed_row_bytes(int bits, int64_t inputs, int64_t outputs);
// Quantises each row of A and each column of B on its own; in 16 bits rounds to nearest even.
std::vector<uint8_t> pack_factors(int bits, const AdapterFactors& factors);
// Of rows in 8 or 4 bits: kInvalidArgument if a scale is negative or not finite.
Status check_packed_scales(const uint8_t* raw, int64_t rank, int64_t row_bytes);
// kInvalidArgument as of those. rank, inputs and outputs are set already.
Status unpack_factors(int bits, const uint8_t* raw, AdapterFactors* factors);

struct PackedAdapter {
  int bits = 16;
  std::string base_digest, digest;
  struct Module {
    std::string name;
    int64_t rank = 0;
    double scale = 1;
    std::vector<uint8_t> rows;
  };
  std::vector<Module> modules;  // by name
};

PackedAdapter pack_adapter(int bits, const std::string& base_digest, const AdapterFactorSet& set);
// Written aside and renamed. The bytes of the file.
Result<int64_t> write_packed_adapter(const PackedAdapter& adapter, const std::string& path);

}  // namespace deltad

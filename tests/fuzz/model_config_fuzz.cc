// Any text as config.json and, behind a zero byte, generation_config.json: an error, or sizes that
// hold together.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "model/config.h"
#include "model/weight_table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deltad;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const size_t zero = text.find('\0');
  const auto config = parse_hf_config(
      text.substr(0, zero), zero == std::string::npos ? std::string() : text.substr(zero + 1));
  if (!config.ok()) {
    if (config.status().message().find("config.json") == std::string::npos) abort();
    return 0;
  }
  if (!check_config(*config).ok() || config->vocab < 1 || config->layers < 1) abort();
  if (config->layers > 8) return 0;  // a long table takes long
  const WeightTable table = make_weight_table(*config);
  for (const auto& spec : table.specs)
    if (spec.rows() < 1 || spec.columns < 1) abort();
  return 0;
}

#include "deltad/variants_config.h"

#include <cmath>
#include <string>
#include <utility>

namespace deltad {
namespace {

bool read_text(const YAML::Node& node, std::string* out) {
  if (!node.IsScalar() || node.Scalar().empty()) return false;
  *out = node.Scalar();
  return true;
}

bool read_number(const YAML::Node& node, double low, double high, double* out) {
  return node.IsScalar() && YAML::convert<double>::decode(node, *out) && std::isfinite(*out) &&
         *out >= low && *out <= high;
}

bool read_limit(const YAML::Node& node, VariantLimit* out) {
  if (!node.IsMap()) return false;
  for (const auto& item : node) {
    if (!item.first.IsScalar()) return false;
    const std::string& key = item.first.Scalar();
    bool right = false;
    if (key == "requests_per_second") {
      right = read_number(item.second, 0, 1e6, &out->requests_per_second) &&
              out->requests_per_second > 0;
    } else if (key == "burst") {
      right = item.second.IsScalar() && YAML::convert<int64_t>::decode(item.second, out->burst) &&
              out->burst >= 1 && out->burst <= 1000000;
    } else if (key == "tokens_per_minute") {
      right = read_number(item.second, 1, 1e12, &out->tokens_per_minute);
    }
    if (!right) return false;
  }
  return out->any() && (out->burst == 0 || out->requests_per_second > 0);
}

bool read_variant(const YAML::Node& node, VariantSource* out) {
  if (!node.IsMap()) return read_text(node, &out->path);
  for (const auto& item : node) {
    if (!item.first.IsScalar()) return false;
    const std::string& key = item.first.Scalar();
    const bool right = key == "path"         ? read_text(item.second, &out->path)
                       : key == "rate_limit" ? read_limit(item.second, &out->limit)
                       : key == "pin"        ? YAML::convert<bool>::decode(item.second, out->pin)
                                             : false;
    if (!right) return false;
  }
  return !out->path.empty();
}

}  // namespace

bool read_variants(const YAML::Node& node, std::vector<VariantSource>* out) {
  if (!node.IsMap()) return false;
  for (const auto& item : node) {
    VariantSource source;
    if (!item.first.IsScalar() || !read_variant(item.second, &source)) return false;
    source.name = item.first.Scalar();
    out->push_back(std::move(source));
  }
  return true;
}

}  // namespace deltad

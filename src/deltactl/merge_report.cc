#include "deltactl/merge_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "deltactl/console.h"

namespace deltad {
namespace {

using Json = nlohmann::ordered_json;

std::string text(const Json& value) { return value.get<std::string>(); }

void print_monosoup(const Json& tensors) {
  fmt::print("{:<48} {:>6} {:>8} {:>8} {:>8}\n", "tensor", "k", "P", "λ_low", "λ_high");
  for (const Json& t : tensors) {
    if (!t["changed"].get<bool>()) {
      fmt::print("{:<48} as it is\n", text(t["name"]));
      continue;
    }
    fmt::print("{:<48} {:>6} {:>8.4f} {:>8.4f} {:>8.4f}\n", text(t["name"]), t["k"].get<int64_t>(),
               t["energy"].get<double>(), t["lambda_low"].get<double>(),
               t["lambda_high"].get<double>());
  }
}

void print_opcm(const Json& steps) {
  for (const Json& step : steps) {
    double kept = 0;
    for (const Json& t : step["tensors"]) kept += t["kept_norm"].get<double>();
    const size_t n = step["tensors"].size();
    fmt::print("{}: λ {:.4f}", text(step["source"]), step["lambda"].get<double>());
    if (n != 0)
      fmt::print(", {} matrices projected, {:.1f} % of their norm kept", n,
                 100 * kept / static_cast<double>(n));
    fmt::print("\n");
  }
}

void print_factors(const Json& factors) {
  fmt::print("{:<48} {:>6} {:>12} {:>10} {}\n", "tensor", "rank", "kept energy", "rel.error",
             "SVD");
  for (const Json& f : factors)
    fmt::print("{:<48} {:>6} {:>12.6f} {:>10.2e} {}\n", text(f["name"]), f["rank"].get<int64_t>(),
               f["kept_energy"].get<double>(), f["error"].get<double>(), text(f["svd"]));
}

}  // namespace

void print_merge_report(const Json& document) {
  if (document.contains("tensors")) print_monosoup(document["tensors"]);
  if (document.contains("steps")) print_opcm(document["steps"]);
  if (document.contains("factors")) print_factors(document["factors"]);
  if (document.contains("relative_error"))
    fmt::print("relative error of the sign delta: {:.3f}\n",
               document["relative_error"].get<double>());
  const auto peak = document["peak_bytes"].get<int64_t>();
  if (peak > 0)
    fmt::print("{} for the matrices at work, on {} threads\n", human_bytes(peak),
               document["jobs"].get<int>());
  fmt::print("{}: {} of {}\n", text(document["output"]), text(document["method"]),
             fmt::join(document["sources"].get<std::vector<std::string>>(), ", "));
}

}  // namespace deltad

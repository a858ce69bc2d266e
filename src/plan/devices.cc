#include "plan/devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <string_view>

#include "base/byte_count.h"
#include "base/cpu_features.h"

namespace deltad {
namespace {

constexpr double kCpuBandwidth = 20e9;
constexpr int64_t kMostDevices = 1024;
constexpr int64_t kGB = 1000000000;

}  // namespace

// Memory is the data sheet's figure in units of 10⁹ bytes, the lower reading of it. Operations are
// without sparsity: half of what some sheets print.
const std::vector<Device>& known_gpus() {
  static const std::vector<Device> gpus{
      {"H100-80GB", 80 * kGB, 3.35e12, 989e12, "NVIDIA H100 data sheet, SXM"},
      {"H100-PCIe-80GB", 80 * kGB, 2.0e12, 756e12, "NVIDIA H100 data sheet, PCIe"},
      {"H100-NVL-94GB", 94 * kGB, 3.9e12, 835e12, "NVIDIA H100 data sheet, NVL"},
      {"H200-141GB", 141 * kGB, 4.8e12, 989e12, "NVIDIA H200 data sheet, SXM"},
      {"A100-80GB", 80 * kGB, 2.039e12, 312e12, "NVIDIA A100 data sheet, 80GB SXM"},
      {"A100-40GB", 40 * kGB, 1.555e12, 312e12, "NVIDIA A100 data sheet, 40GB SXM"},
      {"L40S-48GB", 48 * kGB, 0.864e12, 362e12, "NVIDIA L40S data sheet"},
      {"L4-24GB", 24 * kGB, 0.3e12, 121e12, "NVIDIA L4 data sheet"},
      {"A10-24GB", 24 * kGB, 0.6e12, 125e12, "NVIDIA A10 data sheet"},
  };
  return gpus;
}

Result<Devices> parse_devices(const std::string& text) {
  Devices out;
  if (text.starts_with("cpu:")) {
    const std::optional<int64_t> bytes = byte_count(text.substr(4));
    if (!bytes)
      return invalid_argument(fmt::format(
          "--gpus '{}': expected an amount of memory behind 'cpu:', such as cpu:24GiB", text));
    out.device = {"CPU", *bytes, kCpuBandwidth, 0, "an assumption: see --memory-bandwidth"};
    ASSIGN_OR_RETURN(const Isa isa, choose_isa(""));  // of the CPU at hand
    out.device.activation_bytes = isa == Isa::kAvx512Bf16 ? 2 : 4;
    return out;
  }
  std::string_view name = text;
  if (const size_t x = name.find('x'); x != std::string_view::npos && x > 0) {
    const auto [end, error] = std::from_chars(name.data(), name.data() + x, out.count);
    if (error != std::errc() || end != name.data() + x || out.count < 1 || out.count > kMostDevices)
      return invalid_argument(
          fmt::format("--gpus '{}': expected a number from 1 to {} before the x, as in 8xH100-80GB",
                      text, kMostDevices));
    name.remove_prefix(x + 1);
  }
  std::vector<std::string> names;
  for (const Device& gpu : known_gpus()) {
    names.push_back(gpu.name);
    if (gpu.name != name) continue;
    out.device = gpu;
    return out;
  }
  return invalid_argument(
      fmt::format("--gpus '{}': '{}' is not known, expected one of {}, or cpu:SIZE", text, name,
                  fmt::join(names, ", ")));
}

Result<double> parse_rate(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  double scale = 0;
  for (const auto& [name, value] : {std::pair{"MB/s", 1e6},
                                    {"GB/s", 1e9},
                                    {"TB/s", 1e12},
                                    {"MiB/s", 0x1p20},
                                    {"GiB/s", 0x1p30}})
    if (unit == name) scale = value;
  if (error != std::errc() || scale == 0 || !std::isfinite(number) || number <= 0)
    return invalid_argument(
        fmt::format("'{}' is no rate, expected a number and MB/s, GB/s, TB/s, MiB/s or GiB/s, such "
                    "as 3GB/s",
                    text));
  return number * scale;
}

}  // namespace deltad

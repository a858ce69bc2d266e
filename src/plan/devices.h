// The devices that a plan can be made for: what NVIDIA's data sheets say of each GPU, and a CPU
// with a given share of memory. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace deltad {

struct Device {
  std::string name;
  int64_t memory = 0;            // bytes
  double bandwidth = 0;          // bytes a second
  double operations = 0;         // bf16 multiplications and additions a second, dense; 0: unknown
  std::string source;            // of these numbers
  int64_t activation_bytes = 2;  // of a value that enters a linear layer
};

const std::vector<Device>& known_gpus();

struct Devices {
  int64_t count = 1;
  Device device;
};

// "8xH100-80GB", "H200-141GB", "cpu:24GiB". An error lists what is known.
Result<Devices> parse_devices(const std::string& text);
// "3GB/s", "1.5GiB/s", "800MB/s": bytes a second.
Result<double> parse_rate(const std::string& text);

}  // namespace deltad

// Programs that no test sets up (a daemon on emulated GPUs) are told by the environment:
//
//   DELTAD_EMULATED_GPU=devices=2,memory=268435456,order=random,seed=7,idle_ms=5,fail=17:2,off=KEY,
//   peers=1,nccl=0
//
// fail=CALL:ERROR, sticky=CALL:ERROR and late=CALL:ERROR (at execution) inject a failure, with
// :DEVICE behind it at that device's call, with :DEVICE:NAME at its call of that name (counted from
// 0; how often it is asked in loops differs from run to run); hang=CALL:0 lets work hang; off=KEY
// switches a site of sync_sites() off (commas in it are written as '+'). When the program ends it
// writes what was found to the file DELTAD_EMULATED_GPU_REPORT, "found", "leak", "call" or "site"
// before each line.
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/check.h"
#include "tests/support/cuda_on_cpu/runtime/call.h"

namespace deltad::emulated_gpu {
namespace {

void write_lines(std::ostream& out, const char* what, const std::string& lines) {
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) out << what << ' ' << line << '\n';
}

void write_report() {
  {
    const MutexLock lock(gpu().mutex);
    gpu().schedule.drain();  // what nobody waited for may be wrong too
  }
  std::ofstream out(std::getenv("DELTAD_EMULATED_GPU_REPORT"));
  write_lines(out, "found", report());
  write_lines(out, "leak", leaks());
  for (const CallRecord& call : calls())
    out << "call " << call.name << ' ' << call.site << ' ' << call.device << '\n';
  for (const SyncSite& site : sync_sites()) {
    out << "site " << site.call << ' ' << site.key << ' ' << describe_site(site.key) << '\n';
  }
}

Failure failure_of(const std::string& value) {
  const size_t colon = value.find(':');
  CHECK(colon != std::string::npos, "DELTAD_EMULATED_GPU: CALL:ERROR expected");
  Failure failure{std::stoull(value), std::stoi(value.substr(colon + 1))};
  const size_t device = value.find(':', colon + 1);
  if (device == std::string::npos) return failure;
  failure.device = std::stoi(value.substr(device + 1));
  const size_t name = value.find(':', device + 1);
  if (name != std::string::npos) failure.name = value.substr(name + 1);
  return failure;
}

}  // namespace

Settings settings_of_environment() {
  Settings settings;
  const char* text = std::getenv("DELTAD_EMULATED_GPU");
  std::istringstream in(text == nullptr ? "" : text);
  for (std::string part; std::getline(in, part, ',');) {
    const size_t equals = part.find('=');
    CHECK(equals != std::string::npos, "DELTAD_EMULATED_GPU: name=value expected");
    const std::string name = part.substr(0, equals);
    std::string value = part.substr(equals + 1);
    Options& options = settings.options;
    if (name == "devices") {
      options.devices = std::stoi(value);
    } else if (name == "memory") {
      options.memory_bytes = std::stoull(value);
    } else if (name == "seed") {
      options.seed = static_cast<uint32_t>(std::stoul(value));
    } else if (name == "idle_ms") {
      options.idle_ms = std::stoi(value);
    } else if (name == "site_frames") {
      options.site_frames = std::stoi(value);
    } else if (name == "order") {
      CHECK(value == "eager" || value == "latest" || value == "random",
            "DELTAD_EMULATED_GPU: order");
      options.order = value == "eager"    ? Order::kEager
                      : value == "latest" ? Order::kLatest
                                          : Order::kRandom;
    } else if (name == "peers") {
      options.peers = std::stoi(value);
    } else if (name == "nccl") {
      options.nccl = value == "1";
    } else if (name == "pageable_is_fault") {
      options.pageable_is_fault = value == "1";
    } else if (name == "fail" || name == "sticky" || name == "late" || name == "hang") {
      Failure failure = failure_of(value);
      failure.sticky = name == "sticky";
      failure.at_execution = name == "late";
      failure.hangs = name == "hang";
      settings.failures.push_back(failure);
    } else if (name == "off") {
      for (char& c : value) c = c == '+' ? ',' : c;
      settings.off.push_back(value);
    } else {
      CHECK(false, "DELTAD_EMULATED_GPU: an unknown name");
    }
  }
  if (std::getenv("DELTAD_EMULATED_GPU_REPORT") != nullptr) std::atexit(write_report);
  return settings;
}

}  // namespace deltad::emulated_gpu

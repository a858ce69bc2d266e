// Loads the PTX of a test kernel and runs it; params in order, laid out as in C.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "support/ptx/run.h"

namespace deltad::ptx {

inline const char* const kArchitectures[] = {"sm_80", "sm_90a", "sm_100"};

inline std::unique_ptr<Module> load_file(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  auto m = Module::load(text.str());
  EXPECT_TRUE(m.ok()) << path << ": " << m.status().message();
  return m.ok() ? std::move(m.value()) : nullptr;
}

inline std::unique_ptr<Module> load_test_kernels(const std::string& arch, const std::string& file) {
  return load_file(std::string(DELTAD_TEST_PTX) + "/" + arch + "/" + file + ".ptx");
}

template <typename... T>
std::vector<std::byte> params(const T&... values) {
  std::vector<std::byte> bytes;
  auto add = [&](const auto& v) {
    const auto* p = reinterpret_cast<const std::byte*>(&v);
    bytes.resize((bytes.size() + alignof(decltype(v)) - 1) / sizeof(v) * sizeof(v));
    bytes.insert(bytes.end(), p, p + sizeof v);
  };
  (add(values), ...);
  return bytes;
}

// What differs between two machines that both obey the rules.
inline std::vector<Options> schedules() {
  return {{.order = Order::kFifo},
          {.order = Order::kLifo, .resident_blocks = 2},
          {.order = Order::kRandom, .arrival = Arrival::kRandom, .resident_blocks = 3},
          {.order = Order::kFifo, .arrival = Arrival::kEarly}};
}

// Takes each barrier, wait and bound away in turn: under some schedule `run` (options → "" or what
// is wrong) must notice.
template <typename Run>
void expect_mutations_caught(Module& module, const std::string& kernel, size_t at_least, Run run) {
  const auto all = module.mutations(kernel);
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_GE(all.value().size(), at_least) << kernel;
  for (const Mutation& m : all.value()) {
    bool caught = false;
    for (Options o : schedules()) {
      o.mutation = m;
      o.max_steps = 1'000'000;
      caught = caught || !run(o).empty();
    }
    EXPECT_TRUE(caught) << kernel << " " << module.target() << ", " << m.text;
  }
}

inline std::string message(const Outcome& o) { return o.fault ? o.fault->text() : "no fault"; }

}  // namespace deltad::ptx

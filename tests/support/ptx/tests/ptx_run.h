// Loads the PTX of a test kernel and runs it; params in order, laid out as in C.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "tests/support/ptx/mutation.h"
#include "tests/support/ptx/run.h"

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
  return load_file(DELTAD_TEST_PTX "/" + arch + "/" + file + ".ptx");
}

template <typename... T>
std::vector<std::byte> params(const T&... values) {
  std::vector<std::byte> bytes((sizeof(T) + ...) + (alignof(T) + ...));
  size_t end = 0;
  auto add = [&](const auto& v) {
    const size_t at =
        (end + alignof(decltype(v)) - 1) / alignof(decltype(v)) * alignof(decltype(v));
    std::memcpy(bytes.data() + at, &v, sizeof v);
    end = at + sizeof v;
  };
  (add(values), ...);
  bytes.resize(end);
  return bytes;
}

// Takes each barrier, wait and bound away in turn: `run` (options, outcome → "" or what is wrong)
// must notice, except where `redundant` (of the mutation's text) knows why not. Of those that
// `together` knows each may do for the others: without all that nobody noticed, it must show.
template <typename Run>
void expect_mutations_caught(Module& module, const std::string& kernel, size_t at_least, Run run,
                             bool (*redundant)(const std::string&) = nullptr,
                             bool (*together)(const std::string&) = nullptr) {
  const auto all = module.mutations(kernel);
  ASSERT_TRUE(all.ok()) << all.status().message();
  const Survivors s = survivors(all.value(), run);
  EXPECT_GE(s.tried, at_least) << kernel;
  std::vector<std::string> wrong = s.wrong;
  Mutation joint;
  for (const Mutation& m : s.unnoticed) {
    if (together == nullptr || !together(m.text)) {
      wrong.push_back(m.text);
    } else if (joint.text.empty()) {
      joint = m;
    } else {
      joint.also.push_back(m.instruction);
      joint.text += " and " + m.text;
    }
  }
  if (!joint.text.empty()) {
    for (const Mutation& m : survivors({joint}, run).unnoticed) wrong.push_back(m.text);
  }
  for (const std::string& m : wrong) {
    if (redundant != nullptr && redundant(m)) continue;
    ADD_FAILURE() << kernel << " " << module.target() << ", " << m;
  }
}

inline std::string message(const Outcome& o) { return o.fault ? o.fault->text() : "no fault"; }

}  // namespace deltad::ptx

// Reads reference data for the text tests.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace deltad {

inline std::string read_golden(const std::string& name) {
  std::ifstream file(std::string(DELTAD_GOLDEN) + "/" + name, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

// One JSON document a line.
inline std::vector<nlohmann::json> golden_lines(const std::string& name) {
  std::ifstream file(std::string(DELTAD_GOLDEN) + "/" + name);
  EXPECT_TRUE(file.is_open()) << name;
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

}  // namespace deltad

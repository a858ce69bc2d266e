// Reads reference data of tests/golden; large lists are kept gzipped (zless shows them).
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace deltad {

// The whole of a file of tests/golden, unpacked if it is gzipped.
inline std::string read_golden(const std::string& name) {
  const gzFile file = gzopen((DELTAD_GOLDEN "/" + name).c_str(), "rb");
  EXPECT_NE(file, nullptr) << name;
  if (file == nullptr) return "";
  std::string text;
  char part[65536];
  int got = 0;
  while ((got = gzread(file, part, sizeof part)) > 0) text.append(part, static_cast<size_t>(got));
  EXPECT_EQ(got, 0) << name << " is damaged";
  gzclose(file);
  return text;
}

// One JSON document a line. Json: which of nlohmann's two kinds.
template <typename Json = nlohmann::json>
std::vector<Json> golden_lines(const std::string& name) {
  std::istringstream text(read_golden(name));
  std::vector<Json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
  return lines;
}

}  // namespace deltad

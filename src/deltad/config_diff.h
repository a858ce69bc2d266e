// What may change of a config while the server runs, and what follows from a change. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "router/catalog.h"

namespace YAML {
class Node;
}

namespace deltad {

struct Config;

// Every key that a config file gives, as "server.drain_seconds", and its value as text.
using ConfigKeys = std::map<std::string, std::string>;
ConfigKeys keys_of(const YAML::Node& root);

struct ConfigDiff {
  std::vector<std::string> keys;  // that differ
  std::vector<VariantSource> added, replaced, limited, pinned;
  std::vector<std::string> removed, unpinned;
};

// kInvalidArgument names the first key that differs and cannot change while the server runs.
Result<ConfigDiff> diff(const Config& now, const Config& fresh);

}  // namespace deltad

// JSON: the variables of a render from nlohmann's values, and the text of tojson as Python's
// json.dumps writes it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "text/jinja/render.h"

namespace deltad::jinja {

Value from_json(const nlohmann::ordered_json& json);

struct JsonStyle {
  bool ascii = false;
  std::optional<std::string> indent;
  std::string item_separator = ", ", key_separator = ": ";
  bool sort_keys = false;
};

std::string to_json(Render& render, const Value& v, const JsonStyle& style);

}  // namespace deltad::jinja
